"""A cluster's own lists, read and simulated: quotas, limits, affinities, taints and budgets as its objects say."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Trace, simulate
from fleetlab.core import TraceError, WorkloadError
from fleetlab.schedulers.kubernetes.admission import NamespaceQuota
from fleetlab.schedulers.kubernetes.config import KubeScheduler
from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler

GPU = "nvidia.com/gpu"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node(name, taints=(), version="v1.31.4", gpus="8", **labels):
    return {
        "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", GPU: gpus, "pods": "110"},
                   "nodeInfo": {"kubeletVersion": version}},
    }  # fmt: skip


def pod(name, at=0, runs=100, gpus="4", cpu="4", **words):
    """A pod that is created at a second of the hour and runs so long; words are of its spec."""
    labels, limits = words.pop("labels", {}), words.pop("limits", {GPU: gpus})
    start, end = (f"2026-11-17T09:{(at + more) // 60:02}:{(at + more) % 60:02}Z" for more in (0, runs))
    requests = {"cpu": cpu, "memory": "8Gi", GPU: gpus} if cpu else {GPU: gpus}
    return {
        "kind": "Pod", "metadata": {"name": name, "namespace": "team", "creationTimestamp": start, "labels": labels},
        "spec": {"nodeName": "a", "containers": [{"resources": {"requests": requests, "limits": limits}}]} | words,
        "status": {"phase": "Succeeded", "startTime": start,
                   "containerStatuses": [{"state": {"terminated": {"finishedAt": end}}}]},
    }  # fmt: skip


def quota(hard, **spec):
    about = {"name": "gpus", "namespace": "team"}
    return {"kind": "ResourceQuota", "metadata": about, "spec": {"hard": hard} | spec}


@pytest.fixture
def read(tmp_path):
    def from_objects(*objects):
        path = tmp_path / "cluster.json"
        path.write_text(json.dumps({"kind": "List", "items": list(objects)}))
        trace = fleetlab.read(path, "kubernetes")
        trace.save(tmp_path / "trace")
        return Trace.load(tmp_path / "trace")  # what is simulated has been written and read again

    return from_objects


def starts(result):
    return result.jobs.sort("job")["start"].to_list()


def nodes(result):
    return result.placements.sort("job")["node"].to_list()


PACKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
    ]}],
}  # fmt: skip
THREE = [pod("p0"), pod("p1", at=1), pod("p2", at=2)]


def test_pods_above_the_quota_of_their_namespace_wait_until_their_job_tries_again(read):
    trace = read(node("a", version="v1.20.2"), *THREE, quota({f"requests.{GPU}": "8"}))
    result = simulate(trace)
    # The third is refused at 2 s, and tries at 12, 32, 72 and 152 s; the first ends at 100 s.
    assert starts(result) == [0.0, 1.0, 152.0]
    assert result.ledger.filter(pl.col("job") == 2)["quota"].to_list() == [150.0]


def test_the_jobs_of_a_cluster_of_today_try_again_every_minute(read):
    trace = read(node("a"), *THREE, quota({f"requests.{GPU}": "8"}))
    assert starts(simulate(trace))[2] == 2 + 1 + 2 + 4 + 8 + 16 + 32 + 60


def test_the_scheduler_is_the_default_of_the_release_that_the_nodes_have(read):
    old, new = (read(node("a", version=one), *THREE, quota({"pods": "9"})) for one in ("v1.20.2", "v1.31.4-eks"))
    assert (old.scheduler.release, new.scheduler.release) == ("1.20", "1.34")
    assert any("default profile of 1.34" in note for note in new.notes)


def test_another_profile_keeps_the_quotas_of_the_site(read):
    trace = read(node("a"), *THREE, quota({f"requests.{GPU}": "8"}))
    assert starts(simulate(trace, scheduler="kubernetes")) == [0.0, 1.0, 152.0]


def test_a_file_of_quotas_is_applied_to_those_of_the_site(read, tmp_path):
    other = quota({"pods": "2"}) | {"metadata": {"name": "few", "namespace": "team"}}
    path = tmp_path / "larger.json"
    path.write_text(json.dumps(quota({f"requests.{GPU}": "12"})))
    alone = simulate(read(node("a", gpus="16"), *THREE, quota({f"requests.{GPU}": "8"})), scheduler=path)
    assert starts(alone) == [0.0, 1.0, 2.0]
    assert alone.scenario.scheduler.release == "1.34"  # as the site's
    beside = simulate(read(node("a", gpus="16"), *THREE, quota({f"requests.{GPU}": "8"}), other), scheduler=path)
    assert starts(beside)[2] > 100.0


def test_a_pod_larger_than_the_quota_is_refused_and_less_than_the_coverage_asked_for_is_not_answered(read):
    trace = read(node("a"), pod("p0"), pod("p1", gpus="8"), quota({f"requests.{GPU}": "6"}))
    assert "more than a ResourceQuota" in simulate(trace, min_coverage=0).refused["reason"].item()
    with pytest.raises(WorkloadError, match="less than 50 % of the GPU-hours"):
        simulate(trace, min_coverage=0.5)


def test_a_quota_of_limits_refuses_pods_that_say_none_unless_a_limit_range_gives_them(read):
    bounds = {"kind": "LimitRange", "metadata": {"name": "b", "namespace": "team"},
              "spec": {"limits": [{"type": "Container", "default": {"cpu": "4"}}]}}  # fmt: skip
    limited = quota({"limits.cpu": "64"})
    assert simulate(read(node("a"), pod("p0"), pod("p1"), limited), min_coverage=0).refused.height == 2
    assert simulate(read(node("a"), pod("p0"), limited, bounds)).refused.height == 0


def test_a_limit_range_gives_cpu_to_pods_that_ask_for_none(read):
    bounds = {"kind": "LimitRange", "metadata": {"name": "b", "namespace": "team"},
              "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "40"}}]}}  # fmt: skip
    idle = [pod("p0", gpus="1", cpu=""), pod("p1", gpus="1", cpu="")]
    assert starts(simulate(read(node("a"), *idle, quota({"pods": "9"})))) == [0.0, 0.0]
    assert starts(simulate(read(node("a"), *idle, bounds)))[1] >= 100.0  # two of 40 cores are more than 64


def test_a_quota_by_priority_class_counts_the_pods_of_that_class(read):
    low = {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -5}
    select = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]}
    pods = [
        pod(f"p{k}", gpus="1", priorityClassName="low" if k < 2 else "", priority=-5 if k < 2 else 0) for k in range(4)
    ]
    result = simulate(read(node("a"), low, *pods, quota({"pods": "1"}, scopeSelector=select)))
    assert [start > 0 for start in starts(result)] == [False, True, False, False]


def test_rules_of_a_site_are_written_and_read_again(read):
    scheduler = read(node("a"), *THREE, quota({f"requests.{GPU}": "8", "requests.cpu": "500m"})).scheduler
    assert isinstance(scheduler, KubeScheduler)
    assert scheduler.admission.quotas == (NamespaceQuota("team", "gpus", {f"requests.{GPU}": 8, "requests.cpu": 500}),)


def test_a_quota_that_cannot_be_read_is_rejected_by_name(read):
    trace = read(node("a"), pod("p0"), quota({"cpu": "many"}))
    assert trace.rejects["reason"].to_list() == ["`spec.hard.cpu` is not a quantity: many (team/gpus)"]


def ruled(kind, **spec):
    return {"kind": kind, "metadata": {"name": "r", "namespace": "team"}, "spec": spec}


MISTAKES = [
    (ruled("ResourceQuota", hrad={"pods": "1"}), "unknown field `spec.hrad`: there are hard, scopes, scopeSelector"),
    (ruled("ResourceQuota") | {"spec": None}, "no `spec`"),
    (ruled("LimitRange") | {"spec": None}, "no `spec`"),
    (ruled("ResourceQuota", hard={"cpus": "1"}), "a quota counts no `cpus`"),
    (ruled("LimitRange", limits=[{"type": "Containers", "max": {"cpu": "1"}}]),
     "`spec.limits.type` is none of Container, Pod, PersistentVolumeClaim: Containers"),
    (ruled("LimitRange", limits=[{"type": "Container", "mx": {"cpu": "1"}}]), "unknown field `spec.limits.mx`"),
    (ruled("LimitRange", limit=[]), "unknown field `spec.limit`"),
    (ruled("LimitRange", limits=[{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]),
     "`spec.limits.min` is above `spec.limits.max`: cpu"),
    (ruled("LimitRange", limits=[{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}]),
     "`spec.limits.default` is above `spec.limits.max`: cpu"),
    (ruled("PodDisruptionBudget", minAvailable=1, maxUnavailable=1), "exclude each other"),
    (ruled("PodDisruptionBudget", minAvailable="150%"), "`spec.minAvailable` is more than 100%: 150%"),
    (ruled("PodDisruptionBudget", minAvailble=1), "unknown field `spec.minAvailble`"),
    ({"kind": "PriorityClass", "metadata": {"name": "r"}, "value": 1, "globaldefault": True},
     "unknown field `PriorityClass.globaldefault`"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "reason"), MISTAKES)
def test_a_rule_with_a_mistake_is_rejected_with_its_reason(read, rule, reason):
    (found,) = read(node("a"), pod("p0"), rule).rejects["reason"].to_list()
    assert reason in found


@pytest.mark.parametrize(("rule", "reason"), MISTAKES)
def test_a_file_with_a_mistaken_rule_is_refused_by_kind_and_name(tmp_path, rule, reason):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rule))
    with pytest.raises(TraceError) as refused:
        read_scheduler(path)
    assert str(refused.value).startswith(f"rules.json, {rule['kind']} ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "rule",
    [
        quota({}),
        ruled("ResourceQuota"),  # as the server writes an empty `hard`
        ruled("LimitRange", limits=None),  # as it writes an empty list
        quota({"requests.hugepages-2Mi": "1Gi", "count/jobs.batch": "3", "gold.storageclass.storage.k8s.io/x": "1"}),
        ruled("LimitRange", limits=[{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]),
        ruled("LimitRange", limits=[{"type": "openshift.io/Image", "max": {"storage": "1Gi"}}]),
        ruled("PodDisruptionBudget", maxUnavailable="100%", unhealthyPodEvictionPolicy="AlwaysAllow"),
    ],
)
def test_a_rule_that_the_api_server_takes_is_taken(read, rule):
    assert read(node("a"), pod("p0"), rule).rejects.height == 0


def job(name, at, parallelism=1, **status):
    about = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": f"2026-11-17T09:00:{at:02}Z"}
    return {"kind": "Job", "metadata": about, "spec": {"parallelism": parallelism}, "status": status}


def of_job(one, name):
    one["metadata"]["ownerReferences"] = [{"kind": "Job", "name": name, "uid": name, "controller": True}]
    return one


RESUMED = [{"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-17T09:00:10Z"}]


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (job("j", 0), [20.0, 0.0]),  # one at once: the second pod takes the place of the first
        (job("j", 0, 2), [20.0, 50.0]),  # both were wanted at once, and a quota held them up
        (job("j", 0, 2, conditions=RESUMED), [10.0, 40.0]),
    ],
)
def test_pods_are_submitted_when_their_job_wanted_them(read, made, waits):
    trace = read(node("a"), of_job(pod("p0", at=20), "j"), of_job(pod("p1", at=50), "j"), made)
    frame = trace.workload.frame
    assert (frame["start"] - frame["submit"]).to_list() == waits
    assert trace.rejects.height == 0


# -- affinities --------------------------------------------------------------------------------------------------------


def apart(how=REQUIRED):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    terms = [term] if how == REQUIRED else [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {how: terms}}


@pytest.mark.parametrize("how", [REQUIRED, PREFERRED])
def test_pods_that_must_not_be_together_are_not_simulated_together(read, tmp_path, how):
    (tmp_path / "packing.json").write_text(json.dumps(PACKING))
    pods = [pod(f"p{k}", gpus="1", labels={"app": "db"}, affinity=apart(how)) for k in range(3)]
    plain = [pod(f"p{k}", gpus="1", labels={"app": "db"}) for k in range(3)]
    apart_, together = (
        simulate(read(node("a"), node("b"), node("c"), *ones), scheduler=tmp_path / "packing.json")
        for ones in (pods, plain)
    )
    assert (len(set(nodes(apart_))), len(set(nodes(together)))) == (3, 1)


def test_the_preferred_node_is_taken(read):
    wish = {"nodeAffinity": {PREFERRED: [{"weight": 50, "preference": {
        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["nvme"]}]}}]}}  # fmt: skip
    pods = [pod(f"p{k}", at=k, gpus="1", affinity=wish) for k in range(4)]
    trace = read(node("a", disk="hdd"), node("b", disk="nvme"), *pods)
    assert nodes(simulate(trace, scheduler="kubernetes")) == ["b"] * 4


def test_pods_spread_over_zones_where_they_must(read):
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "db"}}}  # fmt: skip
    pods = [pod(f"p{k}", gpus="1", labels={"app": "db"}, topologySpreadConstraints=[rule]) for k in range(4)]
    trace = read(node("a", zone="x"), node("b", zone="x"), node("c", zone="y"), *pods)
    assert nodes(simulate(trace, scheduler="kubernetes")).count("c") == 2


@pytest.mark.parametrize(("arguments", "expected"), [({}, 2), ({"defaultingType": "List"}, 1)])
def test_pods_of_a_replica_set_spread_by_default_unless_the_configuration_says_otherwise(
    read, tmp_path, arguments, expected
):
    owner = [{"kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}]
    pods = [pod(f"p{k}", gpus="1") for k in range(4)]
    for one in pods:
        one["metadata"]["ownerReferences"] = owner
    strategy = {"scoringStrategy": {"type": "MostAllocated"}}
    (tmp_path / "conf.json").write_text(json.dumps({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
                      "pluginConfig": [{"name": "NodeResourcesFit", "args": strategy},
                                       {"name": "PodTopologySpread", "args": arguments}]}]}))  # fmt: skip
    found = simulate(read(node("a"), node("b"), *pods), scheduler=tmp_path / "conf.json")
    assert len(set(nodes(found))) == expected


def test_a_pod_that_names_its_node_goes_there_and_added_nodes_take_those_that_do_not(read):
    pinned = pod("p0", gpus="8", nodeSelector={"kubernetes.io/hostname": "b"})
    trace = read(node("a"), node("b"), pinned, pod("p1", gpus="8"), pod("p2", gpus="8"))
    assert nodes(simulate(trace, scheduler="kubernetes"))[0] == "b"
    more = simulate(trace, scheduler="kubernetes", nodes="+1")
    assert nodes(more)[0] == "b"
    assert starts(more) == [0.0, 0.0, 0.0]


def test_a_taint_that_only_advises_is_avoided_and_one_that_does_not_is_never_used(read):
    advice = {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}
    firm = {"key": "mine", "value": "true", "effect": "NoSchedule"}
    pods = [pod(f"p{k}", at=k, gpus="1") for k in range(4)]
    trace = read(node("a", [advice]), node("b"), node("c", [firm]), *pods)
    assert nodes(simulate(trace, scheduler="kubernetes")) == ["b"] * 4


@pytest.mark.parametrize(
    ("grace", "start"),
    [({}, 80.0), ({"terminationGracePeriodSeconds": 0}, 50.0), ({"terminationGracePeriodSeconds": 60}, 110.0)],
)
def test_a_victim_leaves_after_the_grace_of_its_own_pod(read, grace, start):
    low = pod("lo", gpus="8", runs=500, priority=0, **grace)
    trace = read(node("a"), low, pod("hi", at=50, gpus="8", priority=10))
    assert starts(simulate(trace, scheduler="kubernetes"))[1] == start


def named(name, value, **words):
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value} | words


@pytest.mark.parametrize(
    ("classes", "of_low", "of_high", "start"),
    [
        ([named("high", 10)], {}, {"priorityClassName": "high"}, 80.0),
        ([named("high", 10, preemptionPolicy="Never")], {}, {"priorityClassName": "high"}, 500.0),
        ([named("high", 10, preemptionPolicy="Never")], {}, {"priorityClassName": "high", "priority": 10,
                                                             "preemptionPolicy": "PreemptLowerPriority"}, 80.0),
        ([named("some", 10, globalDefault=True), named("low", 5)], {"priorityClassName": "low"}, {}, 80.0),
        ([named("some", 10, globalDefault=True)], {}, {}, 500.0),
        ([named("some", 10, globalDefault=True)], {}, {"priority": 0}, 500.0),
        ([], {}, {"priorityClassName": "system-node-critical"}, 80.0),
    ],
)  # fmt: skip
def test_pods_that_say_no_priority_have_that_of_their_class(read, classes, of_low, of_high, start):
    low, high = pod("lo", gpus="8", runs=500, **of_low), pod("hi", at=50, gpus="8", **of_high)
    trace = read(node("a"), low, high, *classes)  # classes may come after the pods that name them
    assert starts(simulate(trace, scheduler="kubernetes"))[1] == start


def test_pods_of_the_default_class_count_in_its_quota(read):
    select = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["some"]}]}
    default = named("some", 10, globalDefault=True)
    trace = read(node("a"), pod("p0"), pod("p1"), default, quota({"pods": "1"}, scopeSelector=select))
    assert [start > 0 for start in starts(simulate(trace))] == [False, True]


def test_a_class_that_is_not_in_the_list_is_said(read):
    trace = read(node("a"), pod("p0", priorityClassName="high"), pod("p1", priorityClassName="gone", priority=5))
    assert any("not in the list: high (1 pods): priority 0" in note for note in trace.notes)
    assert not any("gone" in note for note in trace.notes)


BUDGET = {
    "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "team"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("others", "evicted"),
    [
        ([], "web"),  # one of `db` must run, and it is the only one
        ([pod("db2", gpus="1", runs=1000, labels={"app": "db"})], "db"),  # two run, and it is of less importance
    ],
)
def test_a_budget_protects_pods_as_its_controller_keeps_it(read, others, evicted):
    on_a, on_b = ({"nodeSelector": {"kubernetes.io/hostname": name}, "gpus": "8", "runs": 1000} for name in "ab")
    pods = [
        *others,
        pod("db", labels={"app": "db"}, priority=0, **on_a),
        pod("web", labels={"app": "web"}, priority=1, **on_b),
        pod("big", at=5, gpus="8", priority=100),
    ]
    trace = read(node("a"), node("b"), node("c", gpus="1"), *pods, BUDGET)
    found = simulate(trace, scheduler="kubernetes").jobs.sort("job")
    names = trace.names.collect().sort("job")["name"]
    assert names.filter(found["preemptions"] > 0).to_list() == [f"team/{evicted}"]
