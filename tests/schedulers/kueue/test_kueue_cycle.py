"""Flavor assignment and scheduling cycles on the cases of Kueue's own tests.

Of pkg/scheduler/flavorassigner/flavorassigner_test.go, TestAssignFlavors (commit 00372241), where flavors do not depend
on the answer of its stand-in for preemption, and of pkg/scheduler/scheduler_test.go, TestSchedule (commit 005e97cf;
release 0.13), with ClusterQueues, workloads, flavors and who is preempted as they stand there.
"""

import pytest

from fleetlab.schedulers.kubernetes.config import Requirement, Selector, Taint, Toleration
from fleetlab.schedulers.kueue.config import MAY_STOP, TRY_NEXT, FairSharing, FlavorFungibility, Kueue, ResourceFlavor
from fleetlab.schedulers.kueue.cycle import Cycle, Head, Status
from fleetlab.schedulers.kueue.flavors import FlavorAssigner, most_pods
from fleetlab.schedulers.kueue.state import Admitted, Snapshot
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet

from .cases import ANY, LOWER, admitted, cohort, cq, group, workload

G = "example.com/gpu"
SPOT = Taint("instance", "spot", "NoSchedule")
TOLERATED = (Toleration("instance", "spot", "NoSchedule"),)
FLAVORS = [
    *(ResourceFlavor(name) for name in ("default", "on-demand", "spot", "model-a")),
    *(ResourceFlavor(name, {"type": name}) for name in ("one", "two")),
    *(ResourceFlavor(f"b_{name}", {"b_type": name}) for name in ("one", "two")),
    ResourceFlavor("tainted", taints=(SPOT,)),
    ResourceFlavor("taint_and_toleration", taints=(SPOT,), tolerations=TOLERATED),
]


def pods(name="main", count=1, *, tolerations=(), selector=(), required=(), min_count=None, **resources):
    """A set of pods; resources in whole numbers."""
    requests = {G if key == "gpu" else key: round(amount * 1000) for key, amount in resources.items()}
    wants = Selector(tuple(Requirement(key, "In", (value,)) for key, value in selector))
    terms = tuple(Selector((Requirement(key, "In", (value,)),)) for key, value in required)
    return PodSet(name, count, requests, min_count, wants, terms, tolerations)


def used(queue, **flavors):
    """Usage of a ClusterQueue that nobody may preempt, in cores or as a dictionary by resource."""
    rows = []
    for flavor, amounts in flavors.items():
        wanted = amounts if isinstance(amounts, dict) else {"cpu": amounts}
        rows.append(admitted(f"{queue}-{flavor}", queue, 10**6, flavor=flavor.replace("__", "-"), **wanted))
    return rows


def assign(queues, running, *pod_sets):
    state = Snapshot.of(Kueue.of(*FLAVORS, *queues), running)
    return FlavorAssigner(state, KueueWorkload("new", queues[0].name, pod_sets), 0.0).assign()


def flavors_of(made):
    """The flavor and mode of each resource, by set."""
    return [{resource: (c.flavor, c.mode.name) for resource, c in one.choices.items()} for one in made.pod_sets]


