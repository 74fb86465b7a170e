"""The web application: routes, errors, and the files of the page."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fleetlab.core import FleetlabError
from fleetlab.web import handlers, timeline_handlers
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.guard import Guard, error_response
from fleetlab.web.openapi import description
from fleetlab.web.operations import INTERNAL

STATIC = {
    "page.js": "text/javascript",
    "report.js": "text/javascript",
    "timeline.js": "text/javascript",
    "page.css": "text/css",
}


def routes(backend: WhatIfBackend, guard: Guard) -> list[Route]:
    """Return the routes of the page and of its HTTP interface."""
    return [
        Route("/", _page),
        Route("/static/{name}", _static),
        Route("/token", guard.enter, methods=["POST"]),
        Route("/api/openapi.json", _openapi),
        Route("/api/options", _with(backend, handlers.options)),
        Route("/api/operations", _with(backend, handlers.start_operation), methods=["POST"]),
        Route("/api/operations/{operation}", _with(backend, handlers.get_operation)),
        Route("/api/operations/{operation}", _with(backend, handlers.cancel_operation), methods=["DELETE"]),
        Route("/api/operations/{operation}/events", _with(backend, handlers.operation_events)),
        Route("/api/uploads", _with(backend, handlers.upload_file), methods=["POST"]),
        Route("/api/uploads/{upload}", _with(backend, handlers.remove_upload), methods=["DELETE"]),
        Route("/api/timeline/{side}/about", _with(backend, timeline_handlers.get_about)),
        Route("/api/timeline/{side}/panels", _with(backend, timeline_handlers.get_panels)),
        Route(
            "/api/timeline/{side}/tile/{level}/{zoom}/{column}/{block}/{planes}",
            _with(backend, timeline_handlers.get_tile),
        ),
        Route("/api/timeline/{side}/jobs/{first}/{end}/{time}", _with(backend, timeline_handlers.get_jobs)),
        Route("/api/run", _with(backend, handlers.run)),
        Route("/api/result.json", _with(backend, handlers.result)),
        Route("/api/report.html", _with(backend, handlers.report)),
    ]


def app(backend: WhatIfBackend, guard: Guard) -> ASGIApp:
    """Return the application behind its guard."""
    on_error: Any = {FleetlabError: _user_error, HTTPException: _http_error, Exception: _internal_error}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await backend.open()
        try:
            yield
        finally:
            await backend.close()

    return guard.before(Starlette(routes=routes(backend, guard), exception_handlers=on_error, lifespan=lifespan))


Handler = Callable[[WhatIfBackend, Request], Awaitable[Response]]


def _with(backend: WhatIfBackend, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await handler(backend, request)

    return endpoint


# --- errors ------------------------------------------------------------------------------------------------------


async def _user_error(_: Request, error: FleetlabError) -> Response:
    return error_response(getattr(error, "status", 400), str(error), error.hint)


async def _http_error(_: Request, error: HTTPException) -> Response:
    hint = "/api/openapi.json describes the interface" if error.status_code in (404, 405) else None
    response = error_response(error.status_code, str(error.detail), hint)
    response.headers.update(error.headers or {})
    return response


async def _internal_error(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return error_response(500, INTERNAL["error"], INTERNAL["hint"])


# --- the page ----------------------------------------------------------------------------------------------------


async def _page(_: Request) -> Response:
    return HTMLResponse(_file("page.html"), headers={"Cache-Control": "no-cache"})


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return PlainTextResponse(_file(name), media_type=STATIC[name], headers={"Cache-Control": "no-cache"})


@cache
def _file(name: str) -> str:
    from fleetlab.report import timelines
    from fleetlab.report.page import script, style

    if name == "report.js":
        return str(script())
    own = files("fleetlab.web").joinpath(name).read_text("utf-8")
    if name == "timeline.js":
        return f"{timelines.script()}\n{own}"
    return f"{style()}\n{timelines.style()}\n{own}" if name == "page.css" else own


async def _openapi(_: Request) -> Response:
    return JSONResponse(description(version("fleetlab")))
