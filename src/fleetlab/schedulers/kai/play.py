"""Simulate KAI in time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetlab.core.catalog.reasons import ABOVE_GANG_QUEUE, OVER_GANG_QUOTA
from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.loop import Loop, Timing
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.kai.actions import MinRuntime, cycle
from fleetlab.schedulers.kai.config import Kai
from fleetlab.schedulers.kai.session import Session, is_over
from fleetlab.schedulers.kai.shares import RESOURCES, Usage, line, parts_of, queue_states
from fleetlab.schedulers.kubernetes.config import SchedulingNode

RECHECK = 60.0  # seconds after which usage is looked at again, as its metrics are sampled


class StaticRefusals:
    """Why a group can never start under an empty cluster's limits and quotas."""

    def __init__(self, site: Kai) -> None:
        self._states = queue_states(site, {}, {}, {})

    def reason(self, group: PodGroup) -> str:
        """The reason; empty: it can."""
        request = {name: amount for name, amount in (group.min_resources or {}).items() if amount and name in RESOURCES}
        above = line(self._states, group.queue)
        if any(is_over(state, request, fixed=False) for state in above):
            return ABOVE_GANG_QUEUE
        is_fixed = not group.preemptible
        return OVER_GANG_QUOTA if is_fixed and any(is_over(state, request, fixed=True) for state in above) else ""


def loop_of(nodes: Sequence[SchedulingNode], site: Kai, seed: int, timing: Timing | None = None) -> Loop:
    """A simulation that has not begun; it decides every second, as --schedule-period has it by default."""
    draw = np.random.default_rng(seed)
    usage = Usage(site, Board(nodes, ()).total)

    def note(board: Board, now: float) -> None:
        usage.note(now, {queue: allocated for queue, (allocated, *_) in board.sums(parts_of).items()})

    def decide(board: Board, now: float) -> None:
        past: dict[str, dict[str, float]] = {}
        if site.k_value:
            note(board, now)
            past = usage.at(now)
        cycle(Session(site, board, past, draw, now))

    def wake(board: Board, now: float) -> float:
        """While some run and others wait: shares change with usage, and groups have run for their least time."""
        if site.k_value:
            note(board, now)
        running = [job for job in board.jobs if job.ready] if board.waiting() else []
        due = [job.started + least for job in running for least in longest if job.started + least > now]
        return min([*due, *([now + RECHECK] if running and site.k_value else [])], default=math.inf)

    longest = MinRuntime(site).longest
    return Loop(nodes, timing or Timing(), decide, wake if site.k_value or longest else None)
