"""Preemption under fair sharing, on the cases of Kueue's own test.

Of pkg/scheduler/preemption/preemption_fair_test.go, TestFairPreemptions (commit 054bf634), in which a ClusterQueue
within its nominal quota preempts whatever the shares are, by the gate FairSharingPreemptWithinNominal.
"""

import pytest

from fleetlab.schedulers.kueue.config import FINAL_SHARE, INITIAL_SHARE, FairSharing

from .cases import ANY, LOWER, admitted, cohort, cq, group, preempted, workload

MINE, RECLAIM, FAIR = "InClusterQueue", "InCohortReclamation", "InCohortFairSharing"
POLICIES = {"within": LOWER, "reclaim": ANY}
BASE = [*(cq(name, "all", cpu=3, borrow=-3, **POLICIES) for name in "abc"), cq("preemptible", "all", cpu=0)]


def run(name, cpu=1.0, priority=0):
    """A workload in the ClusterQueue whose name begins its own."""
    queue = "preemptible" if name.startswith("preemptible") else name[0]
    return admitted(name, queue, priority, cpu=cpu)


def units(text, priority=0):
    """Workloads of one core."""
    return [run(name, priority=priority) for name in text.split()]


def new(queue, cpu, priority=0):
    return workload("in", queue, priority, cpu=cpu)


