"""Where to put it: known answers, bounds that hold, limits, types, and words for what does not fit."""

import json
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Workload, WorkloadError
from fleetlab.core import SavedResult, as_json
from fleetlab.plan import check
from fleetlab.plan.problem import problem
from fleetlab.plan.solvers.greedy import gpus_needed, simple, whole_steps
from fleetlab.plan.solvers.patterns import PatternSpace, _at_most


def demand(**columns):
    """A demand by columns; all at once."""
    return Workload.of(pl.DataFrame({"submit": 0.0, **columns}), source="by hand")


def mixed():
    return demand(instances=[3, 2], gpu_milli=[300, 1000], cpu_milli=[4000, 9000])


def cpus(count, cpu_milli):
    return Cluster.uniform(count, 0, cpu_milli=cpu_milli, memory_mib=1000)


def placed(found, job):
    return found.placements.filter(pl.col("job") == job)


# -- known answers -----------------------------------------------------------------------------------------------------


def test_triplets_that_fill_nodes_to_the_brim_are_found():
    # Falkenauer's triplets: each three of them sum to one node exactly, so the best is known by how they are made.
    rng = np.random.default_rng(5)
    sizes = []
    for _ in range(20):
        a = int(rng.integers(380, 490))
        b = int(rng.integers(255, 1000 - a - 250))
        sizes += [a, b, 1000 - a - b]
    found = fleetlab.plan(demand(cpu_milli=sizes), cpus(40, 1000), seconds=60)
    assert (found.bound, found.value) == (20, 20)


def test_instances_of_more_than_half_a_node_need_one_each_and_the_bound_knows():
    found = fleetlab.plan(demand(instances=[50], cpu_milli=[600]), cpus(80, 1000))
    assert (found.value, found.bound, found.gap) == (50, 50, 0)


def test_shares_do_not_add_up_across_gpus():
    # Three shares of 600 are 1.8 GPUs, and need three.
    found = fleetlab.plan(demand(instances=[3], gpu_milli=[600]), Cluster.uniform(4, 2))
    assert found.value == found.bound == 2
    assert sorted(placed(found, 0).group_by("node").len()["len"]) == [1, 2]


def test_whole_gpus_are_idle_ones():
    # On each node of two, a share leaves one GPU: two whole ones need a node of their own.
    asked = demand(instances=[2, 1], gpu_milli=[100, 2000])
    found = fleetlab.plan(asked, Cluster.uniform(3, 2))
    assert found.value == 2
    assert placed(found, 1)["gpus"].to_list() == [0b11]


def test_memory_of_a_gpu_is_shared_out_too():
    asked = demand(instances=[4], gpu_milli=[100], gpu_memory_mib=[600])
    found = fleetlab.plan(asked, Cluster.uniform(4, 1, gpu_memory_mib=1000))
    assert found.value == found.bound == 4


def test_a_limit_spreads_an_app():
    asked = demand(instances=[7], cpu_milli=[10], app=["a"], max_per_node=[2])
    found = fleetlab.plan(asked, cpus(10, 1000))
    assert found.value == found.bound == 4


def test_limits_of_one_app_are_kept_as_they_came():
    # Two with a limit of 2 may come first, then six with a limit of 8: eight on one node, as the simulator would do.
    asked = demand(instances=[2, 6], cpu_milli=[1, 1], app=["a", "a"], max_per_node=[2, 8])
    assert fleetlab.plan(asked, cpus(3, 1000)).value == 1
    nine = demand(instances=[2, 7], cpu_milli=[1, 1], app=["a", "a"], max_per_node=[2, 8])
    assert fleetlab.plan(nine, cpus(3, 1000)).value == 2


