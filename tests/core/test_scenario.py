"""The scenario: one record, four spellings, one key."""

import subprocess
import sys
import tomllib
from dataclasses import fields

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.core import (
    Cluster,
    Drain,
    Elastic,
    Faults,
    FleetlabError,
    Outage,
    Policy,
    PolicyError,
    Prices,
    Provenance,
    Recovery,
    Scenario,
    Spot,
    Trace,
    TraceError,
    Workload,
    WorkloadError,
)
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, ORDERS, PLACEMENTS, SHARINGS
from fleetlab.core.words import POLICY, WORDS, Words, shorthand
from fleetlab.schedulers.slurm.config import Partition, Slurm

JOBS = Workload.of(pl.DataFrame({"submit": [0.0, 6.0, 7.0], "user": ["ada", "bob", None]}), source="by hand")
NODES = Cluster.uniform(4, 8, gpu_type="T4")

# -- the spellings ---------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(min_codepoint=33, exclude_categories=("Cs", "Cn", "Cc", "Z")), min_size=1, max_size=8)
SECONDS = st.floats(0, 1e7, allow_nan=False) | st.integers(0, 10**7)
ABOVE = st.floats(0.01, 1e7) | st.integers(1, 10**7)
EVENTS = st.one_of(
    st.builds(Faults, ABOVE, SECONDS, st.none() | NAMES),
    st.builds(lambda a, b, n: Outage(a, a + b, nodes=n), SECONDS, SECONDS, st.lists(NAMES, min_size=1, max_size=3)),
    st.builds(lambda a, b, p: Drain(a, a + b, pool=p), SECONDS, SECONDS, NAMES),
    st.builds(Spot, NAMES, ABOVE, SECONDS, SECONDS),
    st.builds(Elastic, NAMES, least=st.integers(0, 9), boot=SECONDS, every=ABOVE),
)
PRICES = st.builds(
    Prices,
    pue=st.floats(1, 3),
    per_kwh=SECONDS,
    per_gpu_hour=st.floats(0, 99) | st.dictionaries(NAMES, st.floats(0, 99), min_size=1, max_size=3),
)
VALUES = {
    "trace": st.sampled_from(["builtin", "builtin:20000:7", "my trace", "/a/ü&=#?+%"]),
    "cluster": st.sampled_from(["bigger.toml", "a b/ü.toml"]),
    "scheduler": st.sampled_from([None, "site", Slurm(partitions=(Partition("gpu", tier=2),))]),
    "nodes": st.sampled_from(["", "+10%", "T4 +20", "T4 400", "T4 +20, V100 -25%"]),
    "load": st.floats(0.001, 1000),
    "latency": st.floats(0, 1e6)
    | st.dictionaries(NAMES, st.lists(st.floats(0, 1e6), min_size=1, max_size=4), min_size=1, max_size=3),
    "order": st.sampled_from([o.name for o in ORDERS if not o.preemptive] + ["my_module:mine"]),
    "backfill": st.sampled_from(BACKFILLS.names),
    "placement": st.sampled_from([*PLACEMENTS.names, "a.b:c"]),
    "estimate": st.sampled_from(ESTIMATES.names),
    "sharing": st.sampled_from(SHARINGS.where("needs_speed")),
    "speed": st.sampled_from([None, "h200", "mine.json"]),
    "speed_classes": st.sampled_from([None, "app:bert=light,other=heavy", {"user:ada": "mine", "other": "heavy"}]),
    "preemption": st.just(False),
    "quota": st.none() | st.floats(0, 1e6) | st.dictionaries(NAMES, st.floats(0, 1e6), min_size=1, max_size=3),
    "recovery": st.none() | st.builds(Recovery, SECONDS, SECONDS, SECONDS),
    "events": st.lists(EVENTS, max_size=3),
    "cycle": st.floats(0, 1e6),
    "weights": st.lists(st.floats(-1e9, 1e9), max_size=4),
    "prices": st.none() | PRICES,
    "seed": st.integers(0, 2**63 - 1),
    "until": st.none() | st.floats(0, 1e9),
    "window": st.just("") | st.builds(lambda a, b: f"{a!r}..{a + b!r}", SECONDS, ABOVE) | st.just("2d.."),
    "warm_up": st.sampled_from(["auto", "repeat", "none"]),
    "censored": st.sampled_from(["hold", "impute", "drop"]),
    "min_coverage": st.floats(0, 1),
}
SCENARIOS = st.fixed_dictionaries(
    {"trace": VALUES["trace"]}, optional={k: v for k, v in VALUES.items() if k != "trace"}
)
SCENARIOS = SCENARIOS.filter(lambda w: not (w.get("speed") or w.get("speed_classes")) or w.get("sharing"))


def test_every_word_is_in_these_tests():
    assert set(VALUES) == set(WORDS)


@settings(max_examples=120, deadline=None)
@given(words=SCENARIOS)
def test_the_four_spellings_lead_back_to_the_same_record(words):
    scenario = Scenario.of_words(words)
    text = scenario.to_toml()
    assert Scenario.of_words(tomllib.loads(text)) == scenario
    assert Scenario.of_words(tomllib.loads(text)).to_toml() == text
    assert Scenario.from_query(scenario.to_query()) == scenario
    assert Scenario.of_words(scenario.words()) == scenario
    assert Scenario.of(scenario, **{k: v for k, v in words.items() if k != "cluster"}) == scenario


