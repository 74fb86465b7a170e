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
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from fleetlab.core import FleetlabError
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.guard import Guard, error_response
from fleetlab.web.link import VIEWS, Link, change_of
from fleetlab.web.openapi import Handler, description, endpoints
from fleetlab.web.operations import INTERNAL
from fleetlab.web.traces import trace_title

SMALL = 1000  # bytes of a body that is not worth compressing
LEVEL = 5  # of compression: 9 takes three times as long for a hundredth less
VIEW_TITLES = {"what-if": "What if", "advice": "What to do", "job": "One job", "trace": "What happened"}
STATIC = {
    **dict.fromkeys(("page.js", "upload.js", "advice.js", "one_job.js", "report.js", "timeline.js"), "text/javascript"),
    "page.css": "text/css",
}


def routes(backend: WhatIfBackend, guard: Guard) -> list[Route]:
    """Return the routes of the page and of its HTTP interface."""
    return [
        Route("/", _page),
        Route("/static/{name}", _static),
        Route("/token", guard.enter, methods=["POST"]),
        Route("/api/openapi.json", _openapi),
        *(
            Route(path, _with(backend, endpoint.handler), methods=[method.upper()])
            for path, methods in endpoints().items()
            for method, endpoint in methods.items()
            if endpoint.handler is not None
        ),
    ]


def app(backend: WhatIfBackend, guard: Guard) -> ASGIApp:
    """Return the application behind its guard."""
    on_error: Any = {
        FleetlabError: _user_error,
        HTTPException: _http_error,
        ClientDisconnect: _client_gone,
        Exception: _internal_error,
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await backend.open()
        try:
            yield
        finally:
            await backend.close()

    smaller = [Middleware(GZipMiddleware, minimum_size=SMALL, compresslevel=LEVEL)]
    every = routes(backend, guard)
    return guard.before(Starlette(routes=every, middleware=smaller, exception_handlers=on_error, lifespan=lifespan))


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


async def _client_gone(_: Request, __: ClientDisconnect) -> Response:
    return error_response(408, "the request did not arrive", None)  # nobody receives it; no failure of ours


async def _internal_error(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return error_response(500, INTERNAL["error"], INTERNAL["hint"])


# --- the page ----------------------------------------------------------------------------------------------------


async def _page(request: Request) -> Response:
    page = _file("page.html").replace("<!-- preview -->", preview(request.url.query))
    return HTMLResponse(page, headers={"Cache-Control": "no-cache"})


def preview(query: str) -> str:
    """Return title and description of an address, for the tab and for those who preview a link without a script.

    >>> preview("trace=builtin:2000:0&load=1.3").splitlines()[0]
    '<title>What if load 1.3 · PAI (synthetic), 2,000 jobs · fleetlab</title>'
    """
    from html import escape

    try:
        link = Link.of(query)
    except FleetlabError:
        link = Link.of("")
    what = VIEW_TITLES[link.view]
    if link.view == VIEWS[0] and (change := change_of(link)):
        what += f" {change[0].lower()}{change[1:]}"
    title = f"{what} · {trace_title(str(link.now.data.name))} · fleetlab"
    about = (
        "A GPU cluster simulated under other rules, load or nodes, beside a baseline: waits, JCT, GPU allocation and "
        f"why jobs wait, with 95 % intervals. Here: {link.now.title}; baseline: {link.base.title}."
    )
    names = {"og:type": "website", "og:site_name": "fleetlab", "og:title": title, "og:description": about}
    tags = [f'<meta property="{name}" content="{escape(text)}">' for name, text in names.items()]
    return "\n".join([f"<title>{escape(title)}</title>", f'<meta name="description" content="{escape(about)}">', *tags])


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    return PlainTextResponse(_file(name), media_type=STATIC[name], headers={"Cache-Control": "no-cache"})


@cache
def _file(name: str) -> str:
    from fleetlab.report.report import script, style, timeline_script, timeline_style

    if name == "report.js":
        return str(script())
    own = files("fleetlab.web").joinpath(name).read_text("utf-8")
    if name == "timeline.js":
        return f"{timeline_script()}\n{own}"
    return f"{style()}\n{timeline_style()}\n{own}" if name == "page.css" else own


async def _openapi(_: Request) -> Response:
    return JSONResponse(description(version("fleetlab")))
