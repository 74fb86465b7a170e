"""One runner: a scenario is the same wherever it is simulated, with all that its trace holds."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fleetlab import PolicyError, Scenario, WorkloadError, order
from fleetlab.core.events import Outage
from fleetlab.studies.runner import Call, can_travel, process_count, run_calls

from .worlds import SCHEDULERS, site


def contents(scenario, nothing=None):
    """What a scenario holds; the traces of two are the same one if their identity is."""
    trace = scenario.trace
    return {
        "key": scenario.key,
        "scheduler": scenario.scheduler,
        "node events": scenario.node_events,
        "series": {name: table.collect().rows() for name, table in trace.series.items()},
        "names": None if trace.names is None else trace.names.collect().rows(),
        "before": None if scenario.before is None else scenario.before.frame.rows(),
        "jobs": scenario.workload.frame.rows(),
        "nodes": scenario.cluster.frame.rows(),
        "estimate": scenario.estimate if isinstance(scenario.estimate, str) else scenario.estimate.to_list(),
        "notes": trace.notes,
        "identity": id(trace),
    }


def fail(scenario, kind):
    if kind == "memory":
        raise MemoryError
    if kind == "user":
        msg = "no such thing"
        raise PolicyError(msg, hint="another thing")
    return np.array(1) / kind


def in_worker(function, calls, workers=1):
    return run_calls(function, calls, workers=workers, done=lambda _: None)


@pytest.mark.slow
def test_all_that_a_scenario_holds_is_in_the_worker_too():
    names = [name for name in SCHEDULERS if name != "own"]  # an object without equality: the matrix compares its runs
    scenarios = [Scenario.of(trace) for trace in map(site, names)]
    first, other = scenarios[0], scenarios[1]
    late = other.replace(window=(400.0, 900.0))
    events = (Outage(10.0, 20.0, ("n0",)),)
    scenarios += [
        other.replace(order="sjf"),
        other.replace(scheduler="site"),
        late,
        late.on(replace(late.workload, frame=late.workload.frame.head(3))),
        other.after(other, node_events=events),
        first.replace(estimate="requested"),
        first.replace(estimate=first.workload.frame["runtime"] * 3),
        first.replace(quota={"queue:vision": 4}),
    ]
    calls = [Call(scenario, {}) for scenario in scenarios]
    there, here = in_worker(contents, calls), [contents(scenario) for scenario in scenarios]
    for k, (remote, local) in enumerate(zip(there, here, strict=True)):
        del local["identity"]
        assert {name: remote[name] for name in local} == local, k
    same = [there[k]["identity"] for k in (1, len(names), len(names) + 1)]
    assert len(set(same)) == 1  # three scenarios of one trace: it is opened once


@pytest.mark.slow
def test_an_error_in_a_worker_is_the_error_of_this_process():
    scenario = Scenario.of(site("event"))
    with pytest.raises(PolicyError, match="no such thing") as e:
        in_worker(fail, [Call(scenario, {"kind": "user"})])
    assert e.value.hint == "another thing"
    with pytest.raises(TypeError, match="ufunc") as e:
        in_worker(fail, [Call(scenario, {"kind": "x"})])
    assert "in fail" in e.value.__notes__[0]


@pytest.mark.slow
def test_a_worker_without_memory_is_tried_again_and_then_is_an_error_with_a_hint():
    with pytest.raises(WorkloadError, match="ended with status 1: MemoryError") as e:
        in_worker(fail, [Call(Scenario.of(site("event")), {"kind": "memory"})])
    assert "memory" in e.value.hint


@order
def mine(s, job, now):
    """The order of this module: it can be imported, and travels."""
    return -s.submit[job]


def test_a_policy_that_exists_in_this_process_alone_stays_in_it():
    scenario, factor = Scenario.of(site("event")), 2.0

    @order
    def closure(s, job, now):
        return factor * s.submit[job]

    both = [scenario.replace(order=mine), scenario.replace(order=closure)]
    assert can_travel(scenario, *both) == [True, True, False]
    assert can_travel(*(s.trace for s in both)) == [True, True]
    assert in_worker(lambda s: pl.Series([1.0]), [Call(both[1], {})])[0].to_list() == [1.0]


@pytest.mark.parametrize(
    ("instances", "workers", "count"),
    [(10, None, 0), (10, 3, 3), (10, "3", 3), (10, 0, 0), (10, "ray", "ray"), (10, "10.0.0.1:6379", "10.0.0.1:6379")],
)
def test_small_studies_stay_in_this_process(instances, workers, count):
    assert process_count(instances, workers) == count


@pytest.mark.parametrize("workers", [-1, 1025, True, "many"])
def test_a_number_of_workers_that_is_none_is_refused(workers):
    with pytest.raises(WorkloadError) as e:
        process_count(10, workers)
    assert "workers=" in e.value.hint