CASES = {
    "reclaim nominal from user using the most": (units("a1 a2 a3 b1 b2 b3 b4 b5 c1"), new("c", 1), {"b1": RECLAIM}),
    "can reclaim from queue using less, if taking the latest workload from user using the most isn't enough": (
        [run("a1", 3), run("a2", 1), run("b1", 2), run("b2", 3)], new("c", 3), {"a1": RECLAIM},
    ),
    "reclaim borrowable quota from user using the most": (
        units("a1 a2 a3 b1 b2 b3 b4 b5 c1"), new("a", 1), {"b1": FAIR},
    ),
    "preempt one from each CQ borrowing": (
        [run("a1", 0.5), run("a2", 0.5), run("a3", 3), run("b1", 0.5), run("b2", 0.5), run("b3", 3)],
        new("c", 2), {"a1": RECLAIM, "b1": RECLAIM},
    ),
    "can't preempt when everyone under nominal": (units("a1 a2 a3 b1 b2 b3 c1 c2 c3"), new("c", 1), {}),
    "can't preempt when it would switch the imbalance": (units("a1 a2 a3 b1 b2 b3 b4 b5"), new("a", 2), {}),
    "can preempt lower priority workloads from same CQ": (
        [*units("a1_low a2_low", -1), *units("a3 a4 b1 b2 b3 b4 b5")], new("a", 2), {"a1_low": MINE, "a2_low": MINE},
    ),
    "can preempt a combination of same CQ and highest user": (
        [*units("a_low", -1), *units("a2 a3 b1 b2 b3 b4 b5 b6")], new("a", 2), {"a_low": MINE, "b1": FAIR},
    ),
    "preempt huge workload if there is no other option, as long as the target CQ gets a lower share": (
        [run("b1", 9)], new("a", 2), {"b1": RECLAIM},
    ),
    "can't preempt huge workload if the incoming is also huge": ([run("a1", 2), run("b1", 7)], new("a", 5), {}),
    "can't preempt 2 smaller workloads if the incoming is huge": (
        [run("b1", 2), run("b2", 2), run("b3", 3)], new("a", 6), {},
    ),
    "preempt from target and others even if over nominal": (
        [run("a1_low", 2, -1), run("a2_low", 1, -1), run("b1", 3), run("b2", 3)],
        new("a", 4), {"a1_low": MINE, "b1": FAIR},
    ),
    "prefer to preempt workloads that don't make the target CQ have the biggest share": (
        [run("b1", 2), run("b2", 1), run("b3", 2), run("c1", 1)], new("a", 3.5), {"b2": FAIR},
    ),
    "preempt from different cluster queues if the end result has a smaller max share": (
        [run("b1", 2), run("b2", 2.5), run("c1", 2), run("c2", 2.5)], new("a", 3.5), {"b1": FAIR, "c1": FAIR},
    ),
    "scenario above does not flap": ([run("a1", 3.5), run("b2", 2.5), run("c2", 2.5)], new("b", 2), {}),
    "cannot preempt if it would make the candidate CQ go under nominal after preempting one element": (
        [run("b1", 3), run("b2", 3), run("c1", 3)], new("a", 4), {},
    ),
    "workloads under priority threshold not capriciously preempted": (
        [*units("a1 a2 a3 b1 b2 b3"), *units("preemptible1 preemptible2 preemptible3", -3)], new("a", 2), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fair_preemption_takes_whom_kueue_takes(name):
    running, incoming, wanted = CASES[name]
    assert preempted(BASE, running, incoming, sharing=FairSharing(enable=True)) == wanted


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [(INITIAL_SHARE, {"b_low": FAIR}), (FINAL_SHARE, {"b_high": FAIR})],
    ids=[
        "preempt lower priority first, even if big",
        "preempt workload that doesn't transfer the imbalance, even if high priority",
    ],
)
def test_one_strategy_alone_takes_whom_kueue_takes(strategy, wanted):
    running = [run("a1", 3), run("b_low", 5), run("b_high", 1, 1)]
    sharing = FairSharing(enable=True, strategies=(strategy,))
    assert preempted(BASE, running, new("a", 1), sharing=sharing) == wanted


SIX = units("a1 a2 a3 b1 b2 b3 b4 b5 b6")
WEIGHTS = {
    "CQ with higher weight can preempt more": (
        [cq("a", "all", cpu=3, weight=2, **POLICIES), *(cq(name, "all", cpu=3, **POLICIES) for name in "bc")],
        SIX, new("a", 2), {"b1": FAIR, "b2": FAIR},
    ),
    "can preempt anything borrowing from CQ with 0 weight": (
        [cq("b", "all", cpu=3, weight=0, **POLICIES), *(cq(name, "all", cpu=3, **POLICIES) for name in "ac")],
        SIX, new("a", 3), {"b1": FAIR, "b2": FAIR, "b3": FAIR},
    ),
    "can't preempt nominal from CQ with 0 weight": (
        [cq("a", "all", cpu=3, **POLICIES), cq("b", "all", cpu=3, weight=0, **POLICIES)],
        units("a1 a2 a3 b1 b2 b3"), new("a", 1), {},
    ),
    "can't preempt nominal from Cohort with 0 weight": (
        [cq("l", "root", cpu=0, reclaim=ANY), cq("r", "right", cpu=0, weight=0, reclaim=ANY),
         cohort("right", "root", cpu=1, weight=0)],
        units("r1"), new("l", 1), {},
    ),
    "can preempt within cluster queue when no cohort": (
        [cq("a", cpu=1, within=LOWER)], units("a1"), new("a", 1, 1000), {"a1": MINE},
    ),
    "hierarchical preemption": (
        [cq("a", "LEFT", cpu=1, weight=2, reclaim=ANY), cq("b", "LEFT", cpu=1), cq("c", "ROOT", cpu=1),
         cq("d", "RIGHT", cpu=1), cq("e", "RIGHT", cpu=1, weight=0.99),
         cohort("ROOT", cpu=5), cohort("LEFT", "ROOT", cpu=5, weight=2), cohort("RIGHT", "ROOT", cpu=5)],
        [run(f"{name}{k}", 1, k) for name in "bcde" for k in range(1, 6)],
        new("a", 5), dict.fromkeys(("b1", "b2", "c1", "c2", "e1"), FAIR),
    ),
    "borrowing cq in non-borrowing cohort is protected": (
        [cq("a", "ROOT", cpu=5, weight=10, **POLICIES), cq("b", "RIGHT", weight=0.1),
         cohort("ROOT"), cohort("RIGHT", "ROOT", cpu=1, weight=0.1)],
        units("a1 a2 a3 b1", -1), new("a", 5), dict.fromkeys(("a1", "a2", "a3"), MINE),
    ),
    "forced to preempt within clusterqueue because borrowing workload too important": (
        [cq("a", "ROOT", cpu=5, weight=10, within=LOWER, reclaim=LOWER), cq("b", "RIGHT", weight=0.1),
         cohort("ROOT"), cohort("RIGHT", "ROOT", cpu=3, weight=0.1)],
        [*units("a1 a2 a3", -1), run("b1", 4, 100)], new("a", 4), dict.fromkeys(("a1", "a2", "a3"), MINE),
    ),
    "deep preemption": (
        [cq("a", "AAA", cpu=0, reclaim=ANY), cq("b", "BBB", cpu=0), cohort("ROOT"),
         cohort("A", "ROOT", weight=1.01), cohort("AA", "A"), cohort("AAA", "AA"),
         cohort("B", "ROOT", weight=0.99), cohort("BB", "B"), cohort("BBB", "BB"),
         cohort("C", "ROOT"), cohort("CC", "C"), cohort("CCC", "CC"), cohort("CCCC", "CCC", cpu=1)],
        units("b1"), new("a", 1), {"b1": FAIR},
    ),
    "cq with zero weight can reclaim nominal quota": (
        [cq("a", "ROOT", cpu=1, weight=0, reclaim=ANY), cq("b", "ROOT", cpu=0)],
        units("b1"), new("a", 1), {"b1": RECLAIM},
    ),
    "cohort with zero weight can reclaim nominal quota": (
        [cq("a", "A", cpu=0, weight=0, reclaim=ANY), cq("b", "ROOT", cpu=0), cohort("A", "ROOT", cpu=1, weight=0)],
        units("b1"), new("a", 1), {"b1": FAIR},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTS)
def test_fair_preemption_by_weight_takes_whom_kueue_takes(name):
    objects, running, incoming, wanted = WEIGHTS[name]
    assert preempted(objects, running, incoming, sharing=FairSharing(enable=True)) == wanted


NOMINAL_FIRST = [
    cq("a", "all", group(premium={"cpu": 3}, cheap={"cpu": 0}), reclaim=ANY),
    cq("b", "all", group(premium={"cpu": 0}, cheap={"cpu": 6})),
]


@pytest.mark.parametrize(("gate", "wanted"), [(True, {"b_prem1": RECLAIM}), (False, {})])
def test_a_queue_within_its_nominal_quota_preempts_only_with_the_gate(gate, wanted):
    """Case `nominal first: workload fitting within nominal can preempt despite high aggregate DRS`."""
    running = [admitted(f"a_prem{k}", "a", flavor="premium", cpu=1) for k in (1, 2)]
    running += [admitted(f"a_cheap{k}", "a", flavor="cheap", cpu=1) for k in range(1, 6)]
    running += [admitted("b_prem1", "b", flavor="premium", cpu=1)]
    sharing = FairSharing(enable=True, preempt_within_nominal=gate)
    assert preempted(NOMINAL_FIRST, running, new("a", 1), flavor="premium", sharing=sharing) == wanted
