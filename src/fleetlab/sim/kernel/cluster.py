"""The state of the cluster: what is free, who has what, and what was decided since a mark.

The arithmetic is that of the compiled loops (`sim.nodes`), so an instance fits here exactly where it fits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.core.catalog import PLACEMENTS
from fleetlab.sim.jit import step
from fleetlab.sim.layout import UNLIMITED, Ints, NodeView, Records, Scoring, writable
from fleetlab.sim.nodes import give_back, holds, node_slots, take, take_gpus
from fleetlab.sim.placements import pick
from fleetlab.sim.world import World


class JobAllocation(NamedTuple):
    """Where the instances of a job are; GPUs are bits counted from the node's first."""

    nodes: tuple[int, ...]
    gpus: tuple[int, ...]


@step
def _able(shapes: Records, s: int, view: NodeView, able: NDArray[np.bool_]) -> None:
    for n in range(len(able)):
        able[n] = holds(shapes[s], view.nodes[n], view.gpus, view.apps)


@step
def _take(
    shapes: Records, s: int, view: NodeView, placement: int, scoring: Scoring, barred: NDArray[np.bool_], nodes: Ints,
    gpus: Ints,
) -> int:  # fmt: skip
    """Allocate instances on `nodes`, or where the placement puts them (-1); return how many of them fit."""
    shape = shapes[s]
    for n in range(len(barred)):
        if barred[n]:
            view.nodes[n].up -= 1
    fit = len(nodes)
    for k in range(len(nodes)):
        at = -1
        if nodes[k] < 0:
            nodes[k], at = pick(placement, shape, view, scoring)
        if nodes[k] < 0 or not holds(shape, view.nodes[nodes[k]], view.gpus, view.apps):
            fit = k
            break
        gpus[k] = take(shape, view.nodes[nodes[k]], view.gpus, view.apps, at)
    for n in range(len(barred)):
        if barred[n]:
            view.nodes[n].up += 1
    return fit


@step
def _give_back(shapes: Records, s: int, view: NodeView, nodes: Ints, gpus: Ints) -> None:
    for k in range(len(nodes)):
        give_back(shapes[s], view.nodes[nodes[k]], view.gpus, view.apps, gpus[k])


@step
def _refit(shapes: Records, view: NodeView, freed: Ints, count: int, bound: Ints, since: Ints, unfit: Ints) -> None:
    """Say how many instances do not fit: `bound` outside of the nodes that were freed `since`, and those there."""
    for s in range(len(bound)):
        if bound[s] < UNLIMITED and since[s] < count:
            more = 0
            for k in range(since[s], count):
                fit = node_slots(shapes[s], view.nodes[freed[k]], view.gpus, view.apps)
                if fit == 0 and more == 0:
                    since[s] = k + 1
                more += fit
            unfit[s] = bound[s] + more


@step
def _take_again(shapes: Records, s: int, view: NodeView, node: int, gpus: int) -> None:
    take_gpus(shapes[s], view.nodes[node], view.gpus, view.apps, gpus)


FREED = 256  # nodes that were freed are remembered, before all shapes are tried again


