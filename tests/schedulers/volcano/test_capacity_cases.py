"""Cases of Volcano's own unit tests of the capacity plugin, written as facts.

Source: volcano-sh/volcano at c8627e8 (between v1.14 and v1.15), pkg/scheduler/plugins/capacity/capacity_test.go; each
case is named as there. Flat: Test_capacityPlugin_OnSessionOpenWithoutHierarchy. Enqueue: TestEnqueueAndAllocatable.
Tree: Test_capacityPlugin_OnSessionOpenWithHierarchy. Shares: Test_updateQueueAttrShare.
"""

import pytest
from tests.schedulers.volcano.volcano_cases import GI, Case, G, amounts, plugin, queue

from fleetlab.schedulers.volcano.queues import QueueState, capacity_share

FLAT = [
    [
        plugin("capacity", "allocatable", "preemptive", "reclaimable", "queueOrder"),
        plugin("predicates", "predicate"),
        plugin("gang", "jobStarving"),
    ]
]
A100, GPU = "nvidia.com__A100", "nvidia.com__gpu"
TWO_NODES = {"n1": amounts(2, 4 * GI), "n2": amounts(2, 4 * GI)}
WORKER = {"n1": {"selector": "worker"}}
N8 = {"n8": amounts(4, 8 * GI, **{GPU: 1})}

