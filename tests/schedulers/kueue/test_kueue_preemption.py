"""Who is preempted, on the cases of Kueue's own tests, with their queues, workloads, results and reasons.

Of pkg/scheduler/preemption/preemption_test.go, TestPreemption (commit 014d9490; release 0.10), whose results hold in
later releases, and of preemption_hierarchical_test.go, TestHierarchicalPreemptions (commit 054bf634).
"""

import pytest

from .cases import ANY, LOWER, NEWER, admitted, cohort, cq, group, preempted, workload

MINE, RECLAIM, BORROWING = "InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing"


def cpu_and_memory(cpu, memory):
    return group(default={"cpu": cpu, "memory": memory})


SHARED = {"reclaim": LOWER, "borrow": 0}
QUEUES = [
    cq("standalone", None, group(alpha={"memory": 3}, beta={"memory": 3}), cpu=6, within=LOWER),
    cq("c1", "cohort", cpu_and_memory((6, 6), (3, 3)), within=LOWER, reclaim=LOWER),
    cq("c2", "cohort", cpu_and_memory((6, 6), (3, 3)), reclaim=ANY),
    cq("d1", "cohort-no-limits", cpu_and_memory(6, 3), within=LOWER, reclaim=LOWER),
    cq("d2", "cohort-no-limits", cpu_and_memory(6, 3), reclaim=ANY),
    cq("l1", "legion", cpu_and_memory((6, 12), (3, 6)), within=LOWER, reclaim=LOWER),
    cq("preventStarvation", cpu=6, within=NEWER),
    cq("a_standard", "with_shared_cq", cpu=(1, 12), **SHARED),
    cq("b_standard", "with_shared_cq", cpu=(1, 12), within=LOWER, reclaim=ANY, borrow=0),
    cq("a_best_effort", "with_shared_cq", cpu=(1, 12), **SHARED),
    cq("b_best_effort", "with_shared_cq", cpu=(0, 13), **SHARED),
    cq("shared", "with_shared_cq", cpu=10),
    cq("lend1", "cohort-lend", cpu=(6, None, 4), within=LOWER, reclaim=LOWER),
    cq("lend2", "cohort-lend", cpu=(6, None, 2), within=LOWER, reclaim=LOWER),
    cq("a", "cohort-three", cpu_and_memory(2, 2), within=LOWER, reclaim=ANY),
    cq("b", "cohort-three", cpu_and_memory(2, 2)),
    cq("c", "cohort-three", cpu_and_memory(2, 2)),
]


def run(name, queue, priority, cpu, **words):
    return admitted(name, queue, priority, cpu=cpu, **words)


def new(queue, priority, cpu, **words):
    return workload("in", queue, priority, cpu=cpu, **words)


def low_mid_high(low, mid, high=None):
    rows = [run("low", "standalone", -1, low), run("mid", "standalone", 0, mid)]
    return rows + ([run("high", "standalone", 1, high)] if high else [])


