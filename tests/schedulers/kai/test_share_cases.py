"""Cases of KAI's own unit tests of shares, orders and rules of reclaim, written as facts.

Sources, in kai-scheduler/KAI-Scheduler at 521a99a under pkg/scheduler/plugins/proportion; each case is named as there:
division  resource_division/resource_division_test.go
order     queue_order/queue_order_test.go (at c180179)
strategy  reclaimable/strategies/strategies_test.go
reclaim   reclaimable/reclaimable_test.go
limit     capacity_policy/max_allowed_check_test.go
"""

import pytest
from tests.schedulers.kai.kai_cases import share, state

from fleetlab.schedulers.kai.actions import MinRuntime, can_reclaim, fits_strategy, may_reclaim
from fleetlab.schedulers.kai.config import GPU, Kai, KaiQueue
from fleetlab.schedulers.kai.session import compare_queues, is_over
from fleetlab.schedulers.kai.shares import divide, divide_over_quota

# -- division --------------------------------------------------------------------------------------------------------

ONE_QUEUE = [
    ("gives requested GPUs - no remaining", 2, {}, 0, 2),
    ("gives requested GPUs with remaining", 3, {}, 1, 2),
    ("doesn't give more GPUs than allowed", 3, {"limit": 2}, 1, 2),
    ("gives up to deserved when over subscribed", 1, {}, 0, 2),
    ("gives up to full quota", 7, {"request": 5}, 4, 3),
    ("gives with fraction, if stated in deserved", 2, {"deserved": 1.5}, 0.5, 1.5),
    ("gives with fraction, if stated in request", 2, {"request": 1.5}, 0.5, 1.5),
    ("doesn't give if deserved is zero", 2, {"deserved": 0}, 2, 0),
]


@pytest.mark.parametrize(("name", "total", "words", "left", "fair"), ONE_QUEUE)
def test_a_queue_within_its_quota_gets_what_kai_gives(name, total, words, left, fair):
    one = state(gpu=share(**({"deserved": 3, "request": 2} | words)))
    assert (divide(total, 0, GPU, [one]), one.shares[GPU].fair) == (left, fair)


OVER_QUOTA = [
    ("gives requested GPUs no remaining", 2, {}, 0, 5),
    ("gives requested GPUs with remaining", 3, {}, 1, 5),
    ("doesn't give more GPUs than allowed", 2, {"limit": 4}, 1, 4),
    ("doesn't give when over quota weight is zero", 2, {"weight": 0}, 2, 3),
    ("gives with fraction if requested", 2, {"request": 4.5}, 0.5, 4.5),
    ("gives remainder fraction", 0.5, {}, 0, 3.5),
    ("gives when deserved is zero", 6, {"deserved": 0, "fair": 0}, 1, 5),
    ("doesn't break when there are zero resources to divide", 0, {}, 0, 3),
]


@pytest.mark.parametrize(("name", "total", "words", "left", "fair"), OVER_QUOTA)
def test_a_queue_over_its_quota_gets_what_kai_gives(name, total, words, left, fair):
    one = state(gpu=share(**({"deserved": 3, "fair": 3, "weight": 1, "request": 5} | words)))
    assert (divide_over_quota(total, 0, GPU, [one]), one.shares[GPU].fair) == (left, fair)


TWO_QUEUES = [
    ("allocates many available gpus", 15, {}, 3, (6, 6)),
    ("allocates exact requested amount gpus", 12, {}, 0, (6, 6)),
    ("allocates GPUs proportionally", 8, {"weight": (1, 3)}, 0, (3, 5)),
    ("doesn't allocate more than allowed", 12, {"limit": (5, -1)}, 1, (5, 6)),
    (
        "distributes remainder between queues based on largest remaining",
        11,
        {"weight": (1, 4), "request": (10, 10)},
        0,
        (3, 8),
    ),
    ("distributes remainder between queues based on creation time", 11, {}, 0, (6, 5)),
    ("priority doesn't affect deserved", 4, {"priority": (1, 2)}, 0, (2, 2)),
    ("priority does affect over-quota", 6, {"priority": (1, 2)}, 0, (2, 4)),
    (
        "priority does affect over-quota, even when overQuotaWeight is set",
        6,
        {"priority": (1, 2), "weight": (100, 1)},
        0,
        (2, 4),
    ),
]


