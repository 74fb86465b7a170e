"""ResourceQuotas: cases of Kubernetes' own unit tests (release 1.20), and what their Jobs do that are refused.

Usage is of pkg/quota/v1/evaluator/core/pods_test.go, admission of plugin/pkg/admission/resourcequota/admission_test.go.
"""

import pytest

from fleetlab.schedulers.kubernetes.admission import Container, CreatedPod, NamespaceQuota, Scope
from fleetlab.schedulers.kubernetes.config import SchedulingNode, SchedulingPod
from fleetlab.schedulers.kubernetes.loop import Loop, Site
from fleetlab.schedulers.kubernetes.quota import Ledger, Owners, usage

GIB, DONGLE = 2**30, "example.com/dongle"
ONE = {"pods": 1, "count/pods": 1}
HUGE = "hugepages-2Mi"


def both(name, request, limit=None):
    return {name: request, f"requests.{name}": request} | ({f"limits.{name}": limit} if limit else {})


MANY = (
    Container({"cpu": 4000, "memory": 100, DONGLE: 4}, {"cpu": 8000, "memory": 200, DONGLE: 4}, init=True),
    Container({"cpu": 1000, "memory": 50, DONGLE: 2}, {"cpu": 2000, "memory": 100, DONGLE: 2}, init=True),
    Container({"cpu": 1000, "memory": 50, DONGLE: 1}, {"cpu": 2000, "memory": 100, DONGLE: 1}),
    Container({"cpu": 2000, "memory": 25, DONGLE: 2}, {"cpu": 5000, "memory": 50, DONGLE: 2}),
)


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({"cpu": 1}, {"cpu": 2}, both("cpu", 1, 2)),
        ({"memory": 1}, {"memory": 2}, both("memory", 1, 2)),
        ({"ephemeral-storage": 32}, {"ephemeral-storage": 64}, both("ephemeral-storage", 32, 64)),
        ({HUGE: 100}, {}, both(HUGE, 100)),
        ({DONGLE: 3}, {DONGLE: 3}, {f"requests.{DONGLE}": 3}),
    ],
)
def test_usage_is_as_test_pod_evaluator_usage_has_it(requests, limits, expected, init):
    assert usage(CreatedPod("test", (Container(requests, limits, init),))) == ONE | expected


def test_what_runs_before_counts_where_it_is_larger_than_what_runs_beside():
    expected = ONE | both("cpu", 4000, 8000) | both("memory", 100, 200) | {f"requests.{DONGLE}": 4}
    assert usage(CreatedPod("test", MANY)) == expected


def quota(hard, *scopes, namespace="test"):
    return NamespaceQuota(namespace, "quota", hard, scopes)


def ledger(hard, used, *scopes, namespace="test"):
    found = Ledger([quota(hard, *scopes, namespace=namespace)])
    found.used[0].update(used)
    return found


def pod_of(requests, limits=None, **words):
    return CreatedPod("test", (Container(requests, limits or {}),), **words)


HARD = {"cpu": 3000, "memory": 100 * GIB, "pods": 5}
USED = {"cpu": 1000, "memory": 50 * GIB, "pods": 3}
SMALL = pod_of({"cpu": 100, "memory": 2 * GIB})


def test_a_pod_below_the_quota_is_counted():
    found = ledger(HARD, USED)
    assert found.charge(SMALL) == []
    assert found.used == [{"cpu": 1100, "memory": 52 * GIB, "pods": 4}]


def test_a_pod_above_the_quota_is_refused_and_not_counted():
    found = ledger(HARD, USED)
    assert found.charge(pod_of({"cpu": 3000, "memory": 2 * GIB})) == [("quota", "cpu")]
    assert found.used == [USED]


def test_a_quota_of_limits_wants_them_said():
    found = ledger(HARD | {"limits.memory": 200 * GIB}, USED | {"limits.memory": 100 * GIB})
    assert found.charge(pod_of({"cpu": 100, "memory": 2 * GIB}, {"cpu": 200})) == [("quota", "limits.memory")]


def test_a_quota_of_gpus_does_not_want_them_said():
    assert ledger({"requests.nvidia.com/gpu": 0}, {}).charge(SMALL) == []


def test_the_quota_of_another_namespace_does_not_count():
    assert ledger({"cpu": 1}, {}, namespace="other").charge(SMALL) == []


def test_a_resource_that_is_used_up_matters_only_to_who_asks_for_it():
    found = ledger({"services": 3, "pods": 4}, {"services": 5, "pods": 1})  # TestAdmitWhenUnrelatedResourceExceedsQuota
    assert found.charge(SMALL) == []


