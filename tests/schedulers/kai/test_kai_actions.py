"""Cases of KAI's own unit tests of its actions, written as facts.

Sources, in kai-scheduler/KAI-Scheduler at 521a99a under pkg/scheduler/actions; each case is named as there:
allocate/allocateGang_test.go, reclaim/reclaim_test.go, preempt/preempt_test.go, consolidation/consolidation_test.go.
"""

import pytest
from tests.schedulers.kai.kai_cases import BUILD, INTERACTIVE, TRAIN, Case, queue

N0 = "node0"


def running(*nodes):
    return [("running", node) for node in nodes]


def leaving(*nodes):
    return [("releasing", node) for node in nodes]


def promised(*nodes):
    return [("pipelined", node) for node in nodes]


def waits(count=1):
    return [("pending", "")] * count


# -- allocate ----------------------------------------------------------------------------------------------------------

GANGS = [
    ("Allocate train gang job", {N0: 2}, 1, (1, TRAIN), [("bound", N0)] * 2),
    ("Allocate build gang job", {N0: 2}, 2, (1, BUILD), [("bound", N0)] * 2),
    ("Allocate build gang job on 2 nodes", {N0: 1, "node1": 1}, 2, (1, BUILD), [("bound", N0), ("bound", "node1")]),
    ("Don't allocate gang job if not all tasks are allocatable", {N0: 2}, 2, (2, BUILD), waits(2)),
    ("Don't allocate gang interactive job if it will go over quota", {N0: 10}, 3, (2, BUILD), waits(2)),
]


@pytest.mark.parametrize(("name", "nodes", "deserved", "job", "expected"), GANGS)
def test_gangs_are_placed_as_in_kai(name, nodes, deserved, job, expected):
    groups = {"pending_job0": ("queue0", job[0], [None, None], {"priority": job[1]})}
    assert Case(nodes, [queue("queue0", deserved)], groups).run("allocate") == {"pending_job0": expected}


def test_a_gang_waits_whole_for_a_pod_that_leaves():  # Pipeline if resource aren't currently allocatable
    groups = {"running_job0": ("queue0", 1, [N0], {"leaving": True}), "pending_job0": ("queue0", 2, [None, None])}
    found = Case({N0: 4}, [queue("queue0", 3)], groups).run("allocate")
    assert found == {"running_job0": leaving(N0), "pending_job0": promised(N0, N0)}


# -- reclaim -----------------------------------------------------------------------------------------------------------

THREE_LEVELS = [
    queue("d1", 1, 1),
    queue("queue0", 1, 1, "d1"),
    queue("queue1", 1, 1, "d1"),
    queue("reclaimer_queue", 2, 0, "d1"),
]
SIX = {f"node{k}": 3 for k in range(6)}
FOUR = {f"node{k}": 1 for k in range(4)}