@pytest.mark.parametrize(("name", "total", "words", "left", "fair"), TWO_QUEUES)
def test_two_queues_share_as_in_kai(name, total, words, left, fair):
    priorities = words.get("priority", (0, 0))
    given = {"deserved": (2, 2), "weight": (2, 2), "limit": (-1, -1), "request": (6, 6)} | words
    both = [
        state(
            str(k),
            priority=priorities[k],
            created=k,
            gpu=share(**{n: v[k] for n, v in given.items() if n != "priority"}),
        )
        for k in range(2)
    ]
    assert (divide(total, 0, GPU, both), tuple(one.shares[GPU].fair for one in both)) == (left, fair)


def gpus(*given):
    return [
        state(str(k), created=k, gpu=share(deserved=d, weight=w, limit=limit, request=r))
        for k, (d, w, limit, r) in enumerate(given)
    ]


MORE = [
    (
        "Request more than total with different Over Quota",
        1000,
        gpus((250, 1, -1, 5000), (150, 2, -1, 5000)),
        (450, 550),
    ),
    ("… and max allowed", 1000, gpus((250, 1, -1, 5000), (150, 2, 400, 5000)), (600, 400)),
    ("divide resource evenly queues", 9999, gpus(*[(1000, 1, -1, 10000)] * 3), (3333, 3333, 3333)),
    (
        "divide resource between queues with different over quota",
        9999,
        gpus((0, 6, -1, 10000), (0, 2, -1, 10000), (0, 1, -1, 10000)),
        (6666, 2222, 1111),
    ),
    ("Not enough resources - should gets all cluster (GPU)", 1, gpus((2, 1, -1, 3)), (2,)),
    ("Not enough resources - should gets all cluster (memory)", 3000, gpus((1000, 1, -1, 5000)), (3000,)),
    (
        "reclaims unneeded resources",
        10_000,
        gpus(*[(5000, 5000, -1, r) for r in (7000, 2000, 2000)]),
        (6000, 2000, 2000),
    ),
    (
        "reclaims from both allocated queues",
        10_000,
        gpus(*[(5000, 5000, -1, r) for r in (7000, 5000, 2000)]),
        (5000, 5000, 2000),
    ),
    ("all queues get their deserved - over quota", 18_000, gpus(*[(5000, 5000, -1, 6000)] * 3), (6000, 6000, 6000)),
]


@pytest.mark.parametrize(("name", "total", "queues", "fair"), MORE)
def test_several_queues_share_as_in_kai(name, total, queues, fair):
    divide(total, 0, GPU, queues)
    assert tuple(one.shares[GPU].fair for one in queues) == fair


def test_the_remainder_goes_to_the_highest_priority_too():  # divides the remainder even when using priorities
    words = {"deserved": 2, "weight": 2, "request": 5}
    queues = [state("1", priority=2, gpu=share(**words)), state("2", priority=2, created=1, gpu=share(**words))]
    queues.append(state("3", priority=1, gpu=share(deserved=1, weight=2, request=0)))
    divide(5, 0, GPU, queues)
    assert [one.shares[GPU].fair for one in queues] == [3, 2, 0]


# -- order of queues ---------------------------------------------------------------------------------------------------


def ordered(left, right, asked):
    changes = tuple(({GPU: n}, {}) for n in asked)
    return compare_queues(state("l", **left), state("r", created=1, **right), changes, {})


def held(fair, allocated, request, deserved=2, priority=0):
    one = share(deserved=deserved, fair=fair, weight=1, allocated=allocated, request=request)
    return {"priority": priority, "gpu": one, "cpu": share(limit=0), "memory": share(limit=0)}