@settings(max_examples=60, deadline=None)
@given(words=SCENARIOS, other=SCENARIOS)
def test_a_key_tells_scenarios_apart(words, other):
    a, b = Scenario.of_words(words), Scenario.of_words(other)
    assert (a.key == b.key) == (a.to_toml() == b.to_toml())


def test_files_are_looked_for_beside_the_scenario(tmp_path):
    (tmp_path / "faults.toml").write_text("[[faults]]\nmtbf = 86400\nmttr = 60\n[recovery]\nevery = 600\n", "utf-8")
    (tmp_path / "prices.toml").write_text("per_gpu_hour = { T4 = 0.35 }\n", "utf-8")
    path = tmp_path / "scenario.toml"
    path.write_text('trace = "log"\nevents = "faults.toml"\nprices = "prices.toml"\ncluster = "c.toml"\n', "utf-8")
    scenario = Scenario.from_toml(path)
    assert scenario.data.name == str(tmp_path / "log")
    assert scenario.data.cluster_name == str(tmp_path / "c.toml")
    assert (scenario.events, scenario.policy.recovery) == ((Faults(86400, 60),), Recovery(600))
    assert scenario.prices == Prices(per_gpu_hour={"T4": 0.35})


def test_a_key_is_the_same_in_every_process():
    ask = "from fleetlab.core import Scenario; print(Scenario.of('builtin:2000', order='sjf', load=1.5, quota=16).key)"
    other = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    assert other == Scenario.of("builtin:2000", order="sjf", load=1.5, quota=16.0).key
    assert other == "619a9108a58a3ca5fed32a72b0b3eb3e"


def test_a_key_of_data_without_a_name_is_of_its_content():
    again = Workload.of(JOBS.frame.drop(JOBS.frame.columns[0]), source="elsewhere")
    assert Scenario.of(JOBS, NODES).key == Scenario.of(again, Cluster.uniform(4, 8, gpu_type="T4")).key
    assert Scenario.of(JOBS, NODES).key != Scenario.of(JOBS.head(2), NODES).key
    assert Scenario.of(JOBS, NODES).key != Scenario.of(JOBS, NODES.scaled(2)).key


# -- policies of one's own -------------------------------------------------------------------------------------------


def mine(s, job, now):
    return 0.0


def weighted(weight):
    return lambda s, job, now: weight


def test_a_function_of_a_module_is_spelled_by_its_name():
    scenario = Scenario.of("builtin", order=pytest.approx, placement=mine)
    assert scenario.policy.words()["order"].endswith(":approx")


def test_a_function_without_a_name_cannot_be_written_down():
    scenario = Scenario.of("builtin", order=weighted(1))
    with pytest.raises(FleetlabError, match="`order` exists only in this process"):
        scenario.to_toml()
    assert scenario.key == Scenario.of("builtin", order=weighted(1)).key
    assert scenario.key != Scenario.of("builtin", order=weighted(2)).key


# -- what it refuses -------------------------------------------------------------------------------------------------

WRONG = [
    {"odrer": "sjf"}, {"order": "sjff"}, {"order": 3}, {"order": "my_module.py:mine"}, {"backfill": "skip"},
    {"placement": "bestfit"}, {"sharing": "shares"}, {"load": 0}, {"load": "much"}, {"load": True}, {"nodes": "T4"},
    {"nodes": 3}, {"preemption": "perhaps"}, {"preemption": True, "backfill": "easy"},
    {"order": "srpt", "backfill": "conservative"}, {"quota": -1}, {"quota": {"ada": "x"}}, {"quota": "{"},
    {"recovery": {"evry": 1}}, {"recovery": 3}, {"events": [{"event": "fault"}]}, {"events": 3}, {"events": "no.toml"},
    {"weights": [float("nan")]}, {"weights": 3}, {"prices": {"pu": 1}}, {"prices": {"pue": "x"}}, {"prices": 3},
    {"seed": -1}, {"seed": 1.5}, {"seed": True}, {"until": -1}, {"until": "soon"}, {"until": [1]}, {"speed": "h200"},
    {"estimate": [-1.0, 0.0, 0.0]}, {"estimate": [1.0]}, {"estimate": "grop"},
]  # fmt: skip


@pytest.mark.parametrize("words", WRONG, ids=str)
def test_a_word_that_cannot_be_is_refused(words):
    with pytest.raises(FleetlabError):
        _ = Scenario.of(JOBS, NODES, **words).estimate


@pytest.mark.parametrize("cluster", [5, 0, True, {}, [1], Scenario])
def test_what_is_no_cluster_is_refused_with_a_hint(cluster):
    with pytest.raises(WorkloadError, match="not a cluster: ") as refusal:
        Scenario.of("builtin:200", cluster=cluster)
    assert "TOML file" in refusal.value.hint


