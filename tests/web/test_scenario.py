"""An address is the state of the page: it comes back as it was, and what it may not say is refused."""

from urllib.parse import quote, urlencode

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab import Cluster, FleetlabError, Provenance, Trace, Workload
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, ORDERS, PLACEMENTS, REASONS, SHARINGS
from fleetlab.web import choices
from fleetlab.web.scenario import KEPT, Link, Scenario
from fleetlab.web.world import cluster_of, loaded, sized

SCENARIOS = st.builds(
    Scenario,
    order=st.sampled_from(list(choices.RULES["order"])),
    backfill=st.sampled_from(list(choices.RULES["backfill"])),
    placement=st.sampled_from(list(choices.RULES["placement"])),
    estimate=st.sampled_from(list(choices.RULES["estimate"])),
    sharing=st.sampled_from(list(choices.RULES["sharing"])),
    load=st.integers(100, 10_000).map(lambda n: n / 1000),
    nodes=st.dictionaries(st.text(min_size=1, max_size=20), st.integers(0, 50_000), max_size=4).map(
        lambda found: tuple(sorted(found.items()))
    ),
    seed=st.integers(0, 2**31 - 1),
)


@given(
    now=SCENARIOS,
    base=SCENARIOS,
    kept=st.lists(SCENARIOS, max_size=3, unique=True),
    view=st.sampled_from(["what-if", "trace"]),
)
def test_an_address_brings_back_what_it_was_made_from(now, base, kept, view):
    link = Link(now, base, tuple(kept), view)
    assert Link.of(link.query()) == link


def read_or_refused(query):
    try:
        return Link.of(query)
    except FleetlabError as e:
        return e.hint


@given(st.text(max_size=200))
def test_an_address_of_anything_is_read_or_refused_in_words(query):
    assert read_or_refused(query)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["v", "trace", "order", "load", "nodes", "seed", "base", "keep", "view"]),
            st.text(max_size=30),
        )
    )
)
def test_known_words_with_any_values_are_read_or_refused_in_words(pairs):
    assert read_or_refused(urlencode(pairs))


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("order=os:system", "no order by that name"),
        ("placement=my_module:mine", "no place by that name"),
        ("trace=builtin:999999999:0", "no such trace"),
        ("trace=builtin:2000:99", "no such trace"),
        ("trace=/etc", "no such trace"),
        ("trace=upload:../../etc", "no such trace"),
        ("v=2", "another version"),
        ("load=nan", "load is a number"),
        ("load=1e9", "load is a number"),
        ("nodes=T4", "TYPE:COUNT"),
        ("nodes=T4:-1", "nodes is a whole number"),
        ("nodes=T4:1&nodes=T4:2", "once for each GPU type"),
        ("order=sjf&order=fifo", "said twice"),
        ("ordr=sjf", "did you mean order?"),
        ("keep=trace%3Dbuiltin:2000:0", "no setting by that name: `trace`"),
        ("&".join(["keep=load%3D1.2"] * (KEPT + 1)), "`keep` at most"),
        ("x" * 9000, "at most 8,000 characters"),
        ("trace=%ff", "not an address"),
    ],
)  # fmt: skip
def test_what_an_address_may_not_say_is_refused(query, error):
    with pytest.raises(FleetlabError, match="(?s)" + error.replace("?", r"\?")):
        Link.of(query)


def test_an_address_that_says_nothing_is_the_usual_scenario():
    assert Link.of("") == Link(Scenario(), Scenario())


def test_a_type_may_be_called_anything():
    name = "A:B&C=D, <é>"
    assert Link.of(f"nodes={quote(name)}:3").now.nodes == ((name, 3),)


def test_what_can_be_chosen_is_what_the_simulator_has():
    assert set(choices.RULES["order"]) == set(ORDERS.names)
    assert set(choices.RULES["placement"]) == set(PLACEMENTS.names)
    assert set(choices.RULES["backfill"]) == set(BACKFILLS.names)
    assert set(choices.RULES["sharing"]) == set(SHARINGS.names)
    assert set(choices.RULES["estimate"]) == set(ESTIMATES.names)
    assert list(choices.REASONS) == list(REASONS.names)


# --- applied to a trace ------------------------------------------------------------------------------------------


def jobs(**columns):
    return Workload.of(pl.DataFrame({"submit": [0.0, 10.0, 40.0], "runtime": 100.0, **columns}), source="three")


def test_load_brings_the_same_jobs_faster():
    faster = loaded(jobs(gpu_milli=[1000, 500, 0]), 2.0)
    assert faster.frame["submit"].to_list() == [0.0, 5.0, 20.0]
    assert faster.frame["gpu_milli"].to_list() == [1000, 500, 0]


def nodes(**count):
    frames = [
        Cluster.uniform(n, 8, gpu_type=kind).frame.with_columns(
            node=pl.format("{}-{}", pl.lit(kind), pl.int_range(pl.len()))
        )
        for kind, n in count.items()
    ]
    return Cluster.of(pl.concat(frames), source="some")


@pytest.mark.parametrize("count", [0, 1, 3, 4, 9])
def test_a_type_has_as_many_nodes_as_were_asked_for_and_the_others_stay(count):
    found = sized(nodes(T4=4, V100=2), (("T4", count),)).frame
    assert dict(found.group_by("gpu_type").len().iter_rows()).get("T4", 0) == count
    assert found.filter(pl.col("gpu_type") == "V100").height == 2
    assert found["node"].is_unique().all()


def test_fewer_nodes_are_taken_evenly_over_those_that_are_there():
    kinds = Cluster.uniform(6, 8).frame.with_columns(cpu_milli=pl.Series([1, 1, 2, 2, 3, 3]) * 1000)
    found = sized(Cluster.of(kinds, source="three kinds"), (("GPU", 3),))
    assert found.frame["cpu_milli"].to_list() == [1000, 2000, 3000]


def test_nodes_without_gpus_have_a_slider_too():
    bare = pl.concat(
        [nodes(T4=2).frame, Cluster.uniform(3, 0).frame.with_columns(node=pl.format("cpu-{}", pl.int_range(pl.len())))]
    )
    found = sized(Cluster.of(bare, source="mixed"), (("no GPU", 1),)).frame
    assert (found["gpus"] == 0).sum() == 1


@pytest.mark.parametrize(
    ("wanted", "error"), [((("A100", 3),), "no node of that GPU type: `A100`"), ((("T4", 0), ("V100", 0)), "from 1 to")]
)
def test_a_cluster_that_cannot_be_is_refused(wanted, error):
    with pytest.raises(FleetlabError, match=error):
        sized(nodes(T4=4, V100=2), wanted)


def test_where_a_log_names_no_nodes_they_are_assumed_to_be_seventy_percent_busy():
    n = 5000
    frame = pl.DataFrame(
        {"submit": np.arange(n) * 10.0, "runtime": 560.0, "gpu_milli": 1000, "gpu_types": [["T4"]] * n}
    )
    trace = Trace(Workload.of(frame, source="log"), Provenance("read", "log"))
    cluster, said = cluster_of(trace)
    # 5,000 jobs of 560 GPU-seconds in 49,990 s keep 56.01 GPUs busy; at 70 % that takes 80.02: eleven nodes of eight.
    assert (len(cluster), cluster.gpus) == (11, 88)
    assert "70 % busy" in said


def test_assumed_nodes_hold_the_largest_gang():
    trace = Trace(jobs(gpu_milli=[8000, 1000, 0], instances=[5, 1, 1]), Provenance("read", "log"))
    assert cluster_of(trace)[0].gpus >= 40