@pytest.mark.parametrize(
    ("name", "left", "right", "asked", "first"),
    [
        ("test prioritization based on fair share starvation", held(99, 20, 99), held(2, 0, 2), (0, 0), "r"),
        (
            "test prioritization based on quota starvation, even if priority is different",
            held(99, 20, 99, priority=1),
            held(2, 0, 2),
            (0, 0),
            "r",
        ),
        (
            "prioritize queue priority if queues are satisfied",
            held(99, 20, 99, priority=1),
            held(2, 3, 99),
            (0, 0),
            "l",
        ),
        ("… quota < rQueue < fairshare", held(99, 20, 99, priority=1), held(80, 3, 99), (0, 0), "l"),
        ("GPU memory affects queue order - lower first", held(50, 40, 50, 50), held(50, 40, 50, 50), (1, 2), "l"),
        ("GPU memory affects queue order - higher later", held(50, 40, 50, 50), held(50, 40, 50, 50), (3.2, 0.8), "r"),
    ],
)
def test_queues_take_turns_as_in_kai(name, left, right, asked, first):
    assert ("l" if ordered(left, right, asked) < 0 else "r") == first


# -- rules of reclaim --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "deserved", "fair", "allocated", "expected"),
    [
        ("Reclaimee has less than quota", 3, 4, 1, False),
        ("Reclaimee has less than fair share", 3, 4, 3, False),
        ("Reclaimee has exactly fair share and above quota", 1, 3, 3, False),
        ("Reclaimee has exactly fair share and equal to quota", 3, 3, 3, False),
        ("Reclaimee has more than fair share", 2, 3, 4, True),
    ],
)
def test_a_queue_over_its_fair_share_may_lose(name, deserved, fair, allocated, expected):
    """Maintain Fair Share Strategy; the taker is over its quota, so that this strategy alone decides."""
    taker = state("p1", gpu=share(deserved=0, fair=5))
    giver = state("p2", gpu=share(deserved=deserved, fair=fair, allocated=allocated))
    assert fits_strategy({GPU: 1}, taker, giver, giver.amounts("allocated")) == expected


@pytest.mark.parametrize(
    ("name", "deserved", "limit", "remaining", "expected"),
    [
        ("deserved less than fair share. GPU under, CPU over, Memory over", 100, -1, (80, 220, 220), True),
        ("deserved less than fair share. GPU over, CPU under, Memory over", 100, -1, (220, 80, 220), True),
        ("deserved less than fair share. GPU over, CPU over, Memory under", 100, -1, (220, 220, 80), True),
        ("deserved equal to fair share. GPU over, CPU under, Memory under", 200, -1, (220, 120, 120), True),
        ("deserved equal to fair share. GPU under, CPU over, Memory under", 200, -1, (120, 220, 120), True),
        ("deserved equal to fair share. GPU under, CPU under, Memory over", 200, -1, (120, 120, 220), True),
        ("deserved equal to fair share. GPU under, CPU under, Memory under", 200, -1, (120, 120, 120), False),
        ("Max Allowed is lower than Deserved/FairShare", 200, 100, (50, 120, 30), True),
    ],
)
def test_a_queue_over_its_fair_share_of_anything_may_lose(name, deserved, limit, remaining, expected):
    one = {"deserved": deserved, "fair": 200, "limit": limit}
    giver = state("reclaimee-1", gpu=share(**one), cpu=share(**one), memory=share(**one))
    taker = state("p1", gpu=share(deserved=0))
    left = dict(zip((GPU, "cpu", "memory"), remaining, strict=True))
    assert fits_strategy({GPU: 1}, taker, giver, left) == expected


# The group asks for (CPU, memory, GPUs); of each of these the queue has (deserved, fair, allocated, not preemptible).
ONE, ODD = (1000, 1000, 1), (1, 1000, 1000)


def thousands(*gpu):
    """CPU and memory as the GPUs, in thousands."""
    return [tuple(1000 * n for n in gpu)] * 2 + [gpu]


