"""A study file: every combination once, every mistake reported, and a key for everything that decides a result."""

import sys

import polars as pl
import pytest

from fleetlab import FleetlabError, Scenario, Study
from fleetlab.core.words import WORDS
from fleetlab.studies.sweep.plan import SweepPlan

from .conftest import saved


def make(**words):
    return Study.of_words({"trace": "builtin:500"} | words)


def plan(study):
    return SweepPlan.of(study, lambda *_: None)


# -- what is simulated -----------------------------------------------------------------------------------------------


def test_a_study_is_every_combination_of_its_words():
    study = make(load=[0.5, 1], nodes=["", "+10%"], order=["fifo", "sjf"], placement="fgd")
    assert len(study.scenarios) == 2 * 2 * 2
    assert {s.policy.placement for s in study.scenarios} == {"fgd"}
    assert {s.policy.backfill for s in study.scenarios} == {"greedy"}


def test_scenario_tables_are_combined_one_by_one_and_no_scenario_is_there_twice():
    study = make(scenario=[{"order": "sjf", "estimate": "user"}, {"order": ["fifo", "sjf"]}, {"order": "fifo"}])
    rules = [(s.policy.order, s.policy.estimate) for s in study.scenarios]
    assert rules == [("sjf", "user"), ("fifo", "oracle"), ("sjf", "oracle")]


def test_a_scenario_file_is_a_study_of_one_cell(tmp_path):
    scenario = Scenario.of("builtin:500", order="sjf", load=1.2, seed=7)
    (tmp_path / "one.toml").write_text(scenario.to_toml())
    study = Study.from_toml(tmp_path / "one.toml")
    assert [s.replace(seed=7) for s in study.scenarios] == [scenario]
    assert study.seeds.values == (7,)


def test_a_study_from_python_is_the_study_of_the_same_words():
    scenarios = Scenario.of("builtin:500").vary(order=["fifo", "sjf"], seed=[1, 2])
    study = Study.of(scenarios, against={"order": "fifo"})
    same = make(order=["fifo", "sjf"], seed=[1, 2], compare={"against": {"order": "fifo"}})
    assert study.scenarios == same.scenarios
    assert (study.seeds, study.pairs()) == (same.seeds, same.pairs())


# A value for every word of a scenario, and another one.
EVERY = {
    "trace": ["builtin:500", "builtin:600"], "cluster": ["a.toml", "b.toml"], "nodes": ["+1", "T4 +2"],
    "load": [1.1, 1.2], "latency": [30, {"gang": 60}],
    "order": ["sjf", "las"], "backfill": ["none", "greedy"], "placement": ["fgd", "spread"],
    "estimate": ["user", "group"], "sharing": ["mps", "mig"], "speed": ["published", "h200"],
    "speed_classes": ["other=light", {"other": "heavy"}],
    "preemption": [True, False], "quota": [4, {"ada": 2}],
    "recovery": [{"every": 60.0}, {"every": 90.0}],
    "events": [[{"event": "drain", "begin": 1.0, "end": 2.0, "pool": "a"}], []], "weights": [[1.0], [2.0, 3.0]],
    "prices": [{"per_gpu_hour": 2.0}, {"per_gpu_hour": 3.0}], "seed": [1, 2], "until": ["1h", 7200],
    "window": ["1h..", "0..7200"], "warm_up": ["none", "repeat"], "censored": ["impute", "drop"],
    "min_coverage": [0.0, 0.25], "cycle": ["30s", 60], "scheduler": ["event", {"epilog": 3.0}],
}  # fmt: skip


@pytest.mark.parametrize("name", list(WORDS))
def test_every_word_of_a_scenario_is_an_axis_of_a_study(name):
    usual = {"sharing": "mps"} if name in ("speed", "speed_classes") else {}
    axis = make(**usual | {name: EVERY[name]})
    one = make(**usual | {name: EVERY[name][0]})
    assert len(one.scenarios) == 1
    assert len(axis.seeds.values) * len(axis.scenarios) == 2


def test_a_baseline_differs_in_its_words_alone():
    study = make(load=[1, 2], order=["fifo", "sjf"], compare={"against": {"order": "fifo"}})
    pairs = [(case.load, case.policy.order, base.load, base.policy.order) for case, base in study.pairs()]
    assert pairs == [(1.0, "sjf", 1.0, "fifo"), (2.0, "sjf", 2.0, "fifo")]


