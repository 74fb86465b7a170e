"""The OpenAPI description of the HTTP interface, made from the types of its messages."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from fleetlab.web import messages
from fleetlab.web.link import VERSION, VIEWS
from fleetlab.web.options import page_options
from fleetlab.web.traces import DEFAULT_TRACE, SIZES

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
JSON, HTML = "application/json", "text/html"


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


def _paths(named: dict[str, Any]) -> dict[str, Any]:
    def json_of(kind: Any) -> dict[str, Any]:  # noqa: ANN401
        return {JSON: {"schema": schema(kind, named)}}

    def page(kind: str = HTML) -> dict[str, Any]:
        return {kind: {"schema": {"type": "string"}}}

    def endpoint(summary: str, content: dict[str, Any], *errors: int, code: int = 200, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        statuses = sorted({400, 401, 403, 421, *errors})
        errors_by_status = {
            str(e): {"description": _STATUS[e], "content": json_of(messages.ErrorMessage)} for e in statuses
        }
        return {
            "summary": summary,
            "responses": {str(code): {"description": summary, "content": content}, **errors_by_status},
        } | more

    operation = [_in_path("operation", "The name of an operation.")]
    upload = [_in_path("upload", "The name of an upload.")]
    question = {
        "requestBody": {"required": True, "content": json_of(messages.OperationRequest)},
        "parameters": _visitor(),
    }
    octets = {"application/octet-stream": {"schema": {"type": "string", "contentEncoding": "binary"}}}
    file = {"requestBody": {"required": True, "content": octets}, "parameters": _upload_query()}
    scenario: dict[str, Any] = {"parameters": [*_scenario_query(), *_visitor()]}
    start = endpoint(
        "Start an operation; 200 where its result is known already.",
        json_of(messages.OperationMessage),
        404,
        413,
        429,
        code=202,
        **question,
    )
    start["responses"]["200"] = {
        "description": "The result is known already.",
        "content": json_of(messages.OperationMessage),
    }
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema(messages.OperationMessage, named)}
    events = {"text/event-stream": {"schema": {"type": "object", "properties": {"data": data}}}}
    sign_in = endpoint("Sign in with a token, as a form.", page(), 413, code=303)
    sign_in["responses"]["401"]["content"] |= page()  # the form again
    return {
        "/": {"get": endpoint("The page.", page())},
        "/static/{name}": {
            "get": endpoint(
                "Its style and scripts.", page("text/plain"), 404, parameters=[_in_path("name", "The file.")]
            )
        },
        "/token": {"post": sign_in},
        "/api/openapi.json": {"get": endpoint("This description.", {JSON: {"schema": {"type": "object"}}})},
        "/api/options": {"get": endpoint("Everything that can be chosen.", json_of(messages.PageOptions))},
        "/api/operations": {"post": start},
        "/api/operations/{operation}": {
            "get": endpoint(
                "Get the state of an operation.", json_of(messages.OperationMessage), 404, parameters=operation
            ),
            "delete": endpoint("Cancel an operation.", json_of(messages.OperationMessage), 404, parameters=operation),
        },
        "/api/operations/{operation}/events": {
            "get": endpoint("Stream the state of an operation.", events, 404, parameters=operation)
        },
        "/api/uploads": {
            "post": endpoint(
                "Upload a file of a log.", json_of(messages.UploadMessage), 404, 408, 413, code=201, **file
            )
        },
        "/api/uploads/{upload}": {
            "delete": endpoint("Delete an upload.", json_of(messages.UploadRemoved), 404, parameters=upload)
        },
        "/api/run": {
            "get": endpoint(
                "Compare a scenario with the baseline.", json_of(messages.RunComparison), 404, 429, **scenario
            )
        },
        "/api/result.json": {
            "get": endpoint(
                "Get the result of a scenario, as `fleetlab simulate --json` prints it.",
                {JSON: {"schema": {"type": "object"}}},
                404,
                429,
                **scenario,
            )
        },
        "/api/report.html": {
            "get": endpoint("Get baseline, scenario and kept runs as one HTML file.", page(), 404, 429, **scenario)
        },
    }


_STATUS = {
    400: "The request is not valid.",
    401: "The token is missing or wrong.",
    403: "A page of another site sent the request.",
    404: "Not found.",
    408: "The upload did not arrive in time.",
    413: "The request is too large.",
    421: "Not a host name of this page.",
    429: "Too many requests at once.",
}


def _in_path(name: str, about: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": about, "schema": {"type": "string"}}


def _visitor() -> list[dict[str, Any]]:
    about = "A name that the client gives itself."
    return [{"name": "Fleetlab-Visitor", "in": "header", "description": about, "schema": {"type": "string"}}]


def _upload_query() -> list[dict[str, Any]]:
    more = {"upload": "The upload that this file belongs to.", "name": "The name of the file."}
    return [{"name": n, "in": "query", "description": d, "schema": {"type": "string"}} for n, d in more.items()]


def _scenario_query() -> list[dict[str, Any]]:
    """Describe the words of an address."""

    def word(name: str, about: str, **kind: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"name": name, "in": "query", "description": about, "schema": kind or {"type": "string"}}

    def values(option: messages.OptionMessage) -> dict[str, Any]:
        # An estimate may also be a series of the trace.
        names = [choice["name"] for choice in option["choices"] if option["name"] != "estimate"]
        return {"type": "string", "enum": names} if names else {}

    example = {"example": f"builtin:{SIZES[0]}:0"}
    return [
        word("v", "Version of the address.", type="string", enum=[VERSION]),
        word("trace", f"builtin:JOBS:SEED, folder:NAME or upload:ID (default: {DEFAULT_TRACE}).") | example,
        *(word(option["name"], option["help"], **values(option)) for option in page_options()),
        word("base", "The baseline, as an address without trace (default: the default of every option)."),
        word("keep", "A run to keep, as an address without trace.", type="array", items={"type": "string"}),
        word("view", "The view of the page.", type="string", enum=list(VIEWS)),
    ]
