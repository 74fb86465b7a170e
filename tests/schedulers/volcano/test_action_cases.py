"""Cases of Volcano's own unit tests of its actions and of binpack, sla and the order of groups, written as facts.

Sources, in volcano-sh/volcano; each case is named as there:
reclaim  pkg/scheduler/actions/reclaim/reclaim_test.go at c8627e8
preempt  pkg/scheduler/actions/preempt/preempt_test.go at 016d215
allocate pkg/scheduler/actions/allocate/allocate_priority_fifo_test.go at d37d419
binpack  pkg/scheduler/plugins/binpack/binpack_test.go at 00561f9
sla      pkg/scheduler/plugins/sla/sla_test.go at 777b9a0
"""

import numpy as np
import pytest
from tests.schedulers.volcano.volcano_cases import GI, Case, G, amounts, plugin, queue

from fleetlab.schedulers.volcano.config import Plugin
from fleetlab.schedulers.volcano.orders import sorted_jobs
from fleetlab.schedulers.volcano.session import binpack, binpack_weights

ONE = amounts(1, G)

# -- reclaim ---------------------------------------------------------------------------------------------------------

RECLAIM = [
    plugin("conformance", "reclaimable"),
    plugin("gang", "reclaimable", "jobStarving"),
    plugin("proportion", "reclaimable", "queueOrder", "preemptive"),
]
BY_PRIORITY = plugin("priority", "reclaimable", "jobOrder", "taskOrder")
KEPT = {"kept": True}
WEIGHTS = [queue("q1"), queue("q2"), queue("q3")]

RECLAIM_CASES = {
    "Two Queue with one Queue overusing resource, should reclaim": (
        {"n1": amounts(3, 3 * GI)},
        WEIGHTS[:2],
        {"pg1": ("q1", 1), "pg2": ("q2", 1)},
        {
            "preemptee1": ("pg1", ONE, "n1", KEPT),
            "preemptee2": ("pg1", ONE, "n1"),
            "preemptee3": ("pg1", ONE, "n1", KEPT),
            "preemptor1": ("pg2", ONE),
        },
        {"preemptee2"},
    ),
    "sort reclaimees when reclaiming from overusing queue": (
        {"n1": amounts(4, 4 * GI)},
        WEIGHTS,
        {
            "pg1": ("q1", 1, {"priority": 500}),
            "pg2": ("q2", 1, {"priority": 100}),
            "pg3": ("q3", 1, {"priority": 1000}),
        },
        {
            "preemptee1-1": ("pg1", ONE, "n1"),
            "preemptee1-2": ("pg1", ONE, "n1"),
            "preemptee2-1": ("pg2", ONE, "n1"),
            "preemptee2-2": ("pg2", ONE, "n1", KEPT),
            "preemptor1": ("pg3", ONE),
        },
        {"preemptee2-1"},
    ),
    "sort reclaimees when reclaiming from overusing queues with different queue priority": (
        {"n1": amounts(4, 4 * GI)},
        [queue("q1", priority=5), queue("q2", priority=10), queue("q3", priority=1)],
        {"pg1": ("q1", 1), "pg2": ("q2", 1), "pg3": ("q3", 1)},
        {
            "preemptee1-1": ("pg1", ONE, "n1"),
            "preemptee1-2": ("pg1", ONE, "n1", KEPT),
            "preemptee2-1": ("pg2", ONE, "n1"),
            "preemptee2-2": ("pg2", ONE, "n1", KEPT),
            "preemptor1": ("pg3", ONE),
        },
        {"preemptee1-1"},
    ),
    "can not reclaim resources when task preemption policy is never": (
        {"n1": amounts(1, GI) | {"pods": 1}},
        [queue("q1", weight=5), queue("q2", weight=10)],
        {"pg1": ("q1", 0), "pg2": ("q2", 0)},
        {"preemptee1": ("pg1", ONE, "n1"), "preemptor1": ("pg2", ONE, None, {"preempts": False})},
        set(),
    ),
    "can not reclaim resources when queue is not open(proportion plugin)": (
        {"n1": amounts(3, 3 * GI)},
        [queue("q1"), queue("q2", is_open=False)],
        {"pg1": ("q1", 1), "pg2": ("q2", 1)},
        {
            "preemptee1": ("pg1", ONE, "n1", KEPT),
            "preemptee2": ("pg1", ONE, "n1"),
            "preemptee3": ("pg1", ONE, "n1", KEPT),
            "preemptor1": ("pg2", ONE),
        },
        set(),
    ),
    "Node available resources should be included in reclaimed resources": (
        {"n1": amounts(10, 2 * GI)},
        [queue("q1", priority=1), queue("q2", priority=2), queue("q3", weight=3)],
        {"pg1": ("q1", 0), "pg2": ("q2", 0), "pg3": ("q3", 1)},
        {"preemptee1-1": ("pg1", ONE, "n1"), "preemptee2-1": ("pg2", ONE, "n1"), "preemptor1": ("pg3", amounts(2, G))},
        {"preemptee1-1"},
    ),
    "Reclaim succeeds for second task when first task has PreemptionPolicy=Never": (
        {"n1": amounts(2, 2 * G)},
        WEIGHTS[:2],
        {"pg-victim": ("q1", 1, {"priority": 100}), "pg-preemptor": ("q2", 2, {"priority": 1000})},
        {
            "victim-pod-no": ("pg-victim", ONE, "n1", KEPT),
            "victim-pod": ("pg-victim", ONE, "n1"),
            "preemptor-task1": ("pg-preemptor", ONE, None, {"preempts": False}),
            "preemptor-task2": ("pg-preemptor", ONE),
        },
        {"victim-pod"},
    ),
    "only commit evictions on the node where reclaim succeeds": (
        {"n1": amounts(10, 10 * G)},
        [queue("q1"), queue("q2", weight=9)],
        {"pg-victim": ("q1", 0), "pg-preemptor": ("q2", 1)},
        {"victim-n1": ("pg-victim", amounts(2, 2 * G), "n1"), "preemptor1": ("pg-preemptor", amounts(3, 3 * G))},
        set(),
    ),
}


