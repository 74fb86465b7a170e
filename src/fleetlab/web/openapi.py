"""The description of the interface, made from the types that it answers with."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from fleetlab.web import answers
from fleetlab.web.choices import RULES
from fleetlab.web.scenario import LOADS, VERSION

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
JSON, HTML = "application/json", "text/html"


def schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """The JSON Schema of a type; those with a name are put into `named` and referred to.

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
    """The whole of it, by OpenAPI 3.1."""
    named: dict[str, Any] = {}
    paths = _paths(named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fleetlab web",
            "version": version,
            "description": "What-ifs on a GPU cluster. A state is the query string of the page, such as "
            "`v=1&trace=builtin:20000:0&order=sjf&load=1.2`. Errors are `{error, hint}`. Long work is an operation: "
            "start it, then follow its events. Give every visitor a name of its own in `Fleetlab-Visitor`: the queue "
            "serves visitors in turn.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(named.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths(named: dict[str, Any]) -> dict[str, Any]:
    def told(kind: Any) -> dict[str, Any]:  # noqa: ANN401
        return {JSON: {"schema": schema(kind, named)}}

    def page(kind: str = HTML) -> dict[str, Any]:
        return {kind: {"schema": {"type": "string"}}}

    def does(summary: str, content: dict[str, Any], *errors: int, code: int = 200, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        every = sorted({400, 401, 403, 421, *errors})
        refused = {str(e): {"description": _WHY[e], "content": told(answers.Refusal)} for e in every}
        return {
            "summary": summary,
            "responses": {str(code): {"description": summary, "content": content}, **refused},
        } | more

    operation = [_in_path("operation", "The name of an operation.")]
    upload = [_in_path("upload", "The name of an upload.")]
    asked = {"requestBody": {"required": True, "content": told(answers.OperationAsked)}, "parameters": _visitor()}
    octets = {"application/octet-stream": {"schema": {"type": "string", "contentEncoding": "binary"}}}
    sent = {"requestBody": {"required": True, "content": octets}, "parameters": _sent()}
    state: dict[str, Any] = {"parameters": [*_state(), *_visitor()]}
    begun = does(
        "Ask for work; 200 where the answer was there already.",
        told(answers.Operation),
        404,
        413,
        429,
        code=202,
        **asked,
    )
    begun["responses"]["200"] = {"description": "The answer was there already.", "content": told(answers.Operation)}
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema(answers.Operation, named)}
    events = {"text/event-stream": {"schema": {"type": "object", "properties": {"data": data}}}}
    entered = does("Enter with a token, as a form.", page(), 413, code=303)
    entered["responses"]["401"]["content"] |= page()  # the form again
    return {
        "/": {"get": does("The page.", page())},
        "/static/{name}": {
            "get": does("Its style and scripts.", page("text/plain"), 404, parameters=[_in_path("name", "The file.")])
        },
        "/token": {"post": entered},
        "/api/openapi.json": {"get": does("This description.", {JSON: {"schema": {"type": "object"}}})},
        "/api/about": {"get": does("All that can be chosen.", told(answers.About))},
        "/api/operations": {"post": begun},
        "/api/operations/{operation}": {
            "get": does("How far an operation is.", told(answers.Operation), 404, parameters=operation),
            "delete": does("Stop an operation.", told(answers.Operation), 404, parameters=operation),
        },
        "/api/operations/{operation}/events": {
            "get": does("How far an operation is, as it goes.", events, 404, parameters=operation)
        },
        "/api/uploads": {"post": does("Send a file.", told(answers.Uploaded), 404, 408, 413, code=201, **sent)},
        "/api/uploads/{upload}": {
            "delete": does("Remove an upload.", told(answers.Removed), 404, parameters=upload)
        },
        "/api/run": {"get": does("A scenario beside the baseline.", told(answers.Answer), 404, 429, **state)},
        "/api/result.json": {
            "get": does("Its result, as `fleetlab simulate --json` prints it.", {JSON: {"schema": {"type": "object"}}},
                        404, 429, **state)
        },
        "/api/report.html": {
            "get": does("Baseline, scenario and kept runs as one page.", page(), 404, 429, **state)
        },
    }  # fmt: skip


_WHY = {
    400: "What was asked for cannot be.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked.",
    404: "There is no such thing.",
    408: "It did not come in time.",
    413: "It is too large.",
    421: "The host is not ours.",
    429: "Too much was asked for at once.",
}


def _in_path(name: str, said: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": said, "schema": {"type": "string"}}


def _visitor() -> list[dict[str, Any]]:
    said = "Whoever asks, in a word of his own."
    return [{"name": "Fleetlab-Visitor", "in": "header", "description": said, "schema": {"type": "string"}}]


def _sent() -> list[dict[str, Any]]:
    more = {"upload": "An upload that this file belongs to.", "name": "What the file is called."}
    return [{"name": n, "in": "query", "description": d, "schema": {"type": "string"}} for n, d in more.items()]


def _state() -> list[dict[str, Any]]:
    """The words of an address."""

    def word(name: str, said: str, **kind: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"name": name, "in": "query", "description": said, "schema": kind}

    many = {"type": "array", "items": {"type": "string"}}
    return [
        word("v", "Version of the address.", type="string", enum=[VERSION]),
        word("trace", "builtin:JOBS:SEED, folder:NAME or upload:ID.", type="string"),
        *(
            word(rule, "; ".join(f"{k}: {v}" for k, v in RULES[rule].items()), type="string", enum=list(RULES[rule]))
            for rule in RULES
        ),
        word("load", "How many times as fast jobs come.", type="number", minimum=LOADS[0], maximum=LOADS[1]),
        word("nodes", "TYPE:COUNT, once for each GPU type that is changed.", **many),
        word("seed", "For policies that draw lots.", type="integer", minimum=0),
        word("base", "The baseline, as an address without trace.", type="string"),
        word("keep", "A run that was kept, as an address without trace.", **many),
        word("view", "Of the page.", type="string"),
    ]
