"""Handlers of the HTTP interface: options, operations, direct answers, uploads, and the timeline."""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from fleetlab.core import FleetlabError
from fleetlab.core.catalog import BACKFILLS, ORDERS
from fleetlab.core.durations import between_text
from fleetlab.core.names import lookup
from fleetlab.web import messages
from fleetlab.web.backend import WhatIfBackend, Work
from fleetlab.web.link import Link, check_job, page_options
from fleetlab.web.operations import DONE, RUNNING, Operation
from fleetlab.web.pool import RequestCancelled
from fleetlab.web.traces import check_name
from fleetlab.web.uploads import Upload

MOST_BYTES = 64_000  # of a request with JSON
UPLOAD_TIME = 600.0  # s for a file to arrive
GZIP = 31  # zlib's word for gzip
AT_ONCE = 0.03  # s in which a cached answer is ready


async def options(backend: WhatIfBackend, _: Request) -> Response:
    """Everything that can be chosen."""
    from fleetlab.traces import readers

    message: messages.PageOptions = {
        "version": version("fleetlab"),
        "traces": backend.traces.choices(),
        "options": page_options(),
        "uses_estimate": [*ORDERS.where("needs_estimate"), *BACKFILLS.where("reserves")],
        "formats": [
            {"name": f.name, "title": f.title, "expects": f.expects, "options": sorted(f.options)}
            for f in readers().values()
        ],
        "compiling": backend.compiling,
        "limits": {"upload_bytes": backend.uploads.most, "seconds": backend.limit, "workers": backend.workers},
    }
    return JSONResponse(message)


# --- operations -----------------------------------------------------------------------------------------------------


def _visitor(request: Request) -> str:
    """Return the name that a client gives itself, or its address."""
    named = request.headers.get("fleetlab-visitor", "")[:64]
    return named or (request.client.host if request.client else "unknown")


