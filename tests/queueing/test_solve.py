"""The verb and the command: what goes in, what comes out, and what is refused."""

import inspect
import json
import math
import subprocess
import sys
import time

import pytest

import fleetlab
from fleetlab import WorkloadError, cli, solve
from fleetlab.queueing import models
from fleetlab.queueing.catalogue import MODELS, PARAMETERS

LIST = {"lam": (0.2, 0.1), "service": ("exponential:1", "lognormal:2:3"), "mu": (1.0, 0.5)}
LIST |= {"a": (0.5, 1), "b": (1, 2), "n": (1, 2), "p": (0.5, 0.5), "speed": (1, 1.5)}
ONE = {"lam": 0.3, "mu": 1, "c": 4, "a": 2.0, "ca2": 1, "cs2": 0.5, "chance": 0.2, "period": 10}
ONE |= {"service": "lognormal:1:3"}


def example(model):
    """Parameters that a model can take."""
    takes = inspect.signature(model.formula).parameters
    return {word: LIST[word] if "tuple" in p.annotation else ONE[word] for word, p in takes.items()}


def run(capsys, *words):
    """What the command says on both streams, and its status."""
    status = 0
    try:
        cli.main([str(word) for word in words])
    except SystemExit as e:
        status = int(e.code or 0)
    said = capsys.readouterr()
    return said.out, said.err, status


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda m: m.name)
def test_every_model_answers_with_numbers_its_source_and_where_it_holds(model):
    found = solve(model.name, **example(model))
    assert all(math.isfinite(e.value) for e in found.summary())
    assert len(found.notes) >= 2
    assert found.notes[-1] == f"source: {model.source}"
    assert fleetlab.Provenance.from_json(found.provenance.to_json()).source == model.name


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda m: m.name)
def test_every_model_answers_in_milliseconds(model):
    told = example(model)
    solve(model.name, **told)
    began = time.process_time()
    for _ in range(5):
        solve(model.name, **told)
    assert (time.process_time() - began) / 5 < 0.1


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda m: m.name)
def test_every_model_refuses_what_cannot_be(model):
    for word in model.takes:
        for wrong in (-1, math.nan, "many", None, ()):
            with pytest.raises(WorkloadError) as refused:
                solve(model.name, **example(model) | {word: wrong})
            assert refused.value.hint


@pytest.mark.parametrize("model", [m for m in MODELS.values() if "lam" in m.takes], ids=lambda m: m.name)
def test_every_queue_without_end_says_so(model):
    if model.name in ("M/G/inf", "Mt/G/inf", "square-root staffing"):
        return  # there is room for everybody, or as many servers as needed
    told = example(model)
    told["lam"] = tuple(9 * x for x in (2, 1)) if isinstance(told["lam"], tuple) else 50.0
    found = solve(model.name, **told)
    assert math.inf in [e.value for e in found.summary()]
    assert any("without bound" in note for note in found.notes)


def test_only_exact_answers_have_an_interval():
    exact, near = solve("M/M/1", lam=0.5, mu=1), solve("Allen-Cunneen", lam=0.5, mu=1, c=1, ca2=1, cs2=1)
    assert all(e.low == e.value == e.high for e in exact.summary())
    assert all(math.isnan(e.low) for e in near.summary())
    assert near.notes[0].startswith("approximation (no interval)")


@pytest.mark.parametrize("name", ["M/M/c", "m/m/c", "M_M_c", " M/M/c "])
def test_a_model_is_known_however_it_is_written(name):
    assert solve(name, lam=1, mu=1, c=2).model is MODELS["M/M/c"]


