"""What the file of a scheduler says decides who starts when: each word, in a schedule that changes with it.

Two files differ in one word, and both are simulated as `fleetlab simulate TRACE --scheduler FILE` does. Starts are by
hand. In all three an evicted job has 30 s to leave. Kueue's topologies are in kueue/test_kueue_site_topology.py.
"""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload

GPU = "nvidia.com/gpu"
TWO, ONE = [8, 8], [8]  # GPUs of the nodes
COLUMNS = ["submit", "runtime", "gpus", "queue", "priority", "instances"]


def starts(folder, objects, rows, nodes):
    """When jobs start, in the order of rows; jobs that are equal but for their place in it, in the order of time."""
    path = folder / "scheduler.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    full = [(*row, *(0, 1)[len(row) - 4 :]) for row in rows]
    frame = pl.DataFrame(full, schema=COLUMNS, orient="row")
    jobs = Workload.of(
        frame.with_columns(gpu_milli=pl.col("gpus") * 1000, cpu_milli=pl.col("gpus") * 1000).drop("gpus"), source="test"
    )
    found = fleetlab.simulate(jobs, Cluster.uniform(len(nodes), nodes[0]), scheduler=path, warm_up="none")
    times = dict(found.jobs.select("job", "start").iter_rows())
    mine = [times.get(k) for k in range(len(rows))]
    alike = {row: iter(sorted(at for at, one in zip(mine, rows, strict=True) if one == row)) for row in rows}
    return [next(alike[row]) for row in rows]


# -- Kueue -------------------------------------------------------------------------------------------------------------


def thing(kind, name, **spec):
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def cq(name, nominal, cohort="lab", limits=(), flavors=None, **spec):
    """A ClusterQueue with one flavor, or with several by their nominal quota."""

    def quota(amount):
        return [{"name": GPU, "nominalQuota": amount, **dict(limits)}]

    given = flavors or {"any": nominal}
    listed = [{"name": flavor, "resources": quota(amount)} for flavor, amount in given.items()]
    group = {"coveredResources": [GPU], "flavors": listed}
    return thing("ClusterQueue", name, cohortName=cohort, resourceGroups=[group], **spec)


def preempts(**policies):
    return {"preemption": policies}


FAIR = {"apiVersion": "config.kueue.x-k8s.io/v1beta1", "kind": "Configuration", "fairSharing": {"enable": True}}
BORROWS = [(0.0, 100.0, 8, "a"), (1.0, 100.0, 8, "a")]  # the second only with 8 GPUs of another
RECLAIMED = [(0.0, 100.0, 8, "a"), (0.0, 100.0, 8, "a"), (10.0, 100.0, 8, "b")]
URGENT = [(0.0, 100.0, 8, "a"), (10.0, 100.0, 8, "a", 5)]
SMALL = [(0.0, 20.0, 6, "a"), (1.0, 100.0, 8, "a"), (2.0, 100.0, 2, "a")]  # the third fits beside the first
SHARES = [(0.0, 100.0, 4, "a")] * 4 + [(0.0, 100.0, 4, "b")] * 4


def borrowing(policy):
    rule = {"borrowWithinCohort": {"policy": policy}} if policy else {}
    return [cq("a", 0), cq("b", 0, **preempts(reclaimWithinCohort="LowerPriority", **rule)), cq("c", 16)]


def fair(weight):
    free = preempts(reclaimWithinCohort="Any")
    return [FAIR, cq("a", 0, fairSharing={"weight": weight}, **free), cq("b", 0, **free), cq("c", 16)]


def fungible(**rule):
    return [cq("a", 0, flavors={"x": 0, "y": 8}, flavorFungibility=rule), cq("b", 0, flavors={"x": 8})]


def preempting(rule):
    policies = {"flavorFungibility": {"whenCanPreempt": rule}, **preempts(withinClusterQueue="LowerPriority")}
    return [cq("a", 0, flavors={"x": 8, "y": 8}, **policies)]


def trees(parent):
    return [thing("Cohort", "left", parentName="root"), thing("Cohort", "right", **parent), cq("a", 8, "left"),
            cq("b", 8, "right")]  # fmt: skip