def test_looks_are_few_and_never_beyond_the_most_seeds():
    study = make(seeds={"least": 6, "most": 50, "within": "5%"})
    assert study.seeds.looks() == [6, 9, 14, 21, 32, 48]
    assert sum(study.seeds.error_rate(k, 0.05) for k in range(1, 1000)) == pytest.approx(0.05, rel=2e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"traces": []}, "no word by that name: `traces`; did you mean trace?"),
        ({"trace": []}, "`trace` has no value"),
        ({"trace": 3}, "a scenario needs a `trace`"),
        ({"load": [0]}, "load is a number"),
        ({"load": [float("nan")]}, "load is a number"),
        ({"load": "fast"}, "load is a number"),
        ({"resample": "lots"}, "no resampling by that name"),
        ({"seeds": 0}, "seeds are a number of them, from 1 to 1,000,000, or a list"),
        ({"seeds": [1, -1]}, "seeds are a number of them, from 1 to 1,000,000, or a list"),
        ({"seeds": True}, "seeds are a number of them, from 1 to 1,000,000, or a list"),
        ({"seeds": {"least": 2}}, "3 ≤ least ≤ most"),
        ({"seeds": {"within": "soon"}}, "within is a number above 0"),
        ({"seeds": {"upto": 3}}, "no key of [seeds] by that name"),
        ({"scenario": {"orders": "fifo"}}, "no word by that name: `orders`; did you mean order?"),
        ({"scenario": {"seed": 1}}, "no word by that name: `seed`"),
        ({"order": 3}, "not an order: 3"),
        ({"order": "sjff"}, "no order by that name: `sjff`; did you mean sjf?"),
        ({"backfill": "lax"}, "no backfill by that name"),
        ({"estimate": "guess"}, "no estimate by that name"),
        ({"preemption": "yes"}, "preemption is true or false"),
        ({"nodes": ["more"]}, "not an edit of nodes"),
        ({"scenario": "fifo"}, "[[scenario]] is a table"),
        ({"events": "no-such.toml"}, "no-such.toml"),
        ({"compare": {"against": {"order": "fifo"}}}, "no scenario of the study is a baseline"),
        ({"compare": {"against": {"ordre": "fifo"}}}, "no word by that name: `ordre`"),
        ({"compare": {"against": {"order": ["fifo"]}}}, "not an order"),
        ({"compare": {"against": {"load": "high"}}}, "load is a number"),
        ({"compare": {"against": {"nodes": {"T4": 1}}}}, "not an edit of nodes"),
        ({"compare": {"confidence": 2.0}}, "`confidence` is a probability"),
        ({"compare": {"metrics": "mean wait"}}, "`metrics` is a list"),
        ({"compare": []}, "[compare] is a table"),
        ({"load": [k / 1000 for k in range(1, 1000)], "seeds": 10**6}, "more than 10,000,000 cells"),
        ({"quota": list(range(10**4)), "until": list(range(10**4))}, "more than 10,000,000 cells"),
    ],
)
def test_a_mistake_in_a_study_is_reported_before_work_starts(words, message):
    with pytest.raises(FleetlabError) as e:
        make(**words)
    assert message in str(e.value)


@pytest.mark.parametrize("text", ["trace = [", "\xff", "trace = 3"])
def test_a_file_that_is_not_a_study_is_refused(tmp_path, text):
    (tmp_path / "s.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(FleetlabError):
        Study.from_toml(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"nodes": ["T4 +1"]}, "no pool or GPU type by that name: `T4`"),
        ({"nodes": ["-1"]}, "no node would be left: `-1`"),
        ({"trace": ["nowhere"]}, "no saved trace"),
        ({"resample": "synthesize"}, "only a built-in trace"),
        ({"cluster": "none.toml"}, "cannot read the cluster file"),
        ({"speed": "none.json", "sharing": "mps"}, "cannot read the file of `speed`"),
    ],
)
def test_what_does_not_fit_the_traces_is_reported_before_work_starts(study, words, message):
    with pytest.raises(FleetlabError, match=message):
        plan(study(**words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"speed": "h100", "sharing": "mps"}, "no speed profile by that name"),
        ({"placement": "nowhere:mine"}, "no module by that name"),
        ({"compare": {"metrics": ["mean weight"]}}, "no metric by that name: `mean weight`"),
    ],
)
def test_a_wrong_value_is_found_in_the_rehearsal(study, words, message):
    with pytest.raises(FleetlabError, match=message):
        plan(study(**words)).rehearse()


