"""The data of a scenario never change: what is made from a scenario leaves it as it was."""

from dataclasses import replace

import polars as pl
import pytest

from fleetlab.core import Cluster, Scenario, Workload

JOBS = Workload.of(
    pl.DataFrame({"submit": [0.0, 5.0, 60.0, 65.0], "runtime": [50.0, 40.0, 30.0, 20.0], "gpu_milli": 8000}),
    source="four",
)
NODES = Cluster.uniform(1, 8)


@pytest.fixture
def base():
    return Scenario.of(JOBS, NODES)


def test_a_scenario_after_another_leaves_the_one_that_it_is_made_from_as_it_was(base):
    late = base.replace(window="60..")
    assert late.before is not None
    key = base.key
    other = base.replace(order="sjf").after(late)
    assert other.before is late.before
    assert base.before is None
    assert base.replace(order="sjf").before is None
    assert base.key == key != other.key


def test_events_of_nodes_that_one_scenario_has_are_not_those_of_another(base):
    logged = base.data.node_events
    other = base.after(base, node_events=(*logged, "an event"))
    assert other.data.node_events == (*logged, "an event")
    assert base.data.node_events == logged


def test_other_jobs_leave_what_came_before_the_first_ones(base):
    late = base.replace(window="60..")
    half = late.on(replace(late.workload, frame=late.workload.frame.head(1)))
    assert half.before is late.before
    assert late.data.before is None


@pytest.mark.parametrize("name", ["before", "node_events", "cluster_name", "name", "is_log"])
def test_data_cannot_be_assigned_to(base, name):
    with pytest.raises(AttributeError):
        setattr(base.data, name, None)