@pytest.mark.parametrize("name", RECLAIM_CASES)
def test_reclaim_evicts_whom_volcano_evicts(name):
    nodes, queues, groups, pods, expected = RECLAIM_CASES[name]
    groups = {k: (*v[:2], *(dict(words) for words in v[2:])) for k, v in groups.items()}
    tier = [*RECLAIM, BY_PRIORITY] if any(len(v) > 2 for v in groups.values()) else RECLAIM
    assert Case(nodes, queues, groups, pods).run(["reclaim"], [tier])[1] == expected


# -- preempt ---------------------------------------------------------------------------------------------------------

PREEMPT = [
    [
        plugin("conformance", "preemptable"),
        plugin("gang", "preemptable", "jobPipelined", "jobStarving"),
        plugin("priority", "taskOrder", "jobOrder", "preemptable", "jobPipelined", "jobStarving"),
        plugin("proportion", "overused", "allocatable", "queueOrder"),
    ]
]
LOW, HIGH = {"priority": 10}, {"priority": 100_000}
ONE_NODE = {"n1": amounts(12, 12 * G)}

PREEMPT_CASES = {
    "do not preempt if there are enough idle resources": (
        {"n1": amounts(10, 10 * G)},
        queue("q1"),
        {"pg1": ("q1", 3)},
        {"preemptee1": ("pg1", ONE, "n1"), "preemptee2": ("pg1", ONE, "n1"), "preemptor1": ("pg1", ONE)},
        set(),
    ),
    "do not preempt if job is pipelined": (
        {"n1": amounts(3, 3 * G)},
        queue("q1"),
        {"pg1": ("q1", 1), "pg2": ("q1", 1)},
        {
            "preemptee1": ("pg1", ONE, "n1"),
            "preemptee2": ("pg1", ONE, "n1"),
            "preemptee3": ("pg2", ONE, "n1"),
            "preemptor2": ("pg2", ONE),
        },
        set(),
    ),
    "preempt one task of different job to fit both jobs on one node": (
        {"n1": amounts(2, 2 * G)},
        queue("q1"),
        {"pg1": ("q1", 1, LOW), "pg2": ("q1", 1, HIGH)},
        {
            "preemptee1": ("pg1", ONE, "n1"),
            "preemptee2": ("pg1", ONE, "n1", KEPT),
            "preemptor1": ("pg2", ONE),
            "preemptor2": ("pg2", ONE),
        },
        {"preemptee1"},
    ),
    "preempt enough tasks to fit large task of different job": (
        {"n1": amounts(6, 6 * G)},
        queue("q1"),
        {"pg1": ("q1", 1, LOW), "pg2": ("q1", 1, HIGH)},
        {
            "preemptee1": ("pg1", ONE, "n1"),
            "preemptee2": ("pg1", ONE, "n1"),
            "preemptee3": ("pg1", ONE, "n1", KEPT),
            "preemptor1": ("pg2", amounts(5, 5 * G)),
        },
        {"preemptee1", "preemptee2"},
    ),
    "preempt low priority job in same queue (#3161)": (
        ONE_NODE,
        queue("q1", capability=amounts(4, 4 * G)),
        {"pg1": ("q1", 0, LOW), "pg2": ("q1", 1, HIGH)},
        {"preemptee1": ("pg1", amounts(3, 3 * G), "n1"), "preemptor1": ("pg2", amounts(3, 3 * G))},
        {"preemptee1"},
    ),
    "preempt low priority job in same queue: allocatable and has enough resource, don't preempt": (
        ONE_NODE,
        queue("q1", capability=amounts(6, 6 * G)),
        {"pg1": ("q1", 1, LOW), "pg2": ("q1", 1, HIGH)},
        {"preemptee1": ("pg1", amounts(3, 3 * G), "n1"), "preemptor1": ("pg2", amounts(3, 3 * G))},
        set(),
    ),
    "preempt low priority job in same queue (#2232)": (
        ONE_NODE,
        queue("q1", capability=amounts(3, 3 * G)),
        {"pg1": ("q1", 1, LOW), "pg2": ("q1", 1, HIGH)},
        {
            "preemptee1": ("pg1", ONE, "n1", KEPT),
            "preemptee2": ("pg1", ONE, "n1"),
            "preemptee3": ("pg1", ONE, "n1", {"priority": 100_000}),
            "preemptor1": ("pg2", ONE),
        },
        {"preemptee2"},
    ),
    "unBestEffort high-priority pod preempt BestEffort low-priority pod in same queue": (
        {"n1": amounts(12, 12 * G) | {"pods": 1}},
        queue("q1", capability=amounts(6, 6 * G)),
        {"pg1": ("q1", 0, LOW), "pg2": ("q1", 1, HIGH)},
        {"preemptee1": ("pg1", {}, "n1"), "preemptor1": ("pg2", amounts(3, 3 * G))},
        {"preemptee1"},
    ),
    "BestEffort high-priority pod preempt BestEffort low-priority pod in same queue": (
        {"n1": amounts(12, 12 * G) | {"pods": 1}},
        queue("q1", capability=amounts(6, 6 * G)),
        {"pg1": ("q1", 0, LOW), "pg2": ("q1", 1, HIGH)},
        {"preemptee1": ("pg1", {}, "n1"), "preemptor1": ("pg2", {})},
        {"preemptee1"},
    ),
}