KUEUE = {
    "nominalQuota": ([cq("a", 8)], [cq("a", 16)], BORROWS, TWO, [0, 100], [0, 1]),
    "borrowingLimit": (
        [cq("a", 8, limits={"borrowingLimit": 0}), cq("b", 8)], [cq("a", 8), cq("b", 8)], BORROWS, TWO,
        [0, 100], [0, 1],
    ),
    "lendingLimit": (
        [cq("a", 8), cq("b", 8, limits={"lendingLimit": 0})], [cq("a", 8), cq("b", 8)], BORROWS, TWO, [0, 100], [0, 1],
    ),
    "cohorts in trees": (trees({}), trees({"parentName": "root"}), BORROWS, TWO, [0, 100], [0, 1]),
    "reclaimWithinCohort": (
        [cq("a", 8), cq("b", 8)], [cq("a", 8), cq("b", 8, **preempts(reclaimWithinCohort="Any"))],
        RECLAIMED, TWO, [0, 0, 100], [0, 0, 40],
    ),
    "withinClusterQueue": (
        [cq("a", 8)], [cq("a", 8, **preempts(withinClusterQueue="LowerPriority"))], URGENT, ONE, [0, 100], [0, 40],
    ),
    "LowerOrNewerEqualPriority": (
        [cq("a", 8, **preempts(withinClusterQueue="LowerPriority"))],
        [cq("a", 8, **preempts(withinClusterQueue="LowerOrNewerEqualPriority"))],
        SMALL, ONE, [0, 102, 2], [0, 50, 2],
    ),
    "borrowWithinCohort": (
        borrowing(None), borrowing("LowerPriority"), [*RECLAIMED[:2], (10.0, 100.0, 8, "b", 5)], TWO,
        [0, 0, 100], [0, 0, 40],
    ),
    "fairSharing weight": (
        fair(1), fair(3), SHARES, TWO, [0, 0, 100, 100, 0, 0, 100, 100], [0, 0, 30, 100, 0, 0, 100, 130],
    ),
    "flavors in order": (
        [cq("a", 0, flavors={"x": 8, "y": 8}), cq("b", 0, flavors={"x": 0})],
        [cq("a", 0, flavors={"y": 8, "x": 8}), cq("b", 0, flavors={"x": 0})],
        [(0.0, 100.0, 8, "a"), (1.0, 100.0, 8, "b")], TWO, [0, 100], [0, 1],
    ),
    "whenCanBorrow": (
        fungible(whenCanBorrow="MayStopSearch"), fungible(whenCanBorrow="TryNextFlavor"),
        [(0.0, 100.0, 8, "a"), (1.0, 100.0, 8, "b")], TWO, [0, 100], [0, 1],
    ),
    "whenCanPreempt": (preempting("MayStopSearch"), preempting("TryNextFlavor"), URGENT, TWO, [0, 40], [0, 10]),
    "queueingStrategy": (
        [cq("a", 8, queueingStrategy="StrictFIFO")], [cq("a", 8, queueingStrategy="BestEffortFIFO")],
        SMALL, ONE, [0, 20, 120], [0, 102, 2],
    ),
    "stopPolicy": ([cq("a", 8, stopPolicy="Hold"), cq("b", 8)], [cq("a", 8), cq("b", 8)],
                   [(0.0, 10.0, 8, "b"), (1.0, 10.0, 8, "a")], TWO, [0, None], [0, 1]),
}  # fmt: skip


# -- Volcano -----------------------------------------------------------------------------------------------------------


def volcano(*queues, actions="allocate, backfill", tiers=(("priority", "gang", "drf", "predicates", "proportion"),)):
    """Queues, and a configuration of plugins: each a name, or a table."""
    listed = [{"plugins": [{"name": one} if isinstance(one, str) else one for one in tier]} for tier in tiers]
    conf = {"kind": "ConfigMap", "data": {"volcano-scheduler.conf": json.dumps({"actions": actions, "tiers": listed})}}
    made = [
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name, spec in queues
    ]
    return [*made, conf]


