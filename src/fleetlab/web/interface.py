"""The interface behind the page: what can be chosen, operations, answers at once, and logs that are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from fleetlab.core import FleetlabError
from fleetlab.web import answers
from fleetlab.web.choices import BY_ESTIMATE, RULES
from fleetlab.web.desk import Desk
from fleetlab.web.operations import DONE, GOING, Operation
from fleetlab.web.pool import Withdrawn
from fleetlab.web.scenario import Link, Scenario
from fleetlab.web.uploads import Upload

ASKED = 64_000  # bytes of a question
SENDING = 600.0  # s for a file to come in
AT_ONCE = 0.03  # s in which an answer that is there already is ready


async def about(desk: Desk, _: Request) -> Response:
    """All that can be chosen."""
    from fleetlab.traces import READERS

    found: answers.About = {
        "version": version("fleetlab"),
        "traces": desk.book.listed(),
        "rules": {rule: [{"name": n, "meaning": m} for n, m in words.items()] for rule, words in RULES.items()},
        "by_estimate": list(BY_ESTIMATE),
        "formats": [
            {"name": f.name, "title": f.title, "expects": f.expects, "options": sorted(f.options)}
            for f in READERS.values()
        ],
        "limits": {"upload_bytes": desk.uploads.most, "seconds": desk.limit, "workers": desk.workers},
    }
    return JSONResponse(found)


# --- operations -----------------------------------------------------------------------------------------------------


def _visitor(request: Request) -> str:
    """Who asks: the name that a page gives itself, or where it comes from."""
    named = request.headers.get("fleetlab-visitor", "")[:64]
    return named or (request.client.host if request.client else "somebody")


async def _asked(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":
        raise HTTPException(400, "a question is JSON, and its content-type says so: application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > ASKED:
            raise HTTPException(413, f"a question has at most {ASKED:,} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the question is not json") from None
    if not isinstance(found, dict):
        raise HTTPException(400, "the question is not an object")
    return found


async def begin(desk: Desk, request: Request) -> Response:
    """Start an operation, or answer it at once."""
    asked = await _asked(request)
    kind, do = _todo(desk, asked)
    if (before := desk.operations.get(str(asked.get("instead", "")))) is not None:
        desk.operations.cancel(before, overtaken=True)
    operation = desk.operations.start(kind, _visitor(request), do)
    # What is there already is answered at once.
    while operation.status == GOING and await operation.wait(AT_ONCE):
        pass
    return JSONResponse(operation.told(), 200 if operation.status == DONE else 202)


def _todo(desk: Desk, asked: dict[str, Any]) -> tuple[str, Callable[[Operation], Awaitable[Any]]]:
    """What is asked for, checked before anything begins."""
    kind = asked.get("kind")
    if kind == "run":
        link = Link.of(_text(asked, "link"))
        desk.book.where(link.now.trace)
        return kind, lambda operation: desk.dragged(link, operation)
    if kind in ("open", "describe"):
        trace = Scenario.of([("trace", _text(asked, "trace"))]).trace
        desk.book.where(trace)
        do = desk.opened if kind == "open" else desk.described
        return kind, lambda operation: do(trace, operation)
    if kind == "read":
        return kind, _to_read(desk, asked)
    raise HTTPException(400, "an operation is one of open, describe, run, read")


def _to_read(desk: Desk, asked: dict[str, Any]) -> Callable[[Operation], Awaitable[Any]]:
    from fleetlab.traces import READERS

    upload = desk.uploads.get(_text(asked, "upload"))
    format, zone, mapped = _text(asked, "format"), asked.get("zone"), asked.get("map")
    if format not in READERS:
        msg = f"no trace format by that name: `{format[:60]}`"
        raise FleetlabError(msg, hint=f"there are {', '.join(READERS)}")
    plain = mapped is None or (
        isinstance(mapped, dict)
        and len(mapped) <= 50
        and all(isinstance(v, str) and len(v) < 500 for v in mapped.values())
    )
    if not plain or not (zone is None or isinstance(zone, str)):
        raise HTTPException(400, "`map` is an object of texts, `zone` is a text")
    told = {"upload": upload.name, "format": format, "zone": zone, "map": mapped}
    return lambda operation: desk.read(told, operation)


def _text(asked: dict[str, Any], name: str) -> str:
    if not isinstance(found := asked.get(name), str):
        raise HTTPException(400, f"the question needs a text: `{name}`")
    return found


def _operation(desk: Desk, request: Request) -> Operation:
    operation = desk.operations.get(request.path_params["operation"])
    if operation is None:
        raise HTTPException(404, "no such operation")
    return operation


async def look(desk: Desk, request: Request) -> Response:
    """How far is an operation?"""
    return JSONResponse(_operation(desk, request).told())


async def stop(desk: Desk, request: Request) -> Response:
    """End an operation."""
    operation = _operation(desk, request)
    desk.operations.cancel(operation)
    while operation.status == GOING:
        await operation.wait(1.0)
    return JSONResponse(operation.told())


async def events(desk: Desk, request: Request) -> Response:
    """How far an operation is, as it goes: server-sent events."""
    operation = _operation(desk, request)

    async def stream() -> AsyncIterator[str]:
        async for told in desk.operations.events(operation):
            yield ": still there\n\n" if told is None else f"data: {json.dumps(told)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


# --- at once -----------------------------------------------------------------------------------------------------


async def _now(desk: Desk, request: Request, do: Callable[[Link, Operation], Awaitable[Any]]) -> tuple[Link, Any]:
    """Wait for it; whoever goes away in the meantime no longer wants it."""
    link = Link.of(request.url.query)
    operation = Operation("run", _visitor(request))
    desk.book.where(link.now.trace)
    work = asyncio.ensure_future(do(link, operation))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return link, await work
    except Withdrawn:
        raise HTTPException(503, "the page is being closed") from None
    finally:
        work.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)


async def run(desk: Desk, request: Request) -> Response:
    """A scenario beside the baseline."""
    return JSONResponse((await _now(desk, request, desk.run))[1])


async def result(desk: Desk, request: Request) -> Response:
    """Its result, as `--json` prints it."""
    link, found = await _now(desk, request, lambda link, operation: desk.outcome(link.now, operation))
    return JSONResponse(found["result"] | {"link": link.query()}, headers=_as_file("fleetlab.json"))


async def report(desk: Desk, request: Request) -> Response:
    """Baseline, scenario and kept runs as one page."""
    _, html = await _now(desk, request, desk.report)
    # The report brings a policy of its own, stricter than that of the page, which would forbid its own script.
    policy = {"Content-Security-Policy": "sandbox allow-scripts allow-downloads; frame-ancestors 'none'"}
    return HTMLResponse(html, headers=policy | _as_file("fleetlab-report.html"))


def _as_file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


# --- uploads -----------------------------------------------------------------------------------------------------


async def upload(desk: Desk, request: Request) -> Response:
    """Take in a file."""
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > desk.uploads.most:
        desk.uploads.refuse_large(int(length))
    asked = request.query_params.get("upload")
    upload: Upload = desk.uploads.get(asked) if asked else desk.uploads.new()
    try:
        async with asyncio.timeout(SENDING):
            await desk.uploads.take(request.stream(), request.query_params.get("name", "")[:200], upload)
    except (FleetlabError, TimeoutError, ClientDisconnect) as e:
        desk.uploads.remove(upload.name)
        if isinstance(e, TimeoutError):
            raise HTTPException(408, f"the file did not come within {SENDING:g} s") from None
        raise
    found: answers.Uploaded = {"upload": upload.name, "files": len(upload.files), "bytes": upload.bytes}
    return JSONResponse(found, 201)


async def remove(desk: Desk, request: Request) -> Response:
    """Forget an upload."""
    name = request.path_params["upload"]
    desk.uploads.remove(name)
    found: answers.Removed = {"upload": name}
    return JSONResponse(found)