@pytest.mark.parametrize(
    ("apps", "limits", "nodes"),
    [
        (["a", "a", "a"], [1, 0, 0], 1),  # those without a limit do not count
        ([None, None, None], [1, 1, 1], 3),  # those without an app are of one app
        ([None, None, "a"], [1, 1, 1], 2),
        (["a", "a", "a"], [1, 2, 0], 1),
        (["a", "a", "a"], [1, 2, 2], 2),
    ],
)
def test_a_limit_means_what_it_means_to_the_simulator(apps, limits, nodes):
    asked = demand(cpu_milli=[1] * 3, runtime=[9.0] * 3, max_per_node=limits, app=pl.Series(apps, dtype=pl.String))
    assert fleetlab.plan(asked, cpus(3, 1000)).value == nodes
    waits = [fleetlab.simulate(asked, cpus(n, 1000)).jobs["wait"].max() for n in range(1, 4)]
    assert [wait == 0 for wait in waits] == [n >= nodes for n in range(1, 4)]


def test_the_simulator_starts_at_once_what_a_plan_says_fits_on_one_node():
    asked = demand(instances=[1, 1, 2], gpu_milli=[600, 400, 1000], cpu_milli=[4000] * 3, runtime=[9.0] * 3)
    one = Cluster.uniform(1, 3, cpu_milli=16_000)
    assert fleetlab.plan(asked, one).feasible
    assert fleetlab.simulate(asked, one).jobs["wait"].to_list() == [0.0, 0.0, 0.0]


def test_a_gpu_type_is_kept_and_does_not_matter_to_those_without_gpus():
    nodes = pl.concat([Cluster.uniform(1, 1, gpu_type=t).frame.with_columns(node=pl.lit(t)) for t in ("A", "B")])
    asked = demand(gpu_milli=[1000, 0], cpu_milli=[1, 1], gpu_types=[["B"], ["C"]])
    found = fleetlab.plan(asked, Cluster.of(nodes, source="two"))
    assert found.value == 1
    assert set(found.placements["node"]) == {"B"}


def test_the_cheap_nodes_are_taken_where_they_do():
    nodes = pl.concat([cpus(5, size).frame.with_columns(node=pl.format("{}-{}", pl.lit(pool), pl.int_range(pl.len())),
                       pool=pl.lit(pool)) for pool, size in (("large", 1000), ("small", 500))])  # fmt: skip
    both, asked = Cluster.of(nodes, source="two"), demand(instances=[4], cpu_milli=[500])
    cheap = fleetlab.plan(asked, both, objective="cost", prices={"large": 10, "small": 4})
    dear = fleetlab.plan(asked, both, objective="cost", prices={"large": 10, "small": 6})
    assert (cheap.value, dear.value) == (16, 20)


def test_stranded_keeps_cpu_work_off_gpu_nodes():
    frames = [Cluster.uniform(2, 8, cpu_milli=9000).frame, cpus(4, 3000).frame.with_columns(
        node=pl.format("cpu-{}", pl.int_range(pl.len())))]  # fmt: skip
    nodes = Cluster.of(pl.concat(frames), source="two")
    asked = demand(instances=[4, 8], cpu_milli=[3000, 100], gpu_milli=[0, 1000])
    assert fleetlab.plan(asked, nodes).value == 2  # both nodes with GPUs, with CPU work on them
    found = fleetlab.plan(asked, nodes, objective="stranded")
    assert (found.value, found.bound) == (8, 8)
    assert [e.value for e in found.summary() if e.metric == "idle GPUs on nodes in use"] == [0]


def test_a_balanced_plan_spreads_evenly():
    found = fleetlab.plan(demand(instances=[8], cpu_milli=[100]), cpus(4, 1000), objective="balance")
    assert (found.value, found.gap) == (pytest.approx(0.2), 0)


def test_who_can_stay_stays_and_only_a_full_node_is_left():
    # Four of 300 on a node of 1000: one must go. The node that is gone sends two away.
    asked = demand(instances=[4, 2], cpu_milli=[300, 200])
    now = pl.DataFrame({"job": [0] * 4 + [1] * 2, "node": ["node-0"] * 4 + ["gone"] * 2})
    found = fleetlab.plan(asked, cpus(3, 1000), objective="moves", current=now)
    assert (found.value, found.bound) == (3, 3)
    assert placed(found, 0).filter(pl.col("node") == "node-0").height == 3