def test_an_unknown_word_is_refused_with_the_closest_and_a_list():
    with pytest.raises(WorkloadError, match="no word by that name: `odrer`; did you mean order") as refusal:
        Scenario.of("builtin", odrer="sjf")
    assert "backfill, placement, estimate" in refusal.value.hint


@pytest.mark.parametrize(
    "query",
    ["order=os:abort", "cluster=/etc/passwd", "events=/etc/passwd", "prices=x", "speed=../x.json", "trace=/etc"],
)
def test_an_address_from_elsewhere_names_no_files_and_no_code(query):
    with pytest.raises(WorkloadError, match="cannot read files or code from disk"):
        Scenario.from_query(f"{query}&load=1.2", local=False)


@pytest.mark.parametrize("query", ["load", "load=1&load=2", "a" * 9000, "load=%FF", "odrer=sjf"])
def test_a_query_that_is_none_is_refused(query):
    with pytest.raises(WorkloadError):
        Scenario.from_query(query)


def test_a_trace_without_a_cluster_needs_one():
    with pytest.raises(TraceError, match="the trace has no cluster: by hand"):
        _ = Scenario.of(JOBS).cluster


# -- what verbs get --------------------------------------------------------------------------------------------------


def test_load_and_nodes_are_applied():
    scenario = Scenario.of(JOBS, NODES, load=2, nodes="T4 +50%")
    assert scenario.workload.frame["submit"].to_list() == [0.0, 3.0, 3.5]
    assert (len(scenario.cluster), len(scenario.replace(nodes="", load=1).cluster)) == (6, 4)


def test_a_series_of_the_trace_is_an_estimate():
    job = JOBS.frame.columns[0]
    series = {"requested": pl.LazyFrame({job: [2, 0], "seconds": [9, 7]})}
    trace = Trace(JOBS, Provenance("test", "by hand"), NODES, series=series)
    scenario = Scenario.of(trace, estimate="requested")
    assert scenario.estimate.to_list() == [7.0, None, 9.0]
    part = scenario.on(JOBS.head(2), rows=pl.Series([0, 1]).to_numpy())
    assert (part.estimate.to_list(), len(part.workload)) == ([7.0, None], 2)
    with pytest.raises(PolicyError, match="did you mean requested"):
        Scenario.of(trace, estimate="requestd")


def test_variations_are_every_combination_and_the_first_has_the_first_values():
    scenarios = Scenario.of("builtin", backfill="easy").vary(order=["fifo", "sjf"], load=[1, 1.2])
    assert [s.title for s in scenarios] == ["fifo/easy", "fifo/easy, load 1.2", "sjf/easy", "sjf/easy, load 1.2"]


def test_a_bound_scenario_is_the_same_one():
    trace = Trace(JOBS, Provenance("test", "by hand"), NODES)
    scenario = Scenario.of("upload:abc", order="sjf")
    assert scenario.bind(trace) == scenario
    assert scenario.bind(trace).workload is JOBS


def test_another_cluster_keeps_the_name_of_an_open_trace(tmp_path):
    Trace(JOBS, Provenance("test", "by hand"), NODES).save(tmp_path / "log")
    scenario = Scenario.of(str(tmp_path / "log")).open()
    assert scenario.replace(cluster=NODES).data.name == str(tmp_path / "log")
    assert Scenario.of(Trace.load(tmp_path / "log")) == scenario


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ({}, "fifo/greedy"),
        ({"order": "sjf", "load": 1.2}, "sjf/greedy, load 1.2"),
        ({"backfill": "none", "preemption": True, "until": "1d"}, "fifo/none, preemption, until 24 h"),
    ],
)
def test_a_title_is_what_differs(words, title):
    assert Scenario.of("builtin", **words).title == title
    assert repr(Scenario.of("builtin", **words)) == f"<Scenario builtin: {title}>"


# -- the table of words ----------------------------------------------------------------------------------------------


def test_words_defaults_and_types_are_those_of_the_nouns():
    default = Scenario.of("builtin")
    assert {f.name for f in fields(Policy)} == set(POLICY)
    assert all(getattr(Policy(), name) == WORDS[name].default for name in POLICY)
    own = {name for name, word in WORDS.items() if word.noun == "scenario"}
    assert {f.name for f in fields(Scenario)} == own | {"data", "policy", "replica"}
    assert all(getattr(default, name) == WORDS[name].default for name in own)
    assert set(Words.__annotations__) == set(WORDS) - {"trace", "cluster"}


def test_help_names_every_choice_and_the_default():
    for word in WORDS.values():
        assert word.name == "trace" or "(default: " in word.help
        assert all(name in word.help for name in (word.menu.names if word.menu else ()))


def test_a_shorthand_has_the_parts_of_a_policy():
    assert Policy.of("sjf/easy/fgd/group/exclusive").words() == shorthand("sjf/easy/fgd/group/exclusive")
    assert Policy.of("las/preemption=true/quota=4") == Policy(order="las", preemption=True, quota=4)
    for wrong in ("", "sjf//x", "sjf/easy/fgd/group/exclusive/more", "sjf/order=fifo", "preemption=true/easy"):
        with pytest.raises(FleetlabError):
            Policy.of(wrong)