def test_of_two_quotas_the_one_that_ends_in_time_counts_a_pod_with_a_deadline():
    found = Ledger([quota(HARD, Scope("NotTerminating")), quota(HARD, Scope("Terminating"))])
    assert found.charge(pod_of({"cpu": 100, "memory": 2 * GIB}, deadline=True)) == []
    assert found.used == [{}, {"cpu": 100, "memory": 2 * GIB, "pods": 1}]


def test_a_quota_of_best_effort_pods_counts_no_others():
    found = Ledger([quota({"pods": 5}, Scope("BestEffort")), quota({"pods": 5}, Scope("NotBestEffort"))])
    assert (found.charge(pod_of({})), found.charge(SMALL)) == ([], [])
    assert found.used == [{"pods": 1}, {"pods": 1}]


@pytest.mark.parametrize(
    ("operator", "values", "name", "counted"),
    [
        ("In", ("cluster-services",), "cluster-services", True),
        ("In", ("cluster-services",), "other", False),
        ("In", ("cluster-services",), "", False),
        ("NotIn", ("cluster-services",), "other", True),
        ("NotIn", ("cluster-services",), "cluster-services", False),
        ("Exists", (), "other", True),
        ("Exists", (), "", False),
        ("DoesNotExist", (), "", True),
        ("DoesNotExist", (), "other", False),
    ],
)
def test_a_quota_of_priority_classes_counts_by_name(operator, values, name, counted):
    scope = Scope("PriorityClass", operator, values)
    assert bool(ledger({"pods": 0}, {}, scope).charge(pod_of({}, priority_class=name))) is counted


# -- what a Job does that is refused -----------------------------------------------------------------------------------


def played(submit, runs, owners=None, gpus=4, backoff=(10.0, 360.0)):
    """Pods of 4 GPUs under a quota, on a node where they all fit."""
    pods = [SchedulingPod(str(k), requests={"nvidia.com/gpu": 4}) for k in range(len(submit))]
    asked = [pod_of({"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 4}) for _ in submit]
    node = SchedulingNode("n", {"cpu": 64_000, "memory": 2**39, "nvidia.com/gpu": 64, "pods": 110})
    loop = Loop(Site([node]), pods, runs, seed=1)
    limit = quota({"requests.nvidia.com/gpu": gpus})
    loop.owners = Owners([limit], asked, owners or list(range(len(submit))), backoff)
    return loop.play(submit)


def test_a_job_that_is_refused_tries_again_after_ten_seconds_and_twice_as_long_each_time():
    found = played([0.0, 1.0, 2.0], [45.0, 45.0, 45.0])
    assert found.start == [0.0, 1 + 10 + 20 + 40, 2 + 10 + 20 + 40 + 80]


def test_it_never_waits_longer_than_six_minutes_between_two_tries():
    tries = [10, 20, 40, 80, 160, 320, 360, 360]
    assert played([0.0, 0.0], [1200.0, 1.0]).start[1] == sum(tries)


def test_later_releases_try_again_after_a_second_and_after_a_minute_at_most():
    assert played([0.0, 0.0], [100.0, 1.0], backoff=(1.0, 60.0)).start[1] == 1 + 2 + 4 + 8 + 16 + 32 + 60


def test_a_job_tries_again_at_once_when_one_of_its_own_pods_ends():
    found = played([0.0, 0.0], [45.0, 45.0], owners=[7, 7])
    assert found.start == [0.0, 45.0]


def test_a_job_that_is_never_admitted_does_not_keep_the_simulation_going():
    found = played([0.0, 0.0], [45.0, 45.0], gpus=2)
    assert found.start == [float("inf")] * 2


def test_an_evicted_pod_gives_its_quota_back_and_is_refused_while_others_have_it():
    node = SchedulingNode("n", {"cpu": 64_000, "memory": 2**39, "nvidia.com/gpu": 4, "pods": 110})
    pods = [SchedulingPod(str(k), requests={"nvidia.com/gpu": 4}, priority=k) for k in range(2)]
    asked = [pod_of({"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 4}, priority_class=name) for name in ("low", "high")]
    loop = Loop(Site([node], grace=0.0), pods, [50.0, 25.0], seed=1)
    loop.requeues = [True, True]
    loop.owners = Owners(
        [quota({"requests.nvidia.com/gpu": 4}, Scope("PriorityClass", "In", ("low",)))], asked, [0, 1], (10.0, 360.0)
    )
    loop.play([0.0, 5.0])
    assert [(run.job, run.begin, run.end) for run in loop.log.runs] == [(0, 0.0, 5.0), (1, 5.0, 30.0), (0, 30.0, 80.0)]
