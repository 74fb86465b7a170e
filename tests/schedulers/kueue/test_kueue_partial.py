"""Partial admission through a trace: what a dump says of the least number of pods decides who starts with how many."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import Scenario
from fleetlab.schedulers.kubernetes.specs import PARALLELISM
from fleetlab.schedulers.kueue.loop import play
from fleetlab.schedulers.kueue.workload import KueueWorkload, Parallelism, PodSet
from fleetlab.sim.simulate import simulate
from fleetlab.sim.timeline import usage

from .cases import ANY, GPU, LOWER, cq
from .test_kueue_loop import gpus, site_of

LEAST = "kueue.x-k8s.io/job-min-parallelism"
QUEUES = f"""apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: all}}
spec:
  resourceGroups:
  - coveredResources: [{GPU}]
    flavors: [{{name: any, resources: [{{name: {GPU}, nominalQuota: 8}}]}}]
"""
NODE = {"kind": "Node", "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", GPU: "16", "pods": "110"}}}  # fmt: skip


def time(at):
    return f"2026-05-01T10:{at // 60:02d}:{at % 60:02d}Z"


def pods(owner, count, submit, runtime, start=None):
    """Pods of one GPU of a Job that ran as long, all at once."""
    start = submit if start is None else start
    made = []
    for k in range(count):
        about = {"name": f"{owner}-{start}-{k}", "namespace": "cv", "uid": f"{owner}-{start}-{k}",
                 "creationTimestamp": time(submit), "ownerReferences": [
                     {"kind": "Job", "name": owner, "uid": owner, "controller": True}]}  # fmt: skip
        ended = {"state": {"terminated": {"finishedAt": time(start + runtime)}}}
        made.append({
            "kind": "Pod", "metadata": about,
            "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1", GPU: "1"}}}]},
            "status": {"phase": "Succeeded", "startTime": time(start), "containerStatuses": [ended]},
        })  # fmt: skip
    return made


def job(name, parallelism, completions, **annotations):
    about = {"name": name, "namespace": "cv", "uid": name, "creationTimestamp": time(0), "annotations": annotations}
    spec = {"parallelism": parallelism} | ({} if completions is None else {"completions": completions})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def workload(name, count, least=None, admitted=None, *, sets=1):
    one = {"name": "main", "count": count} | ({} if least is None else {"minCount": least})
    given_quota = {"podSetAssignments": [{"name": "main", "count": admitted}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": f"job-{name}", "namespace": "cv", "ownerReferences": [{"kind": "Job", "uid": name}]},
        "spec": {"queueName": "main", "podSets": [one] * sets},
        "status": {"admission": given_quota} if admitted else {},
    }  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def trace(*objects):
        (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": [NODE, *objects]}))
        return fleetlab.read(tmp_path / "pods.json", "kubernetes")

    return trace


@pytest.fixture
def played(read, tmp_path):
    """The schedule of a Job of 2 pods, and a second after it of one that wants all 8 GPUs of the quota."""

    def run(*objects, **words):
        first = [*pods("first", 2, 0, 100), workload("first", 2)]
        saved = read(*first, *pods("wide", 8, 1, 60), *objects).save(tmp_path / "trace")
        (tmp_path / "queues.yaml").write_text(QUEUES)
        return simulate(Scenario.of(str(saved), scheduler=tmp_path / "queues.yaml", warm_up="none", **words))

    return run


# -- through a dump and a file of queues ------------------------------------------------------------------------------


SAID = {"Workload": [workload("wide", 8, 4), job("wide", 8, 8)], "Job": [job("wide", 8, 8, **{LEAST: "4"})]}


@pytest.mark.parametrize("objects", SAID.values(), ids=SAID)
def test_a_job_that_would_do_with_four_pods_starts_at_once_with_the_six_that_fit(played, objects):
    result = played(*objects)
    assert result.jobs["start"].to_list() == [0.0, 1.0]
    assert result.runs(1).height == 6


def test_without_a_least_count_it_waits_for_all(played):
    result = played(workload("wide", 8), job("wide", 8, 8))
    assert result.jobs["start"].to_list() == [0.0, 100.0]


UNSHRINKING = {
    "a least count of all pods": job("wide", 8, 8, **{LEAST: "8"}),
    "the label of its queue": job("wide", 8, 8) | {
        "metadata": {"name": "wide", "namespace": "cv", "uid": "wide", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    },
}  # fmt: skip


@pytest.mark.parametrize("listed", UNSHRINKING.values(), ids=UNSHRINKING)
def test_a_job_of_kueue_without_its_workload_waits_for_all_its_pods_too(played, listed):
    assert played(listed).jobs.select("instances", "start").rows() == [(2, 0.0), (8, 100.0)]


def test_it_waits_while_fewer_pods_fit_than_would_do(played):
    assert played(workload("wide", 8, 7)).jobs["start"].to_list() == [0.0, 100.0]


def test_completions_of_six_pods_instead_of_eight_take_two_waves(played):
    assert played(workload("wide", 8, 4), job("wide", 8, 8)).jobs["end"][1] == 1 + 2 * 60


def test_a_job_whose_work_nobody_tells_takes_the_same_gpu_time(played):
    result = played(workload("wide", 8, 4))
    assert result.jobs["end"][1] == pytest.approx(1 + 60 * 8 / 6)
    used = usage(result.world, result.played, result.cluster, np.array([0.0, 200.0])).allocated.sum()
    assert used == pytest.approx(2 * 100 + 8 * 60)


def test_a_result_says_which_jobs_ran_with_fewer_pods(played):
    assert any("1 job with fewer pods than requested" in note for note in played(workload("wide", 8, 4)).notes)


def test_the_schedule_holds_no_gpu_twice_and_counts_pods_that_run(played):
    at = played(workload("wide", 8, 4)).timeline(every=4).filter(gpu_type="all")
    during = at.filter((at["time"] > 1) & (at["time"] < 81))
    assert set(during["allocated"]) <= {8.0}
    assert set(during["running_instances"]) <= {8}
    assert set(during["waiting_instances"]) <= {0}


def test_a_job_above_the_quota_is_simulated_if_its_least_fits(read, tmp_path):
    (tmp_path / "queues.yaml").write_text(QUEUES)
    trace = read(*pods("wide", 12, 0, 60), workload("wide", 12, 5))
    result = simulate(Scenario.of(trace, scheduler=tmp_path / "queues.yaml", warm_up="none"))
    assert result.runs(0).height == 8


def test_a_later_start_of_the_window_finds_the_least_of_its_jobs(played):
    result = played(workload("wide", 8, 4), *pods("old", 1, 0, 10), window=(1.0, math.inf))
    assert result.scenario.workload.frame["instances"].to_list() == [8]


# -- what is read ------------------------------------------------------------------------------------------------------


def test_a_job_that_the_log_saw_with_fewer_pods_is_read_with_all_and_their_runtime(read):
    trace = read(*pods("wide", 6, 0, 60), *pods("wide", 2, 0, 60, 60), workload("wide", 8, 4, 6), job("wide", 6, 8))
    frame = trace.workload.frame
    assert frame.select("instances", "runtime", "start", "end").rows() == [(8, 60.0, 0.0, 120.0)]
    assert any("1 jobs ran with fewer pods" in note for note in trace.notes)


def test_a_job_that_still_runs_with_fewer_pods_was_seen_for_as_long_as_with_all(read):
    """5 of 8 pods since second 0, and a pod of another job that ends at 80 s: 80 s with 5 pods are 50 s with 8."""
    running = pods("wide", 5, 0, 0)
    for pod in running:
        pod["status"] = {"phase": "Running", "startTime": time(0)}
    frame = read(*running, workload("wide", 8, 4, 5), *pods("other", 1, 0, 80)).workload.frame
    told = frame.filter(instances=8).select("status", "runtime", "runtime_at_least")
    assert told.rows() == [("running", None, 50.0)]


def test_pods_that_come_one_wave_after_the_other_are_as_many_as_run_at_once(read):
    waves = [one for k in range(3) for one in pods("train", 2, 60 * k, 60)]
    trace = read(*waves, workload("train", 2, admitted=2), job("train", 2, 6))
    assert trace.workload.frame.select("instances", "runtime").rows() == [(2, 180.0)]
    assert trace.counts.filter(table="pods").select("rows", "kept").rows() == [(6, 6)]


@pytest.mark.parametrize(
    ("objects", "wanted"),
    [
        ([workload("wide", 8, 4), job("wide", 8, 16)], [(0, 8, 4, 16)]),
        ([workload("wide", 8, 4)], [(0, 8, 4, None)]),
        ([job("wide", 8, 16, **{LEAST: "3"})], [(0, 8, 3, 16)]),
        ([job("wide", 8, None, **{LEAST: "3"})], [(0, 8, 3, None)]),
        ([job("wide", 16, 8, **{LEAST: "3"})], [(0, 8, 3, 8)]),
        ([job("wide", 8, 8, **{LEAST: "3", "kueue.x-k8s.io/job-completions-equal-parallelism": "true"})],
         [(0, 8, 3, None)]),
        ([job("wide", 8, 8, **{LEAST: "8"})], None),
        ([workload("wide", 8, 4, sets=2)], None),
    ],
)  # fmt: skip
def test_a_trace_carries_the_least_count_and_completions(read, objects, wanted):
    series = read(*pods("wide", 8, 0, 60), *objects).series
    found = series[PARALLELISM].select("job", "count", "least", "completions") if PARALLELISM in series else None
    assert (None if found is None else found.collect().rows()) == wanted


def test_a_least_count_of_several_sets_of_pods_is_left_out_and_told(read):
    notes = read(*pods("wide", 8, 0, 60), workload("wide", 8, 4, sets=2)).notes
    assert "`minCount` is left out of 1 Workloads with several sets of pods" in notes


def test_a_gang_leaves_with_the_last_of_its_pods(read, tmp_path):
    (tmp_path / "queues.yaml").write_text(
        QUEUES.replace("spec:\n", "spec:\n  preemption: {withinClusterQueue: LowerPriority}\n")
    )
    low, high = pods("low", 2, 0, 100), pods("high", 8, 10, 50)
    for pod, grace in zip(low, (5, 20), strict=True):
        pod["spec"]["terminationGracePeriodSeconds"] = grace
    for pod in high:
        pod["spec"]["priority"] = 5
    trace = read(*low, workload("low", 2), *high, workload("high", 8))
    result = simulate(Scenario.of(trace, scheduler=tmp_path / "queues.yaml", warm_up="none"))
    assert result.jobs["start"].to_list() == [0.0, 30.0]


@pytest.mark.parametrize("text", ["few", "-1", "0", "٣", "1" * 12])
def test_a_least_count_that_is_no_number_rejects_the_job(read, text):
    trace = read(*pods("wide", 8, 0, 60), job("wide", 8, 8, **{LEAST: text}))
    assert trace.rejects["reason"].to_list()[0].startswith(f"`metadata.annotations.{LEAST}` is no number above 0")


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([workload("wide", 8, 0)], "`spec.podSets.minCount` is no number above 0: 0"),
        ([workload("wide", 8, -1)], "`spec.podSets.minCount` is no number above 0: -1"),
        ([workload("wide", 8, 9)], "`spec.podSets.minCount` is above the number of pods: 9 of 8"),
        ([job("wide", 8, 8, **{LEAST: "9"})], f"`metadata.annotations.{LEAST}` is above the number of pods: 9 of 8"),
    ],
)
def test_a_least_count_that_kueue_would_not_take_is_rejected_with_its_reason(read, objects, reason):
    assert read(*pods("wide", 8, 0, 60), *objects).rejects["reason"].to_list()[0].startswith(reason)


@pytest.mark.parametrize(
    ("kind", "table"), [("Job", "Jobs"), ("Queue", "queues"), ("PodGroup", "pod groups"), ("Workload", "Kueue objects")]
)
def test_an_object_that_is_listed_twice_is_superseded(read, kind, table):
    one = {"kind": kind, "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "q", "namespace": "cv"}}
    one = {"Job": job("wide", 8, 8), "Workload": workload("wide", 8)}.get(kind, one)
    trace = read(*pods("wide", 8, 0, 60), one, one)
    assert trace.rejects["table"].to_list() == [table]


# -- laws --------------------------------------------------------------------------------------------------------------


@st.composite
def shrinking(draw):
    """Jobs that come, each with the least of its pods that will do, if fewer than all do."""
    jobs = []
    for k in range(draw(st.integers(1, 8))):
        count = draw(st.integers(1, 12))
        least = draw(st.none() | st.integers(1, count))
        work = draw(st.none() | st.integers(1, 40))
        pod_set = PodSet(count=count, requests={GPU: 1}, min_count=least, completions=work)
        jobs.append(KueueWorkload(f"j{k}", draw(st.sampled_from("ab")), (pod_set,), draw(st.integers(0, 2))))
    times = st.lists(st.floats(0, 50), min_size=len(jobs), max_size=len(jobs))
    return jobs, draw(times), [one + 1 for one in draw(times)]


@settings(max_examples=80, deadline=None)
@given(shrinking(), st.integers(1, 10), st.booleans())
def test_a_run_has_at_least_its_least_and_at_most_all_pods_within_quota_and_its_length_follows(load, quota, preempts):
    jobs, submit, run = load
    rules = {"within": LOWER, "reclaim": ANY} if preempts else {}
    site = site_of(cq("a", "c", gpus(quota), **rules), cq("b", "c", gpus(3), **rules), grace=5.0)
    runs = play(site, jobs, submit, run, 1).runs
    for one in runs:
        asked = jobs[one.workload].pod_sets[0]
        assert (asked.count if asked.min_count is None else asked.min_count) <= one.count <= asked.count
        if not one.preempted:
            assert one.end - one.begin == pytest.approx(run[one.workload] * asked.stretch(one.count))
        held = sum(other.count for other in runs if other.admitted <= one.admitted < other.end)
        assert held <= quota + 3


@given(st.integers(1, 50), st.integers(1, 50), st.none() | st.integers(1, 500))
def test_fewer_pods_never_take_less_time_nor_less_than_the_work_of_each(count, fewer, completions):
    asked = Parallelism(count, 1, completions)
    pods_given = min(count, fewer)
    assert asked.stretch(count) == 1
    assert asked.stretch(pods_given) >= 1
    if pods_given > 1:
        assert asked.stretch(pods_given) <= asked.stretch(pods_given - 1)