CAN = [
    ("No allocated resources, below fair share", True, ONE, thousands(0, 2, 0, 0), True),
    ("Some resources allocated, below fair share", True, ONE, thousands(0, 3, 1, 0), True),
    ("Some resources at fair share with job, other stay below", True, (500, 1000, 0), thousands(0, 2, 1, 0), True),
    ("Exactly at fair share with job", True, ONE, thousands(0, 2, 1, 0), True),
    ("Partially above fair share", True, ODD, [(0, 1500, 1000, 0), (0, 3000, 1000, 0), (0, 1, 1, 0)], False),
    ("Fully above fair share", True, ODD, [(0, 1500, 1000, 0), (0, 1500, 1000, 0), (0, 1, 1, 0)], False),
    ("Queue partially above fair share", True, ODD, [(0, 3000, 2000, 0), (0, 3000, 1000, 0), (0, 0, 1, 0)], False),
    ("No allocated resources, below quota", False, ONE, thousands(2, 2, 0, 0), True),
    ("No allocated resources, exactly at quota", False, ONE, thousands(1, 2, 0, 0), True),
    (
        "No allocated resources, partially above quota",
        False,
        ODD,
        [(1000, 2000, 0, 0), (500, 2000, 0, 0), (0, 2, 0, 0)],
        False,
    ),
    ("Some resources allocated, below quota", False, ONE, thousands(3, 3, 1, 1), True),
    ("Some preemptible resources allocated, zero quota", False, ODD, thousands(0, 3, 1, 0), False),
    ("Partially above quota", False, ODD, [(1500, 3000, 1000, 1000), (3000, 3000, 1000, 1000), (0, 3, 1, 1)], False),
    ("Fully above quota", False, ODD, [(1500, 3000, 1000, 1000)] * 2 + [(1, 3, 1, 1)], False),
]


@pytest.mark.parametrize(("name", "preemptible", "asked", "given", "expected"), CAN)
def test_a_queue_may_begin_to_reclaim_as_in_kai(name, preemptible, asked, given, expected):
    """Can Reclaim Resources."""
    words = [dict(zip(("deserved", "fair", "allocated", "fixed"), one, strict=True)) for one in given]
    cpu, memory, gpu = (share(**one) for one in words)
    states = {"queue1": state("queue1", gpu=gpu, cpu=cpu, memory=memory)}
    amounts = dict(zip(("cpu", "memory", GPU), asked, strict=True))
    assert can_reclaim(states, "queue1", amounts, preemptible=preemptible) == expected


def tree(**queues):
    """Queues by name: (parent, deserved, fair share, allocated)."""
    states = {
        name.replace("_", "-"): state(name.replace("_", "-"), parent, gpu=share(deserved=d, fair=f, allocated=a))
        for name, (parent, d, f, a) in queues.items()
    }
    for one in states.values():
        path = []
        while above := (states[path[0]] if path else one).queue.parent:
            path.insert(0, above)
        one.ancestors = tuple(path)
    return states


def single(p1=(3, 3, 2), p2=(2, 2, 3), default=(5, 5, 5), fixed=0):
    states = tree(p1=("default", *p1), p2=("default", *p2), default=("", *default))
    states["default"].shares[GPU].fixed = fixed
    return states


ONE_GPU = [{GPU: 1}]
SINGLE = [
    ("Reclaimer is below fair share, reclaimee above fair share", single(), True, True),
    (
        "Reclaimer is below fair share, reclaimer exactly at fair share",
        single(p2=(2, 2, 2), default=(5, 5, 4)),
        True,
        False,
    ),
    ("Reclaimer and reclaimee are below fair share", single(p2=(2, 2, 1), default=(5, 5, 3)), True, False),
    ("Reclaimer below deserved and reclaimee above deserved (within fair share)", single(p2=(2, 3, 3)), True, True),
    ("Reclaimer at fair share, reclaimee above, department below", single((3, 3, 3), default=(7, 10, 6)), True, False),
    ("Reclaimer at fair share, reclaimee above, department above", single((3, 3, 3), default=(5, 5, 6)), True, False),
    ("Reclaimer above deserved, reclaim for non preemptible job", single((2, 3, 2)), False, True),
    ("Reclaimer department only preemptible above deserved", single((2, 3, 2), default=(3, 5, 5)), False, True),
    (
        "Reclaimer department nonpreemtible equal to deserved",
        single((2, 3, 2), default=(3, 5, 5), fixed=3),
        False,
        False,
    ),
    ("Reclaimer department allocated above fair share", single((2, 3, 2), default=(1, 1, 3)), True, True),
]


