"""Why a workload waits in Kueue."""

import json

import pytest

from fleetlab.core import TraceError
from fleetlab.core.errors import FleetlabError
from fleetlab.schedulers.kueue.moment import KueueMoment

GPU = "nvidia.com/gpu"


def queue(name, nominal, within="Never", reclaim="Never", strategy="BestEffortFIFO", **limits):
    quota = {"name": GPU, "nominalQuota": str(nominal), **limits}
    spec = {
        "cohort": "lab", "queueingStrategy": strategy,
        "preemption": {"withinClusterQueue": within, "reclaimWithinCohort": reclaim},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}],
    }  # fmt: skip
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local(name):
    about = {"name": "main", "namespace": name}
    spec = {"clusterQueue": name}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": about, "spec": spec}


def workload(name, team, gpus, priority=0, running=False, at=0):
    pods = {
        "name": "main",
        "count": 1,
        "template": {"spec": {"containers": [{"resources": {"requests": {GPU: str(gpus)}}}]}},
    }
    when = f"2026-11-17T09:00:{at:02d}Z"
    item = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload",
            "metadata": {"name": name, "namespace": team, "creationTimestamp": when},
            "spec": {"queueName": "main", "priority": priority, "podSets": [pods]}, "status": {}}  # fmt: skip
    if running:
        given = {"name": "main", "flavors": {GPU: "h100"}, "resourceUsage": {GPU: str(gpus)}, "count": 1}
        item["status"] = {
            "admission": {"clusterQueue": team, "podSetAssignments": [given]},
            "conditions": [{"type": "QuotaReserved", "status": "True", "lastTransitionTime": when}],
        }
    return item


@pytest.fixture
def moment(tmp_path):
    def made(*objects):
        (tmp_path / "kueue.json").write_text(json.dumps({"kind": "List", "items": [local("a"), local("b"), *objects]}))
        return KueueMoment.read(tmp_path / "kueue.json")

    return made


def test_a_borrowing_limit_keeps_a_workload_waiting_though_gpus_are_free(moment):
    site = moment(
        queue("a", 8, borrowingLimit="0"), queue("b", 16), workload("x", "a", 8, running=True), workload("y", "a", 8)
    )
    assert site.why("a/y")[0] == (
        "h100: it asks for 8 nvidia.com/gpu, and 0 are available, though 16 are free in its cohort: "
        "a uses 8 of its nominal 8 (borrowing limit 0)."
    )


def test_who_would_be_preempted_is_named_with_the_reason(moment):
    site = moment(
        queue("a", 8, reclaim="Any"), queue("b", 8), workload("guest", "b", 16, running=True), workload("y", "a", 8)
    )
    assert site.victims("a/y").rows() == [("b/guest", "b", 0, "InCohortReclamation")]
    assert site.why("a/y")[-1] == "It would be admitted by preempting b/guest (InCohortReclamation)."


def test_a_workload_larger_than_all_quota_is_told_so(moment):
    assert "could never get more than 16" in moment(queue("a", 8), queue("b", 8), workload("y", "a", 17)).why("a/y")[0]


def test_who_is_ahead_is_counted(moment):
    site = moment(
        queue("a", 4, strategy="StrictFIFO"), queue("b", 0), workload("x", "a", 8, at=1), workload("y", "a", 2, at=2)
    )
    assert site.why("a/y")[-1] == "1 of its ClusterQueue is ahead of it, and under StrictFIFO it waits for all of them."


def test_quotas_are_told_with_what_is_borrowed(moment):
    site = moment(queue("a", 8), queue("b", 8), workload("x", "a", 12, running=True))
    row = site.quotas().row(0, named=True)
    assert (row["used"], row["borrowed"], row["available"], row["share"]) == (12, 4, 4, 250.0)


def test_a_workload_that_does_not_wait_is_refused_with_the_closest_name(moment):
    site = moment(queue("a", 8), queue("b", 8), workload("train", "a", 1))
    with pytest.raises(FleetlabError, match="a/trian"):
        site.why("a/trian")


def test_a_file_without_queues_is_refused(tmp_path):
    (tmp_path / "kueue.json").write_text(json.dumps({"kind": "List", "items": [local("a")]}))
    with pytest.raises(TraceError):
        KueueMoment.read(tmp_path / "kueue.json")


def test_why_nobody_is_preempted_is_said_for_each_that_holds_quota(moment):
    site = moment(
        queue("a", 8), queue("b", 8, reclaim="LowerPriority", within="LowerPriority"),
        workload("x", "a", 8, running=True), workload("y", "b", 8, running=True, priority=3), workload("z", "b", 8),
    )  # fmt: skip
    assert site.why("b/z")[-2:] == [
        "Nobody may be preempted for it: it waits until others end.",
        "Why not: 1 workload: within the nominal quota of a; 1 workload: withinClusterQueue is LowerPriority, and "
        "priority 3 is not below 0.",
    ]


def test_borrowed_quota_is_told_with_who_borrows_it(moment):
    site = moment(queue("a", 8), queue("b", 8), workload("x", "a", 12, running=True), workload("y", "b", 8))
    assert "h100 is held by a: 12 (nominal 8, 4 borrowed), by a/x 12." in site.why("b/y")
    assert site.why("b/y")[-1] == "Why not: 1 workload: reclaimWithinCohort of b is Never."


def test_pods_that_are_done_give_their_quota_back(moment):
    done = workload("x", "a", 8, running=True)
    done["status"]["admission"]["podSetAssignments"][0] |= {"count": 4}
    done["status"]["reclaimablePods"] = [{"name": "main", "count": 3}]
    assert moment(queue("a", 8), queue("b", 8), done).quotas()["used"].to_list() == [2, 0]