class ClusterState:
    """What is free on the nodes of a world, and what each job holds of them.

    Nothing is allocated twice: `allocate` refuses what does not fit. What was decided since a `mark` can be discarded.
    What did not fit is remembered by shape, and not tried again until a node that was freed since holds an instance.
    """

    def __init__(self, world: World, *, placement: str = "best_fit", seed: int = 0) -> None:
        self.view = NodeView(writable(world.nodes), writable(world.gpus), writable(world.apps))
        self.held: dict[int, JobAllocation] = {}
        self.shape = world.shape.tolist()  # of each job
        self._shapes = np.asarray(writable(world.shapes))  # a plain array is passed in a tenth of the time
        self._per_job = (self._shapes["distinct"] > 0).tolist()
        random = np.array([1 + seed % 2_147_483_646], dtype=np.int64)
        self._scoring = Scoring(writable(world.capacity), writable(world.largest), writable(world.typical), random)
        self._placement = PLACEMENTS.index(placement)
        self._draws = PLACEMENTS[placement].randomized
        self._nowhere = np.zeros(len(world.nodes), dtype=np.bool_)
        self._journal: list[tuple[int, JobAllocation | None]] = []
        self.stale = False  # whether anything was freed since `unfit` was right
        self._unfit, self._bound = (np.full(len(self._shapes), UNLIMITED, dtype=np.int64) for _ in range(2))
        self.unfit: Any = memoryview(self._unfit.data)  # by shape, how many instances do not fit
        self._since = np.zeros(len(self._shapes), dtype=np.int64)
        self._freed, self._count = np.zeros(FREED, dtype=np.int64), 0

    def able(self, job: int) -> NDArray[np.bool_]:
        """Return which nodes hold an instance of a job now."""
        able = np.empty(len(self._nowhere), dtype=np.bool_)
        _able(self._shapes, self.shape[job], self.view, able)
        return able

    def refit(self) -> None:
        """Look at what was freed and taken, and say anew what does not fit."""
        _refit(self._shapes, self.view, self._freed, self._count, self._bound, self._since, self._unfit)
        self.stale = False

    def allocate(
        self, job: int, count: int, nodes: Sequence[int] = (), barred: NDArray[np.bool_] | None = None
    ) -> int | None:
        """Allocate `count` instances on these nodes, or where the placement puts them, outside of those `barred`.

        Return None, or the first instance that does not fit: then nothing is allocated.
        """
        shape = self.shape[job]
        if self.stale:
            self.refit()
        if not len(nodes) and count >= self.unfit[shape]:
            return int(self.unfit[shape]) - 1
        free = barred is None
        barred = self._nowhere if barred is None else barred & (self.view.nodes.up > 0)
        where = np.array(nodes, dtype=np.int64) if len(nodes) else np.full(count, -1, dtype=np.int64)
        bits = np.zeros(count, dtype=np.int64)
        fit = int(_take(self._shapes, shape, self.view, self._placement, self._scoring, barred, where, bits))
        allocation = JobAllocation(tuple(where[:fit].tolist()), tuple(bits[:fit].tolist()))
        self._end_gang(job, allocation.nodes)
        if fit < count:
            self._give_back(job, allocation)
            if free and not len(nodes):
                self._bound[shape] = self._unfit[shape] = fit + 1
                self._since[shape] = self._count
            return fit
        self._journal.append((job, None))
        self.held[job] = allocation
        self.stale = self._count > 0
        return None

    def hold(self, job: int, allocation: JobAllocation) -> None:
        """Allocate to a job what it holds when a simulation begins."""
        for node, gpus in zip(*allocation, strict=True):
            _take_again(self._shapes, self.shape[job], self.view, node, gpus)
        self._end_gang(job, allocation.nodes)
        self.held[job] = allocation

    def release(self, job: int) -> JobAllocation:
        """Free what a job holds."""
        allocation = self.held.pop(job)
        self._free(job, allocation)
        self._journal.append((job, allocation))
        return allocation

    def mark(self) -> int:
        """Return where the journal stands: what is decided from here on can be kept or discarded."""
        return len(self._journal)

    def commit(self) -> None:
        """Keep all that was decided."""
        self._journal.clear()

    def discard(self, mark: int) -> None:
        """Undo what was decided since a mark."""
        while len(self._journal) > mark:
            job, before = self._journal.pop()
            if before is None:
                self._free(job, self.held.pop(job))
                continue
            for node, gpus in zip(*before, strict=True):
                _take_again(self._shapes, self.shape[job], self.view, node, gpus)
            self.held[job] = before

    def set_up(self, node: int, *, up: bool) -> None:
        """Let a node take instances, or no more; those on it stay until they are released."""
        self._note_freed((node,))
        self.view.nodes.up[node] = int(up)

    def _free(self, job: int, allocation: JobAllocation) -> None:
        self._note_freed(allocation.nodes)
        self._give_back(job, allocation)

    def _note_freed(self, nodes: Sequence[int]) -> None:
        if self._draws or len(nodes) > FREED:  # a refusal, too, draws where its instances would be
            self._bound[:] = self._unfit[:] = UNLIMITED
            return
        if self._count + len(nodes) > FREED:
            self.refit()
            self._bound[:] = self._unfit
            self._since[:], self._count = 0, 0
        self.stale = True
        self._freed[self._count : self._count + len(nodes)] = nodes
        self._count += len(nodes)

    def _give_back(self, job: int, allocation: JobAllocation) -> None:
        if not allocation.nodes:
            return
        nodes, gpus = (np.array(column, dtype=np.int64) for column in allocation)
        _give_back(self._shapes, self.shape[job], self.view, nodes, gpus)

    def _end_gang(self, job: int, nodes: Sequence[int]) -> None:
        if self._per_job[self.shape[job]]:  # a limit within one job: the next may use these nodes
            self.view.apps[self._shapes["app"][self.shape[job]], list(nodes)] = 0