@pytest.mark.parametrize("name", PREEMPT_CASES)
def test_preempt_evicts_whom_volcano_evicts(name):
    nodes, one, groups, pods, expected = PREEMPT_CASES[name]
    groups = {k: (*v[:2], *(dict(words) for words in v[2:])) for k, v in groups.items()}
    assert Case(nodes, [one], groups, pods).run(["preempt"], PREEMPT)[1] == expected


# -- allocate: what a group that does not fit does to those behind it --------------------------------------------------

FIFO = [
    [
        plugin("gang", "jobOrder", "jobReady", "jobPipelined"),
        plugin("proportion", "queueOrder", "allocatable"),
        plugin("predicates", "predicate"),
        plugin("priority", "jobOrder"),
    ]
]


@pytest.mark.parametrize(
    ("name", "strategy", "priorities", "expected"),
    [
        ("PriorityFIFO: same priority job can proceed after failure", "priorityFIFO", (1000, 1000, 500), {"pod-b"}),
        ("PriorityFIFO: all same priority, all can proceed", "priorityFIFO", (1000, 1000, 1000), {"pod-b", "pod-c"}),
        ("FIFO backward compatibility: all blocked after first failure", "fifo", (1000, 1000), set()),
        ("FIFO: same priority and lower priority blocked after failure", "fifo", (1000, 1000, 500), set()),
    ],
)
def test_a_group_that_does_not_fit_holds_up_those_that_volcano_holds_up(name, strategy, priorities, expected):
    letters = "abc"[: len(priorities)]
    groups = {f"pg-{x}": ("q1", 1, {"priority": p}) for x, p in zip(letters, priorities, strict=True)}
    pods = {f"pod-{x}": (f"pg-{x}", amounts(4 if x == "a" else 1, G)) for x in letters}
    case = Case({"n1": amounts(2, 4 * GI)}, [queue("q1", dequeue=strategy)], groups, pods)
    assert set(case.run(["allocate"], FIFO)[0]) == expected


