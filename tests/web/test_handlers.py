"""The HTTP interface: described as it is, and, whatever is sent, an answer or an error in words."""

import gzip
import json
import re
import zlib
from http.client import HTTPConnection
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlab import SavedResult, Scenario, Trace, compare, simulate
from fleetlab.web.app import routes
from fleetlab.web.guard import Guard
from fleetlab.web.openapi import description

from .conftest import CSV, HOSTILE

SMALL = "trace=folder:small"


# --- its description ---------------------------------------------------------------------------------------------


def fits(value, schema, whole):
    """What in `value` is not as `schema` says; a small checker of JSON Schema."""
    if "$ref" in schema:
        return fits(value, whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in schema:
        found = [fits(value, one, whole) for one in schema["anyOf"]]
        return [] if [] in found else min(found, key=len)
    kinds = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": type(None)}
    kinds |= {"array": list, "object": dict}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return [f"{value!r:.80} is no {kind}"]
    wrong = [f"{value!r} is none of {schema['enum']}"] if value not in schema.get("enum", [value]) else []
    if kind == "array":
        wrong += [w for one in value for w in fits(one, schema["items"], whole)]
    if kind == "object":
        wrong += _object_fits(value, schema, whole)
    return wrong


def _object_fits(value, schema, whole):
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    wrong = [f"no {name}" for name in schema.get("required", []) if name not in value]
    for name, one in value.items():
        if name in known:
            wrong += [f"{name}: {w}" for w in fits(one, known[name], whole)]
        elif others is False:
            wrong.append(f"{name} is not described")
        elif isinstance(others, dict):
            wrong += [f"{name}: {w}" for w in fits(one, others, whole)]
    return wrong


def described(whole, method, path, said):
    """Is this answer as its description says?"""
    told = whole["paths"][path][method]["responses"]
    assert str(said.status) in told, (method, path, said.status, said.body[:200])
    content = told[str(said.status)]["content"]
    kind = said.headers["content-type"].partition(";")[0]
    assert kind in content, (kind, list(content))
    assert kind != "application/json" or fits(said.json, content[kind]["schema"], whole) == []


@pytest.fixture(scope="module")
def whole(page):
    return page.ask("/api/openapi.json").json


def test_a_checker_that_sees_nothing_would_be_no_checker(whole):
    right = {"error": "x", "hint": None}
    ref = {"$ref": "#/components/schemas/ErrorMessage"}
    assert fits(right, ref, whole) == []
    for wrong in ({}, {"error": 1, "hint": None}, {"error": "x", "hint": "y", "more": 1}, [right], None):
        assert fits(wrong, ref, whole)


def test_every_address_is_described_and_every_described_address_is_there():
    there = {
        (re.sub(r":\w+}", "}", route.path), method.lower())
        for route in routes(None, Guard(frozenset()))
        for method in route.methods - {"HEAD"}
    }
    assert there == {(path, method) for path, about in description("0")["paths"].items() for method in about}


def test_answers_are_as_described(page, whole):
    run = page.ask(f"/api/run?v=1&{SMALL}&order=sjf")
    described(whole, "get", "/api/run", run)
    described(whole, "get", "/api/options", page.ask("/api/options"))
    described(whole, "get", "/api/result.json", page.ask(f"/api/result.json?{SMALL}&order=sjf"))
    described(whole, "get", "/api/report.html", page.ask(f"/api/report.html?{SMALL}&order=sjf"))
    described(whole, "get", "/", page.ask("/"))
    begun = page.ask("/api/operations", method="POST", body={"kind": "run", "link": f"{SMALL}&order=sjf"})
    assert begun.status == 200  # it was there already
    described(whole, "post", "/api/operations", begun)
    described(whole, "get", "/api/operations/{operation}", page.ask(f"/api/operations/{begun.json['operation']}"))
    described(
        whole,
        "delete",
        "/api/operations/{operation}",
        page.ask(f"/api/operations/{begun.json['operation']}", method="DELETE"),
    )
    events = page.ask(f"/api/operations/{begun.json['operation']}/events")
    described(whole, "get", "/api/operations/{operation}/events", events)
    for kind in ("open", "describe"):
        told = page.operation(kind=kind, trace="folder:small")
        assert fits(told, {"$ref": "#/components/schemas/OperationMessage"}, whole) == []


def test_uploads_answer_as_described(page, whole):
    sent = page.send(CSV)
    described(whole, "post", "/api/uploads", sent)
    described(
        whole, "delete", "/api/uploads/{upload}", page.ask(f"/api/uploads/{sent.json['upload']}", method="DELETE")
    )
    described(
        whole, "delete", "/api/uploads/{upload}", page.ask(f"/api/uploads/{sent.json['upload']}", method="DELETE")
    )


@pytest.mark.parametrize(
    ("method", "path", "at", "body", "status"),
    [
        ("get", "/api/run?order=sjff", "/api/run", None, 400),
        ("get", "/api/run?trace=folder:nowhere", "/api/run", None, 404),
        ("get", "/api/run?trace=folder:..", "/api/run", None, 404),
        ("get", "/api/run?trace=folder:not%20a%20trace", "/api/run", None, 404),
        ("get", "/api/run?trace=upload:aaaaaaaaaaaaaaaaaaaa", "/api/run", None, 404),
        ("get", f"/api/run?{SMALL}&nodes=A100+3", "/api/run", None, 400),
        ("get", f"/api/run?{SMALL}&order=srpt&backfill=easy", "/api/run", None, 400),
        ("get", "/api/report.html?v=9", "/api/report.html", None, 400),
        ("get", "/api/operations/nothing", "/api/operations/{operation}", None, 404),
        ("get", "/api/operations/nothing/events", "/api/operations/{operation}/events", None, 404),
        ("delete", "/api/operations/nothing", "/api/operations/{operation}", None, 404),
        ("post", "/api/operations", "/api/operations", {}, 400),
        ("post", "/api/operations", "/api/operations", {"kind": "run"}, 400),
        ("post", "/api/operations", "/api/operations", {"kind": "run", "link": 3}, 400),
        ("post", "/api/operations", "/api/operations", {"kind": "report", "trace": "builtin:2000:0"}, 400),
        ("post", "/api/operations", "/api/operations", {"kind": "read", "upload": "x", "format": "csv"}, 404),
        ("post", "/api/operations", "/api/operations", {"kind": "run", "link": "x" * 70_000}, 413),
        ("post", "/api/uploads?upload=nothing", "/api/uploads", None, 404),
        ("delete", "/api/uploads/nothing", "/api/uploads/{upload}", None, 404),
        ("get", "/static/page.py", "/static/{name}", None, 404),
    ],
)  # fmt: skip
def test_a_mistake_has_a_status_an_error_and_a_hint(page, whole, method, path, at, body, status):
    said = page.ask(path, method=method.upper(), body=body)
    assert said.status == status
    described(whole, method, at, said)
    assert said.json["error"]


def test_questions_that_are_no_json_are_refused(page):
    for body, kind in (
        ("{", "application/json"),
        ("[]", "application/json"),
        ("{}", "text/plain"),
        ("[" * 9000, "application/json"),
    ):
        said = page.ask("/api/operations", method="POST", body=body, headers={"Content-Type": kind})
        assert (said.status, set(said.json)) == (400, {"error", "hint"})


def test_what_is_not_there_and_what_is_not_done_are_said_in_json(page):
    assert (page.ask("/nothing").status, page.ask("/nothing").json["hint"]) == (
        404,
        "/api/openapi.json describes the interface",
    )
    assert page.ask("/api/options", method="POST").status == 405


PATHS = st.sampled_from(
    [
        "/api/run",
        "/api/result.json",
        "/api/options",
        "/api/operations/x",
        "/api/uploads/y",
        "/static/z",
        "/api/openapi.json",
    ]
)
VALUES = st.text(max_size=12) | st.sampled_from(
    ["builtin:2000:0", "sjf", "1.2", "T4 3", "folder:small", "nan", "-1", "1e999"]
)
WORDS = st.dictionaries(
    st.sampled_from(["v", "trace", "order", "load", "nodes", "events", "base", "keep", "x"]), VALUES, max_size=4
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(max_size=8), inside),
    max_leaves=6,
)
ASKED = st.fixed_dictionaries(
    {"kind": st.sampled_from(["run", "open", "describe", "read", "x"]) | JSON},
    optional=dict.fromkeys(("link", "trace", "upload", "format", "map", "zone", "replaces"), JSON),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS, words=WORDS, method=st.sampled_from(["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"]))