RECLAIM = {
    "Reclaim jobs according to queue fair share": (
        {N0: 6},
        THREE_LEVELS,
        {
            **{
                f"q{q}_running_job{k}": (f"queue{q}", 1, [N0], {"priority": TRAIN - (k == 2)})
                for q in range(2)
                for k in range(3)
            },
            "reclaimer": ("reclaimer_queue", 1, [None, None]),
        },
        {"q0_running_job2": leaving(N0), "q1_running_job2": leaving(N0), "reclaimer": promised(N0, N0)},
    ),
    "queue1 is under deserved quota, queue0 is over deserved quota and will go below quota - reclaim": (
        {N0: 16, "node1": 16},
        [queue("queue0", 10, 1), queue("queue1", 10, 1)],
        {"q0_running_job": ("queue0", 10, [N0, "node1"]), "q1_pending_job": ("queue1", 10, [None])},
        {"q0_running_job": leaving(N0, "node1"), "q1_pending_job": promised(N0)},
    ),
    "queue1 is under deserved quota, queue0 is over deserved quota but under fair share - reclaim": (
        SIX,
        [queue("queue0", 2, 1), queue("queue1", 2, 1)],
        {
            **{f"q0_running_job{k}": ("queue0", 2, [f"node{k}"]) for k in range(6)},
            **{f"q0_pending_job{k}": ("queue0", 2, [None]) for k in (6, 7, 8)},
            "q1_pending_job0": ("queue1", 2, [None]),
        },
        {"q0_running_job5": leaving("node5"), "q1_pending_job0": promised("node5")},
    ),
    "queue0 is over fair share, queue1 is under fair share - reclaim for job with multiple tasks": (
        FOUR,
        [queue("queue0", 0, 0), queue("queue1", 2, 1)],
        {**{f"q0_job{k}": ("queue0", 1, [f"node{k}"]) for k in range(4)}, "q1_job1": ("queue1", 1, [None] * 4)},
        {**{f"q0_job{k}": leaving(f"node{k}") for k in range(4)}, "q1_job1": promised(*FOUR)},
    ),
    "… reclaim for job with multiple tasks from job with multiple tasks": (
        FOUR,
        [queue("queue0", 1, 0), queue("queue1", 2, 1)],
        {
            "q0_job0": ("queue0", 1, [N0, "node1", "node2"]),
            "q0_job1": ("queue0", 1, ["node3"]),
            "q1_job1": ("queue1", 1, [None] * 3),
        },
        {"q0_job0": leaving(N0, "node1", "node2"), "q1_job1": promised(N0, "node1", "node2")},
    ),
    "reclaim from multiple queues running on multiple nodes for a job with multiple tasks": (
        {N0: 2, "node1": 2},
        [queue("queue0", 0, 0), queue("queue1", 1, 0), queue("queue2", 3, 0)],
        {
            "job0": ("queue0", 1, [N0]),
            "job1": ("queue1", 1, [N0]),
            "job2": ("queue0", 1, ["node1"]),
            "job3": ("queue1", 1, ["node1"]),
            "pending_job": ("queue2", 1, [None] * 3),
        },
        {
            "job0": leaving(N0),
            "job2": leaving("node1"),
            "job3": leaving("node1"),
            "pending_job": promised(N0, "node1", "node1"),
        },
    ),
    "2 jobs from queue0 running on node0 - 2 pending jobs from queue1 - reclaim": (
        {N0: 2},
        [queue("queue0", 1, 1), queue("queue1", 1, 1)],
        {
            "running_job0": ("queue0", 1, [N0]),
            "running_job1": ("queue0", 1, [N0]),
            "pending_job0": ("queue1", 1, [None]),
            "pending_job1": ("queue1", 1, [None]),
        },
        {"running_job1": leaving(N0), "pending_job0": promised(N0)},
    ),
    "1 job from queue0 and 1 job from queue1 running on node0 - don't reclaim": (
        {N0: 2},
        [queue("queue0", 1, 1), queue("queue1", 1, 1)],
        {
            "running_job0": ("queue0", 1, [N0]),
            "running_job1": ("queue1", 1, [N0]),
            "pending_job0": ("queue0", 1, [None]),
            "pending_job1": ("queue1", 1, [None]),
        },
        {},
    ),
}


def as_they_were(groups):
    """What each group would be if nothing happened."""
    return {name: sorted(running(*g[2]) if g[2][0] else waits(len(g[2]))) for name, g in groups.items()}


@pytest.mark.parametrize("name", RECLAIM)
def test_reclaim_takes_from_whom_kai_takes(name):
    nodes, queues, groups, changed = RECLAIM[name]
    assert Case(nodes, queues, groups).run("reclaim") == as_they_were(groups) | changed


# -- preempt -----------------------------------------------------------------------------------------------------------