async def _json_body(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise HTTPException(400, "a request is JSON, with the content-type application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise HTTPException(413, f"a request has at most {MOST_BYTES:,} bytes")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the request is not JSON") from None
    if not isinstance(values, dict):
        raise HTTPException(400, "the request is not an object")
    return values


async def start_operation(backend: WhatIfBackend, request: Request) -> Response:
    """Start an operation; 200 where its result is known already."""
    values = await _json_body(request)
    work = _operation_of(backend, values)
    if (before := backend.operations.get(str(values.get("replaces", "")))) is not None:
        backend.operations.cancel(before, replaced=True)
    operation = backend.start(work, _visitor(request))
    while operation.status == RUNNING and await operation.wait(AT_ONCE):
        pass
    return JSONResponse(operation.message(), 200 if operation.status == DONE else 202)


def _operation_of(backend: WhatIfBackend, values: dict[str, Any]) -> Work:
    """Return what to do, checked before anything starts."""
    kind = values.get("kind")
    if kind in ("open", "describe"):
        trace = check_name(_string(values, "trace"))
        backend.traces.locate(trace)
        do = backend.open_trace if kind == "open" else backend.describe_trace
        return Work(kind, lambda operation: do(trace, operation), trace, trace)
    if kind == "preview":
        upload = backend.uploads.get(_string(values, "upload"))
        return Work(kind, lambda operation: backend.preview(upload.name, operation))
    if kind == "read":
        return Work(kind, _read_operation(backend, values))
    if kind in ("run", "refine", "advise", "explain"):
        return _scenario_operation(backend, kind, values)
    raise HTTPException(400, "an operation is one of open, describe, run, refine, advise, explain, preview, read")


def _scenario_operation(backend: WhatIfBackend, kind: str, values: dict[str, Any]) -> Work:
    """Return what to do with the scenario of an address."""
    link = Link.of(_string(values, "link"))
    trace = str(link.now.data.name)
    backend.traces.locate(trace)
    if kind in ("run", "refine"):
        about = f"{link.now.policy.order} {link.now.policy.backfill}"
        return Work(kind, partial(backend.run if kind == "run" else backend.refine, link), f"{trace} {about}", trace)
    if kind == "advise":
        study = _string(values, "study")
        if study not in messages.STUDIES:
            raise HTTPException(400, f"a study is one of {', '.join(messages.STUDIES)}")
        goal = _string(values, "goal")[:200] if values.get("goal") is not None else messages.GOAL
        return Work(kind, lambda operation: backend.advise(link, study, goal, operation), f"{trace} {study}", trace)
    what_if = values.get("what_if", False)
    job = check_job(_string(values, "job")) if values.get("job") is not None else ""
    if not isinstance(what_if, bool):
        raise HTTPException(400, "`what_if` is true or false")
    do = partial(backend.explain, link, job, what_if=what_if)
    return Work(kind, do, f"{trace} {what_if}", trace)


def _read_operation(backend: WhatIfBackend, values: dict[str, Any]) -> Callable[[Operation], Awaitable[Any]]:
    from fleetlab.traces import readers

    upload = backend.uploads.get(_string(values, "upload"))
    format, zone, columns = _string(values, "format"), values.get("zone"), values.get("map")
    lookup("trace format", format, readers(), error=FleetlabError)
    valid = columns is None or (
        isinstance(columns, dict)
        and len(columns) <= 50
        and all(isinstance(v, str) and len(v) < 500 for v in columns.values())
    )
    if not valid or not (zone is None or isinstance(zone, str)):
        raise HTTPException(400, "`map` is an object of strings, `zone` is a string")
    settings = {"upload": upload.name, "format": format, "zone": zone, "map": columns}
    return lambda operation: backend.read(settings, operation)


def _string(values: dict[str, Any], name: str) -> str:
    if not isinstance(value := values.get(name), str):
        raise HTTPException(400, f"the request needs a string: `{name}`")
    return value


def _operation(backend: WhatIfBackend, request: Request) -> Operation:
    operation = backend.operations.get(request.path_params["operation"])
    if operation is None:
        raise HTTPException(404, "no such operation")
    return operation


async def get_operation(backend: WhatIfBackend, request: Request) -> Response:
    """Get the state of an operation."""
    return JSONResponse(_operation(backend, request).message())


async def cancel_operation(backend: WhatIfBackend, request: Request) -> Response:
    """Cancel an operation."""
    operation = _operation(backend, request)
    backend.operations.cancel(operation)
    while operation.status == RUNNING:
        await operation.wait(1.0)
    return JSONResponse(operation.message())


async def operation_events(backend: WhatIfBackend, request: Request) -> Response:
    """Stream the state of an operation."""
    operation = _operation(backend, request)

    async def stream() -> AsyncIterator[bytes]:
        async for message in backend.operations.events(operation):
            yield b": alive\n\n" if message is None else f"data: {json.dumps(message)}\n\n".encode()

    if "gzip" not in request.headers.get("accept-encoding", ""):
        return StreamingResponse(stream(), media_type="text/event-stream")
    headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return StreamingResponse(_compressed(stream()), media_type="text/event-stream", headers=headers)


async def _compressed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Compress a stream so that each part can be read when it has arrived; the last one has all figures."""
    compressor = zlib.compressobj(wbits=GZIP)
    async for part in parts:
        yield compressor.compress(part) + compressor.flush(zlib.Z_SYNC_FLUSH)
    yield compressor.flush()


# --- direct answers ----------------------------------------------------------------------------------------------


async def wait_for(
    backend: WhatIfBackend, request: Request, do: Callable[[Link, Operation], Awaitable[Any]]
) -> tuple[Link, Any]:
    """Wait for an answer; cancel the work if the client disconnects."""
    link = Link.of(request.url.query)
    operation = Operation("run", _visitor(request))
    backend.traces.locate(str(link.now.data.name))
    work = asyncio.ensure_future(do(link, operation))
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return link, await work
    except RequestCancelled:
        raise HTTPException(503, "the server is shutting down") from None
    finally:
        work.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)


async def run(backend: WhatIfBackend, request: Request) -> Response:
    """Compare a scenario with the baseline."""
    return JSONResponse((await wait_for(backend, request, backend.run))[1])


async def result(backend: WhatIfBackend, request: Request) -> Response:
    """Get the result of a scenario, as `fleetlab simulate --json` prints it."""
    link, outcome = await wait_for(
        backend, request, lambda link, operation: backend.outcome(link.now, operation, whole=True)
    )
    saved = outcome["result"] | {"link": link.query()}
    if link.between is not None:
        which = f"the jobs submitted {between_text(*link.between, *outcome['clock'])}"
        saved["notes"] = [f"numbers and tables are of the whole run: /api/run has those of {which}", *saved["notes"]]
    return JSONResponse(saved, headers=_as_file("fleetlab.json"))


async def report(backend: WhatIfBackend, request: Request) -> Response:
    """Get baseline, scenario and pinned runs as one HTML file."""
    _, html = await wait_for(backend, request, backend.report)
    # The report has a policy of its own, stricter than that of the page, which would forbid its script.
    policy = {"Content-Security-Policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"}
    return HTMLResponse(html, headers=policy | _as_file("fleetlab-report.html"))


def _as_file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


# --- uploads -----------------------------------------------------------------------------------------------------


async def upload_file(backend: WhatIfBackend, request: Request) -> Response:
    """Upload a file of a log."""
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > backend.uploads.most:
        backend.uploads.refuse_large(int(length))
    name = request.query_params.get("upload")
    upload: Upload = backend.uploads.get(name) if name else backend.uploads.new()
    try:
        async with asyncio.timeout(UPLOAD_TIME):
            await backend.uploads.store(request.stream(), request.query_params.get("name", "")[:200], upload)
    except (FleetlabError, TimeoutError, ClientDisconnect) as e:
        backend.uploads.remove(upload.name)
        if isinstance(e, TimeoutError):
            raise HTTPException(408, f"the file did not arrive within {UPLOAD_TIME:g} s") from None
        raise
    message: messages.UploadMessage = {"upload": upload.name, "files": len(upload.files), "bytes": upload.bytes}
    return JSONResponse(message, 201)


async def remove_upload(backend: WhatIfBackend, request: Request) -> Response:
    """Delete an upload."""
    name = request.path_params["upload"]
    backend.uploads.remove(name)
    message: messages.UploadRemoved = {"upload": name}
    return JSONResponse(message)


# --- timeline ----------------------------------------------------------------------------------------------------

SIDES = ("now", "base")
LONGEST_PLANES = 80  # characters of the names of planes


async def _ask(backend: WhatIfBackend, request: Request, ask: dict[str, Any]) -> tuple[Link, dict[str, Any]]:
    side = request.path_params["side"]
    if side not in SIDES:
        raise HTTPException(404, "a timeline is that of `now` or of `base`")

    async def do(link: Link, operation: Operation) -> dict[str, Any]:
        return await backend.timeline(link.now if side == "now" else link.base, operation, ask)

    return await wait_for(backend, request, do)


async def get_about(backend: WhatIfBackend, request: Request) -> Response:
    """Get the rows and colors of a timeline."""
    link, answer = await _ask(backend, request, {"what": "about"})
    label = "scenario" if request.path_params["side"] == "now" and link.base != link.now else "baseline"
    return JSONResponse({"about": answer["about"] | {"label": label}, "compared": link.base != link.now})


async def get_panels(backend: WhatIfBackend, request: Request) -> Response:
    """Get waiting jobs by reason over time."""
    return JSONResponse((await _ask(backend, request, {"what": "panels"}))[1])


async def get_tile(backend: WhatIfBackend, request: Request) -> Response:
    """Get planes of a tile."""
    place = [_whole(request, name) for name in ("level", "zoom", "column", "block")]
    planes = request.path_params["planes"][:LONGEST_PLANES].split(",")
    _, answer = await _ask(backend, request, {"what": "tile", "place": place, "planes": planes})
    return JSONResponse(answer)


async def get_jobs(backend: WhatIfBackend, request: Request) -> Response:
    """Get the jobs that run at a point."""
    try:
        time = float(request.path_params["time"])
    except ValueError:
        raise HTTPException(400, "a time is a number of seconds") from None
    if not math.isfinite(time):
        raise HTTPException(400, "a time is a number of seconds")
    ask = {"what": "at", "first": _whole(request, "first"), "end": _whole(request, "end"), "time": time}
    return JSONResponse((await _ask(backend, request, ask))[1])


def _whole(request: Request, name: str) -> int:
    text = request.path_params[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise HTTPException(400, f"`{name}` is a whole number")
    return int(text)