FIT, PREEMPT = "FIT", "PREEMPT"
ONE_TWO = group(one={"cpu": 4}, two={"cpu": 4})
ASSIGNED = {
    # name: ClusterQueues, usage, sets of pods, flavors and modes by set, from how far is borrowed
    "single flavor, fits": (
        [cq("q", None, group(default={"cpu": 1, "memory": 2}))], [], [pods(cpu=1, memory=1)],
        [{"cpu": ("default", FIT), "memory": ("default", FIT)}], 0,
    ),
    "single flavor, fits tainted flavor": (
        [cq("q", None, group(tainted={"cpu": 4}))], [], [pods(cpu=1, tolerations=TOLERATED)],
        [{"cpu": ("tainted", FIT)}], 0,
    ),
    "single flavor, fits tainted flavor with toleration": (
        [cq("q", None, group(taint_and_toleration={"cpu": 4}))], [], [pods(cpu=1)],
        [{"cpu": ("taint_and_toleration", FIT)}], 0,
    ),
    "single flavor, used resources, doesn't fit": (
        [cq("q", cpu=4)], used("q", default=3), [pods(cpu=2)], [{"cpu": ("default", PREEMPT)}], 0,
    ),
    "multiple resource groups, fits": (
        [cq("q", None, group(one={"cpu": 2}, two={"cpu": 4}), group(b_one={"memory": 1000}, b_two={"memory": 5000}))],
        [], [pods(cpu=3, memory=10)], [{"cpu": ("two", FIT), "memory": ("b_one", FIT)}], 0,
    ),
    "multiple resource groups, one could fit with preemption, other doesn't fit": (
        [cq("q", None, group(one={"cpu": 3}), group(b_one={"memory": 1}))], used("q", one=1), [pods(cpu=3, memory=10)],
        [{}], 0,
    ),
    "multiple resource groups with multiple resources, fits": (
        [cq("q", None, group(one={"cpu": 2, "memory": 1000}, two={"cpu": 4, "memory": 15}),
            group(b_one={G: 4}, b_two={G: 2}))],
        [], [pods(cpu=3, memory=10, gpu=3)],
        [{"cpu": ("two", FIT), "memory": ("two", FIT), G: ("b_one", FIT)}], 0,
    ),
    "multiple resources in a group, doesn't fit": (
        [cq("q", None, group(one={"cpu": 2, "memory": 1000}, two={"cpu": 4, "memory": 5}))], [],
        [pods(cpu=3, memory=10)], [{}], 0,
    ),
    "multiple flavors, fits while skipping tainted flavor": (
        [cq("q", None, group(tainted={"cpu": 4}, two={"cpu": 4}))], [], [pods(cpu=3)], [{"cpu": ("two", FIT)}], 0,
    ),
    "multiple flavors, fits a node selector": (
        [cq("q", None, ONE_TWO)], [],
        [pods(cpu=1, selector=[("type", "two"), ("ignored1", "foo")], required=[("ignored2", "bar")])],
        [{"cpu": ("two", FIT)}], 0,
    ),
    "multiple flavors, fits with node affinity": (
        [cq("q", None, group(one={"cpu": 4, "memory": 1000}, two={"cpu": 4, "memory": 1000}))], [],
        [pods(cpu=1, memory=1, selector=[("ignored1", "foo")], required=[("type", "two")])],
        [{"cpu": ("two", FIT), "memory": ("two", FIT)}], 0,
    ),
    "multiple flavors, node affinity fits any flavor": (
        [cq("q", None, ONE_TWO)], [], [pods(cpu=1, required=[("ignored2", "bar"), ("cpuType", "two")])],
        [{"cpu": ("one", FIT)}], 0,
    ),
    "multiple flavors, doesn't fit node affinity": (
        [cq("q", None, ONE_TWO)], [], [pods(cpu=1, required=[("type", "three")])], [{}], 0,
    ),
    "multiple specs, fit different flavors": (
        [cq("q", None, group(one={"cpu": 4}, two={"cpu": 10}))], [], [pods("driver", cpu=5), pods("worker", cpu=3)],
        [{"cpu": ("two", FIT)}, {"cpu": ("one", FIT)}], 0,
    ),
    "multiple specs, fits borrowing": (
        [cq("q", "c", group(default={"cpu": (2, 98), "memory": 2})),
         cq("other", "c", group(default={"cpu": 198, "memory": 198}))],
        [], [pods("driver", cpu=4, memory=1), pods("worker", cpu=6, memory=4)],
        [{"cpu": ("default", FIT), "memory": ("default", FIT)}] * 2, 1,
    ),
    "not enough space to borrow": (
        [cq("q", "c", group(one={"cpu": 1})), cq("other", "c", group(one={"cpu": (10, None, 0)}))],
        used("other", one=9), [pods(cpu=2)], [{}], 0,
    ),
    "past max, but can preempt in ClusterQueue": (
        [cq("q", "c", group(one={"cpu": (2, 8)}), within=LOWER), cq("other", "c", group(one={"cpu": 98}))],
        [*(admitted(f"own{k}", "q", -1, flavor="one", cpu=1) for k in range(9)), *used("other", one=9)], [pods(cpu=2)],
        [{"cpu": ("one", PREEMPT)}], 1,
    ),
    "past min, but can preempt in ClusterQueue": (
        [cq("q", None, group(one={"cpu": 2}))], used("q", one=1), [pods(cpu=2)], [{"cpu": ("one", PREEMPT)}], 0,
    ),
    "can only preempt flavors that match affinity": (
        [cq("q", None, ONE_TWO)], used("q", one=3, two=3), [pods(cpu=2, selector=[("type", "two")])],
        [{"cpu": ("two", PREEMPT)}], 0,
    ),
    "each podset requires preemption on a different flavor": (
        [cq("q", None, group(one={"cpu": 4}, tainted={"cpu": 10}))], used("q", one=3, tainted=3),
        [pods("launcher", cpu=2), pods("workers", 10, cpu=1, tolerations=TOLERATED)],
        [{"cpu": ("one", PREEMPT)}, {"cpu": ("tainted", PREEMPT)}], 0,
    ),
    "resource not listed in clusterQueue": ([cq("q", None, group(one={"cpu": 4}))], [], [pods(gpu=2)], [{}], 0),
    "zero resource request not in clusterQueue should succeed": (
        [cq("q", cpu=4)], [], [pods(cpu=1, gpu=0)], [{"cpu": ("default", FIT)}], 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASSIGNED)
def test_flavors_are_those_of_kueue(name):
    queues, running, sets, wanted, borrowing = ASSIGNED[name]
    made = assign(queues, running, *sets)
    assert flavors_of(made) == wanted
    assert made.borrowing == borrowing


def test_why_a_workload_does_not_fit_is_said():
    made = assign([cq("q", cpu=4)], used("q", default=3), pods(cpu=2))
    assert made.reasons == ["main: insufficient unused quota for cpu in flavor default, 1000 more needed"]


# -- fungibility, as the pages of ClusterQueue and Preemption say -----------------------------------------------------

NEXT_OR_STOP = {
    # whenCanBorrow, whenCanPreempt: the flavor, where `one` must borrow and `two` is free
    "borrow in the first flavor": (FlavorFungibility(MAY_STOP, TRY_NEXT), "one"),
    "try the next flavor before borrowing": (FlavorFungibility(TRY_NEXT, TRY_NEXT), "two"),
}


@pytest.mark.parametrize("name", NEXT_OR_STOP)
def test_borrowing_stops_the_search_or_not(name):
    rule, wanted = NEXT_OR_STOP[name]
    queues = [
        cq("q", "c", group(one={"cpu": 1}, two={"cpu": 4}), fungibility=rule),
        cq("o", "c", group(one={"cpu": 9})),
    ]
    assert flavors_of(assign(queues, [], pods(cpu=3))) == [{"cpu": (wanted, FIT)}]


@pytest.mark.parametrize(("rule", "wanted"), [(MAY_STOP, ("one", PREEMPT)), (TRY_NEXT, ("two", FIT))])
def test_preemption_stops_the_search_or_not(rule, wanted):
    queue = cq("q", None, ONE_TWO, within=LOWER, fungibility=FlavorFungibility(MAY_STOP, rule))
    running = [admitted("low", "q", -1, flavor="one", cpu=3)]
    assert flavors_of(assign([queue], running, pods(cpu=2))) == [{"cpu": wanted}]


@pytest.mark.parametrize(
    ("preference", "wanted"), [("BorrowingOverPreemption", ("one", FIT)), ("PreemptionOverBorrowing", ("two", PREEMPT))]
)
def test_what_is_preferred_where_one_flavor_borrows_and_another_preempts(preference, wanted):
    rule = FlavorFungibility(TRY_NEXT, TRY_NEXT, preference)
    queues = [
        cq("q", "c", group(one={"cpu": 1}, two={"cpu": 4}), within=LOWER, fungibility=rule),
        cq("o", "c", group(one={"cpu": 9})),
    ]
    running = [admitted("low", "q", -1, flavor="two", cpu=4)]
    assert flavors_of(assign(queues, running, pods(cpu=3))) == [{"cpu": wanted}]


def test_the_next_attempt_goes_on_behind_the_flavor_tried_last():
    state = Snapshot.of(Kueue.of(*FLAVORS, cq("q", None, ONE_TWO)), [])
    first = FlavorAssigner(state, KueueWorkload("new", "q", (pods(cpu=1),)), 0.0).assign()
    again = FlavorAssigner(state, KueueWorkload("new", "q", (pods(cpu=1),)), 0.0, first.tried).assign()
    assert [flavors_of(made)[0]["cpu"][0] for made in (first, again)] == ["one", "two"]


# -- partial admission -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "room", "wanted"),
    [([(10, 5)], 7, [7]), ([(10, 5)], 4, None), ([(5, None)], 9, None), ([(10, 5), (20, 10)], 24, [8, 16])],
)
def test_as_many_pods_as_fit_are_kept_off_each_set_in_proportion(sets, room, wanted):
    """By the rule of podset_reducer.go up to release 0.15: each set gives in proportion to what it can spare."""
    made = [PodSet(count=count, min_count=least) for count, least in sets]
    assert most_pods(made, lambda counts: counts if sum(counts) <= room else None) == wanted