def test_newcomers_are_no_moves():
    asked = demand(instances=[3], cpu_milli=[300])
    now = pl.DataFrame({"job": [0], "instance": [1], "node": ["node-2"]})
    found = fleetlab.plan(asked, cpus(3, 1000), objective="moves", current=now)
    assert (found.value, found.feasible) == (0, True)
    assert placed(found, 0).filter(pl.col("instance") == 1)["node"].item() == "node-2"


def test_gpus_that_are_not_told_are_those_with_which_nobody_has_to_move():
    # 500 + 300 + 200 and 400 + 300 + 300 fill two GPUs; the largest first to the tightest does not find that.
    asked = demand(gpu_milli=[500, 300, 200, 400, 300, 300])
    now = pl.DataFrame({"job": range(6), "node": "node-1"})
    found = fleetlab.plan(asked, Cluster.uniform(2, 2), objective="moves", current=now)
    assert (found.value, found.bound) == (0, 0)
    assert any("missing from the current" in note for note in found.notes)


def test_where_not_all_gpus_can_be_there_as_few_as_can_be_go():
    # One of two GPUs cannot be beside three shares of 600 on three: it goes, and not two of the shares.
    asked = demand(instances=[1, 3], gpu_milli=[2000, 600])
    now = pl.DataFrame({"job": [0, 1, 1, 1], "node": "node-0"})
    found = fleetlab.plan(asked, Cluster.uniform(2, 3), objective="moves", current=now)
    assert (found.value, found.bound) == (1, 1)


def test_who_must_go_for_want_of_cpu_is_not_decided_by_gpus_that_are_not_told():
    # One of two GPUs and 600 cores, or two of one GPU and 500: the first goes, and the others stay.
    asked = demand(gpu_milli=[2000, 1000, 1000], cpu_milli=[600, 500, 500])
    now = pl.DataFrame({"job": range(3), "node": "node-0"})
    found = fleetlab.plan(asked, Cluster.uniform(2, 4, cpu_milli=1000), objective="moves", current=now)
    assert (found.value, found.bound) == (1, 1)
    assert set(placed(found, 0)["node"]) == {"node-1"}


def test_a_node_that_is_not_there_is_told_in_a_note():
    now = pl.DataFrame({"job": [0], "node": ["gone"]})
    found = fleetlab.plan(demand(cpu_milli=[300]), cpus(3, 1000), objective="moves", current=now)
    assert found.notes == ("1 instances are on an unknown node or GPU: they move",)


# -- bounds and laws ---------------------------------------------------------------------------------------------------


def test_the_bound_on_gpus_is_that_of_martello_and_toth():
    # L2 of 7, 6, 6, 4, 4, 3 in tenths: three above half, of which the 4s fit beside the 6s only, and 3 beside 7.
    p = problem(demand(gpu_milli=[700, 600, 600, 600, 400, 400]), Cluster.uniform(9, 1))
    assert gpus_needed(p, np.ones(p.kinds, dtype=bool)) == 4


def test_a_bound_of_all_nodes_is_infinite_where_they_are_too_few():
    assert simple(problem(demand(instances=[9], cpu_milli=[1000]), cpus(8, 1000))) == float("inf")


ASKS = st.tuples(
    st.integers(1, 12), st.integers(0, 900), st.integers(0, 900), st.sampled_from([0, 0, 250, 400, 700, 1000, 3000]),
    st.sampled_from([0, 0, 1, 3]), st.sampled_from(["a", "b"]),
)  # fmt: skip


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(ASKS, min_size=1, max_size=6), st.sampled_from(["nodes", "stranded", "balance"]))
def test_every_plan_is_right_and_no_better_than_its_bound(asks, objective):
    count, cpu, memory, gpu, limit, app = zip(*asks, strict=True)
    asked = demand(instances=count, cpu_milli=cpu, memory_mib=memory, gpu_milli=gpu, max_per_node=limit, app=app)
    nodes = Cluster.uniform(30, 4, cpu_milli=1500, memory_mib=2000)
    found = fleetlab.plan(asked, nodes, objective=objective, seconds=0.5)
    assert check(asked, nodes, found.placements, whole=found.feasible) == []
    if found.feasible:
        assert found.bound <= found.value + 1e-9


