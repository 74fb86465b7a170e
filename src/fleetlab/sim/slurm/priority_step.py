"""When priorities are computed: at submission, and every PriorityCalcPeriod."""

from __future__ import annotations

from typing import NamedTuple

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats
from fleetlab.sim.slurm.state import Slurm


class Priorities(NamedTuple):
    """What priorities are computed from."""

    period: float  # 0: by submission alone
    next: Floats  # [1]


@inner
def set_priority(s: Slurm, priorities: Priorities, t: int) -> None:
    """Give a job that is submitted its priority."""
    s.jobs[t].priority = -float(s.jobs[t].number)


@inner
def recompute(s: Slurm, priorities: Priorities) -> None:
    """Compute all priorities anew."""
    priorities.next[0] += priorities.period
