"""Simulate KAI in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fleetlab.core.kai import Kai
from fleetlab.core.kubernetes import SchedulingNode
from fleetlab.core.pod_groups import PodGroup
from fleetlab.sim.gangs.board import Board
from fleetlab.sim.gangs.loop import Loop, Placed, Timing
from fleetlab.sim.gangs.tasks import HERE
from fleetlab.sim.kai.actions import cycle
from fleetlab.sim.kai.session import Session
from fleetlab.sim.kai.usage import Usage

RECHECK = 60.0  # seconds after which usage is looked at again, as its metrics are sampled


@dataclass(frozen=True)
class Site:
    """A cluster and its KAI; it decides every second, as --schedule-period has it by default."""

    nodes: Sequence[SchedulingNode]
    kai: Kai
    timing: Timing = field(default_factory=Timing)


def play(site: Site, groups: Sequence[PodGroup], submit: Sequence[float], run: Sequence[float], seed: int) -> Placed:
    """Simulate pod groups with given submission and run times."""
    return loop_of(site, seed).play(groups, submit, run)


def loop_of(site: Site, seed: int) -> Loop:
    """A simulation that has not begun."""
    draw = np.random.default_rng(seed)
    usage: list[Usage] = []

    def decide(board: Board, now: float) -> None:
        if not usage:
            usage.append(Usage(site.kai, board.total))
        usage[0].note(now, board.jobs)
        past = usage[0].at(now) if site.kai.k_value else {}
        cycle(Session(site.kai, board, past, draw))

    def wake(board: Board, now: float) -> float:
        """Shares change with usage, as long as some run and others wait."""
        waits = any(job.pending for job in board.jobs)
        runs = any(job.those(*HERE) for job in board.jobs)
        return now + RECHECK if waits and runs else math.inf

    return Loop(site.nodes, site.timing, decide, wake if site.kai.k_value else None)
