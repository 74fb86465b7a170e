"""The endpoints of the HTTP interface, each with its handler, and their OpenAPI description, made from the messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from starlette.requests import Request
from starlette.responses import Response

from fleetlab.web import handlers, messages
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.link import LONGEST_JOB, VERSION, VIEWS, page_options
from fleetlab.web.traces import DEFAULT_TRACE, SIZES

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
JSON, HTML, OCTETS, EVENTS = "application/json", "text/html", "application/octet-stream", "text/event-stream"


def schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return the JSON Schema of a type; those with a name are put into `named` and referred to.

    >>> schema(list[int | None], {})
    {'type': 'array', 'items': {'anyOf': [{'type': 'integer'}, {'type': 'null'}]}}
    """
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if kind is Any:
        return {}
    if is_typeddict(kind):
        if kind.__name__ not in named:
            named[kind.__name__] = {}  # first the name: it may refer to itself
            named[kind.__name__] = _object(kind, named)
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (NotRequired, Required):
        return schema(inside[0], named)
    if origin is Literal:
        return {"type": "string", "enum": list(inside)}
    if origin is list:
        return {"type": "array", "items": schema(inside[0], named)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema(inside[1], named)}
    assert origin in (Union, UnionType), kind
    return {"anyOf": [schema(part, named) for part in inside]}


def _object(kind: Any, named: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": kind.__doc__,
        "properties": {name: schema(hint, named) for name, hint in hints.items()},
        "required": sorted(name for name, hint in hints.items() if get_origin(hint) is not NotRequired),
        "additionalProperties": False,
    }


