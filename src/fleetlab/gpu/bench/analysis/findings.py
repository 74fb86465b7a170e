"""All measures of a folder, from which the questions are answered, beside common claims about each mode.

The claims are typical assumptions: time slicing has an overhead of 10 to 30 % and a utilization above 80 %, MPS an
overhead below 10 % at a utilization above 85 %, and MIG is predictable at 60 to 70 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.gpu.bench.analysis.measure import SuiteData
from fleetlab.gpu.bench.analysis.mixes import MixMeasures, mix_measures
from fleetlab.gpu.bench.analysis.scale import ScalingCurve, TailGoal, scaling_curves
from fleetlab.gpu.bench.analysis.serving import ServedTenant, served_tenants
from fleetlab.gpu.bench.analysis.wording import NOT_MEASURED, lost_or_gained, mode_name, mode_order, percent
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.results.cells import table
from fleetlab.stats import SHARE, Interval, Spread, mean_over_groups


@dataclass(frozen=True, slots=True)
class Findings:
    """Measurements of one GPU, and the price of a GPU hour if given."""

    gathered: SuiteData
    mixes: MixMeasures
    scaling_curves: list[ScalingCurve]
    served_tenants: list[ServedTenant]
    goal: TailGoal
    price: float | None = None
    turns: dict[str, Any] | None = None  # measured time slices

    def compared(self) -> tuple[list[str], list[str]]:
        """Modes and the pairs that all of them have in common, if possible of tenants that each saturate the GPU."""
        x = self.mixes
        for some in (x.shared(saturating=True, tenants=2), x.shared(tenants=2), x.shared()):
            if some:
                return x.stp.common(some)
        modes = x.stp.modes()
        return modes[:1], x.stp.mixes(modes[0]) if modes else []

    def filling(self) -> str:
        """What those pairs are called."""
        x = self.mixes
        if x.shared(saturating=True, tenants=2):
            return "pair of tenants that each saturate the GPU"
        return "pair" if x.shared(tenants=2) else "mix"

    def alike(self, mode: str) -> dict[str, tuple[Interval, Spread]]:
        """Throughput of two equal tenants, and its variance, for each tenant that saturates the GPU alone."""
        x, settings = self.mixes, set[str]()
        results = {}
        for mix in x.stp.mixes(mode):
            names = x.names[mix]
            meant = self.gathered.settings.get(names[0], names[0])
            # The same workload under another name is the same tenant.
            if len(names) == 2 and len(set(names)) == 1 and self.gathered.saturating(names) and meant not in settings:
                settings.add(meant)
                results[names[0]] = x.throughput(mode, mix), x.throughput_spread(mode, mix)
        return results


def collect_findings(
    gathered: SuiteData, *, price: float | None = None, goal: TailGoal, turns: dict[str, Any] | None = None
) -> Findings:
    """Compute all measures."""
    x = mix_measures(gathered)
    return Findings(gathered, x, scaling_curves(x, goal), served_tenants(gathered), goal, price, turns)


def overhead(alike: dict[str, tuple[Interval, Spread]]) -> Interval | None:
    """Overhead of two equal tenants, the mean over tenants; negative is a gain."""
    if not alike:
        return None
    stp = mean_over_groups([(math.log(value.value), spread) for value, spread in alike.values()])
    return Interval(1 - stp.value, 1 - stp.high, 1 - stp.low)


def utilization(f: Findings, mode: str) -> Interval | None:
    """GPU utilization over mixes of tenants that each saturate the GPU."""
    by: dict[str, list[float]] = {}
    for m in f.gathered.mixes():
        if m.mode == mode and f.gathered.saturating(m.names) and m.gpu.get("util") is not None:
            by.setdefault(m.mix, []).append(m.gpu["util"] / 100)
    means = np.asarray([np.mean(v) for v in by.values()])
    if not means.size:
        return None
    half = Spread(float(means.var(ddof=1)) / means.size, means.size - 1).half() if means.size > 1 else math.nan
    return Interval(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half).clipped(SHARE)


# --- common claims about each mode, compared with the measurements ---------------------------------------------------


OVERHEAD = "overhead of two equal tenants that each saturate the GPU"
UTILIZATION = "GPU utilization"


class Claim(NamedTuple):
    """A claim about a mode: a range."""

    mode: str
    what: str
    low: float
    high: float
    text: str


CLAIMS = (
    Claim("time-slicing", OVERHEAD, 0.10, 0.30, "10 to 30 %"),
    Claim("time-slicing", UTILIZATION, 0.80, 1.00, "above 80 %"),
    Claim("mps", OVERHEAD, -math.inf, 0.10, "below 10 %"),
    Claim("mps", UTILIZATION, 0.85, 1.00, "above 85 %"),
    Claim("mig", OVERHEAD, -math.inf, math.inf, "predictable"),
    Claim("mig", UTILIZATION, 0.60, 0.70, "60 to 70 %"),
)


class ClaimResult(NamedTuple):
    """A claim, its measurement, and whether it holds."""

    claim: Claim
    mode: str
    value: Interval | None
    verdict: str

    def sentence(self) -> str:
        """As a sentence."""
        c, value = self.claim, self.value
        measured = "" if value is None else f"they {lost_or_gained(value)}" if c.what == OVERHEAD else percent(value)
        outcome = f"measured: {measured}; {self.verdict}" if measured else self.verdict
        return f"{mode_name(self.mode)}, {c.what}: expected {c.text}, {outcome}"


def claim_results(f: Findings) -> Iterator[ClaimResult]:
    """Each claim, for each mode of that name."""
    measured = f.mixes.stp.modes()
    for claim in CLAIMS:
        modes = [mode for mode in measured if mode.startswith(claim.mode)] or [claim.mode]
        for mode in sorted(modes, key=mode_order):
            # Predictability of MIG is not a number: without MIG measurements there is no verdict.
            value = None if math.isinf(claim.high) else _value(f, claim, mode)
            yield ClaimResult(claim, mode, value, verdict(value, claim))


def _value(f: Findings, claim: Claim, mode: str) -> Interval | None:
    return overhead(f.alike(mode)) if claim.what == OVERHEAD else utilization(f, mode)


def verdict(value: Interval | None, claim: Claim) -> str:
    """Whether the claim holds; undecided if the interval crosses its range."""
    if value is None:
        return NOT_MEASURED
    low, high = (value.low, value.high) if math.isfinite(value.low) else (value.value, value.value)
    if claim.low <= low and min(high, 1.0) <= claim.high:
        return "holds"
    return "does not hold" if high < claim.low or low > claim.high else "undecided, the interval crosses the range"


def expected_table(f: Findings) -> pl.DataFrame:
    """One row per claim."""
    return table(
        {
            "mode": c.mode,
            "what": c.claim.what,
            "expected": c.claim.text,
            **interval_columns("came", c.value),
            "verdict": c.verdict,
        }
        for c in claim_results(f)
    )