def test_whatever_is_asked_nothing_breaks(page, path, words, method):
    # A word that nothing knows: what could take long is refused before it begins.
    said = page.ask(f"{path}?{urlencode(words | {'nonsense': '1'})}", method=method)
    assert said.status < 500
    assert said.status < 400 or set(said.json) == {"error", "hint"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ASKED)
def test_whatever_job_is_asked_for_nothing_breaks(page, asked):
    said = page.ask("/api/operations", method="POST", body=asked)
    assert said.status < 500
    assert set(said.json) in ({"error", "hint"},) or said.json["operation"]


# --- what it answers ---------------------------------------------------------------------------------------------


def test_an_answer_is_what_the_simulator_says(page, small):
    said = page.ask(f"/api/run?{SMALL}&order=sjf&backfill=easy").json
    result = simulate(small.workload, small.cluster, order="sjf", backfill="easy")
    told = {e.metric: e for e in (*result.summary(), *result.per_day())}
    assert said["rows"][0]["metric"] == "jobs that cannot run"
    for row in said["rows"][1:]:
        assert row["now"]["value"] == pytest.approx(told[row["metric"]].value)


def test_replicas_are_compared_as_fleetlab_compare_does(page, small, whole):
    message = page.operation(kind="refine", link=f"{SMALL}&order=sjf")
    assert fits(message, {"$ref": "#/components/schemas/OperationMessage"}, whole) == []
    answer = message["result"]
    result = compare([Scenario.of(small), Scenario.of(small, order="sjf")], workers=0)
    for record in result.records:
        row = next(row for row in answer["rows"] if row["metric"] == record.metric)
        assert (row["verdict"], answer["scope"], answer["replicas"]) == (record.verdict, record.scope, record.replicas)
        ours = row["base"]["value"], row["now"]["value"], *(row["change"][x] for x in ("value", "low", "high"))
        assert ours == pytest.approx((record.before, record.after, record.difference, record.low, record.high))
    assert answer["planned"] == answer["replicas"] > 1
    again = page.ask("/api/operations", method="POST", body={"kind": "refine", "link": f"{SMALL}&order=sjf"})
    assert (again.status, again.json["result"]["rows"]) == (200, answer["rows"])  # it is there already