THREE = [run("a1", "a", -2, 1), run("a2", "a", -2, 1), run("a3", "a", -1, 1)]
THREE += [run(f"b{k}", "b", 0, 1) for k in (1, 2, 3)]
CASES = {
    "preempt lowest priority": (low_mid_high(2, 2, 2), new("standalone", 1, 2), {"low": MINE}),
    "preempt multiple": (low_mid_high(2, 2, 2), new("standalone", 1, 3), {"low": MINE, "mid": MINE}),
    "no preemption for low priority": (low_mid_high(3, 3), new("standalone", -1, 1), {}),
    "not enough low priority workloads": (low_mid_high(3, 3), new("standalone", 0, 4), {}),
    "some free quota, preempt low priority": (low_mid_high(1, 1, 3), new("standalone", 1, 2), {"low": MINE}),
    "minimal set excludes low priority": (low_mid_high(1, 2, 3), new("standalone", 1, 2), {"mid": MINE}),
    "reclaim quota from borrower": (
        [run("c1-low", "c1", -1, 3), run("c2-mid", "c2", 0, 3), run("c2-high", "c2", 1, 6)],
        new("c1", 1, 3), {"c2-mid": RECLAIM},
    ),
    "no workloads borrowing": (
        [run("c1-high", "c1", 1, 4), run("c2-low-1", "c2", -1, 4)], new("c1", 1, 4), {},
    ),
    "not enough workloads borrowing": (
        [run("c1-high", "c1", 1, 4), run("c2-low-1", "c2", -1, 4), run("c2-low-2", "c2", -1, 4)], new("c1", 1, 4), {},
    ),
    "preempting locally and borrowing other resources in cohort, without cohort candidates": (
        [run("c1-low", "c1", -1, 4), run("c2-low-1", "c2", -1, 4), run("c2-high-2", "c2", 1, 4)],
        new("c1", 1, 4, memory=5), {"c1-low": MINE},
    ),
    "preempting locally and borrowing same resource in cohort": (
        [run("c1-med", "c1", 0, 4), run("c1-low", "c1", -1, 4), run("c2-low-1", "c2", -1, 4)],
        new("c1", 1, 4), {"c1-low": MINE},
    ),
    "preempting locally and borrowing same resource in cohort; no borrowing limit in the cohort": (
        [run("d1-med", "d1", 0, 4), run("d1-low", "d1", -1, 4), run("d2-low-1", "d2", -1, 4)],
        new("d1", 1, 4), {"d1-low": MINE},
    ),
    "preempting locally and borrowing other resources in cohort, with cohort candidates": (
        [run("c1-med", "c1", 0, 4), run("c2-low-1", "c2", -1, 5), run("c2-low-2", "c2", -1, 1),
         run("c2-low-3", "c2", -1, 1)],
        new("c1", 1, 2, memory=5), {"c1-med": MINE},
    ),
    "preempting locally and not borrowing same resource in 1-queue cohort": (
        [run("l1-med", "l1", 0, 4), run("l1-low", "l1", -1, 2)], new("l1", 1, 4), {"l1-med": MINE},
    ),
    "do not reclaim borrowed quota from same priority for withinCohort=ReclaimFromLowerPriority": (
        [run("c1", "c1", 0, 2), run("c2-1", "c2", 0, 4), run("c2-2", "c2", 0, 4)], new("c1", 0, 4), {},
    ),
    "reclaim borrowed quota from same priority for withinCohort=ReclaimFromAny": (
        [run("c1-1", "c1", 0, 4), run("c1-2", "c1", 1, 4), run("c2", "c2", 0, 2)], new("c2", 0, 4), {"c1-1": RECLAIM},
    ),
    "preempt from all ClusterQueues in cohort": (
        [run("c1-low", "c1", -1, 3), run("c1-mid", "c1", 0, 2), run("c2-low", "c2", -1, 3), run("c2-mid", "c2", 0, 4)],
        new("c1", 0, 4), {"c1-low": MINE, "c2-low": RECLAIM},
    ),
    "can't preempt workloads in ClusterQueue for withinClusterQueue=Never": (
        [run("c2-low", "c2", -1, 3)], new("c2", 1, 4), {},
    ),
    "preempt newer workloads with the same priority": (
        [run("wl1", "preventStarvation", 2, 2, since=100.0), run("wl2", "preventStarvation", 1, 2, 
            since=101.0, created=100.0), run("wl3", "preventStarvation", 1, 2, since=100.0, created=100.0)],
        new("preventStarvation", 1, 2, created=85.0), {"wl2": MINE},
    ),
    "use BorrowWithinCohort; allow preempting a lower-priority workload from another ClusterQueue while borrowing": (
        [run("a_best_effort_low", "a_best_effort", -1, 10), run("b_best_effort_low", "b_best_effort", -1, 1)],
        new("a_standard", 0, 10), {"a_best_effort_low": BORROWING},
    ),
    "use BorrowWithinCohort; don't allow preempting a lower-priority workload with priority above "
    "MaxPriorityThreshold, if borrowing is required even after the preemption": (
        [run("b_standard", "b_standard", 1, 10)], new("a_standard", 2, 10), {},
    ),
    "use BorrowWithinCohort; allow preempting a lower-priority workload with priority above "
    "MaxPriorityThreshold, if borrowing is not required after the preemption": (
        [run("b_standard", "b_standard", 1, 13)], new("a_standard", 2, 1), {"b_standard": RECLAIM},
    ),
    "use BorrowWithinCohort; don't allow for preemption of lower-priority workload from the same ClusterQueue": (
        [run("a_standard", "a_standard", 1, 13)], new("a_standard", 2, 1), {},
    ),
    "use BorrowWithinCohort; only preempt from CQ if no workloads below threshold and already above nominal": (
        [run("a_standard_1", "a_standard", 1, 10), run("a_standard_2", "a_standard", 1, 1),
         run("b_standard_1", "b_standard", 1, 1), run("b_standard_2", "b_standard", 2, 1)],
        new("b_standard", 3, 1), {"b_standard_1": MINE},
    ),
    "use BorrowWithinCohort; preempt from CQ and from other CQs with workloads below threshold": (
        [run("b_standard_high", "b_standard", 2, 10), run("b_standard_mid", "b_standard", 1, 1),
         run("a_best_effort_low", "a_best_effort", -1, 1), run("a_best_effort_lower", "a_best_effort", -2, 1)],
        new("b_standard", 2, 2), {"b_standard_mid": MINE, "a_best_effort_lower": BORROWING},
    ),
    "reclaim quota from lender": (
        [run("lend1-low", "lend1", -1, 3), run("lend2-mid", "lend2", 0, 3), run("lend2-high", "lend2", 1, 4)],
        new("lend1", 1, 3), {"lend2-mid": RECLAIM},
    ),
    "preempt from all ClusterQueues in cohort-lend": (
        [run("lend1-low", "lend1", -1, 3), run("lend1-mid", "lend1", 0, 2), run("lend2-low", "lend2", -1, 3),
         run("lend2-mid", "lend2", 0, 4)],
        new("lend1", 0, 4), {"lend1-low": MINE, "lend2-low": RECLAIM},
    ),
    "cannot preempt from other ClusterQueues if exceeds requestable quota including lending limit": (
        [run("lend2-low", "lend2", -1, 10)], new("lend1", 0, 9), {},
    ),
    "preemptions from cq when target queue is exhausted for the single requested resource": (
        THREE, new("a", 0, 2), {"a1": MINE, "a2": MINE},
    ),
    "preemptions from cq when target queue is exhausted for two requested resources": (
        [run(one.name, one.workload.cluster_queue, one.priority, 1, memory=1) for one in THREE],
        new("a", 0, 2, memory=2), {"a1": MINE, "a2": MINE},
    ),
    "preemptions from cq when target queue is exhausted for one requested resource, but not the other": (
        THREE, new("a", 0, 2, memory=2), {"a1": MINE, "a2": MINE},
    ),
    "allow preemption from other cluster queues if target cq is not exhausted for the requested resource": (
        [run("a1", "a", -1, 1), *(run(f"b{k}", "b", 0, 1) for k in (1, 2, 3, 4)), run("b5", "b", -1, 1)],
        new("a", 0, 2), {"a1": MINE, "b5": RECLAIM},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_preemption_takes_whom_kueue_takes(name):
    running, incoming, wanted = CASES[name]
    assert preempted(QUEUES, running, incoming) == wanted


def test_only_workloads_of_the_flavor_that_is_short_are_preempted():
    """Case `only preempt workloads using the chosen flavor`."""
    low = admitted("low", "standalone", -1, flavor="alpha", memory=2)
    others = [admitted(name, "standalone", rank, flavor="beta", memory=1) for name, rank in (("mid", 0), ("high", 1))]
    found = preempted(QUEUES, [low, *others], workload("in", "standalone", 1, memory=2), flavor="beta")
    assert found == {"mid": MINE}


def test_a_resource_that_is_not_short_does_not_matter():
    """Case `reclaim quota if workload requests 0 resources for a resource at nominal quota`."""
    running = [run("c1-low", "c1", -1, 3, memory=3), run("c2-mid", "c2", 0, 3), run("c2-high", "c2", 1, 6)]
    assert preempted(QUEUES, running, new("c1", 1, 3, memory=0), short=["cpu"]) == {"c2-mid": RECLAIM}


def test_quota_is_reclaimed_across_cohorts():
    """Case `long range preemption`."""
    objects = [
        cq("cq-left", "cohort-left", cpu=10, reclaim=ANY),
        cq("cq-right", "cohort-right", cpu=0),
        cohort("cohort-left", "root"),
        cohort("cohort-right", "root"),
    ]
    running = [run("to-be-preempted", "cq-right", 0, 5)]
    assert preempted(objects, running, new("cq-left", 0, 8)) == {"to-be-preempted": RECLAIM}


# -- trees of cohorts --------------------------------------------------------------------------------------------------


def q(name, above, **words):
    return cq(name, above, **{"within": LOWER, "reclaim": ANY, **words})


def tree(*queues, c=2, r=None):
    return [cohort("r", cpu=r), cohort("c", "r", cpu=c), *queues]


BORROWS = {"borrow": 0}
TREES = {
    "preempt with hierarchical advantage": (
        tree(q("q", "c"), q("q_borrowing", "r")),
        [run("admitted2", "q_borrowing", 0, 2)], new("q", 0, 2), {"admitted2": RECLAIM},
    ),
    "avoid queues within nominal quota": (
        tree(q("q_nominal", "r", cpu=2), q("q", "c"), q("q_borrowing", "r")),
        [run("admitted1", "q_nominal", -10, 2), run("admitted2", "q_borrowing", 0, 2)],
        new("q", 0, 2), {"admitted2": RECLAIM},
    ),
    "preempt multiple with hierarchical advantage": (
        tree(q("q", "c"), q("q_borrowing", "r")),
        [run("admitted1", "q_borrowing", 1, 1), run("admitted2", "q_borrowing", 2, 1)],
        new("q", 0, 2), {"admitted1": RECLAIM, "admitted2": RECLAIM},
    ),
    "prefer to preempt hierarchical candidate": (
        tree(q("q", "c"), q("q_borrowing", "r")),
        [run("admitted_borrowing", "q_borrowing", 1, 1), run("admitted_same_queue", "q", -2, 1)],
        new("q", 0, 1), {"admitted_borrowing": RECLAIM},
    ),
    "forced to preempt priority candidate": (
        tree(q("q", "c", **BORROWS), q("q_nominal", "r", cpu=2), q("q_same_cohort", "c")),
        [run("admitted_nominal", "q_nominal", -10, 2), run("admitted_same_cohort", "q_same_cohort", -1, 2)],
        new("q", 0, 2), {"admitted_same_cohort": BORROWING},
    ),
    "incoming workload fits in CQ nominal quota": (
        tree(q("q", "c", cpu=4), q("q_borrowing", "r"), q("q_same_cohort", "c")),
        [run("admitted_borrowing", "q_borrowing", 10, 3), run("admitted_same_cohort", "q_same_cohort", 10, 3)],
        new("q", 0, 4), {"admitted_borrowing": RECLAIM, "admitted_same_cohort": RECLAIM},
    ),
    "preempt hierarchical and priority candidates": (
        tree(q("q", "c", reclaim=LOWER, **BORROWS), q("q_borrowing", "r"), q("q_same_cohort", "c"), c=4, r=1),
        [run("admitted_borrowing", "q_borrowing", -1, 2), run("same_cohort", "q_same_cohort", -1, 1),
         run("not_preemptible", "q_borrowing", 1, 2)],
        new("q", 0, 3), {"admitted_borrowing": RECLAIM, "same_cohort": BORROWING},
    ),
    "preempt hierarchical candidates and inside CQ": (
        tree(q("q", "c", reclaim=LOWER, **BORROWS), q("q_borrowing", "r"), q("q_same_cohort", "c"), c=4, r=1),
        [run("admitted_borrowing", "q_borrowing", -1, 2), run("same_queue", "q", -1, 1),
         run("not_preemptible", "q_borrowing", 1, 2)],
        new("q", 0, 3), {"admitted_borrowing": RECLAIM, "same_queue": MINE},
    ),
    "reclaim nominal quota from lowest priority workload, excluding non-borrowing": (
        tree(q("q", "c"), q("q_borrowing", "r"), q("q_nominal", "r", cpu=2), c=3),
        [run("prio_8", "q_borrowing", 8, 1), run("prio_9", "q_borrowing", 9, 1), run("prio_10", "q_borrowing", 9, 1),
         run("admitted_nominal", "q_nominal", -2, 2)],
        new("q", 0, 1), {"prio_8": RECLAIM},
    ),
    "infeasible preemption all available workloads in pruned subtrees": (
        [*tree(q("q_other", "c_other"), q("q", "c"), q("q_same_cohort", "c")), cohort("c_other", "r", cpu=2)],
        [run("other_1", "q_other", -10, 1), run("other_2", "q_other", -10, 1), run("same", "q_same_cohort", 0, 2)],
        new("q", 0, 2), {},
    ),
    "prefer to preempt evicted workloads": (
        tree(q("q", "c", **BORROWS), q("q_borrowing", "r"), q("q_same_cohort", "c")),
        [run("admitted_borrowing", "q_borrowing", -10, 1), run("evicted", "q_same_cohort", -1, 1, evicted=True)],
        new("q", 0, 1), {"evicted": BORROWING},
    ),
    "respect lending limits": (
        tree(q("q", "c", cpu=(3, None, 2)), q("q_borrowing", "r")),
        [run("admitted_borrowing", "q_borrowing", 0, 4)], new("q", -2, 5), {"admitted_borrowing": RECLAIM},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_preemption_in_trees_takes_whom_kueue_takes(name):
    objects, running, incoming, wanted = TREES[name]
    assert preempted(objects, running, incoming) == wanted


def test_preemption_in_the_cohort_and_in_the_own_queue():
    """Case `preempt in cohort and own CQ`: the assignment of admitted_preemptible is 2 cores."""
    objects = tree(q("q", "c", **BORROWS), q("q_same_cohort", "c"), c=3)
    running = [
        run("not_preemptible", "q_same_cohort", 1, 1),
        run("preemptible", "q_same_cohort", 0, 2),
        run("own_queue", "q", -1, 1),
    ]
    assert preempted(objects, running, new("q", 1, 2)) == {"preemptible": BORROWING, "own_queue": MINE}


def test_several_resources_in_a_tree():
    """Case `hiearchical preemption with multiple resources`."""
    objects = [
        cohort("r", cpu=3),
        cohort("c", "r", cpu=4, memory=4),
        *(q(name, above) for name, above in (("q", "c"), ("q_borrowing", "r"), ("q_same_cohort", "c"))),
    ]
    running = [run("borrowing", "q_borrowing", 0, 3, memory=1), run("same_cohort", "q_same_cohort", -2, 1, memory=3)]
    assert preempted(objects, running, new("q", -2, 2, memory=1)) == {"borrowing": RECLAIM}