@pytest.mark.parametrize("objective", ["nodes", "balance"])
def test_the_same_seed_gives_the_same_plan(objective):
    asked, nodes = (mixed(), Cluster.uniform(3, 2))
    first, second = (fleetlab.plan(asked, nodes, objective=objective, seed=7) for _ in range(2))
    assert first.placements.equals(second.placements)


def test_what_a_pattern_is_worth_at_most_is_what_the_linear_program_says_and_never_less():
    # Two amounts of 1000, instances of (60, 20) and (20, 60) worth 5 and 4: 12.5 of each, by hand.
    asked = demand(instances=[20, 20], cpu_milli=[60, 20], memory_mib=[20, 60])
    p = problem(asked, cpus(9, 1000))
    shapes = PatternSpace.make(p)
    prices = np.where(p.ask[shapes.one, 0] == 60, 5.0, 4.0)
    assert 1.0 <= _at_most(shapes, 0, prices) / 112.5 <= 1 + 1e-9


def test_a_bound_that_is_a_hair_above_what_nodes_can_count_for_is_not_a_step_more():
    p = problem(demand(cpu_milli=[1]), cpus(2, 10), weight=pl.Series([1234.567, 1.0]))  # a step is a thousandth
    assert whole_steps(p, 700_000 * 1234.567 * (1 + 1e-13)) == pytest.approx(700_000 * 1234.567, rel=1e-15)
    assert whole_steps(p, 7.0001) == pytest.approx(7.001)


def test_time_is_kept():
    rng = np.random.default_rng(1)
    asked = demand(cpu_milli=rng.integers(50, 700, 400), memory_mib=rng.integers(50, 700, 400))
    found = fleetlab.plan(asked, cpus(400, 1000), seconds=0.2)
    assert found.feasible  # a plan comes at once, however short the time
    assert 0 < found.bound <= found.value


