"""Cases of Kueue worked out by hand from its documentation: when each workload starts.

A victim takes 30 s to leave. Reclaim of KAI and of Volcano is worked out in `gangs/test_groups_in_time.py`.
"""

import math

import pytest

from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.kueue.config import (
    FairSharing,
    FlavorFungibility,
    Kueue,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from fleetlab.schedulers.kueue.loop import KueueSite, play
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet, TopologyRequest

from .cases import ANY, GPU, LOWER, cq

NO_MORE = math.inf


def gpus(nominal, borrowing=None, lending=None, **flavors):
    quotas = {name: {GPU: ResourceQuota(amount)} for name, amount in flavors.items()}
    return ResourceGroup((GPU,), {"h100": {GPU: ResourceQuota(nominal, borrowing, lending)}, **quotas})


def job(queue, count, priority=0, pods=1, least=None, place=None):
    return queue, (PodSet("main", pods, {GPU: count}, least, topology=place),), priority


ANYWHERE = TopologyRequest(unconstrained=True)
RACK = TopologyRequest(required="rack")
NODES = [SchedulingNode(f"n{k}", {GPU: 8, "pods": 110}, {"rack": f"r{k // 2}", "host": f"n{k}"}) for k in range(4)]
RACKS = (ResourceFlavor("h100", topology="racks"), Topology("racks", ("rack", "host")))
NEXT = FlavorFungibility(when_can_borrow="TryNextFlavor")
# Objects; workloads with when they come and how long they run; when they start.
CASES = {
    # a has 8 and borrows 4 of b's idle 8, as its limit says: the fourth job of 4 waits for the first to end.
    "borrowing up to the limit": (
        [cq("a", "c", gpus(8, 4)), cq("b", "c", gpus(8))],
        [(job("a", 4), k, 100) for k in range(4)], [0, 1, 2, 100],
    ),
    # b lends 2 of its 8: a has 8 + 2.
    "lending up to the limit": (
        [cq("a", "c", gpus(8)), cq("b", "c", gpus(8, None, 2))],
        [(job("a", 8), 0, 100), (job("a", 2), 1, 100), (job("a", 2), 2, 100)], [0, 1, 100],
    ),
    # a takes back what b borrowed; b's job begins anew when a's has ended.
    "reclaim of the nominal quota": (
        [cq("a", "c", gpus(8), reclaim=ANY), cq("b", "c", gpus(8))],
        [(job("b", 16), 0, 100), (job("a", 8), 10, 20)], [0, 40],
    ),
    # a would borrow and preempts b's lower priority, up to the threshold of 5: not the job of priority 9.
    "borrowWithinCohort up to its threshold": (
        [cq("a", "c", gpus(4), reclaim=LOWER, borrow=5), cq("b", "c", gpus(4)), cq("d", "c", gpus(4))],
        [(job("b", 6, priority=9), 0, 200), (job("d", 6, priority=1), 1, 200), (job("a", 6, priority=10), 10, 20)],
        [0, 1, 40],
    ),
    "StrictFIFO: nobody passes the first": (
        [cq("a", None, gpus(8), strategy="StrictFIFO")],
        [(job("a", 6), 0, 100), (job("a", 4), 1, 10), (job("a", 2), 2, 10)], [0, 100, 100],
    ),
    "BestEffortFIFO: who fits passes": (
        [cq("a", None, gpus(8))],
        [(job("a", 6), 0, 100), (job("a", 4), 1, 10), (job("a", 2), 2, 10)], [0, 100, 2],
    ),
    # With TryNextFlavor the second job goes to a100 rather than borrow h100, so that b has its 8 at once.
    "fungibility: the next flavor before borrowing": (
        [cq("a", "c", gpus(8, a100=8), fungibility=NEXT), cq("b", "c", gpus(8))],
        [(job("a", 8), 0, 100), (job("a", 8), 1, 100), (job("b", 8), 2, 100)], [0, 1, 2],
    ),
    "fungibility: borrowing before the next flavor": (
        [cq("a", "c", gpus(8, a100=8)), cq("b", "c", gpus(8))],
        [(job("a", 8), 0, 100), (job("a", 8), 1, 100), (job("b", 8), 2, 100)], [0, 1, 100],
    ),
    # Nobody has quota of its own but d, which is idle: b, with no share yet, comes before a's third job.
    "fair sharing: the smaller share first": (
        [cq("a", "c", gpus(0)), cq("b", "c", gpus(0)), cq("d", "c", gpus(8)), FairSharing(enable=True)],
        [(job("a", 4), 0, 100), (job("a", 4), 1, 50), (job("a", 4), 2, 10), (job("b", 4), 3, 10)], [0, 1, 61, 51],
    ),
    # Six of eight pods fit and four would do: it starts at once, and runs 8/6 as long.
    "partial admission": (
        [cq("a", None, gpus(8))],
        [(job("a", 2), 0, 100), (job("a", 1, pods=8, least=4), 1, 60)], [0, 1],
    ),
    # Two nodes of one rack are wanted, and each rack has one busy until 100.
    "topology: one rack is required": (
        [*RACKS, cq("a", None, gpus(32))],
        [(job("a", 8, pods=3, place=ANYWHERE), 0, 100), (job("a", 8, pods=2, place=RACK), 1, 10)],
        [0, 100],
    ),
    "more than all quota": ([cq("a", None, gpus(8))], [(job("a", 9), 0, 1)], [NO_MORE]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_workloads_start_when_they_do_by_hand(name):
    objects, rows, wanted = CASES[name]
    nodes = NODES if any(isinstance(one, Topology) for one in objects) else ()
    jobs = [KueueWorkload(f"w{k}", *of) for k, (of, _, _) in enumerate(rows)]
    played = play(KueueSite(Kueue.of(*objects), nodes, grace=30.0), jobs, [r[1] for r in rows], [r[2] for r in rows], 1)
    assert played.start == wanted
