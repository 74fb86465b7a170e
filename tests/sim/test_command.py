"""`fleetlab simulate` and the file of events: the command is the function, and mistakes end in an error and a hint."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Trace, Workload, WorkloadError, cli
from fleetlab.sim import _compile
from fleetlab.sim.eventfile import from_toml


def run(capsys, *words):
    """What the command says on both streams, and its status."""
    status = 0
    try:
        cli.main([str(word) for word in words])
    except SystemExit as e:
        status = int(e.code or 0)
    said = capsys.readouterr()
    return said.out, said.err, status


@pytest.fixture
def trace(tmp_path):
    """Three tasks for one GPU, of which the last is short, and asked for long."""
    work = Workload.of(
        pl.DataFrame(
            {"submit": [0.0, 1.0, 2.0], "service": [10.0, 8.0, 2.0], "gpu_milli": [1000] * 3, "user": ["a", "b", "b"]}
        ),
        source="three",
    )
    asked = pl.DataFrame({"task": [0, 1, 2], "seconds": [10.0, 8.0, 90.0]}).lazy()
    made = Trace(
        work,
        cluster=fleetlab.Cluster.uniform(1, 1),
        provenance=fleetlab.Provenance("make", "three"),
        series={"requested": asked},
    )
    return made.save(tmp_path / "trace")


def test_an_estimate_may_be_a_series_of_the_trace(capsys, trace):
    waits = {}
    for estimate in ("oracle", "requested"):
        out, _, _ = run(capsys, "simulate", trace, "--order", "sjf", "--estimate", estimate, "--json")
        waits[estimate] = json.loads(out)["summary"][0]["value"]
    # Known to be short, the last goes second; believed to be long, it goes last.
    assert waits == {"oracle": pytest.approx((0 + 11 + 8) / 3), "requested": pytest.approx((0 + 9 + 16) / 3)}


def test_an_order_of_ones_own_is_named_by_its_module(capsys, trace, tmp_path, monkeypatch):
    (tmp_path / "late_first.py").write_text("def late(s, task, now):\n    return -s.submit[task]\n")
    monkeypatch.chdir(tmp_path)
    out, _, status = run(capsys, "simulate", trace, "--order", "late_first:late", "--json")
    assert (status, json.loads(out)["summary"][0]["value"]) == (0, pytest.approx((0 + 11 + 8) / 3))


def test_events_come_from_a_file(capsys, trace, tmp_path):
    (tmp_path / "e.toml").write_text(
        '[[outage]]\nbegin = 4.0\nend = 5.0\nnodes = ["node-0"]\n[recovery]\nrestart = 1\n'
    )
    out, _, status = run(capsys, "simulate", trace, "--events", tmp_path / "e.toml", "--json")
    found = {e["metric"]: e["value"] for e in json.loads(out)["summary"]}
    # The first begins again from nothing at 5 and ends at 15 (nothing was saved that could be loaded).
    assert status == 0
    assert found["mean completion"] == pytest.approx((15 + 22 + 23) / 3)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--order", "sjff"], "no order policy by that name: `sjff`; did you mean sjf?"),
        (["--discipline", "eazy"], "no discipline by that name: `eazy`; did you mean easy?"),
        (["--place", "here"], "no place policy by that name: `here`"),
        (["--estimate", "guess"], "no estimate by that name: `guess`"),
        (["--sharing", "mpz"], "no sharing by that name: `mpz`; did you mean mps?"),
        (["--order", "nowhere:mine"], "no module by that name: `nowhere`"),
        (["--events", "none.toml"], "cannot read the events file: none.toml"),
        (["--quota", "-1"], "a quota is a number of GPUs, not below 0: -1.0"),
        (["--preempt", "--discipline", "easy"], "a task that may put others off needs no reservation"),
    ],
)
def test_a_mistake_ends_in_an_error_and_a_hint(capsys, trace, words, error):
    _, err, status = run(capsys, "simulate", trace, *words)
    assert (status, error in err, "hint: " in err) == (2, True, True), err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[[fault]]\n", "no such event: `fault`"),
        ("[faults]\nmtbf = 1\n", "stands in double brackets"),
        ("[[faults]]\nmtbf = 1.0\nmttf = 2.0\n", "no such key of faults: `mttf`"),
        ("[[faults]]\nmtbf = 'long'\nmttr = 1\n", "`mtbf` of faults cannot be: 'long'"),
        ("[[faults]]\nmtbf = 5.0\n", "faults is not complete"),
        ("[[faults]]\nmtbf = -5.0\nmttr = 1.0\n", "mtbf"),
        ("mtbf", "not TOML"),
    ],
)
def test_a_file_of_events_that_cannot_be_says_why(tmp_path, text, error):
    (tmp_path / "e.toml").write_text(text)
    with pytest.raises(WorkloadError, match=error.replace("[", r"\[")):
        from_toml(tmp_path / "e.toml")


def test_until_stops_the_clock(capsys, trace):
    out, _, _ = run(capsys, "simulate", trace, "--until", "12")
    assert "tasks were not done when it stopped" in out


def test_compiled_code_is_kept_by_the_text_of_all_files_it_came_from():
    files = {path.stem for path in _compile._sources("_engine")}
    assert {"_engine", "_gangs", "_index", "_nodes", "_places", "_compile"} <= files
    assert "_full" not in files
