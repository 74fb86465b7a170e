"""The actions of a cycle: allocate, consolidation, reclaim and preempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.tasks import Hopeless, Job
from fleetlab.sim.kai.min_runtime import MinRuntime
from fleetlab.sim.kai.reclaim_rules import can_reclaim, may_lose, may_reclaim
from fleetlab.sim.kai.session import Session, may_be_evicted
from fleetlab.sim.kai.shares import GPU, RESOURCES, QueueState
from fleetlab.sim.kai.solver import NobodyLoses, Outcome, solve


def cycle(session: Session) -> None:
    """Run all actions; what they decide is on the board."""
    for action in session.site.actions:
        if action in ACTIONS:
            ACTIONS[action](session)


def _waiting(session: Session) -> list[Job]:
    groups = (job for job in session.board.waiting() if job.group.queue in session.queues)
    return [job for job in groups if job.present >= job.group.min_member]


def allocate(session: Session) -> None:
    """Place groups on what is free; one that runs gets its further pods one by one."""
    again, hopeless = _waiting(session), Hopeless()
    while again:
        done = [job for job in session.in_turn(again) if _allocate(session, job, hopeless)]
        again = [job for job in done if job.pending]


def _allocate(session: Session, job: Job, hopeless: Hopeless) -> bool:
    if job in hopeless:
        return False
    tasks, mark = job.next_tasks, session.board.mark()
    if not session.is_over_capacity(job, tasks) and session.place(tasks):
        session.board.commit(mark)
        return True
    session.board.discard(mark)
    hopeless.add(job)
    return False


def consolidation(session: Session) -> None:
    """Move preemptible groups to other nodes, so that one that waits fits; nobody loses its place."""
    if not session.site.consolidation_preemptees:
        return
    hopeless = Hopeless()
    for job in session.in_turn(job for job in _waiting(session) if job.group.preemptible):
        is_possible = job not in hopeless and _is_enough(session, job)
        if is_possible and not solve(session, job, session.movable(job), NobodyLoses()):
            hopeless.add(job)


def _is_enough(session: Session, job: Job) -> bool:
    """Whether all nodes together have the GPUs free that a group needs next."""
    cache, asked = session.board.cache, job.next_requests.get(GPU, 0)
    if not asked or GPU not in cache.allocatable:
        return not asked
    coming = session.board.coming.get(GPU)
    free = int((cache.allocatable[GPU] - cache.requested[GPU]).sum())
    return asked <= free + (0 if coming is None else int(coming.sum()))


def reclaim(session: Session) -> None:
    """Take for groups within their queue's fair share from queues over theirs."""
    hopeless, least = Hopeless(), MinRuntime(session.site)
    for job in session.in_turn(_waiting(session)):
        if job in hopeless:
            continue
        asked = {n: a for n, a in job.next_requests.items() if n in RESOURCES}
        if can_reclaim(session.queues, job.group.queue, asked, preemptible=job.group.preemptible):
            others = [one for one in session.jobs if one.group.queue != job.group.queue and may_be_evicted(one)]
            others = least.candidates(others, job.group.queue, session.now)
            if not others or not solve(session, job, others, Reclaims(session, least, job)):
                hopeless.add(job)


def preempt(session: Session) -> None:
    """Take for a group from groups of its own queue with a lower priority."""
    hopeless, least = Hopeless(), MinRuntime(session.site)
    for job in session.in_turn(_waiting(session)):
        others = [] if job in hopeless else [one for one in session.lower(job) if may_be_evicted(one)]
        others = least.candidates(others, job.group.queue, session.now)
        if others and not solve(session, job, others, Preempts(session, least, job)):
            hopeless.add(job)


@dataclass(frozen=True)
class Preempts:
    """What preempt allows a group: to take all from those that have run long enough."""

    session: Session
    least: MinRuntime
    job: Job

    def may_lose(self, states: Mapping[str, QueueState], asked: Amounts, queue: str) -> bool:
        """Return that its own queue may."""
        return True

    def allows(self, outcome: Outcome) -> bool:
        """Return whether those that have not run long enough keep what they need."""
        return self.least.allows(outcome, self.job.group.queue, self.session.now)


class Reclaims(Preempts):
    """What reclaim allows a group: as preempt, from queues that may lose."""

    def may_lose(self, states: Mapping[str, QueueState], asked: Amounts, queue: str) -> bool:
        """Return whether a queue is over its share, or over its quota and that of the group is not."""
        return may_lose(states, self.job.group.queue, asked, queue)

    def allows(self, outcome: Outcome) -> bool:
        """Return whether all that lose may, and the group's queue is not better off than they are."""
        if not super().allows(outcome):
            return False
        losses = outcome.losses(moved_too=not self.session.site.consolidating_reclaim)
        rule = (self.job.group.preemptible, self.session.site.saturation_multiplier)
        return may_reclaim(outcome.states, self.job.group.queue, outcome.asked, losses, rule)


ACTIONS: dict[str, Callable[[Session], None]] = {
    "allocate": allocate,
    "consolidation": consolidation,
    "reclaim": reclaim,
    "preempt": preempt,
}