def test_without_a_solver_there_is_a_plan_and_a_bound(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    found = fleetlab.plan(demand(instances=[9], cpu_milli=[400]), cpus(9, 1000))
    assert (found.value, found.bound) == (5, 4)
    assert "fleetlab[optimize]" in found.notes[0]


def test_a_result_comes_back_from_its_json(tmp_path):
    found = fleetlab.plan(mixed(), Cluster.uniform(3, 2))
    (tmp_path / "plan.json").write_text(as_json(found), "utf-8")
    again = SavedResult.load(tmp_path / "plan.json")
    assert again.summary()[0].value == found.summary()[0].value
    assert again.frames["placements"].equals(found.placements)
    assert set(again.figures()) == {"loads"}
    assert json.loads(as_json(found))["findings"]


# -- what does not fit -------------------------------------------------------------------------------------------------


def first(found):
    return found.unplaced.select("rule", "resource", "requested", "available", "missing", "proved").row(0)


def test_an_instance_that_no_node_holds_is_named_with_what_is_missing():
    found = fleetlab.plan(demand(cpu_milli=[500, 1200]), cpus(3, 1000))
    assert first(found) == ("one node", "cpu_milli", 1200, 1000, 200, True)
    assert found.unplaced["job"].to_list() == [1]
    assert found.placements["job"].to_list() == [0]
    assert "one instance requests 1,200 cpu_milli" in " ".join(found.findings)


def test_a_type_that_is_not_there_is_named():
    found = fleetlab.plan(demand(gpu_milli=[2000], gpu_types=[["H100"]]), Cluster.uniform(2, 8, gpu_type="T4"))
    assert first(found) == ("gpu_types", "gpus", 2, 0, 2, True)


def test_all_that_one_instance_lacks_is_named():
    asked = demand(gpu_milli=[1000, 0], gpu_types=[["H100"], []], cpu_milli=[30, 2000], memory_mib=[2000, 3000])
    found = fleetlab.plan(asked, Cluster.uniform(2, 8, gpu_type="T4", cpu_milli=1000, memory_mib=1000))
    assert found.unplaced.select("job", "rule", "resource", "missing").rows() == [
        (0, "gpu_types", "gpus", 1),
        (0, "one node", "memory_mib", 1000),
        (1, "one node", "cpu_milli", 1000),
        (1, "one node", "memory_mib", 2000),
    ]


def test_too_many_instances_are_refused_with_what_to_do():
    with pytest.raises(WorkloadError, match="1 to 1,000,000 instances") as refused:
        fleetlab.plan(demand(instances=[2_000_000], cpu_milli=[1]), cpus(3, 1000))
    assert "plan a part of it" in refused.value.hint


def test_too_much_in_all_is_told_by_the_total():
    found = fleetlab.plan(demand(instances=[5], gpu_milli=[1000]), Cluster.uniform(2, 2))
    assert first(found) == ("total capacity", "gpus", 5, 4, 1, True)


def test_a_limit_that_needs_more_nodes_is_named():
    asked = demand(instances=[7], cpu_milli=[1], app=["a"], max_per_node=[2])
    assert first(fleetlab.plan(asked, cpus(3, 1000))) == ("max_per_node", "nodes", 7, 6, 1, True)


def test_shares_on_nodes_without_gpus_are_told():
    found = fleetlab.plan(demand(instances=[2, 3], gpu_milli=[500, 0], cpu_milli=[1, 1]), cpus(3, 1000))
    assert first(found) == ("gpu_types", "gpus", 1, 0, 1, True)
    assert found.placements["job"].to_list() == [1, 1, 1]


def test_what_only_the_combination_forbids_is_proved_by_the_solver():
    # 3 x 500 and 2 x 400 are 2,300 of 3,000, each kind alone fits; but two of 600 and three of 700 do not.
    found = fleetlab.plan(demand(instances=[2, 2], cpu_milli=[600, 700]), cpus(3, 1000))
    assert not found.feasible
    assert found.unplaced["proved"].all()
    assert found.unplaced["missing"].item() > 0


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objective": "node"}, "no objective by that name"),
        ({"objective": "cost"}, "needs prices"),
        ({"prices": {"default": 1}}, "needs prices"),
        ({"objective": "cost", "prices": {}}, "no price for the nodes of pool: `default`"),
        ({"objective": "cost", "prices": {"default": 1, "other": 1}}, "an unknown pool: `other`"),
        ({"objective": "cost", "prices": {"default": float("nan")}}, "a price is a number"),
        ({"objective": "moves"}, "needs a current placement"),
        ({"current": pl.DataFrame({"job": [0], "node": ["x"]})}, "`nodes` does not use a current placement"),
        ({"seed": -1}, "a seed is a whole number of 0 or more: -1"),
        ({"seconds": 0}, "must be above 0"),
        ({"seconds": float("nan")}, "must be above 0"),
        ({"objective": "moves", "current": pl.DataFrame({"job": [0]})}, "needs the column: `node`"),
        ({"objective": "moves", "current": pl.DataFrame({"job": [9], "node": ["x"]})}, "not in the demand"),
        (
            {"objective": "moves", "current": pl.DataFrame({"job": [0, 0], "instance": [0, 0], "node": ["x", "y"]})},
            "twice",
        ),
        ({"objective": "moves", "current": pl.DataFrame({"job": ["x"], "node": ["y"]})}, "not a current placement"),
        ({"objective": "moves", "current": pl.DataFrame({"job": [0.5], "node": ["y"]})}, "not integers"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(options, words):
    with pytest.raises(WorkloadError, match=words):
        fleetlab.plan(demand(cpu_milli=[1]), cpus(1, 10), **options)


def test_a_node_with_more_gpus_than_a_number_has_bits_is_refused():
    with pytest.raises(WorkloadError, match="up to 62 GPUs, not: 64"):
        fleetlab.plan(demand(gpu_milli=[1000]), Cluster.uniform(1, 64))
    assert fleetlab.plan(demand(gpu_milli=[62_000]), Cluster.uniform(1, 62)).placements["gpus"].item() == 2**62 - 1


def test_nothing_to_place_is_an_error():
    empty = demand(cpu_milli=[1])
    with pytest.raises(WorkloadError, match="1 to 1,000,000 instances"):
        fleetlab.plan(type(empty)(empty.frame.clear(), "empty"), cpus(1, 10))