@pytest.mark.parametrize(("name", "states", "preemptible", "expected"), SINGLE)
def test_a_queue_takes_from_its_sibling_as_in_kai(name, states, preemptible, expected):
    assert may_reclaim(states, "p1", {GPU: 1}, {"p2": ONE_GPU}, (preemptible, 1.0)) == expected


def departments(p1=(3, 3, 2), p2=(2, 2, 3), d1=(3, 3, 2), d2=(2, 2, 3)):
    return tree(p1=("d1", *p1), p2=("d2", *p2), d1=("", *d1), d2=("", *d2))


@pytest.mark.parametrize(
    ("name", "states", "expected"),
    [
        ("Reclaimer is below fair share, reclaimee above fair share - sanity", departments(), True),
        ("Reclaimee department goes below fair share", departments(p2=(2, 2, 2), d2=(2, 2, 2)), False),
        (
            "Reclaimer department is below deserved and reclaimee department above deserved but within fair share",
            departments((3, 3, 1), (2, 4, 3), (3, 3, 1), (2, 4, 3)),
            True,
        ),
    ],
)
def test_a_queue_takes_from_another_department_as_in_kai(name, states, expected):
    assert may_reclaim(states, "p1", {GPU: 1}, {"p2": ONE_GPU}, (True, 1.0)) == expected


LEFT = {"left_mid": ("left-top", 1, 1, 0), "left_leaf": ("left-mid", 1, 1, 0)}
RIGHT = {"right_top": ("", 1, 1, 2), "right_mid": ("right-top", 1, 1, 2), "right_leaf": ("right-mid", 1, 1, 2)}
BRANCH = {
    "top": ("", 2, 2, 2),
    "mid1": ("top", 1, 1, 0.5),
    "mid2": ("top", 1, 1, 1.5),
    "left_leaf1": ("mid1", 1, 1, 0),
    "left_leaf2": ("mid1", 0, 0, 0.5),
    "right_leaf": ("mid2", 1, 1, 1.5),
}
D2 = {"d2": ("", 3, 3, 7), "d2_project_1": ("d2", 3, 3, 7)}
LEVELS = [
    ("… - sanity", {"left_top": ("", 1, 1, 0), **LEFT, **RIGHT}, "left-leaf", {"right-leaf": [{GPU: 2}]}, True),
    (
        "Reclaimer top queue will go over quota - don't reclaim",
        {"left_top": ("", 1, 1, 1), "left_top_oq_leaf": ("left-top", 0, 0, 1), **LEFT, **RIGHT},
        "left-leaf",
        {"right-leaf": [{GPU: 2}]},
        False,
    ),
    (
        "Reclaimer in the same tree branch and will go over fair share - don't reclaim",
        BRANCH,
        "left-leaf1",
        {"right-leaf": [{GPU: 1.5}]},
        False,
    ),
    (
        "Reclaimer in the same tree branch - reclaim",
        BRANCH,
        "left-leaf1",
        {"right-leaf": [{GPU: 1.5}], "left-leaf2": [{GPU: 0.5}]},
        True,
    ),
    (
        "Reclaimer has lower utilization ratio than reclaimee but over 1",
        {"d1": ("", 4, 4, 4), "d1_project_1": ("d1", 3, 1, 0), "d1_project_2": ("d1", 1, 3, 4), **D2},
        "d1-project-1",
        {"d2-project-1": ONE_GPU},
        True,
    ),
]


@pytest.mark.parametrize(("name", "queues", "taker", "losses", "expected"), LEVELS)
def test_a_queue_takes_across_levels_as_in_kai(name, queues, taker, losses, expected):
    assert may_reclaim(tree(**queues), taker, {GPU: 1}, losses, (True, 1.0)) == expected