# -- cycles ------------------------------------------------------------------------------------------------------------

SITE = [
    cq("sales", None, group(default={"cpu": (50, 0)}), strategy="StrictFIFO"),
    cq("eng-alpha", "eng", group(on__demand={"cpu": (50, 50)}, spot={"cpu": (100, 0)}), strategy="StrictFIFO"),
    cq("eng-beta", "eng", group(on__demand={"cpu": (50, 10)}, spot={"cpu": (0, 100)}), group(model__a={G: (20, 0)}),
       strategy="StrictFIFO", within=LOWER, reclaim=ANY),
    cq("lend-a", "lend", cpu=(3, None, 2)),
    cq("lend-b", "lend", cpu=(2, None, 2)),
]  # fmt: skip


def heads_of(*workloads):
    return [Head(one, one.created) for one in workloads]


def cycle(objects, running, heads, sharing=None):
    """What became of each head: its flavors if admitted, who it preempts, or its status."""
    state = Snapshot.of(Kueue.of(*FLAVORS, *objects, *([sharing] if sharing else [])), running)
    before = {name: dict(node.usage) for name, node in state.nodes.items()}
    found = {}
    for entry in Cycle(state, 100.0).run(heads):
        name = entry.head.workload.name
        if entry.status == Status.ADMITTED:
            found[name] = [c.flavor for one in entry.assignment.pod_sets for c in one.choices.values()]
        elif entry.status == Status.PREEMPTING:
            found[name] = {target.one.name for target in entry.targets}
        else:
            found[name] = entry.status
    if not any(isinstance(one, list) for one in found.values()):
        clean = [{k: v for k, v in usage.items() if v} for usage in before.values()]
        assert [{k: v for k, v in node.usage.items() if v} for node in state.nodes.values()] == clean
    return found


