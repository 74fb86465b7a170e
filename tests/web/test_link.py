"""An address is the state of the page: it comes back as it was, and what it may not say is refused."""

from dataclasses import replace
from urllib.parse import quote, urlencode

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab import Cluster, FleetlabError, Provenance, Trace, Workload
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, ORDERS, PLACEMENTS, SHARINGS
from fleetlab.core.nodes import CPU_ONLY
from fleetlab.core.scenario import Scenario
from fleetlab.core.words import WORDS
from fleetlab.web.link import EXAMPLES, MOST_PINNED, NOT_SHOWN, OWN, Link, page_options, read_scenario
from fleetlab.web.traces import DEFAULT_TRACE, cluster_of, node_groups

TRACE = "folder:mine"
ANY = {
    "order": st.sampled_from(ORDERS.names),
    "backfill": st.sampled_from(BACKFILLS.names),
    "placement": st.sampled_from(PLACEMENTS.names),
    "estimate": st.sampled_from([*ESTIMATES.names, "requested"]),
    "sharing": st.sampled_from(SHARINGS.names),
    "preemption": st.sampled_from(["true", "false"]),
    "quota": st.sampled_from(["16", "ada=16,queue:a=8", '{"a b":2.5}']),
    "recovery": st.just("every=600,save=10"),
    "events": st.just('[{"event":"faults","mtbf":86400,"mttr":600}]'),
    "prices": st.just('{"per_gpu_hour":2.5}'),
    "load": st.floats(0.01, 100).map(str),
    "latency": st.sampled_from(["30", "1 GPU=5/6/9,gang=60", '{"other":[1.5,2]}']),
    "nodes": st.sampled_from(["T4 +20, V100 -25%", "+10%", "T4 400", f"{CPU_ONLY} 3", "A:B&C=D <é> 3"]),
    "seed": st.integers(0, 2**31 - 1).map(str),
    "until": st.sampled_from(["7d", "90", "1.5h"]),
}


@st.composite
def scenarios(draw):
    words = draw(st.fixed_dictionaries({}, optional=ANY))
    if BACKFILLS[words.get("backfill", "none")].reserves:
        words |= {"preemption": "false", "order": "fifo"}
    return read_scenario(urlencode(words), TRACE)


@given(
    now=scenarios(),
    base=scenarios(),
    kept=st.lists(scenarios(), max_size=3, unique=True),
    view=st.sampled_from(["what-if", "job", "trace"]),
    job=st.text(max_size=20).map(str.strip),
)
def test_an_address_brings_back_what_it_was_made_from(now, base, kept, view, job):
    link = Link(now, base, tuple(kept), view, job)
    assert Link.of(link.query()) == link


def read_or_refused(query):
    try:
        return Link.of(query)
    except FleetlabError as e:
        return str(e)


@given(st.text(max_size=200))
def test_an_address_of_anything_is_read_or_refused_in_words(query):
    assert read_or_refused(query)


@given(st.lists(st.tuples(st.sampled_from([*OWN, *WORDS]), st.text(max_size=30))))
def test_known_words_with_any_values_are_read_or_refused_in_words(pairs):
    assert read_or_refused(urlencode(pairs))


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("order=os:system", "cannot read files or code"),
        ("placement=my_module:mine", "cannot read files or code"),
        ("estimate=os:system", "cannot read files or code"),
        ("cluster=/etc/passwd", "cannot read files or code"),
        ("cluster={/../../etc/passwd", "cannot read files or code"),
        ("speed=/etc/profile.json", "cannot read files or code"),
        ("speed={/../../etc/profile.json", "cannot read files or code"),
        ("events=/etc/passwd", "cannot read files or code"),
        ("prices=prices.toml", "cannot read files or code"),
        ("base=events%3D/etc/passwd", "cannot read files or code"),
        ("keep=order%3Dos:system", "cannot read files or code"),
        ("order=sjff", "did you mean sjf?"),
        ("trace=builtin:999999999:0", "no such trace"),
        ("trace=builtin:2000:99", "no such trace"),
        ("trace=/etc", "no such trace"),
        ("trace=upload:../../etc", "no such trace"),
        ("v=2", "another version"),
        ("load=nan", "load is a number"),
        ("load=1e9", "load is a number"),
        ("nodes=T4", "not an edit of nodes"),
        ("preemption=yes", "preemption is true or false"),
        ("order=srpt&backfill=easy", "order srpt, which preempts, cannot be combined with backfill easy"),
        ("until=1e999", "`until` is a time"),
        ("order=sjf&order=fifo", "given twice"),
        ("trace=builtin:2000&trace=builtin:2000", "once"),
        ("ordr=sjf", "did you mean order?"),
        ("keep=trace%3Dbuiltin:2000:0", "`trace` is given once"),
        ("&".join(["keep=load%3D1.2"] * (MOST_PINNED + 1)), "`keep` at most"),
        ("view=else", "no view by that name"),
        ("x" * 9000, "at most 8,000 characters"),
        ("trace=%ff", "not the query of an address"),
    ],
)  # fmt: skip
def test_what_an_address_may_not_say_is_refused(query, error):
    with pytest.raises(FleetlabError, match="(?s)" + error.replace("?", r"\?")):
        Link.of(query)


