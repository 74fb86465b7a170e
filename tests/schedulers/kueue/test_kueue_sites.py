"""A Kueue site as kubectl writes it: every Workload is read once, with its true times, priority, queue and flavor."""

import json

import polars as pl
import pytest
import yaml

import fleetlab
from fleetlab import Scenario
from fleetlab.core.durations import duration
from fleetlab.schedulers.kubernetes.reader.kueue import remarks
from fleetlab.schedulers.kubernetes.specs import ADMISSIONS
from fleetlab.sim.simulate import world_of

from .sites import HEADS, MODELS, OWNERS, QUEUES, site


@pytest.fixture(scope="module", params=["v1beta1", "v1beta2"])
def read(request, tmp_path_factory):
    made = site(request.param)
    trace = fleetlab.read(made.write(tmp_path_factory.mktemp(request.param)), "kubernetes")
    jobs = trace.workload.frame.join(trace.names.collect(), on="job")
    known = trace.series[ADMISSIONS].collect()
    jobs = jobs.join(known, on="job").with_columns(gpu_types=pl.col("gpu_types").list.join(","))
    return trace, jobs.rows_by_key("name", named=True, unique=True), made.truth


def mismatches(read, true, column):
    """Workloads of which a column is not as it was, each with both values."""
    _, jobs, truth = read
    wanted = {one.name: true(one) for one in truth}
    return {name: (jobs[name][column], value) for name, value in wanted.items() if jobs[name][column] != value}


def test_every_workload_is_one_job_and_each_head_without_gpus_another(read):
    _, jobs, truth = read
    heads = {
        f"{one.name}/{'driver' if one.kind == 'SparkApplication' else 'head'}" for one in truth if one.kind in HEADS
    }
    assert jobs.keys() == {one.name for one in truth} | heads


def test_the_truth_has_every_owner_and_every_state(read):
    _, _, truth = read
    assert {one.kind for one in truth} == OWNERS.keys()
    assert {one.state for one in truth} == {"waiting", "running", "completed"}
    assert any(one.evictions and one.state == "waiting" for one in truth)
    assert any(one.evictions and one.state != "waiting" for one in truth)
    assert (
        {one.owners_gone for one in truth if one.ended}
        == {one.pods_gone for one in truth if one.ended}
        == {True, False}
    )


def test_a_job_is_submitted_when_its_workload_was_created(read):
    first = min(one.created for one in read[2])
    assert mismatches(read, lambda one: one.created - first, "submit") == {}


def test_priority_is_that_of_the_workload(read):
    assert mismatches(read, lambda one: one.priority, "priority") == {}


def test_the_queue_is_that_of_the_workload_whoever_made_its_pods(read):
    assert mismatches(read, lambda _: "main", "queue") == {}
    assert mismatches(read, lambda one: one.queue, "user") == {}


def test_a_job_has_all_pods_of_its_workload(read):
    assert mismatches(read, lambda one: one.pods, "instances") == {}
    assert mismatches(read, lambda one: 1000 * one.gpus, "gpu_milli") == {}


def test_states_are_those_of_the_workload(read):
    assert mismatches(read, lambda one: one.state if one.active else "cancelled", "status") == {}


def test_starts_and_ends_are_those_of_the_pods(read):
    first = min(one.created for one in read[2])
    started = {one.name: None if one.started is None else one.started - first for one in read[2]}
    assert mismatches(read, lambda one: started[one.name], "start") == {}
    assert mismatches(read, lambda one: None if one.ended is None else one.ended - first, "end") == {
        one.name: (one.created - first, None) for one in read[2] if not one.active
    }


def test_admissions_are_told_with_their_flavor_and_evictions(read):
    first = min(one.created for one in read[2])
    assert mismatches(read, lambda one: None if one.admitted is None else one.admitted - first, "admitted") == {}
    assert mismatches(read, lambda one: one.flavor, "flavor") == {}
    assert mismatches(read, lambda one: one.queue if one.admitted is not None else None, "cluster_queue") == {}
    assert mismatches(read, lambda one: one.evictions, "evictions") == {}


def test_only_gpus_that_a_user_asked_for_bind_a_job_to_their_model(read):
    assert mismatches(read, lambda one: one.own_model or "", "gpu_types") == {}


def test_jobs_may_run_on_the_tainted_nodes_that_their_flavors_tolerate(read):
    assert mismatches(read, lambda _: None, "constraint") == {}


def test_nothing_is_rejected_and_no_file_is_passed_over(read):
    trace, _, _ = read
    assert trace.rejects.height == 0
    assert not [note for note in trace.notes if "not read" in note]


def test_the_recorded_wait_is_from_creation_on(read):
    trace, jobs, truth = read
    waits = [one.started - one.created for one in truth if one.started is not None]
    named = [jobs[one.name] for one in truth if one.started is not None]
    assert sum(row["start"] - row["submit"] for row in named) == sum(waits)
    assert sum(waits) / len(waits) > 600
    assert set(MODELS.values()) == set(trace.cluster.frame["gpu_type"])


def test_no_field_of_what_kubectl_writes_is_unknown():
    for version in ("v1beta1", "v1beta2"):
        assert [text for one in site(version, count=0).objects for text in remarks(one)] == []


def test_yaml_is_read_as_json_is(tmp_path):
    made = site(count=40)
    listed = {"apiVersion": "v1", "kind": "List", "items": made.objects}
    (tmp_path / "site.json").write_text(json.dumps(listed))
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(listed))
    one, other = (fleetlab.read(tmp_path / f"site.{form}", "kubernetes") for form in ("json", "yaml"))
    assert one.workload.frame.equals(other.workload.frame)
    assert one.scheduler == other.scheduler


# -- why -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def said(read):
    trace, jobs, truth = read
    scenario = Scenario.of(trace)
    world = world_of(scenario)

    def about(chosen):
        one = next(one for one in reversed(truth) if one.active and chosen(one))
        return one, scenario.scheduler.explain_job(scenario, world, jobs[one.name]["job"])

    return about


def test_a_pending_workload_is_told_who_holds_what_it_lacks_in_each_flavor(said, read):
    one, lines = said(lambda one: one.admitted is None and one.own_model is None)
    assert lines[0].startswith("In the log, it has waited ")
    holding = [each for each in read[2] if each.admitted is not None and each.ended is None]
    for flavor in MODELS:
        held = {queue: sum(each.gpus * each.pods for each in holding if (each.flavor, each.queue) == (flavor, queue))
                for queue in QUEUES}  # fmt: skip
        for queue, used in held.items():
            assert used == 0 or any(f"{flavor} is held by {queue}: {used:,} (nominal" in line for line in lines)
    assert any(line.startswith("Why not: ") for line in lines)
    assert lines[-1].split()[0] == str(sum(
        each.admitted is None and each.active and each.queue == one.queue
        and (-each.priority, each.created) < (-one.priority, one.created) for each in read[2]
    ))  # fmt: skip


def test_a_past_workload_is_told_how_its_wait_came_about(said):
    one, lines = said(lambda one: one.evictions == 1 and one.ended is not None)
    wait = duration(one.admitted - one.created)
    assert lines[0].startswith(
        f"Of its recorded wait: {wait} until quota was reserved in flavor {one.flavor} of {one.queue}"
    )
    assert lines[0].endswith("it was evicted 1 time (Preempted).")