# -- binpack ---------------------------------------------------------------------------------------------------------

GPU, FOO = "nvidia.com__gpu", "example.com__foo"
BINPACK_NODES = {"n1": amounts(2, 4 * GI), "n2": amounts(4, 16 * GI, **{GPU: 4}), "n3": amounts(2, 4 * GI, **{FOO: 16})}
BINPACK_PODS = {
    "p1": ("pg1", amounts(1, GI), "n1"),
    "p2": ("pg1", amounts(1.5), "n3"),
    "p3": ("pg1", amounts(2, 10 * GI, **{GPU: 2})),
    "p4": ("pg1", amounts(3, 4 * GI, **{FOO: 3})),
}
FIRST = {
    "binpack.weight": 10,
    "binpack.cpu": 2,
    "binpack.memory": 3,
    "binpack.resources": "nvidia.com/gpu, example.com/foo",
    "binpack.resources.nvidia.com/gpu": 7,
    "binpack.resources.example.com/foo": 8,
}
SECOND = {
    "binpack.weight": 1,
    "binpack.cpu": 1,
    "binpack.memory": 1,
    "binpack.resources": "nvidia.com/gpu",
    "binpack.resources.nvidia.com/gpu": 23,
}
SCORES = [
    (FIRST, "p1", (700, 137.5, 150)),
    (FIRST, "p2", (0, 375, 0)),
    (FIRST, "p3", (0, 531.25, 0)),
    (FIRST, "p4", (0, 173.076923076, 346.153846153)),
    (SECOND, "p1", (75, 15.625, 12.5)),
    (SECOND, "p2", (0, 37.5, 0)),
    (SECOND, "p3", (0, 50.5, 0)),
    (SECOND, "p4", (0, 50, 50)),
]


@pytest.mark.parametrize(("arguments", "pod", "expected"), SCORES)
def test_binpack_scores_each_node_as_volcano_does(arguments, pod, expected):
    session = Case(BINPACK_NODES, [queue("c1")], {"pg1": ("c1", 1)}, BINPACK_PODS).session(["allocate"], [])
    task = next(one for one in session.jobs[0].tasks if one.pod.name == pod)
    found = binpack(session.board, task, np.arange(3), Plugin("binpack", arguments))
    assert found == pytest.approx(expected, abs=1e-8)


def test_binpack_reads_its_weights_as_volcano_does():  # TestArguments
    given = {"binpack.weight": 10, "binpack.cpu": 5, "binpack.memory": 2, "binpack.resources.nvidia.com/gpu": 7}
    given |= {"binpack.resources": "nvidia.com/gpu, example.com/foo", "binpack.resources.example.com/foo": -3}
    weight, by_name = binpack_weights(Plugin("binpack", given))
    assert (weight, by_name) == (10, {"cpu": 5, "memory": 2, "nvidia.com/gpu": 7, "example.com/foo": 1})


# -- sla -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "first_goes_first"),
    [("sla normal placement", "3m", True), ("sla error type placement", 1, False), ("none placement", None, False)],
)
def test_sla_orders_groups_by_when_they_must_start(name, given, first_goes_first):
    arguments = {} if given is None else {"sla-waiting-time": given}
    groups = {"job1": ("q", 1), "job2": ("q", 1, {"waiting_time": 3600.0})}
    tier = [Plugin("sla", arguments)]
    session = Case({"n1": amounts(1, GI)}, [queue("q")], groups, {}).session(["enqueue"], [tier])
    assert (sorted_jobs(session, session.jobs)[0].name == "job1") == first_goes_first