def test_infinity_may_be_written_as_the_theory_does():
    assert solve("M/G/∞", lam=1, service="exponential:1").model is MODELS["M/G/inf"]
    assert solve("Krämer–Langenbach-Belz", lam=0.5, mu=1, ca2=1, cs2=1).model is MODELS["Kraemer-Langenbach-Belz"]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["M/M/k"], "no queueing model by that name: `M/M/k`; did you mean M/M/c?", "lists the models"),
        (["M/M/c", "--lam", "1", "--mu", "1"], "M/M/c needs: `c`, servers", "takes lam, mu, c"),
        (["M/M/c", "--lam", "1", "--mu", "1", "--c", "0"], "`c` is a number, 1 or more", "servers"),
        (["M/M/c", "--lam", "1", "--mu", "1", "--c", "1.5"], "`c` is a whole number, not: 1.5", "servers"),
        (["M/M/c", "--lam", "-1", "--mu", "1", "--c", "1"], "`lam` is a number, above 0, not: -1", "arrival rate"),
        (["M/M/1", "--lam", "nan", "--mu", "1"], "not: nan", "arrival rate"),
        (["M/M/1", "--lam", "1", "--mu", "1", "--x", "1"], "M/M/1 has no parameter: `x`", "takes lam, mu"),
        (["M/G/1", "--lam", "1", "--service", "gamma:1"], "unknown service time distribution: `gamma`", "lognormal"),
        (
            ["M/G/1", "--lam", "1", "--service", "lognormal:1"],
            "cannot parse the service time distribution: `lognormal:1`",
            "MEAN:SCV",
        ),
        (["M/G/1", "--lam", "1", "--service", "hyperexponential:1:0.5"], "SCV of 1 or more", "lognormal"),
        (["M/G/1", "--lam", "1", "--service", "pareto:1:5:2"], "ends above its beginning", "pareto"),
        (["M/G/1 SJF", "--lam", "0.5", "--service", "moments:1:2"], "two moments", "use a distribution"),
        (
            ["MOL", "--lam", "1", "--service", "moments:1:2", "--period", "1", "--c", "9"],
            "two moments",
            "use a distribution",
        ),
        (["Kaufman-Roberts", "--a", "1,2", "--b", "1", "--c", "4"], "different numbers of classes", "comma-separated"),
        (["Kaufman-Roberts", "--a", "1", "--b", "9", "--c", "4"], "can never run on: 4", "at most"),
        (["MSJ saturated", "--c", "4", "--n", "1,4", "--p", "0.5,0.6", "--mu", "1,1"], "sum to", "--p"),
        (["MSJ two classes", "--c", "4", "--n", "1", "--p", "1", "--mu", "1"], "of two classes", "MSJ saturated"),
        (["ServerFilling", "--lam", "1", "--c", "6", "--n", "3", "--p", "1", "--mu", "1"], "power of 2", "RESET"),
        (["Bjorklund-Elldin M/G/c", "--lam", "1", "--mu", "1", "--c", "2", "--cs2", "2"], "at most 1", "Whitt"),
        (["square-root staffing", "--lam", "1e9", "--mu", "1", "--chance", "0.5"], "more servers than", "Halfin"),
    ],
)
def test_a_mistake_ends_in_an_error_a_hint_and_status_2(capsys, words, error, hint):
    out, err, status = run(capsys, "solve", *words)
    said, _, hinted = err.partition("\nhint: ")
    assert (status, out) == (2, "")
    assert said.startswith("error: ")
    assert error in said
    assert hint in hinted


def test_the_command_is_the_function(capsys):
    out, _, _ = run(capsys, "solve", "M/M/c", "--lam", "7.2", "--mu", "1", "--c", "8", "--json")
    told = {e["metric"]: e["value"] for e in json.loads(out)["summary"]}
    assert told == {e.metric: e.value for e in solve("M/M/c", lam=7.2, mu=1, c=8).summary()}


def test_a_command_without_a_model_lists_them_all(capsys):
    out, _, status = run(capsys, "solve")
    assert status == 0
    assert all(name in out for name in MODELS)
    assert {word for m in MODELS.values() for word in m.takes} == set(PARAMETERS)
    assert models().tables()["models"].height == len(MODELS)


def test_a_metric_that_is_not_told_is_an_error_that_lists_those_that_are():
    with pytest.raises(WorkloadError, match="has no metric") as refused:
        solve("M/M/1", lam=0.5, mu=1)["colour"]
    assert "mean wait" in refused.value.hint


def test_solving_needs_no_compiler():
    ask = "import sys, fleetlab; fleetlab.solve('M/M/1', lam=0.5, mu=1); print('numba' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"