A, B = ("a", {}), ("b", {})
EIGHT = [(0.0, 100.0, 1, "a")] * 8 + [(0.0, 100.0, 1, "b")] * 8
WHOLE = {"name": "gang", "enableReclaimable": False}
RECLAIM = {"actions": "allocate, reclaim", "tiers": [("conformance", WHOLE, "predicates", "proportion")]}
PACKED = [(0.0, 100.0, 4, "a"), (1.0, 100.0, 4, "a"), (2.0, 100.0, 8, "a")]
GANG = [(0.0, 100.0, 4, "a"), (1.0, 100.0, 4, "a", 0, 2), (2.0, 50.0, 4, "a")]
STARVED = [(0.0, 100.0, 4, "a"), (1.0, 50.0, 8, "a"), *((50.0 * k, 100.0, 4, "a") for k in range(1, 5))]
STARVING = {"name": "gang", "enablePreemptable": False}
SLA = {"name": "sla", "arguments": {"sla-waiting-time": "1m"}}
PREEMPT, ENQUEUE = {"actions": "allocate, preempt"}, {"actions": "enqueue, allocate, backfill"}
NO_GANG = [("priority", "drf", "predicates", "proportion")]


def plugins(*names):
    return [("priority", "gang", "predicates", *names)]


VOLCANO = {
    "weight": (volcano(A, B), volcano(("a", {"weight": 3}), B), EIGHT, ONE,
               [0] * 4 + [100] * 4 + [0] * 4 + [100] * 4, [0] * 6 + [100] * 2 + [0] * 2 + [100] * 6),
    "capability": (volcano(("a", {"capability": {GPU: 8}})), volcano(A), [(0.0, 100.0, 8, "a")] * 2, TWO,
                   [0, 100], [0, 0]),
    "reclaimable": (volcano(("a", {"reclaimable": False}), B, **RECLAIM), volcano(A, B, **RECLAIM), RECLAIMED, TWO,
                    [0, 0, 100], [0, 0, 40]),
    "gang": (volcano(A, tiers=NO_GANG), volcano(A), GANG, ONE, [0, 150, 100], [0, 100, 2]),
    "binpack": (volcano(A, tiers=plugins("nodeorder")), volcano(A, tiers=plugins("binpack")), PACKED, TWO,
                [0, 1, 100], [0, 1, 2]),
    "proportion": (volcano(A, B, tiers=plugins()), volcano(A, B, tiers=plugins("proportion")), EIGHT, ONE,
                   [0] * 8 + [100] * 8, [0] * 4 + [100] * 4 + [0] * 4 + [100] * 4),
    "drf": (volcano(A, **PREEMPT, tiers=[(STARVING, "predicates")]),
            volcano(A, **PREEMPT, tiers=[(STARVING, "predicates", "drf")]),
            [(0.0, 100.0, 1, "a", 0, 6), (10.0, 100.0, 3, "a")], ONE, [0, 100], [0, 40]),
    "sla": (volcano(A, **ENQUEUE, tiers=plugins("proportion")),
            volcano(A, **ENQUEUE, tiers=[("priority", SLA), *plugins("proportion")]),
            STARVED, ONE, [0, 300, 50, 100, 150, 200], [0, 150, 50, 200, 200, 300]),
}  # fmt: skip


# -- KAI ---------------------------------------------------------------------------------------------------------------


def kai(*queues, **spec):
    made = [
        {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
         "spec": {"resources": {"cpu": {"limit": -1, "quota": -1}, "memory": {"limit": -1, "quota": -1},
                                "gpu": {"quota": quota, "limit": limit, "overQuotaWeight": weight}}}}
        for name, quota, limit, weight in queues
    ]  # fmt: skip
    return [*made, {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "spec": spec}]


HALVES = ("a", 8, -1, 1), ("b", 8, -1, 1)
NONE = ("a", 0, -1, 1), ("b", 0, -1, 1)
USED = [(0.0, 1000.0, 8, "a"), (999.0, 100.0, 8, "a"), (1000.0, 100.0, 8, "b")]
LATER = [(0.0, 3000.0, 8, "a"), (4000.0, 500.0, 8, "b"), (4050.0, 100.0, 8, "b"), (4100.0, 100.0, 8, "a")]
SPREAD = [(0.0, 50.0, 4, "a"), (1.0, 1000.0, 4, "a"), (2.0, 1000.0, 4, "a"), (60.0, 100.0, 8, "a")]
USAGE = {"windowSize": "2000s"}