FLAT_CASES = {
    "case0: Pod allocatable when queue has not exceed capability": (
        TWO_NODES,
        [queue("q1", capability=amounts(2, 2 * GI))],
        {"pg1": ("q1", 1), "pg2": ("q1", 1)},
        {"p1": ("pg1", amounts(1, GI), "n1"), "p2": ("pg2", amounts(1, GI), None, {"on": {"selector": "worker"}})},
        ({"p2": "n1"}, set(), {}),
    ),
    "case1: Pod not allocatable when queue exceed queue capability": (
        TWO_NODES,
        [queue("q2", capability=amounts(1.5, 1.5 * GI))],
        {"pg3": ("q2", 1), "pg4": ("q2", 1)},
        {"p3": ("pg3", amounts(1, GI), "n1"), "p4": ("pg4", amounts(1, GI))},
        ({}, set(), {}),
    ),
    "case2: Can reclaim from other queues when allocated < deserved": (
        TWO_NODES,
        [queue("q3", amounts(2, 4 * GI)), queue("q4", amounts(2, 4 * GI))],
        {"pg5": ("q3", 1), "pg6": ("q4", 1)},
        {
            "p5": ("pg5", amounts(2, 4 * GI), "n1", {"kept": True}),
            "p6": ("pg5", amounts(2, 4 * GI), "n2"),
            "p7": ("pg6", amounts(2, 4 * GI)),
        },
        ({}, {"p6"}, {"p7": "n2"}),
    ),
    "case3: CPU & Memory are overused, scalar resource is not overused, reclaim should happen": (
        {"n3": amounts(2, 4 * GI, **{A100: 10}), "n4": amounts(2, 4 * GI, **{A100: 10})},
        [queue("q5", amounts(2, 4 * GI, **{A100: 10})), queue("q6", amounts(2, 4 * GI, **{A100: 10}))],
        {"pg7": ("q5", 1), "pg8": ("q6", 1), "pg9": ("q6", 1)},
        {
            "p8": ("pg7", amounts(**{A100: 10}), "n3", {"kept": True}),
            "p9": ("pg7", amounts(**{A100: 10}), "n4"),
            "p10": ("pg8", amounts(2, 4 * GI), "n3"),
            "p11": ("pg8", amounts(2, 4 * GI), "n4"),
            "p12": ("pg9", amounts(**{A100: 10})),
        },
        ({}, {"p9"}, {"p12": "n4"}),
    ),
    "case4: Pods are assigned according to the order of Queue Priority in which PGs are placed": (
        {"n5": amounts(2, 4 * GI), "n6": amounts(2, 4 * GI)},
        [
            queue("q7", capability=amounts(2, 4 * GI), priority=5),
            queue("q8", capability=amounts(2, 4 * GI), priority=1),
            queue("q9", capability=amounts(2, 4 * GI), priority=10),
        ],
        {"pg10": ("q7", 1), "pg11": ("q8", 1), "pg12": ("q9", 1)},
        {
            "p13": ("pg10", amounts(2, 4 * GI), "n5"),
            "p14": ("pg11", amounts(2, 4 * GI)),
            "p15": ("pg12", amounts(2, 4 * GI)),
        },
        ({"p15": "n6"}, set(), {}),
    ),
    "case5: Can reclaim from other queues when allocated + req <= deserved on one dimension": (
        {"n1": amounts(2, 4 * GI)},
        [queue("q10", amounts(2, 2 * GI), amounts(4, 4 * GI)), queue("q11", {}, amounts(2, 2 * GI))],
        {"pg16": ("q10", 1), "pg17": ("q10", 1), "pg18": ("q11", 1)},
        {
            "p16": ("pg16", amounts(1, 3 * GI), "n1"),
            "p17": ("pg17", amounts(1, GI)),
            "p18": ("pg18", amounts(1, GI), "n1"),
        },
        ({}, {"p18"}, {"p17": "n1"}),
    ),
    "case6: Can not reclaim from other queues when allocated + req > deserved": (
        {"n1": amounts(2, 4 * GI)},
        [queue("q12", amounts(1, 2 * GI), amounts(4, 4 * GI)), queue("q13", {}, amounts(2, 2 * GI))],
        {"pg19": ("q12", 1), "pg20": ("q12", 1), "pg21": ("q13", 1)},
        {
            "p19": ("pg19", amounts(1, GI), "n1"),
            "p20": ("pg20", amounts(1, 2 * GI)),
            "p21": ("pg21", amounts(1, GI), "n1"),
        },
        ({}, set(), {}),
    ),
    "case7: allocated does not contain scalar dimension (GPU), deserved does; should not reclaim": (
        {"n7": amounts(4, 8 * GI, **{GPU: 4})},
        [
            queue("queue14", amounts(2, 4 * GI, **{GPU: 2})),
            queue("queue15"),
            queue("queue16", amounts(2, 4 * GI, **{GPU: 2})),
        ],
        {"pg22": ("queue14", 1), "pg23": ("queue15", 1), "pg24": ("queue16", 1), "pg25": ("queue16", 1)},
        {
            "p22": ("pg22", amounts(2, 4 * GI), "n7"),
            "p23": ("pg23", amounts(**{GPU: 1}), "n7"),
            "p24": ("pg24", amounts(2, GI, **{GPU: 1}), "n7"),
            "p25": ("pg25", amounts(2, 3 * GI, **{GPU: 1})),
        },
        ({}, set(), {}),
    ),
    "case8: reclaimer dimensions are considered properly while evicting reclaimees": (
        N8,
        [queue("queue17", amounts(2, 2 * GI)), queue("queue18", amounts(2, 4 * GI, **{GPU: 1}))],
        {
            "pg26": ("queue17", 1),
            "pg27": ("queue17", 1),
            "pg28": ("queue17", 1),
            "pg29": ("queue18", 1),
            "pg30": ("queue18", 1),
        },
        {
            "p26": ("pg26", amounts(0, 4 * GI), "n8"),
            "p27": ("pg27", amounts(1), "n8"),
            "p28": ("pg28", amounts(**{GPU: 1}), "n8"),
            "p29": ("pg29", amounts(2, 4 * GI), "n8"),
            "p30": ("pg30", amounts(1, **{GPU: 1})),
        },
        ({}, {"p28"}, {"p30": "n8"}),
    ),
    "case9: reclaimee has intersecting scalar dimensions with deserved shouldn't be reclaimed on cpu/memory": (
        N8,
        [queue("queue19", amounts(**{GPU: 1})), queue("queue20", amounts(2, 2 * GI))],
        {"pg31": ("queue19", 1), "pg32": ("queue20", 1)},
        {"p31": ("pg31", amounts(4, 4 * GI, **{GPU: 1}), "n8"), "p32": ("pg32", amounts(1, GI))},
        ({}, set(), {}),
    ),
    "case10: PreemptiveFn respects capability, no reclaim when futureUsed would exceed capability": (
        {"n9": amounts(8, 100 * GI), "n10": amounts(8, 100 * GI)},
        [queue("queue21", amounts(8, 100 * GI), amounts(8, 100 * GI)), queue("queue22", {}, amounts(2, 5 * GI))],
        {"pg33": ("queue21", 1), "pg34": ("queue21", 1), "pg35": ("queue22", 1)},
        {
            "p33": ("pg33", amounts(7, 90 * GI), "n9"),
            "p34": ("pg34", amounts(2, 5 * GI)),
            "p35": ("pg35", amounts(2, 5 * GI), "n10"),
        },
        ({}, set(), {}),
    ),
}