def description(version: str) -> dict[str, Any]:
    """Return the description, by OpenAPI 3.1."""
    named: dict[str, Any] = {}
    paths = _paths(named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fleetlab web",
            "version": version,
            "description": "What-if scenarios on a GPU cluster. A scenario is the query string of the page, such as "
            "`v=1&trace=builtin:20000:0&order=sjf&load=1.2`: the options of `fleetlab simulate`, and the baseline in "
            "`base`. Errors are `{error, hint}`. Long work is an operation: start it, then follow its events. Give "
            "every client a name of its own in the header `Fleetlab-Visitor`: the queue serves them round-robin.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(named.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


Handler = Callable[[WhatIfBackend, Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """An answer: its content (a message, or a media type), and the errors and parameters of its own.

    What it is, is said by its handler, or by `summary` where the page itself gives it.
    """

    handler: Handler | None = None
    content: Any = HTML
    errors: tuple[int, ...] = ()
    code: int = 200
    parameters: Sequence[dict[str, Any]] = ()
    body: Any = None
    summary: str = ""


def endpoints() -> dict[str, dict[str, Endpoint]]:
    """Return every endpoint by path and method."""
    operation = [_parameter("operation", "The name of an operation.", "path")]
    upload = [_parameter("upload", "The name of an upload.", "path")]
    visitor = [_parameter("Fleetlab-Visitor", "A name that the client gives itself.", "header")]
    file = [_parameter("upload", "The upload that this file belongs to."), _parameter("name", "The name of the file.")]
    scenario = [*_scenario_query(), *visitor]
    state, busy, new = messages.OperationMessage, (404, 429, 503, 504), (404, 413, 429)
    name, static = [_parameter("name", "The file.", "path")], "Its style and scripts."
    return {
        "/": {"get": Endpoint(summary="The page.")},
        "/static/{name}": {"get": Endpoint(None, "text/plain", (404,), parameters=name, summary=static)},
        "/token": {"post": Endpoint(None, HTML, (413,), 303, summary="Sign in with a token, as a form.")},
        "/api/openapi.json": {"get": Endpoint(None, JSON, summary="This description.")},
        "/api/options": {"get": Endpoint(handlers.options, messages.PageOptions)},
        "/api/operations": {
            "post": Endpoint(handlers.start_operation, state, new, 202, visitor, messages.OperationRequest)
        },
        "/api/operations/{operation}": {
            "get": Endpoint(handlers.get_operation, state, (404,), parameters=operation),
            "delete": Endpoint(handlers.cancel_operation, state, (404,), parameters=operation),
        },
        "/api/operations/{operation}/events": {
            "get": Endpoint(handlers.operation_events, EVENTS, (404,), parameters=operation)
        },
        "/api/uploads": {
            "post": Endpoint(handlers.upload_file, messages.UploadMessage, (404, 408, 413), 201, file, OCTETS)
        },
        "/api/uploads/{upload}": {
            "delete": Endpoint(handlers.remove_upload, messages.UploadRemoved, (404,), parameters=upload)
        },
        **_timeline(scenario),
        "/api/run": {"get": Endpoint(handlers.run, messages.RunComparison, busy, parameters=scenario)},
        "/api/result.json": {"get": Endpoint(handlers.result, JSON, busy, parameters=scenario)},
        "/api/report.html": {"get": Endpoint(handlers.report, HTML, busy, parameters=scenario)},
    }


def _timeline(scenario: Sequence[dict[str, Any]]) -> dict[str, dict[str, Endpoint]]:
    """Return the endpoints of the timeline."""

    def number(name: str, about: str) -> dict[str, Any]:
        return _parameter(name, about, "path", type="integer", minimum=0, maximum=999_999_999)

    side = _parameter("side", "The scenario, or the baseline.", "path", type="string", enum=["now", "base"])
    place = [
        number("level", "The level of rows."), number("zoom", "How often the span is halved."),
        number("column", "Number along time."), number("block", "Number along the rows."),
        _parameter("planes", "Names of planes, separated by commas.", "path"),
    ]  # fmt: skip
    point = [
        number("first", "The first GPU."), number("end", "The GPU after the last."),
        _parameter("time", "Seconds from the first submission.", "path", type="number"),
    ]  # fmt: skip
    answers: dict[str, tuple[Handler, Any, list[dict[str, Any]]]] = {
        "about": (handlers.get_about, messages.TimelineAbout, []),
        "panels": (handlers.get_panels, messages.TimelineQueue, []),
        "tile/{level}/{zoom}/{column}/{block}/{planes}": (handlers.get_tile, messages.TimelineTile, place),
        "jobs/{first}/{end}/{time}": (handlers.get_jobs, messages.TimelineJobs, point),
    }
    return {
        f"/api/timeline/{{side}}/{path}": {
            "get": Endpoint(handler, content, (404, 429), parameters=[side, *more, *scenario])
        }
        for path, (handler, content, more) in answers.items()
    }


def _paths(named: dict[str, Any]) -> dict[str, Any]:
    paths = {
        path: {method: _described(endpoint, named) for method, endpoint in methods.items()}
        for path, methods in endpoints().items()
    }
    start = paths["/api/operations"]["post"]["responses"]
    start["200"] = start["202"] | {"description": "The result is known already."}
    paths["/token"]["post"]["responses"]["401"]["content"] |= _content(HTML, named)  # the form again
    return paths


def _described(endpoint: Endpoint, named: dict[str, Any]) -> dict[str, Any]:
    statuses = sorted({400, 401, 403, 421, *endpoint.errors})
    error = _content(messages.ErrorMessage, named)
    summary = endpoint.summary or endpoint.handler.__doc__
    answer = {"description": summary, "content": _content(endpoint.content, named)}
    errors = {str(status): {"description": _STATUS[status], "content": dict(error)} for status in statuses}
    described: dict[str, Any] = {"summary": summary, "responses": {str(endpoint.code): answer} | errors}
    if endpoint.parameters:
        described["parameters"] = list(endpoint.parameters)
    if endpoint.body is not None:
        described["requestBody"] = {"required": True, "content": _content(endpoint.body, named)}
    return described


def _content(kind: Any, named: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return a media type and its schema; a message is JSON."""
    if kind == JSON:
        return {JSON: {"schema": {"type": "object"}}}
    if kind == OCTETS:
        return {OCTETS: {"schema": {"type": "string", "contentEncoding": "binary"}}}
    if kind == EVENTS:
        state = schema(messages.OperationMessage, named)
        data = {"type": "string", "contentMediaType": JSON, "contentSchema": state}
        return {EVENTS: {"schema": {"type": "object", "properties": {"data": data}}}}
    return {kind: {"schema": {"type": "string"}}} if isinstance(kind, str) else {JSON: {"schema": schema(kind, named)}}


_STATUS = {
    400: "The request is not valid.",
    401: "The token is missing or wrong.",
    403: "A page of another site sent the request.",
    404: "Not found.",
    408: "The upload did not arrive in time.",
    413: "The request is too large.",
    421: "Not a host name of this page.",
    429: "Too many requests at once.",
    503: "The process that worked on it has ended, twice; or the server is shutting down.",
    504: "The work was stopped at its time limit.",
}


def _parameter(name: str, about: str, where: str = "query", **kind: Any) -> dict[str, Any]:  # noqa: ANN401
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, **required, "description": about, "schema": kind or {"type": "string"}}


def _scenario_query() -> list[dict[str, Any]]:
    """Describe the words of an address."""

    def values(option: messages.OptionMessage) -> dict[str, Any]:
        # An estimate may also be a series of the trace.
        names = [choice["name"] for choice in option["choices"] if option["name"] != "estimate"]
        return {"type": "string", "enum": names} if names else {}

    example = {"example": f"builtin:{SIZES[0]}:0"}
    return [
        _parameter("v", "Version of the address.", type="string", enum=[VERSION]),
        _parameter("trace", f"builtin:JOBS:SEED, folder:NAME or upload:ID (default: {DEFAULT_TRACE}).") | example,
        *(_parameter(option["name"], option["help"], **values(option)) for option in page_options()),
        _parameter("base", "The baseline, as an address without trace (default: the default of every option)."),
        _parameter("keep", "A pinned run, as an address without trace.", type="array", items={"type": "string"}),
        _parameter("view", "The view of the page.", type="string", enum=list(VIEWS)),
        _parameter("job", "Words that mean the job of the view `job`.", type="string", maxLength=LONGEST_JOB),
    ]
