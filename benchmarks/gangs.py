"""How fast Volcano and KAI are simulated: beside a bare loop over the same groups, in one process.

`python -m benchmarks.gangs` does all of it, `python -m benchmarks.gangs "KAI's defaults"` one case. The bare loop
tries every group that waits on the nodes that are free, oldest first, all or nothing, once after each change: no
queues, no shares, no victims.
"""

from __future__ import annotations

import heapq
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.schedulers.gangs.loop import Loop
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.kai import play as kai
from fleetlab.schedulers.kai.config import GPU, Kai, KaiQueue, Quota
from fleetlab.schedulers.kubernetes.config import SchedulingNode, SchedulingPod
from fleetlab.schedulers.volcano import play as volcano
from fleetlab.schedulers.volcano.config import Plugin, Volcano, VolcanoQueue

BUILD = Path("build/bench")
QUEUES, GPUS = "abcd", 8
FEW_FIRST, MANY_FIRST = (0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1)
RECLAIMING = (
    (
        Plugin("priority"),
        Plugin("gang", disabled=frozenset({"preemptable", "reclaimable"})),
        Plugin("conformance"),
        Plugin("drf", disabled=frozenset({"preemptable"})),
        Plugin("predicates"),
        Plugin("proportion"),
    ),
)
Groups = tuple[list[PodGroup], list[float], list[float]]  # submitted when, and how long they run
Case = tuple[Loop, Groups, float, int]  # until when, and on how many nodes


# -- groups ------------------------------------------------------------------------------------------------------------


def _nodes(count: int) -> list[SchedulingNode]:
    return [SchedulingNode(f"n{k}", {"pods": 110, GPU: GPUS}) for k in range(count)]


def _group(name: str, queue: str, gpus: int, pods: int) -> PodGroup:
    made = tuple(SchedulingPod(f"{name}/{k}", requests={GPU: gpus}) for k in range(pods))
    return PodGroup(name, queue, made, pods, min_resources={GPU: gpus * pods})


def crowded(small: int = 690, large: int = 300) -> Groups:
    """Groups of 1 GPU at once, most of the first queues; within an hour gangs, most of the last ones."""
    random, count = np.random.default_rng(0), small + large
    queues = [*random.choice(list(QUEUES), small, p=MANY_FIRST), *random.choice(list(QUEUES), large, p=FEW_FIRST)]
    gpus = [1] * small + random.choice([1, 2, 4, 8], large).tolist()
    pods = [1] * small + random.integers(1, 5, large).tolist()
    groups = [_group(f"g{k}", str(queues[k]), gpus[k], pods[k]) for k in range(count)]
    submit = [0.0] * small + np.sort(random.integers(1, 3600, large)).astype(float).tolist()
    return groups, submit, np.ceil(random.exponential(1800, count) + 60).tolist()


def within_quota(running: int = 690, waiting: int = 300) -> Groups:
    """Every queue is within its quota, so that nobody may be evicted; the last one has room in its own for gangs."""
    random = np.random.default_rng(0)
    own = running // 23
    groups = [_group(f"g{k}", QUEUES[k % 3] if k < running - own else QUEUES[-1], 1, 1) for k in range(running)]
    sizes = zip(random.choice([4, 8], waiting).tolist(), random.integers(1, 5, waiting).tolist(), strict=True)
    groups += [_group(f"w{k}", QUEUES[-1], gpus, pods) for k, (gpus, pods) in enumerate(sizes)]
    submit = [0.0] * running + [10.0 + k * 15 // waiting for k in range(waiting)]
    return groups, submit, [5000.0] * running + [100.0] * waiting


# -- cases -------------------------------------------------------------------------------------------------------------


def _volcano(until: float, **words: Any) -> Case:  # noqa: ANN401
    site = Volcano(tuple(VolcanoQueue(name) for name in QUEUES), **words)
    return volcano.loop_of(_nodes(110), site, 0), crowded(), until, 110


def _kai(until: float, **words: Any) -> Case:  # noqa: ANN401
    queues = tuple(KaiQueue(name, quotas={GPU: Quota(0.0)}) for name in QUEUES)
    return kai.loop_of(_nodes(110), Kai(queues, **words), 0), crowded(), until, 110


def _kai_within_quota(times: int = 1) -> Case:
    queues = tuple(KaiQueue(name, quotas={GPU: Quota(220.0 * times)}) for name in QUEUES)
    loop = kai.loop_of(_nodes(87 * times), Kai(queues), 0)
    return loop, within_quota(690 * times, 300 * times), 60.0, 87 * times


CASES: dict[str, Callable[[], Case]] = {
    "Volcano with reclaim and preempt, 1,000 s": lambda: _volcano(
        1000.0, actions=("enqueue", "allocate", "backfill", "preempt", "reclaim"), tiers=RECLAIMING
    ),
    "Volcano's defaults, to the end": lambda: _volcano(math.inf),
    "KAI, all groups movable, 400 s": lambda: _kai(400.0, consolidation_preemptees=-1),
    "KAI's defaults, 500 s": lambda: _kai(500.0),
    "KAI, nobody may be evicted, 60 s": _kai_within_quota,
    "KAI, nobody may be evicted, twice as many": lambda: _kai_within_quota(2),
}


def main(asked: Sequence[str] | None = None) -> None:
    """Measure what is asked for, or everything; print it and keep the figures."""
    rows = []
    for name in asked or CASES:
        loop, groups, until, nodes = CASES[name]()
        begin = time.process_time()
        placed = loop.play(*groups, until=until)
        took = time.process_time() - begin
        begin = time.process_time()
        started = bare(groups, until, nodes)
        plain = time.process_time() - begin
        row = {"what": name, "cpu_s": took, "bare_s": plain, "over bare": took / plain}
        row |= {"started": sum(map(math.isfinite, placed.start)), "by the bare loop": started}
        rows.append(row | {"evictions": sum(placed.evictions)})
        words = [f"{key} {value:,.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items()]
        print(f"{name}: {', '.join(words[1:])}, evictions {sum(placed.evictions)}", flush=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "gangs.json").write_text(json.dumps(rows, indent=1))


def bare(groups: Groups, until: float, nodes: int) -> int:
    """Return how many groups start, placed on the fullest nodes in the order they came."""
    free = np.full(nodes, GPUS)
    waiting: list[int] = []
    events = [(math.ceil(at), 1, k, np.zeros(0, np.int64)) for k, at in enumerate(groups[1])]
    heapq.heapify(events)
    started = 0
    while events and events[0][0] < until:
        now = events[0][0]
        while events and events[0][0] <= now:
            _, is_new, k, held = heapq.heappop(events)
            if is_new:
                waiting.append(k)
            np.add.at(free, held, _asks(groups, k))
        for k in list(waiting):
            held = _fitted(free, _asks(groups, k), len(groups[0][k].pods))
            if len(held):
                waiting.remove(k)
                started += 1
                heapq.heappush(events, (math.ceil(now + groups[2][k]), 0, k, held))
    return started


def _asks(groups: Groups, k: int) -> int:
    return groups[0][k].pods[0].requests[GPU]


def _fitted(free: np.ndarray, gpus: int, pods: int) -> np.ndarray:  # type: ignore[type-arg]
    """Place a gang, or nothing of it."""
    held = []
    for _ in range(pods):
        fits = np.flatnonzero(free >= gpus)
        if not len(fits):
            break
        held.append(int(fits[free[fits].argmin()]))
        free[held[-1]] -= gpus
    if len(held) < pods:
        np.add.at(free, held, gpus)
        held = []
    return np.array(held, np.int64)


if __name__ == "__main__":
    main(sys.argv[1:] or None)