@pytest.mark.parametrize("name", FLAT_CASES)
def test_capacity_without_a_tree_decides_as_volcano_does(name):
    nodes, queues, groups, pods, expected = FLAT_CASES[name]
    assert Case(nodes, queues, groups, pods, WORKER).run(["allocate", "reclaim"], FLAT) == expected


ENQUEUE = [[plugin("capacity", "allocatable", "preemptive", "overused", "jobEnqueued")]]
Q1, Q2 = queue("q1", amounts(2, 2 * G), amounts(2, 2 * G)), queue("q2", amounts(2, 2 * G), amounts(3, 3 * G))
RUNNING_GROUPS = {
    "pg1": ("q1", 1, {"min_resources": amounts(1, 3 * G)}),
    "pg2": ("q2", 1, {"min_resources": amounts(3, G)}),
}
RUNNING_PODS = {"pod1": ("pg1", amounts(1, 3 * G), "n1"), "pod2": ("pg2", amounts(3, G), "n2")}


@pytest.mark.parametrize(
    ("name", "where", "asks", "expected"),
    [
        ("case0: memory exceed derserved, job only request cpu can be enqueued and allocated", "q1", (1, 0), "n1"),
        ("case1: cpu exceed derserved, job only request memory can be enqueued and allocated", "q2", (0, G), "n2"),
        ("case2: exceed capacity, can not enqueue", "q1", (1, G), None),
    ],
)
def test_capacity_admits_and_places_as_volcano_does(name, where, asks, expected):
    one = amounts(*asks)
    groups = {k: (*v[:2], dict(v[2])) for k, v in RUNNING_GROUPS.items()}
    groups["new"] = (where, 1, {"min_resources": one, "admitted": False})
    case = Case(
        {"n1": amounts(3, 3 * G), "n2": amounts(3, 3 * G)}, [Q1, Q2], groups, RUNNING_PODS | {"pod": ("new", one)}
    )
    assert case.run(["enqueue", "allocate"], ENQUEUE)[0] == ({"pod": expected} if expected else {})


def test_a_closed_queue_admits_nothing():  # case4: queue with non-open state, can not enqueue
    closed = queue("q3", capability=amounts(3, 3 * G), is_open=False)
    groups = {"pg6": ("q3", 1, {"min_resources": amounts(1, G), "admitted": False})}
    case = Case({"n1": amounts(3, 3 * G)}, [closed], groups, {"pod6": ("pg6", amounts(1, G))})
    assert case.run(["enqueue", "allocate"], ENQUEUE)[0] == {}


TREE = [
    [
        plugin("capacity", "allocatable", "preemptive", "reclaimable", "queueOrder", "jobEnqueued", hierarchy=True),
        plugin("predicates", "predicate"),
        plugin("gang", "jobStarving"),
    ]
]
N1 = {"n1": amounts(8, 8 * GI) | {"pods": 11}}
N2 = {"n2": amounts(8, 8 * GI, **{GPU: 8})}
FOUR = [
    queue("q1", capability=amounts(4, 4 * GI), parent="root"),
    queue("q2", capability=amounts(4, 4 * GI), parent="root"),
    queue("q11", capability=amounts(1, GI), parent="q1"),
    queue("q12", capability=amounts(3, 3 * GI), parent="q1"),
]
Q3 = [
    queue("q3", amounts(4, 4 * GI), amounts(4, 4 * GI), parent="root"),
    queue("q31", amounts(2, 2 * GI), amounts(4, 4 * GI), parent="q3"),
    queue("q32", amounts(2, 2 * GI), amounts(4, 4 * GI), parent="q3"),
]
Q4 = queue("q4", amounts(2, 2 * GI), amounts(4, 4 * GI), parent="root")
Q33 = queue("q33", {}, amounts(4, 4 * GI), parent="q3")
A100S = "nvidia.com__a100"
HCA = {A100S: 2, "rdma__hca": 1}