def test_an_address_that_says_nothing_is_the_default_scenario():
    assert Link.of("") == Link(Scenario.of(DEFAULT_TRACE), Scenario.of(DEFAULT_TRACE))


def test_a_gpu_type_may_have_any_name():
    name = "A:B&C=D <é>"
    assert Link.of(f"nodes={quote(f'{name} 3')}").now.nodes == f"{name} 3"


def test_the_page_has_every_word_of_a_scenario():
    assert [option["name"] for option in page_options()] == [name for name in WORDS if name not in NOT_SHOWN]


def test_the_menus_of_the_page_are_the_catalogs():
    choices = {o["name"]: {c["name"]: c["meaning"] for c in o["choices"] if c["name"]} for o in page_options()}
    menus = {name: word.menu.meanings() for name, word in WORDS.items() if word.menu}
    assert {name: choices[name] for name in menus} == menus


def test_the_example_of_every_option_is_read():
    for name, example in EXAMPLES.items():
        for value in example.split(" or "):
            needed = {"sharing": "mps"} if name == "speed_classes" else {}
            assert Link.of(urlencode({name: value} | needed))


# --- applied to a trace ------------------------------------------------------------------------------------------


def jobs(**columns):
    return Workload.of(pl.DataFrame({"submit": [0.0, 10.0, 40.0], "runtime": 100.0, **columns}), source="three")


def test_a_scenario_is_of_the_trace_that_its_name_stands_for():
    trace = Trace(jobs(gpu_milli=[1000, 500, 0]), Provenance("read", "log"), cluster=Cluster.uniform(4, 8))
    bound = read_scenario("load=2&nodes=GPU+2", TRACE).bind(trace)
    assert bound.workload.frame["submit"].to_list() == [0.0, 5.0, 20.0]
    assert (len(bound.cluster), bound.data.name) == (2, TRACE)


def test_nodes_without_gpus_can_be_edited_too():
    cpu = Cluster.uniform(3, 0).frame.with_columns(node=pl.format("cpu-{}", pl.int_range(pl.len())))
    cluster = Cluster.of(pl.concat([Cluster.uniform(2, 8, gpu_type="T4").frame, cpu]), source="mixed")
    assert [(group["name"], group["nodes"]) for group in node_groups(cluster)] == [("T4", 2), (CPU_ONLY, 3)]
    edited = cluster.with_nodes(f"{CPU_ONLY} 1").frame
    assert ((edited["gpus"] == 0).sum(), (edited["gpus"] > 0).sum()) == (1, 2)


def test_where_a_log_names_no_nodes_an_allocation_of_seventy_percent_is_assumed():
    n = 5000
    frame = pl.DataFrame(
        {"submit": np.arange(n) * 10.0, "runtime": 560.0, "gpu_milli": 1000, "gpu_types": [["T4"]] * n}
    )
    trace = Trace(Workload.of(frame, source="log"), Provenance("read", "log"))
    cluster, note = cluster_of(trace)
    # 5,000 jobs of 560 GPU-seconds in 49,990 s keep 56.01 GPUs busy; at 70 % that takes 80.02: eleven nodes of eight.
    assert (len(cluster), cluster.gpus) == (11, 88)
    assert "70 %" in note


def test_assumed_nodes_hold_the_largest_gang():
    trace = Trace(jobs(gpu_milli=[8000, 1000, 0], instances=[5, 1, 1]), Provenance("read", "log"))
    assert cluster_of(trace)[0].gpus >= 40


def test_an_estimate_that_the_trace_has_not_is_refused_where_the_trace_is_open():
    trace = Trace(jobs(gpu_milli=1000), Provenance("read", "log"), cluster=Cluster.uniform(4, 8))
    bound = read_scenario("estimate=requested", TRACE).bind(replace(trace))
    with pytest.raises(FleetlabError, match="no estimate by that name"):
        _ = bound.estimate