def test_resources_that_nobody_asks_for_do_not_count():  # Reclamation with uninvolved resources
    states = tree(d1=("", 4, 4, 4), d1_project_1=("d1", 1, 1, 1), **D2)
    states["d1"].shares["cpu"] = share(allocated=3000, fair=1000)
    states["d2"].shares["cpu"] = share(allocated=1000, fair=1000)
    assert may_reclaim(states, "d1-project-1", {GPU: 1}, {"d2-project-1": ONE_GPU}, (True, 1.0))


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit", "allocated", "asked", "expected"),
    [
        ("no maxAllowed", (-1, -1, -1), (500, 1, 1), (1000, 1, 1), False),
        ("no allocated equal to max allowed", (1000, 1, 1), (0, 0, 0), (1000, 1, 1), False),
        ("no allocated under max allowed", (1000, 1, 1), (0, 0, 0), (500, 0.5, 0.5), False),
        ("over max allowed in all recources", (1000, 1, 1), (500, 1, 1), (1000, 1, 1), True),
        ("over max allowed only cpu", (1000, 1, 1), (500, 1, 1), (1000, 0, 0), True),
        ("over max allowed only Memory", (1000, 1, 1), (500, 1, 1), (0, 1, 0), True),
        ("over max allowed only gpu", (1000, 1, 1), (500, 1, 1), (0, 0, 1), True),
        ("over max allowed but not requesting exceeding resource", (1000, 1, 1), (1500, 1, 0), (0, 0, 1), False),
    ],
)
def test_a_limit_holds_as_in_kai(name, limit, allocated, asked, expected):
    names = ("cpu", "memory", GPU)
    one = state()
    for k, resource in enumerate(names):
        one.shares[resource] = share(limit=limit[k], allocated=allocated[k])
    given = {resource: asked[k] for k, resource in enumerate(names) if asked[k]}
    assert is_over(one, given, fixed=False) == expected


# -- the least run time: pkg/scheduler/plugins/minruntime/resolver_test.go, createTestQueues ---------------------------

LEAST = Kai(
    (
        KaiQueue("dev", preempt_min_runtime=5.0, reclaim_min_runtime=10.0),
        KaiQueue("prod", preempt_min_runtime=20.0, reclaim_min_runtime=30.0),
        KaiQueue("research", preempt_min_runtime=4.0, reclaim_min_runtime=6.0),
        KaiQueue("dev-team1", "dev", reclaim_min_runtime=8.0),
        KaiQueue("dev-team2", "dev", preempt_min_runtime=3.0),
        KaiQueue("prod-team1", "prod", reclaim_min_runtime=25.0),
        KaiQueue("prod-team2", "prod", preempt_min_runtime=15.0, reclaim_min_runtime=35.0),
        KaiQueue("research-project", "research", preempt_min_runtime=7.0, reclaim_min_runtime=9.0),
        KaiQueue("no-reclaim"),
        KaiQueue("leaf", "no-reclaim"),
    ),
    preempt_min_runtime=2.0,
    reclaim_min_runtime=1.0,
)


@pytest.mark.parametrize(
    ("taker", "giver", "seconds"),
    [
        ("prod-team2", "prod-team2", 15.0),  # within a queue: its own
        ("prod-team1", "prod-team1", 20.0),  # that of its parent
        ("dev-team1", "dev-team1", 5.0),
        ("leaf", "leaf", 2.0),  # the default
        ("dev-team1", "prod-team2", 30.0),  # between top-level queues: that of the victim's
        ("dev-team2", "dev-team1", 8.0),  # next to each other: the victim's own
        ("prod-team1", "prod-team2", 35.0),
        ("dev-team1", "dev-team2", 10.0),  # not set: the queue above
        ("dev-team1", "research-project", 6.0),
        ("dev-team1", "leaf", 1.0),
    ],
)
def test_the_least_run_time_is_that_of_the_queue_where_two_part(taker, giver, seconds):
    assert MinRuntime(LEAST).against(taker, giver) == seconds
