"""What is answered at each address."""

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
from fleetlab.web import interface
from fleetlab.web.desk import Desk
from fleetlab.web.guard import Guard, refusal
from fleetlab.web.openapi import description

STATIC = {"page.js": "text/javascript", "report.js": "text/javascript", "page.css": "text/css"}


def routes(desk: Desk, guard: Guard) -> list[Route]:
    """The page and its interface, by address."""
    return [
        Route("/", _page),
        Route("/static/{name}", _static),
        Route("/token", guard.enter, methods=["POST"]),
        Route("/api/openapi.json", _openapi),
        Route("/api/about", _with(desk, interface.about)),
        Route("/api/operations", _with(desk, interface.begin), methods=["POST"]),
        Route("/api/operations/{operation}", _with(desk, interface.look)),
        Route("/api/operations/{operation}", _with(desk, interface.stop), methods=["DELETE"]),
        Route("/api/operations/{operation}/events", _with(desk, interface.events)),
        Route("/api/uploads", _with(desk, interface.upload), methods=["POST"]),
        Route("/api/uploads/{upload}", _with(desk, interface.remove), methods=["DELETE"]),
        Route("/api/run", _with(desk, interface.run)),
        Route("/api/result.json", _with(desk, interface.result)),
        Route("/api/report.html", _with(desk, interface.report)),
    ]


def app(desk: Desk, guard: Guard) -> ASGIApp:
    """All of it, with the guard before it."""
    handlers: Any = {FleetlabError: _mended, HTTPException: _http, Exception: _broken}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await desk.open()
        try:
            yield
        finally:
            await desk.close()

    return guard.before(Starlette(routes=routes(desk, guard), exception_handlers=handlers, lifespan=lifespan))


Answers = Callable[[Desk, Request], Awaitable[Response]]


def _with(desk: Desk, answers: Answers) -> Callable[[Request], Awaitable[Response]]:
    async def asked(request: Request) -> Response:
        return await answers(desk, request)

    return asked


# --- errors ------------------------------------------------------------------------------------------------------


async def _mended(_: Request, error: FleetlabError) -> Response:
    return refusal(getattr(error, "status", 400), str(error), error.hint)


async def _http(_: Request, error: HTTPException) -> Response:
    hint = "/api/openapi.json says what there is" if error.status_code in (404, 405) else None
    found = refusal(error.status_code, str(error.detail).lower(), hint)
    found.headers.update(error.headers or {})
    return found


async def _broken(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return refusal(500, "something broke here", "the terminal of the page says more")


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
    from fleetlab.report.page import script, style

    if name == "report.js":
        return str(script())
    own = files("fleetlab.web").joinpath(name).read_text("utf-8")
    return f"{style()}\n{own}" if name == "page.css" else own


async def _openapi(_: Request) -> Response:
    return JSONResponse(description(version("fleetlab")))
