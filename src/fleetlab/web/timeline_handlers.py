"""Handlers of the timeline: what its rows are, its tiles, its queue, and which jobs run at a point."""

from __future__ import annotations

import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fleetlab.web import handlers
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.link import Link
from fleetlab.web.operations import Operation

SIDES = ("now", "base")
LONGEST = 80  # characters of the names of planes


async def _ask(backend: WhatIfBackend, request: Request, ask: dict[str, Any]) -> tuple[Link, dict[str, Any]]:
    side = request.path_params["side"]
    if side not in SIDES:
        raise HTTPException(404, "a timeline is that of `now` or of `base`")

    async def do(link: Link, operation: Operation) -> dict[str, Any]:
        return await backend.timeline(link.now if side == "now" else link.base, operation, ask)

    return await handlers.wait_for(backend, request, do)


async def get_about(backend: WhatIfBackend, request: Request) -> Response:
    """Return the rows, colors and arrivals of a run."""
    link, answer = await _ask(backend, request, {"what": "about"})
    label = "scenario" if request.path_params["side"] == "now" and link.base != link.now else "baseline"
    return JSONResponse({"about": answer["about"] | {"label": label}, "compared": link.base != link.now})


async def get_panels(backend: WhatIfBackend, request: Request) -> Response:
    """Return the waiting jobs of a run by reason, over time."""
    return JSONResponse((await _ask(backend, request, {"what": "panels"}))[1])


async def get_tile(backend: WhatIfBackend, request: Request) -> Response:
    """Return planes of one tile."""
    place = [_whole(request, name) for name in ("level", "zoom", "column", "block")]
    planes = request.path_params["planes"][:LONGEST].split(",")
    _, answer = await _ask(backend, request, {"what": "tile", "place": place, "planes": planes})
    return JSONResponse(answer)


async def get_jobs(backend: WhatIfBackend, request: Request) -> Response:
    """Return the jobs that run on some GPUs at a time."""
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