def on(flavor, name, queue, cpu, priority=0):
    return admitted(name, queue, priority, flavor=flavor, cpu=cpu)


SKIPPED, NO = Status.SKIPPED, Status.INADMISSIBLE
BETA_TWO = KueueWorkload("beta", "eng-beta", (pods("one", 10, cpu=6, gpu=1), pods("two", 40, cpu=1)))
OTHER = [
    cq("other-alpha", "other", group(on__demand={"cpu": (50, 50)})),
    cq("other-beta", "other", group(on__demand={"cpu": (50, 10)}), within=LOWER, reclaim=ANY),
]
CYCLES = {
    "use second flavor when the first has no preemption candidates; WhenCanPreempt: Preempt": (
        [cq("other-alpha", None, group(on__demand={"cpu": 50}, spot={"cpu": 100}), within=LOWER,
            fungibility=FlavorFungibility(when_can_preempt=MAY_STOP))],
        [on("on-demand", "admitted", "other-alpha", 50)], [workload("new", "other-alpha", cpu=20)], {"new": ["spot"]},
    ),
    "workload fits in single clusterQueue, with check state ready": (
        SITE, [], [workload("foo", "sales", cpu=10)], {"foo": ["default"]},
    ),
    "single clusterQueue full": (SITE, used("sales", default=40), [workload("new", "sales", cpu=11)], {"new": NO}),
    "admit in different cohorts": (
        SITE, [], [workload("sales", "sales", cpu=1), workload("alpha", "eng-alpha", cpu=51)],
        {"sales": ["default"], "alpha": ["on-demand"]},
    ),
    "admit in same cohort with no borrowing": (
        SITE, [], [workload("alpha", "eng-alpha", cpu=40), workload("beta", "eng-beta", cpu=40)],
        {"alpha": ["on-demand"], "beta": ["on-demand"]},
    ),
    "assign multiple resources and flavors": (SITE, [], [BETA_TWO], {"beta": ["on-demand", "model-a", "spot"]}),
    "cannot borrow if cohort was assigned and would result in overadmission": (
        SITE, [], [workload("alpha", "eng-alpha", cpu=45), workload("beta", "eng-beta", cpu=56)],
        {"alpha": ["on-demand"], "beta": SKIPPED},
    ),
    "can borrow if cohort was assigned and will not result in overadmission": (
        SITE, [], [workload("alpha", "eng-alpha", cpu=45), workload("beta", "eng-beta", cpu=55)],
        {"alpha": ["on-demand"], "beta": ["on-demand"]},
    ),
    "can borrow if needs reclaim from cohort in different flavor": (
        SITE, [on("on-demand", "user-on-demand", "eng-beta", 50), on("spot", "user-spot", "eng-beta", 1)],
        [workload("can-reclaim", "eng-alpha", cpu=100), workload("needs-to-borrow", "eng-beta", cpu=1)],
        {"can-reclaim": NO, "needs-to-borrow": ["on-demand"]},
    ),
    "workload exceeds lending limit when borrow in cohort": (
        SITE, used("lend-b", default=2), [workload("b", "lend-b", cpu=3)], {"b": NO},
    ),
    "preempt workloads in ClusterQueue and cohort": (
        SITE,
        [on("spot", "use-all-spot", "eng-alpha", 100), on("on-demand", "low-1", "eng-beta", 30, -1),
         on("on-demand", "low-2", "eng-beta", 10, -2), on("on-demand", "borrower", "eng-alpha", 60)],
        [workload("preemptor", "eng-beta", cpu=20)], {"preemptor": {"borrower", "low-2"}},
    ),
    "multiple CQs need preemption": (
        OTHER, [on("on-demand", "use-all", "other-alpha", 100)],
        [workload("preemptor", "other-beta", -1, cpu=1), workload("pending", "other-alpha", 1, cpu=1)],
        {"pending": NO, "preemptor": {"use-all"}},
    ),
    "cannot borrow resource not listed in clusterQueue": (
        SITE, [], [KueueWorkload("new", "eng-alpha", (pods(gpu=1),))], {"new": NO},
    ),
    "not enough resources to borrow, fallback to next flavor; WhenCanPreempt: TryNextFlavor": (
        SITE, used("eng-beta", on__demand=45), [workload("new", "eng-alpha", cpu=60)], {"new": ["spot"]},
    ),
    "no overadmission while borrowing": (
        [*SITE, cq("eng-gamma", "eng", group(on__demand={"cpu": (50, 10)}, spot={"cpu": (0, 100)}), within=LOWER,
                   reclaim=ANY)],
        [Admitted(KueueWorkload("existing", "eng-gamma", (pods(cpu=151),)),
                  {("on-demand", "cpu"): 51_000, ("spot", "cpu"): 100_000}, 0.0, 0.0)],
        [workload("new", "eng-beta", created=-2, cpu=50), workload("new-alpha", "eng-alpha", created=-1, cpu=1),
         workload("new-gamma", "eng-gamma", cpu=50)],
        {"new": ["on-demand"], "new-alpha": ["on-demand"], "new-gamma": NO},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_ends_as_in_kueue(name):
    objects, running, workloads, wanted = CYCLES[name]
    assert cycle(objects, running, heads_of(*workloads)) == wanted


R12 = [
    cq(name, "co", group(default={"r1": (10, 10), "r2": (10, 10)}), within=LOWER, reclaim=ANY)
    for name in ("cq1", "cq2", "cq3")
]
WHILE = [
    cq("cq_shared", "co", cpu=(4, 0)),
    cq("cq_a", "co", cpu=(0, 3), reclaim=LOWER, borrow=10**9),
    cq("cq_b", "co", cpu=0, reclaim=LOWER, borrow=10**9),
]
MORE = {
    "two workloads can borrow different resources from the same flavor in the same cycle": (
        R12, [], [workload("wl1", "cq1", -1, r1=16), workload("wl2", "cq2", -2, r2=16)],
        {"wl1": ["default"], "wl2": ["default"]},
    ),
    "two workloads can borrow the same resources from the same flavor in the same cycle if fits in the cohort quota": (
        R12, [], [workload("wl1", "cq1", -1, r1=16), workload("wl2", "cq2", -2, r1=14)],
        {"wl1": ["default"], "wl2": ["default"]},
    ),
    "only one workload can borrow one resources from the same flavor in the same cycle if cohort quota cannot fit": (
        R12, [], [workload("wl1", "cq1", -1, r1=16), workload("wl2", "cq2", -2, r1=16)],
        {"wl1": ["default"], "wl2": SKIPPED},
    ),
    "preemption while borrowing, workload waiting for preemption should not block a borrowing workload in another CQ": (
        WHILE, [on("default", "admitted_a", "cq_a", 2)],
        [workload("a", "cq_a", created=1, cpu=3), workload("b", "cq_b", created=2, cpu=1)], {"a": NO, "b": ["default"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_a_cycle_with_borrowing_ends_as_in_kueue(name):
    objects, running, workloads, wanted = MORE[name]
    assert cycle(objects, running, heads_of(*workloads)) == wanted


def tree_of(a, *queues, b=True):
    """Cohort A with quota, cohorts B and C below it, and ClusterQueues without quota."""
    above = [cohort("A"), *([cohort("B", "A"), cohort("C", "A")] if b else [])]
    above[0] = above[0].__class__("A", groups=(group(on__demand={"cpu": a}),))
    return [*above, *(cq(name, parent, group(on__demand={"cpu": 0})) for name, parent in queues)]


def spare(name, cpu):
    return on("on-demand", f"{name}0", name, cpu)


SHARED = [*SITE, cq("eng-shared", "eng", group(on__demand={"cpu": (10, 0)}))]
TWO = [("b", "A"), ("c", "A")]
FAIR = {
    "with fair sharing: schedule workload with lowest share first": (
        SHARED, [on("on-demand", "all_nominal", "eng-alpha", 50), on("on-demand", "borrowing", "eng-beta", 55)],
        [workload("older_new", "eng-beta", created=-60, cpu=1), workload("new", "eng-alpha", cpu=5)],
        {"new": ["on-demand"], "older_new": SKIPPED},
    ),
    "hierarchical fair sharing schedule workload which wins tournament": (
        tree_of(200, ("d", "B"), ("e", "B"), ("f", "C"), ("g", "C")), [spare("d", 10), spare("e", 20), spare("g", 100)],
        [workload(f"{name}1", name, cpu=cpu) for name, cpu in (("d", 70), ("e", 61), ("f", 1), ("g", 1))],
        {"d1": ["on-demand"], "e1": SKIPPED, "f1": SKIPPED, "g1": SKIPPED},
    ),
    "fair sharing schedule workload with lowest drf after admission": (
        tree_of(100, *TWO, b=False), [spare("b", 10)], [workload("b1", "b", cpu=50), workload("c1", "c", cpu=75)],
        {"b1": ["on-demand"], "c1": SKIPPED},
    ),
    "fair sharing schedule singleton cqs and cq without cohort": (
        [*tree_of(10, ("a", "A"), b=False), cq("b", "B", group(on__demand={"cpu": 10})),
         cq("c", None, group(on__demand={"cpu": 10})), cohort("B")],
        [], [workload(f"{name}1", name, cpu=10) for name in "abc"], {f"{name}1": ["on-demand"] for name in "abc"},
    ),
    "fair sharing schedule highest priority first": (
        tree_of(10, *TWO, b=False), [], [workload("b1", "b", 99, cpu=10), workload("c1", "c", 101, cpu=10)],
        {"c1": ["on-demand"], "b1": SKIPPED},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAIR)
def test_a_cycle_with_fair_sharing_ends_as_in_kueue(name):
    objects, running, workloads, wanted = FAIR[name]
    assert cycle(objects, running, heads_of(*workloads), FairSharing(enable=True)) == wanted


PARTIAL = {
    # name: ClusterQueue, running, sets, counts or who is preempted
    "partial admission single variable pod set": ("sales", [], [pods("one", 50, min_count=20, cpu=2)], [25]),
    "partial admission single variable pod set, preempt first": (
        "eng-beta", [-4], [pods("one", 20, min_count=10, gpu=1)], {"old"},
    ),
    "partial admission single variable pod set, preempt with partial admission": (
        "eng-beta", [-4], [pods("one", 30, min_count=10, gpu=1)], {"old"},
    ),
    "partial admission multiple variable pod sets": (
        "sales", [],
        [pods("one", 20, cpu=1), pods("two", 30, min_count=10, cpu=1), pods("three", 15, min_count=5, cpu=1)],
        [20, 20, 10],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTIAL)
def test_fewer_pods_are_admitted_as_in_kueue(name):
    queue, priorities, sets, wanted = PARTIAL[name]
    running = [admitted("old", queue, priority, flavor="model-a", **{G: 10}) for priority in priorities]
    state = Snapshot.of(Kueue.of(*FLAVORS, *SITE), running)
    entry = Cycle(state, 0.0).run([Head(KueueWorkload("new", queue, tuple(sets), 4), 0.0)])[0]
    if entry.status == Status.PREEMPTING:
        assert {target.one.name for target in entry.targets} == wanted
    else:
        assert [one.count for one in entry.assignment.pod_sets] == wanted


def test_a_head_that_does_not_borrow_comes_before_one_of_higher_priority_that_does():
    """The order of TestEntryOrdering in scheduler_test.go: borrowing, then priority, then time."""
    queues = [cq(name, "c", cpu=2) for name in "abcd"]
    heads = heads_of(
        workload("borrows", "a", 9, 1.0, cpu=3), workload("late", "b", 0, 5.0, cpu=1),
        workload("early", "c", 0, 4.0, cpu=1), workload("high", "d", 3, 9.0, cpu=1),
    )  # fmt: skip
    state = Snapshot.of(Kueue.of(*FLAVORS, *queues), [])
    assert [one.head.workload.name for one in Cycle(state, 10.0).run(heads)] == ["high", "early", "late", "borrows"]


def test_with_fair_sharing_the_smallest_share_goes_first():
    """By fair_sharing_iterator.go: the share counts the workload itself, then priority, then time."""
    queues = [cq(name, "c", cpu=2) for name in "abc"]
    running = used("b", default=2)
    heads = heads_of(workload("large", "a", 9, 1.0, cpu=4), workload("small", "b", 0, 2.0, cpu=1))
    state = Snapshot.of(Kueue.of(*FLAVORS, *queues, FairSharing(enable=True)), running)
    assert [one.head.workload.name for one in Cycle(state, 10.0).run(heads)] == ["small", "large"]


def test_a_workload_that_waits_for_quota_keeps_it_from_others_unless_it_can_reclaim_it():
    """By scheduler.go: without reclaimWithinCohort Any, what a head may still use is reserved in its cycle."""
    for policy, other in ((LOWER, Status.SKIPPED), (ANY, ["default"])):
        queues = [cq("a", "c", cpu=4, reclaim=policy), cq("b", "c", cpu=0), cohort("c")]
        running = used("a", default=2)
        heads = heads_of(workload("large", "a", 1, cpu=4), workload("small", "b", cpu=2))
        assert cycle(queues, running, heads) == {"large": NO, "small": other}


def test_fewer_pods_are_admitted_where_fewer_will_do():
    queue = cq("q", cpu=5)
    state = Snapshot.of(Kueue.of(*FLAVORS, queue), [])
    entry = Cycle(state, 0.0).run(heads_of(KueueWorkload("new", "q", (pods(count=8, min_count=3, cpu=1),))))[0]
    assert (entry.status, entry.assignment.pod_sets[0].count) == (Status.ADMITTED, 5)


def test_a_queue_that_is_stopped_admits_nobody():
    assert cycle([cq("q", cpu=5, stop_policy="Hold")], [], heads_of(workload("new", "q", cpu=1))) == {}