TREE_CASES = {
    "case0: Pod allocatable when queue is leaf queue": (
        N1,
        FOUR,
        {"pg1": ("q11", 1)},
        {"p1": ("pg1", amounts(1, GI))},
        ({"p1": "n1"}, set(), {}),
    ),
    "case1: Pod not allocatable when queue is not leaf queue": (
        N1,
        FOUR,
        {"pg2": ("q1", 1, {"admitted": False, "min_resources": {}})},
        {"p2": ("pg2", amounts(1, GI))},
        ({}, set(), {}),
    ),
    "case2: Pod allocatable when queue has not exceed capability": (
        N1,
        [*Q3, Q4],
        {"pg3": ("q31", 2)},
        {"p3": ("pg3", amounts(2, 2 * GI)), "p4": ("pg3", amounts(2, 2 * GI))},
        ({"p3": "n1", "p4": "n1"}, set(), {}),
    ),
    "case3: Can reclaim from other queues when allocated < deserved": (
        N1,
        [*Q3, Q4],
        {"pg4": ("q4", 1), "pg5": ("q31", 1), "pg6": ("q32", 1)},
        {
            "p5": ("pg4", amounts(4, 4 * GI), "n1"),
            "p6": ("pg5", amounts(2, 2 * GI), "n1", {"kept": True}),
            "p7": ("pg5", amounts(2, 2 * GI), "n1"),
            "p8": ("pg6", amounts(2, 2 * GI)),
        },
        ({}, {"p7"}, {"p8": "n1"}),
    ),
    "case4: Pod is not allocatable when ancestor queue's real capability not enough": (
        N1,
        [*Q3, Q33],
        {"pg5": ("q31", 1), "pg7": ("q32", 1), "pg8": ("q33", 1)},
        {
            "p6": ("pg5", amounts(2, 2 * GI), "n1", {"kept": True}),
            "p9": ("pg7", amounts(2, 2 * GI), "n1"),
            "p10": ("pg8", amounts(3, 3 * GI)),
        },
        ({}, set(), {}),
    ),
    "case5: If the capability cpu or memory is not specified, it is inherited from the parent queue": (
        N1,
        [
            queue("q5", capability=amounts(0, 4 * GI), parent="root"),
            queue("q51", capability=amounts(0, 2 * GI), parent="q5"),
        ],
        {"pg9": ("q51", 1)},
        {"p11": ("pg9", amounts(1))},
        ({"p11": "n1"}, set(), {}),
    ),
    "case8: When the queue's deserved value has a scalar resource set, the check can pass": (
        {"n-gpu": amounts(8, 8 * GI, **{GPU: 8})},
        [
            queue("q8", amounts(4, 4 * GI, **{GPU: 8}), parent="root"),
            queue("q81", amounts(2, 2 * GI, **{GPU: 4}), parent="q8"),
            queue("q82", amounts(2, 2 * GI, **{GPU: 4}), parent="q8"),
        ],
        {"pg12": ("q81", 1)},
        {"p12": ("pg12", amounts(2, 2 * GI, **{GPU: 1}))},
        ({"p12": "n-gpu"}, set(), {}),
    ),
    "case9: When some scalar resources are 0 in deserved, the check can still pass": (
        N2,
        [
            queue("q9", amounts(2, 2 * GI, **{GPU: 8, "hugepages-1Gi": 0}), parent="root"),
            queue("q91", amounts(2, 2 * GI, **{GPU: 4, "hugepages-1Gi": 0}), parent="q9"),
        ],
        {"pg13": ("q91", 1)},
        {"p13": ("pg13", amounts(2, 2 * GI, **{GPU: 1}))},
        ({"p13": "n2"}, set(), {}),
    ),
    "case11: If the capability scalar resources is not specified, it is inherited from the parent queue": (
        N2,
        [
            queue("c1", parent="root"),
            queue("c11", capability=amounts(4, 4 * GI, **{GPU: 4}), parent="c1"),
            queue("c12", capability=amounts(4, 4 * GI, **{GPU: 4}), parent="c1"),
        ],
        {"pg14": ("c11", 1), "pg15": ("c12", 1)},
        {"p14": ("pg14", amounts(1, GI, **{GPU: 4})), "p15": ("pg15", amounts(1, GI, **{GPU: 4}))},
        ({"p14": "n2", "p15": "n2"}, set(), {}),
    ),
    "case12: Can reclaim from other queues when allocated <= deserved on a single scalar dimension": (
        {"n3": amounts(16, 16 * GI, **{A100S: 5, "rdma__hca": 1001})},
        [
            queue("root", amounts(16, 16 * GI, **{A100S: 4, "rdma": 1000})),
            queue("c1", amounts(**{A100S: 2}), parent="root"),
            queue("c11", amounts(**{A100S: 2}), parent="c1"),
            queue("c12", parent="c1"),
        ],
        {"pg16": ("c11", 1), "pg17": ("c12", 1), "pg18": ("c12", 1)},
        {
            "p16": ("pg16", amounts(1, GI, **HCA)),
            "p17": ("pg17", amounts(1, GI, **HCA), "n3"),
            "p18": ("pg18", amounts(1, GI, **HCA), "n3", {"kept": True}),
        },
        ({}, {"p17"}, {"p16": "n3"}),
    ),
}