BUILDS = {"priority": BUILD}
PREEMPT = {
    "1 train job running, 1 build job pending for the same queue - preempt": (
        {N0: 1},
        {"queue0": 1},
        {"running_job0": ("queue0", 1, [N0]), "pending_job0": ("queue0", 1, [None], BUILDS)},
        {"running_job0": leaving(N0), "pending_job0": promised(N0)},
    ),
    "1 train job running, 1 train job pending for the same queue - don't preempt": (
        {N0: 1},
        {"queue0": 1},
        {"running_job0": ("queue0", 1, [N0]), "pending_job0": ("queue0", 1, [None])},
        {},
    ),
    "1 train job running, 1 build job pending for the different queue - don't preempt": (
        {N0: 1},
        {"queue0": 1, "queue1": 1},
        {"running_job0": ("queue0", 1, [N0]), "pending_job0": ("queue1", 1, [None], BUILDS)},
        {},
    ),
    "2 train jobs running, 1 build job with 2 GPUs pending for the same queue - preempt": (
        {N0: 2},
        {"queue0": 2},
        {
            "running_job0": ("queue0", 1, [N0]),
            "running_job1": ("queue0", 1, [N0]),
            "pending_job0": ("queue0", 2, [None], BUILDS),
        },
        {"running_job0": leaving(N0), "running_job1": leaving(N0), "pending_job0": promised(N0)},
    ),
    "2 train jobs running require 2 GPUs, 1 build job with 2 GPUs pending - preempt": (
        {N0: 4},
        {"queue0": 2, "queue1": 2},
        {
            "running_job0": ("queue0", 2, [N0]),
            "running_job1": ("queue1", 2, [N0]),
            "pending_job0": ("queue0", 2, [None], BUILDS),
        },
        {"running_job0": leaving(N0), "pending_job0": promised(N0)},
    ),
    "1 train requires 1 GPU for queue0, 1 train that requires 2 GPU for queue1, 1 build job with 2 GPUs - preempt": (
        {N0: 4},
        {"queue0": 2, "queue1": 2},
        {
            "running_job0": ("queue0", 1, [N0]),
            "running_job1": ("queue1", 2, [N0]),
            "pending_job0": ("queue0", 2, [None], BUILDS),
        },
        {"running_job0": leaving(N0), "pending_job0": promised(N0)},
    ),
    "1 train, 1 preemptible interactive jobs running, 1 build job with 1 GPUs pending - preempt train": (
        {N0: 2},
        {"queue0": 2},
        {
            "running_job0": ("queue0", 1, [N0]),
            "running_job1": ("queue0", 1, [N0], {"priority": INTERACTIVE}),
            "pending_job0": ("queue0", 1, [None], BUILDS),
        },
        {"running_job0": leaving(N0), "pending_job0": promised(N0)},
    ),
}


@pytest.mark.parametrize("name", PREEMPT)
def test_preempt_takes_from_whom_kai_takes(name):
    nodes, queues, groups, changed = PREEMPT[name]
    case = Case(nodes, [queue(one, deserved) for one, deserved in queues.items()], groups)
    assert case.run("preempt") == as_they_were(groups) | changed


# -- consolidation -----------------------------------------------------------------------------------------------------

TWO = {N0: 4, "node1": 4}
PAIR = {"running_job0": ("queue0", 2, [N0]), "running_job1": ("queue0", 2, ["node1"])}
CONSOLIDATION = {
    "2 jobs of 1 task running on different GPUs, two pending jobs, only first can be consolidated": (
        {**PAIR, "pending_job0": ("queue0", 3, [None]), "pending_job1": ("queue0", 2, [None])},
        {"running_job1": promised(N0), "pending_job0": promised("node1")},
    ),
    "2 jobs of 2 & 1 GPUs running, two pending jobs, only second can be consolidated": (
        {
            "running_job0": ("queue0", 2, [N0]),
            "running_job1": ("queue0", 1, ["node1"]),
            "running_job2": ("queue0", 2, ["node1"]),
            "pending_job0": ("queue0", 2, [None, None]),
            "pending_job1": ("queue0", 3, [None]),
        },
        {"running_job2": promised(N0), "pending_job1": promised("node1")},
    ),
    "2 jobs of 1 task running on different GPUs, 2 pending jobs, only second can be consolidated": (
        {**PAIR, "pending_job0": ("queue0", 5, [None]), "pending_job1": ("queue0", 3, [None])},
        {"running_job1": promised(N0), "pending_job1": promised("node1")},
    ),
    "… 2 pending jobs with multiple tasks, one job can partially be allocated": (
        {
            **PAIR,
            "running_job2": ("queue0", 1, ["node1"]),
            "pending_job0": ("queue0", 4, [None]),
            "pending_job1": ("queue0", 3, [None, None], {"least": 1}),
        },
        {"running_job1": promised(N0), "pending_job1": [*waits(), *promised("node1")]},
    ),
    "2 jobs of 1 task running on different GPUs, two pending jobs - can't Consolidate": (
        {
            "running_job0": ("queue0", 3, [N0]),
            "running_job1": ("queue0", 3, ["node1"]),
            "pending_job0": ("queue0", 2, [None]),
            "pending_job1": ("queue0", 2, [None]),
        },
        {},
    ),
    "2 jobs of 1 task running on different GPUs, 1 job of 3 gpus is pending - can't Consolidate": (
        {
            "running_job0": ("queue0", 3, [N0]),
            "running_job1": ("queue0", 3, ["node1"]),
            "pending_job0": ("queue0", 3, [None]),
        },
        {},
    ),
}


@pytest.mark.parametrize("name", CONSOLIDATION)
def test_consolidation_moves_whom_kai_moves(name):
    groups, changed = CONSOLIDATION[name]
    assert Case(TWO, [queue("queue0", 2)], groups).run("consolidation") == as_they_were(groups) | changed