def test_a_quota_for_some_users_can_be_rehearsed(study):
    plan(study(quota={"user-1": 2})).rehearse()


# -- keys ------------------------------------------------------------------------------------------------------------


def keys(study):
    ready = plan(study)
    return [ready.cell(scenario, seed).key for scenario in study.scenarios for seed in study.seeds.values]


def test_the_same_words_have_the_same_keys(study):
    assert keys(study()) == keys(study(load=[1.0], nodes="", placement="best_fit"))


def test_a_trace_has_the_same_keys_under_another_name(study, trace):
    before = keys(study())
    trace.rename(trace.parent / "moved")
    assert keys(study(trace="moved")) == before


@pytest.mark.parametrize(
    "words",
    [
        {"load": [1.1]},
        {"nodes": ["+1"]},
        {"seeds": [7]},
        {"resample": "none"},
        {"backfill": "easy"},
        {"quota": 2},
        {"preemption": True},
        {"prices": {"per_gpu_hour": 2.0}},
    ],
)
def test_whatever_decides_a_result_has_a_key_of_its_own(study, words):
    usual = {"order": "fifo", "seeds": [0]}
    assert set(keys(study(**usual))).isdisjoint(keys(study(**usual | words)))


def test_a_changed_trace_is_another_trace(study, trace):
    before = keys(study())
    saved(trace, 301)
    assert set(before).isdisjoint(keys(study()))


def test_a_changed_file_changes_the_key(study, trace):
    words = {"order": "fifo", "events": "faults.toml"}
    (trace.parent / "faults.toml").write_text("[[faults]]\nmtbf = 86400\nmttr = 60\n")
    before = keys(study(**words))
    assert before == keys(study(**words))
    (trace.parent / "faults.toml").write_text("[[faults]]\nmtbf = 86400\nmttr = 61\n")
    assert set(before).isdisjoint(keys(study(**words)))


def test_a_changed_own_policy_changes_the_key(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "from fleetlab import order\n\n@order\ndef mine(s, job, now):\n    return s.submit[job]\n"
    (tmp_path / "our_orders.py").write_text(text)
    before = keys(study(order="our_orders:mine"))
    (tmp_path / "our_orders.py").write_text(text.replace("return ", "return -"))
    assert set(before).isdisjoint(keys(study(order="our_orders:mine")))


OWN = """
import fleetlab
import middle


@fleetlab.order
def mine(s, job, now):
    return middle.sign() * s.submit[job]


class Mine:
    def decide(self, view):
        return [start for job in view.waiting[: int(middle.sign())] if (start := view.try_start(job))]
"""
MIDDLE = """
def sign():
    from weights import SIGN

    return SIGN
"""


@pytest.mark.parametrize("words", [{"order": "with_helper:mine"}, {"scheduler": "with_helper:Mine"}])
@pytest.mark.parametrize("again", [False, True])
def test_a_changed_helper_in_another_module_changes_the_key(study, tmp_path, monkeypatch, words, again):
    """Workers read modules as they are now, whether this process has imported them before or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for sign in ("1.0", "20.0", "20.0"):
        for name, text in (("with_helper", OWN), ("middle", MIDDLE), ("weights", f"SIGN = {sign}\n")):
            (tmp_path / f"{name}.py").write_text(text)
            if again:
                sys.modules.pop(name, None)
        found.append(keys(study(**words)))
    for name in ("with_helper", "middle", "weights"):
        sys.modules.pop(name, None)
    assert set(found[0]).isdisjoint(found[1])
    assert found[1] == found[2]


def test_a_changed_estimate_changes_the_key(trace):
    base = Scenario.of(str(trace))
    one, two = (keys(Study.of([base.replace(estimate=pl.Series([x] * 300))], seeds=1)) for x in (1.0, 2.0))
    assert one != two
