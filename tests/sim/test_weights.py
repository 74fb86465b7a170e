"""Numbers that policies of one's own read: other numbers, another ranking, nothing compiled again."""

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, PolicyError, Workload


@fleetlab.order
def either(s, job, now):
    return s.weights[0] * s.estimate[job] + s.weights[1] * s.submit[job]


@fleetlab.placement
def by_cpu(s, job, node):
    return s.weights[2] * s.free_cpu[node]


def three(runtime=(10.0, 8.0, 1.0)):
    """A job that runs when the others come."""
    frame = pl.DataFrame({"submit": [0.0, 1.0, 2.0], "runtime": runtime}).with_columns(gpu_milli=pl.lit(1000))
    return Workload.of(frame, source="hand")


def starts(**rules):
    return fleetlab.simulate(three(), Cluster.uniform(1, 1), **rules).jobs["start"].to_list()


def test_weights_decide_who_is_next():
    assert starts(order=either, weights=(1, 0)) == [0, 11, 10]
    assert starts(order=either, weights=(0, 1)) == [0, 10, 18]
    assert starts(order=either, weights=(-1, 0)) == [0, 10, 18]


def test_weights_decide_where():
    nodes = pl.DataFrame({"node": ["large", "small"], "gpus": [1, 1], "gpu_type": "T4", "cpu_milli": [9000, 4000]})
    cluster = Cluster.of(nodes, source="hand")

    def first(weight):
        run = fleetlab.simulate(three(), cluster, order=either, placement=by_cpu, weights=(0, 1, weight))
        return run.placements["node"][0]

    assert [first(1), first(-1)] == ["small", "large"]


def test_both_loops_take_weights():
    quick = starts(order=either, weights=(1, 0))
    assert starts(order=either, weights=(1, 0), quota=5) == quick  # a quota needs the full loop


def test_other_weights_compile_nothing():
    starts(order=either, weights=(1, 0))
    before = either.compiled()
    starts(order=either, weights=(0, 1))
    assert either.compiled() is before
    assert not either.moves


def test_weights_are_in_the_provenance():
    run = fleetlab.simulate(three(), Cluster.uniform(1, 1), order=either, weights=(1, 0.5))
    assert run.provenance.settings["weights"] == [1, 0.5]


@pytest.mark.parametrize("weights", [(), (1.0,), (float("nan"), 1.0), (float("inf"), 1.0), ((1.0, 2.0), (3.0, 4.0))])
def test_weights_that_are_missing_or_no_numbers_are_refused(weights):
    with pytest.raises(PolicyError) as e:
        starts(order=either, weights=weights)
    assert e.value.hint
