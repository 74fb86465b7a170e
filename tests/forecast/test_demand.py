"""Demand over time, counted on paper."""

import numpy as np
import pytest

from fleetlab.core import WorkloadError
from fleetlab.forecast.demand import DemandEvents


def panel(trace, target, every=10.0, by=None):
    return dict(DemandEvents.of(trace, by=by).panels(target, every))


@pytest.fixture
def five(make):
    """Older and gone at 25, older and still there, one that comes and goes, one that stays, one that never ran."""
    return make(
        submit=[0.0, 0.0, 5.0, 10.0, 12.0, 40.0],
        start=[None, None, 12.0, 10.0, None, 40.0],
        end=[25.0, None, 30.0, None, None, 40.0],
        status=["completed", "running", "completed", "running", "waiting", "completed"],
        instances=[1, 2, 3, 1, 9, 1],
        cpu_milli=[1000, 2000, 4000, 8000, 1000, 0],
        memory_mib=[1024, 0, 0, 512, 0, 0],
        group=["HN", "CN", "CN", "HN", "CN", "CN"],
        app=["a", "b", "a", "b", "c", "c"],
    )


def test_requests_are_what_instances_created_in_a_step_ask_for(five):
    # 3 × 4 cores at 5; 8 cores at 10 and 9 × 1 at 12, though these never ran; the two older ones are no requests.
    assert panel(five, "requests")["all"].values[:, 0].tolist() == [12.0, 17.0, 0.0, 0.0]


def test_the_level_has_those_older_than_the_trace_and_those_still_running_at_its_end(five):
    # At the end of each step: 1 + 4 older; + 8 + 12 from the second on; 1 less after 25; at 30 the twelve have gone,
    # which belongs to the step that begins then.
    assert panel(five, "level")["all"].values[:, 0].tolist() == [5.0, 25.0, 24.0, 12.0]


def test_a_level_is_the_level_before_and_what_started_less_what_was_let_go(busy):
    demand = DemandEvents.of(busy)
    everyone = np.ones(len(demand.requested), dtype=bool)
    level = demand.level(3600.0, everyone)
    moved = demand.added(demand.begin, 3600.0, everyone) - demand.added(demand.until, 3600.0, everyone)
    assert np.allclose(np.diff(level, axis=0), moved[1:])


def test_gpu_memory_is_that_of_each_gpu_as_the_simulator_takes_it(make):
    # Two whole GPUs of 2 GiB, three shares of 1 GiB, one that asks for memory alone.
    trace = make(
        submit=[0.0, 1.0, 2.0, 10.0],
        instances=[1, 3, 1, 1],
        gpu_milli=[2000, 500, 0, 0],
        gpu_memory_mib=[2048, 1024, 1024, 0],
    )
    found = panel(trace, "requests")["all"]
    assert dict(zip(found.names, found.values[0], strict=True)) == {"gpu": 3.5, "gpu_memory": 4 + 3 + 1}


def test_resources_of_which_there_is_none_are_left_out(five):
    assert panel(five, "requests")["all"].names == ("cpu", "memory")


def test_milli_and_mib_become_cores_and_gib(five):
    assert panel(five, "requests")["all"].values[:, 1].tolist() == [0.0, 0.5, 0.0, 0.0]


def test_parts_add_up_to_all(five):
    whole, parts = panel(five, "level")["all"], panel(five, "level", by="role")
    assert set(parts) == {"CN", "HN"}
    assert np.array_equal(sum(p.values[:, 0] for p in parts.values()), whole.values[:, 0])


def test_small_parts_are_put_together(make):
    trace = make(
        submit=[float(k) for k in range(40)], app=[f"app_{min(k // 2, 12)}" for k in range(40)], cpu_milli=[1000] * 40
    )
    parts = panel(trace, "requests", every=1.0, by="app")
    assert len(parts) == 7
    assert "others" in parts
    assert sum(float(p.values.sum()) for p in parts.values()) == 39.0  # the last moment ends no whole step


def test_several_gpu_types_are_a_part_of_their_own(make):
    trace = make(
        submit=[0.0, 1.0, 2.0, 9.0], gpu_types=[["T4"], ["T4", "P100"], [], ["T4"]], gpu_milli=[500, 1000, 1000, 0]
    )
    assert set(panel(trace, "requests", every=3.0, by="gpu_type")) == {"T4", "T4|P100", "not named"}


def test_a_log_without_starts_is_taken_as_if_nobody_waited(make):
    trace = make(submit=[0.0, 10.0, 40.0], runtime=[15.0, 5.0, 1.0], cpu_milli=[1000, 2000, 0])
    demand = DemandEvents.of(trace)
    assert dict(demand.panels("level", 10.0))["all"].values[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert any("no job has a start" in note for note in demand.notes)


def test_what_ran_but_has_no_known_end_is_counted_in_a_note(make):
    # One that ended at a time that is not known lasts as long as others; of one that never began nothing is known.
    start, end = [0.0, 10.0, None], [5.0, None, None]
    trace = make(submit=[0.0, 10.0, 40.0], start=start, end=end, status=["completed"] * 3)
    assert any(note.startswith("1 jobs that ran have no known start or end") for note in DemandEvents.of(trace).notes)


def test_an_empty_trace_has_no_demand(make):
    with pytest.raises(WorkloadError, match="no jobs"):
        DemandEvents.of(make(submit=[]))


def test_a_part_that_no_task_names_is_said(make):
    with pytest.raises(WorkloadError, match="no job names its role"):
        DemandEvents.of(make(submit=[0.0]), by="role")
