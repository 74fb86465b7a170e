"""What a mix would have on MIG instances, predicted beside the measured modes; never chosen over one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleetlab.bench.advise.mig_layout import MigAssignment, has_profiles, profiles_of
from fleetlab.bench.advise.mix import AskedMix, mix_modes
from fleetlab.bench.advise.settings import mig_layout
from fleetlab.bench.analysis.choice import ModeChoice
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.wording import number
from fleetlab.sharing.modes import MIG
from fleetlab.stats import Interval

PREDICTED = "predicted"
LIMITS = "limits of a predicted value are those of its model (P90 of its errors on published tables), not a 95 % CI"
# Latency on an instance depends on how requests queue for fewer SMs, of which no measurement on instances is at hand.
TAILS = {"p99": "tail latency", "answer": "the time to answer"}
MEASURE = "`fleetlab bench suite PLAN --allow-mig` measures it, with `mig:LAYOUT` among the modes of the plan"
OF_SPEEDS: dict[str, Callable[[list[float]], float]] = {
    "throughput": math.fsum,
    "worst": min,
    "cost": lambda speeds: 1 / math.fsum(speeds),
}


@dataclass(frozen=True, slots=True)
class MigPrediction:
    """The value of a goal on the best layout of instances, or why there is none."""

    layout: str = ""
    value: Interval | None = None
    each: str = ""  # the profile of each tenant
    why: str = ""

    def row(self) -> dict[str, Any]:
        """As a row of the choice."""
        nothing = interval_columns("margin", None)
        value = interval_columns("value", self.value)
        return {"mode": f"{MIG}{self.layout}", **value, **nothing, "verdict": PREDICTED, "more_blocks": None}

    def sentence(self, choice: ModeChoice, unit: str) -> str:
        """The value in words, and whether it would be ahead."""
        if self.value is None:
            return f"MIG was not measured, and {self.why}."
        best = choice.values[choice.best].value
        ahead = self.value.high < best if choice.less else self.value.low > best
        more = (
            "; if that holds it is ahead of all measured modes: `fleetlab bench mig plan` measures it" if ahead else ""
        )
        return f"MIG, predicted and not measured: {number(self.value)} {unit}, with {self.each}{more}."


def predict_mig(f: Findings, asked: AskedMix, goal: str) -> MigPrediction | None:
    """Predict a goal on instances; None if some were measured, or the GPU is not known to have them."""
    if not has_profiles(f.gathered.gpu_name) or any(mode.startswith(MIG) for mode in mix_modes(f, asked)):
        return None
    if goal not in OF_SPEEDS:
        what = TAILS.get(goal, goal)
        return MigPrediction(why=f"{what} on its instances is not predicted; {MEASURE}")
    if len(asked.mixes) > 1:
        return MigPrediction(why="a layout is that of one mix")
    found = mig_layout(f, asked.names, total=goal != "worst")
    if isinstance(found, str):
        return MigPrediction(why=found)
    value = goal_value(found, goal)
    if value is None:
        return MigPrediction(why="its speeds are not predicted: not every tenant was measured alone on fewer SMs")
    return MigPrediction(found.layout, value, profiles_of(found, asked.names))


def goal_value(found: MigAssignment, goal: str) -> Interval | None:
    """The value of a goal from the speeds of all tenants; their limits are taken to be reached together."""
    speeds = [speed for speed in found.speeds if speed is not None]
    if len(speeds) < len(found.speeds):
        return None
    ends = [OF_SPEEDS[goal]([speed[k] for speed in speeds]) for k in range(3)]
    return Interval(ends[0], min(ends[1:]), max(ends[1:]))
