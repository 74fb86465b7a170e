"""What the questions are answered from: every measure of a folder, put together once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetlab.bench.analysis.advice import common
from fleetlab.bench.analysis.meetings import Gathered
from fleetlab.bench.analysis.mixes import Mixes, mixed
from fleetlab.bench.analysis.noise import Spread, over_mixes, reach
from fleetlab.bench.analysis.scale import FACTOR, Crowd, crowds
from fleetlab.bench.analysis.serving import Served, served
from fleetlab.stats import Interval


@dataclass(frozen=True, slots=True)
class Findings:
    """One card's measurements, with the price of an hour of it where one was given."""

    gathered: Gathered
    mixes: Mixes
    crowds: list[Crowd]
    served: list[Served]
    price: float | None = None
    factor: float = FACTOR
    turns: dict[str, Any] | None = None  # what those who watched the card's clock saw under time slicing

    def compared(self) -> tuple[list[str], list[str]]:
        """Modes, and the pairs that all of them share: of tenants that each fill a card, where there are such."""
        x = self.mixes
        for some in (x.shared(saturating=True, tenants=2), x.shared(tenants=2), x.shared()):
            if some:
                return common(x.stp, some)
        modes = x.stp.modes()
        return modes[:1], x.stp.mixes(modes[0]) if modes else []

    def filling(self) -> str:
        """What those pairs are called."""
        x = self.mixes
        if x.shared(saturating=True, tenants=2):
            return "pair of tenants that each fill the card"
        return "pair" if x.shared(tenants=2) else "mix"

    def alike(self, mode: str) -> dict[str, tuple[Interval, Spread]]:
        """Throughput of two of the same, and its spread, for each tenant that fills the card by itself."""
        x, seen = self.mixes, set[str]()
        found = {}
        for mix in x.stp.mixes(mode):
            names = x.names[mix]
            meant = self.gathered.settings.get(names[0], names[0])
            # The same work under another name is not another tenant.
            if len(names) == 2 and len(set(names)) == 1 and self.gathered.saturating(names) and meant not in seen:
                seen.add(meant)
                found[names[0]] = x.throughput(mode, mix), x.throughput_spread(mode, mix)
        return found


def found(
    gathered: Gathered, *, price: float | None = None, factor: float = FACTOR, turns: dict[str, Any] | None = None
) -> Findings:
    """All of it."""
    x = mixed(gathered)
    return Findings(gathered, x, crowds(x, factor=factor), served(gathered), price, factor, turns)


def overhead(alike: dict[str, tuple[Interval, Spread]]) -> Interval | None:
    """What of a card is lost with two of the same, the mean over tenants; below 0 it is a gain."""
    if not alike:
        return None
    stp = over_mixes([(math.log(value.value), spread) for value, spread in alike.values()])
    return Interval(1 - stp.value, 1 - stp.high, 1 - stp.low)


def utilisation(f: Findings, mode: str) -> Interval | None:
    """The share of time that the card was at work, over mixes of tenants that each would fill it."""
    by: dict[str, list[float]] = {}
    for m in f.gathered.mixes():
        if m.mode == mode and f.gathered.saturating(m.names) and m.gpu.get("util") is not None:
            by.setdefault(m.mix, []).append(m.gpu["util"] / 100)
    means = np.asarray([np.mean(v) for v in by.values()])
    if not means.size:
        return None
    half = reach(Spread(float(means.var(ddof=1)) / means.size, means.size - 1)) if means.size > 1 else math.nan
    return Interval(float(means.mean()), float(means.mean()) - half, float(means.mean()) + half)
