"""Simulate Volcano in time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetlab.core.catalog.reasons import ABOVE_GANG_QUEUE, CLOSED_GANG_QUEUE
from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.loop import Loop, Timing
from fleetlab.schedulers.gangs.pod_groups import Amounts, PodGroup
from fleetlab.schedulers.gangs.tasks import Job
from fleetlab.schedulers.kubernetes.config import SchedulingNode
from fleetlab.schedulers.volcano.actions import cycle
from fleetlab.schedulers.volcano.config import Volcano
from fleetlab.schedulers.volcano.orders import duration
from fleetlab.schedulers.volcano.queues import queue_states
from fleetlab.schedulers.volcano.session import Session


def loop_of(nodes: Sequence[SchedulingNode], site: Volcano, seed: int, timing: Timing | None = None) -> Loop:
    """A simulation that has not begun; it decides every second, as --schedule-period has it by default."""
    draw = np.random.default_rng(seed)

    def decide(board: Board, now: float) -> None:
        cycle(Session(site, board, now, draw))

    def wake(board: Board, now: float) -> float:
        """When the next group has waited as long as sla lets it."""
        due = [_due(site, job) for job in board.jobs if not job.admitted]
        return min((at for at in due if at > now), default=math.inf)

    return Loop(nodes, timing or Timing(), decide, wake if site.plugin("sla") else None)


class StaticRefusals:
    """Why a group can never start under an empty cluster's limits."""

    def __init__(self, site: Volcano, total: Amounts) -> None:
        self._states = queue_states(site, {}, total)
        self._is_bound = any(site.plugin(name) for name in ("proportion", "capacity"))

    def reason(self, group: PodGroup) -> str:
        """The reason; empty: it can."""
        state = self._states[group.queue]
        if not self._is_bound:
            return ""
        if not state.queue.is_open:
            return CLOSED_GANG_QUEUE
        least = group.min_resources or {}
        above = [self._states[name] for name in (*state.ancestors, state.name)]
        return "" if all(one.allows(least, one.limit) for one in above) else ABOVE_GANG_QUEUE


def _due(volcano: Volcano, job: Job) -> float:
    wait = job.group.waiting_time
    if wait is None and (plugin := volcano.plugin("sla")) is not None:
        wait = duration(plugin.arguments.get("sla-waiting-time"))
    return math.inf if wait is None else job.group.created + wait
