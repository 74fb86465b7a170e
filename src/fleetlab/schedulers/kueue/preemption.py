"""Preemption: the workloads that go so that another fits, as few as a greedy search finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleetlab.schedulers.kueue.candidates import Candidate, Candidates, Need
from fleetlab.schedulers.kueue.config import NEVER
from fleetlab.schedulers.kueue.fair import fair_targets
from fleetlab.schedulers.kueue.state import Admitted, Snapshot
from fleetlab.schedulers.kueue.topology import TopologyNeed

Fits = Callable[[bool], bool]  # whether the workload fits now, if it may borrow or not


@dataclass(frozen=True)
class Target:
    """A workload that goes, and why."""

    one: Admitted
    reason: str


def targets_of(state: Snapshot, need: Need, topology: Iterable[TopologyNeed] = ()) -> list[Target]:
    """Who goes for a workload; none where it cannot be helped. The state is left as it was."""
    places = list(topology)
    policies = state.queue(need.queue).preemption
    if policies.within_cluster_queue == policies.reclaim_within_cohort == NEVER:
        return []

    def fits(borrowing: bool) -> bool:  # noqa: FBT001
        return _fits(state, need, borrowing) and state.forests.place(places).placement is not None

    if state.site.fair_sharing.enable:
        found, helped = fair_targets(state, need, fits)
        chosen = [Target(one, reason) for one, reason in found]
        return _restored(state, _filled_back(state, chosen, fits, borrowing=True) if helped else [], chosen)
    return _classical(state, need, fits)


def _fits(state: Snapshot, need: Need, borrowing: bool) -> bool:  # noqa: FBT001
    if not borrowing and any(state.nodes[need.queue].borrows(at, amount) for at, amount in need.amounts.items()):
        return False
    return state.fits(need.queue, need.amounts)


def _classical(state: Snapshot, need: Need, fits: Fits) -> list[Target]:
    candidates = Candidates.of(state, need)
    for borrowing in _attempts(state, need, candidates):
        chosen: list[Target] = []
        for candidate in candidates.valid(borrowing=borrowing):
            state.remove(candidate.one)
            chosen.append(_target(candidate))
            if fits(borrowing):
                return _restored(state, _filled_back(state, chosen, fits, borrowing=borrowing), chosen)
        _restored(state, [], chosen)
    return []


def _target(candidate: Candidate) -> Target:
    return Target(candidate.one, candidate.reason)


def _attempts(state: Snapshot, need: Need, candidates: Candidates) -> tuple[bool, ...]:
    """Whether to try with borrowing, without, or one after the other."""
    borrows_and_preempts = state.queue(need.queue).preemption.borrows_and_preempts
    if not candidates.any_in_cohort or (not borrows_and_preempts and not _under_nominal(state, need)):
        return (True,)
    if not borrows_and_preempts and not candidates.any_by_hierarchy:
        return (False, True)
    return (True, False)


def _under_nominal(state: Snapshot, need: Need) -> bool:
    node = state.nodes[need.queue]
    return all(node.usage[at] < node.quota(at).nominal for at in need.short)


def _filled_back(state: Snapshot, chosen: list[Target], fits: Fits, *, borrowing: bool) -> list[Target]:
    """Let stay who need not go, the last chosen but one first."""
    kept = list(chosen)
    for target in reversed(chosen[:-1]):
        state.add(target.one)
        if fits(borrowing):
            kept.remove(target)
        else:
            state.remove(target.one)
    return kept


def _restored(state: Snapshot, kept: list[Target], chosen: list[Target]) -> list[Target]:
    """Put everybody back who is still out."""
    for target in chosen:
        if target.one.name not in state.admitted[target.one.workload.cluster_queue]:
            state.add(target.one)
    return kept