def test_where_no_job_completed_there_is_nothing_to_refine(page):
    link = "trace=builtin:2000:0&until=7200&base=until%3D7200&submitted=7180..7190"
    answer = page.operation(kind="refine", link=link)["result"]
    assert (answer["replicas"], answer["planned"], answer["findings"][-1]) == (1, 1, "No job completed.")


def test_a_result_is_one_that_a_report_takes(page):
    said = page.ask(f"/api/result.json?{SMALL}&order=sjf")
    assert SavedResult.from_json(said.json).summary()[0].metric == "mean wait"
    assert "attachment" in said.headers["content-disposition"]


def test_a_report_holds_baseline_scenario_and_kept_runs_and_fetches_nothing(page):
    html = page.ask(f"/api/report.html?{SMALL}&order=sjf&keep=load%3D0.5").body.decode()
    assert all(
        name in html
        for name in ("baseline", "scenario", "pinned 1: fifo/greedy, load 0.5", "difference from the baseline")
    )
    assert not re.search(r'(?:src|href)="(?!#)', html)


def test_names_of_a_trace_are_text_wherever_they_come(page):
    state = f"trace=folder:hostile&{urlencode({'nodes': f'{HOSTILE} 2'})}"
    for html in (
        page.ask(f"/api/run?{state}").json["html"],
        page.operation(kind="describe", trace="folder:hostile")["result"]["html"],
        page.ask(f"/api/report.html?{state}").body.decode(),
    ):
        assert "onerror" in html
        assert "<img" not in html


def test_a_trace_that_is_saved_anew_is_read_anew(page, root, small):
    small.save(root / "changing")
    first = page.operation(kind="open", trace="folder:changing")["result"]["summary"][0]["value"]
    Trace.load(root / "hostile").save(root / "changing")
    assert (first, page.operation(kind="open", trace="folder:changing")["result"]["summary"][0]["value"]) == (2000, 400)


def test_fewer_nodes_are_compared_on_the_jobs_that_both_sides_ran(page, small):
    said = page.ask(f"/api/run?{SMALL}&nodes=MISC+0").json
    runs = [simulate(small, nodes=nodes, min_coverage=0.0) for nodes in ("", "MISC 0")]
    both = runs[0].jobs.join(runs[1].jobs, on="job", how="inner")
    first, wait = (
        next(row for row in said["rows"] if row["metric"] == m) for m in ("jobs that cannot run", "mean wait")
    )
    assert first["change"]["value"] == runs[1].refused.height - runs[0].refused.height > 0
    assert wait["base"]["value"] == pytest.approx(both["wait"].mean())
    assert wait["now"]["value"] == pytest.approx(both["wait_right"].mean())
    assert f"of the {both.height:,} of 2,000 jobs" in said["population"]


# --- compression ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/static/page.js", f"/api/run?v=1&{SMALL}", "/api/openapi.json"])
def test_answers_are_compressed_for_whoever_takes_that_and_are_the_same(page, path):
    plain, packed = page.ask(path), page.ask(path, headers={"Accept-Encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in packed.headers["vary"].lower()
    assert len(packed.body) < len(plain.body) / 2
    assert gzip.decompress(packed.body) == plain.body


def test_events_are_compressed_and_each_can_be_read_when_it_comes(page):
    begun = page.ask("/api/operations", method="POST", body={"kind": "run", "link": f"{SMALL}&load=1.77"}).json
    path = f"/api/operations/{begun['operation']}/events"
    connection = HTTPConnection(page.host, timeout=60)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    stream, opened, text = connection.getresponse(), zlib.decompressobj(31), b""
    assert stream.getheader("content-encoding") == "gzip"
    while b"\n\n" not in text:
        text += opened.decompress(stream.read1(10_000))
    assert json.loads(text.split(b"\n\n")[0].removeprefix(b"data: "))["operation"] == begun["operation"]
    text += opened.decompress(stream.read())
    assert opened.eof
    last = json.loads(text.strip().split(b"\n\n")[-1].removeprefix(b"data: "))
    assert last["status"] == "done"
    assert last["result"]["rows"] == page.ask(f"/api/run?v=1&{SMALL}&load=1.77").json["rows"]
    connection.close()
