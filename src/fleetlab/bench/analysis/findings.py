"""All measures of a folder, from which the questions are answered."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetlab.bench.analysis.mixes import MixMeasures, mix_measures
from fleetlab.bench.analysis.noise import Spread, half_width, mean_over_mixes
from fleetlab.bench.analysis.scale import ScalingCurve, TailGoal, scaling_curves
from fleetlab.bench.analysis.serving import ServedTenant, served_tenants
from fleetlab.bench.analysis.suite_data import SuiteData
from fleetlab.stats import SHARE, Interval


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
        x, seen = self.mixes, set[str]()
        results = {}
        for mix in x.stp.mixes(mode):
            names = x.names[mix]
            meant = self.gathered.settings.get(names[0], names[0])
            # The same workload under another name is the same tenant.
            if len(names) == 2 and len(set(names)) == 1 and self.gathered.saturating(names) and meant not in seen:
                seen.add(meant)
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
    stp = mean_over_mixes([(math.log(value.value), spread) for value, spread in alike.values()])
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
    half = half_width(Spread(float(means.var(ddof=1)) / means.size, means.size - 1)) if means.size > 1 else math.nan
    return Interval(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half).clipped(SHARE)