def decaying(half_life):
    usage = {"usageParams": {"windowSize": "6000s", **half_life}}
    return kai(*NONE, kValue=1, usageDBConfig=usage, args={"reclaimMinRuntime": "1h"})


KAI = {
    "quota": (kai(("a", 16, -1, 1), ("b", 0, -1, 0)), kai(*HALVES), RECLAIMED, TWO, [0, 0, 100], [0, 0, 40]),
    "limit": (kai(("a", 0, 8, 1)), kai(("a", 0, -1, 1)), [(0.0, 100.0, 8, "a")] * 2, TWO, [0, 100], [0, 0]),
    "overQuotaWeight": (kai(*NONE), kai(("a", 0, -1, 3), NONE[1]), EIGHT, ONE,
                        [0] * 4 + [100] * 4 + [0] * 4 + [100] * 4, [0] * 6 + [100] * 2 + [0] * 2 + [100] * 6),
    "kValue": (kai(*NONE, kValue=0, usageDBConfig={"usageParams": USAGE}),
               kai(*NONE, kValue=1, usageDBConfig={"usageParams": USAGE}), USED, ONE, [0, 1000, 1100], [0, 1100, 1000]),
    "halfLifePeriod": (decaying({}), decaying({"halfLifePeriod": "100s"}), LATER, ONE,
                       [0, 4000, 4500, 4600], [0, 4000, 4600, 4500]),
    "consolidation": (kai(NONE[0], args={"maxNumberConsolidationPreemptees": 0}), kai(NONE[0]), SPREAD, TWO,
                      [0, 1, 2, 1001], [0, 1, 2, 90]),
    "reclaimMinRuntime": (kai(*HALVES, args={"reclaimMinRuntime": "60s"}), kai(*HALVES), RECLAIMED, TWO,
                          [0, 0, 90], [0, 0, 40]),
}  # fmt: skip

CASES = {f"{name} {word}": case for name, cases in (("Kueue", KUEUE), ("Volcano", VOLCANO), ("KAI", KAI))
         for word, case in cases.items()}  # fmt: skip


@pytest.mark.parametrize("word", CASES)
def test_a_schedule_changes_with_the_word(tmp_path, word):
    first, second, rows, nodes, *expected = CASES[word]
    assert [starts(tmp_path, one, rows, nodes) for one in (first, second)] == expected


# -- what pods of a trace say ------------------------------------------------------------------------------------------


def listed_pod(name, at, runs, queue, grace):
    """A pod of a node's GPUs, as a list has it."""
    start, end = (f"2026-11-17T09:{t // 60:02}:{t % 60:02}Z" for t in (at, at + runs))
    given = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": start,
                     "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"nodeName": "n0", "containers": [{"resources": {"requests": {"cpu": "8", GPU: "8"}}}], **given},
        "status": {"phase": "Succeeded", "startTime": start,
                   "containerStatuses": [{"state": {"terminated": {"finishedAt": end}}}]},
    }  # fmt: skip


SITES = {
    "Kueue": [cq("a", 8), cq("b", 8, **preempts(reclaimWithinCohort="Any"))],
    "Volcano": volcano(A, B, **RECLAIM),
    "KAI": kai(*HALVES),
}


@pytest.mark.parametrize(("grace", "start"), [(None, 40.0), (5, 15.0), (0, 10.0), (60, 70.0)])
@pytest.mark.parametrize("site", SITES)
def test_an_evicted_job_leaves_after_the_grace_of_its_pods(tmp_path, site, grace, start):
    has = {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}
    nodes = [{"kind": "Node", "metadata": {"name": f"n{k}"}, "status": {"allocatable": has}} for k in range(2)]
    pods = [listed_pod(f"a{k}", 0, 100, "a", grace) for k in range(2)] + [listed_pod("b", 10, 100, "b", None)]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": nodes + pods}))
    (tmp_path / "site.json").write_text(json.dumps({"kind": "List", "items": SITES[site]}))
    trace = fleetlab.read(tmp_path / "pods.json", "kubernetes")
    found = fleetlab.simulate(trace, scheduler=tmp_path / "site.json", warm_up="none")
    assert found.jobs.sort("job")["start"][2] == start