@pytest.mark.parametrize("name", TREE_CASES)
def test_capacity_with_a_tree_decides_as_volcano_does(name):
    nodes, queues, groups, pods, expected = TREE_CASES[name]
    groups = {k: (*v[:2], *(dict(words) for words in v[2:])) for k, v in groups.items()}
    assert Case(nodes, queues, groups, pods).run(["enqueue", "reclaim", "allocate"], TREE) == expected


def test_a_group_waits_for_admission_when_a_queue_above_has_no_room():
    # case6: podgroup can't be enqueued when any ancestor queue's capability is not enough
    queues = [
        queue("q6", capability=amounts(2, 4 * GI), parent="root"),
        queue("q61", parent="q6"),
        queue("q62", parent="q6"),
    ]
    words = {"min_resources": amounts(2, 4 * GI), "admitted": False}
    case = Case(N1, queues, {"pg10": ("q61", 1, dict(words)), "pg11": ("q62", 1, dict(words))}, {})
    case.run(["enqueue", "reclaim", "allocate"], TREE)
    assert [job.admitted for job in case.jobs] == [True, False]


def test_guarantees_over_the_parents_capability_leave_no_negative_limit():
    # case7: the sum of sub queue 71 and 72's guarantee exceeds the capacity of queue7, but should not panic
    both = [
        queue(name, capability=amounts(6, 4 * GI), guarantee=amounts(4, 3 * GI), parent="q7") for name in ("q71", "q72")
    ]
    case = Case(N1, [queue("q7", capability=amounts(6, 4 * GI), parent="root"), *both], {}, {})
    states = case.session(["allocate"], TREE).queues
    assert states["q71"].limit == states["q72"].limit == amounts(4, 3 * GI)


@pytest.mark.parametrize(
    ("name", "deserved", "allocated", "share"),
    [
        ("best-effort queue with allocated resources", {}, amounts(1, GI), 1.0),
        ("best-effort queue completely idle", {}, {}, 1.0),
        ("queue with deserved but no allocated", amounts(2, 2 * GI), {}, 0.0),
        ("queue with deserved, allocated < deserved (CPU dimension)", amounts(2, 2 * GI), amounts(1, GI), 0.5),
        ("queue with deserved, allocated = deserved", amounts(2, 2 * GI), amounts(2, 2 * GI), 1.0),
        ("queue with deserved, allocated > deserved (CPU dimension)", amounts(2, 2 * GI), amounts(3, 2 * GI), 1.5),
        ("queue with deserved, memory is dominant resource", amounts(2, 4 * GI), amounts(1, 3 * GI), 0.75),
        ("queue with deserved, CPU is dominant resource", amounts(2, 4 * GI), amounts(1.5, 2 * GI), 0.75),
    ],
)
def test_a_queues_share_is_volcanos(name, deserved, allocated, share):
    assert capacity_share(QueueState(queue("q"), allocated=allocated, deserved=deserved)) == share
