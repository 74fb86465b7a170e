"""What people expect of each mode, beside what came.

The expectations are those that a plan of such experiments usually starts with: time slicing costs 10 to 30 % and keeps
the card above 80 % busy, MPS costs less than 10 % at above 85 %, and MIG is predictable at 60 to 70 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from fleetlab.bench.analysis.findings import Findings, overhead, utilisation
from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.mixes import spread_out
from fleetlab.bench.analysis.noise import rank
from fleetlab.bench.analysis.words import NOT_MEASURED, percent
from fleetlab.bench.results.cells import frame
from fleetlab.stats import Interval

LOST = "overhead, two alike that each fill the card"
BUSY = "the card at work"


class Expected(NamedTuple):
    """A claim about a mode: a share between two limits."""

    mode: str
    what: str
    low: float
    high: float
    said: str


CLAIMS = (
    Expected("time-slicing", LOST, 0.10, 0.30, "10 to 30 %"),
    Expected("time-slicing", BUSY, 0.80, 1.00, "above 80 %"),
    Expected("mps", LOST, -math.inf, 0.10, "below 10 %"),
    Expected("mps", BUSY, 0.85, 1.00, "above 85 %"),
    Expected("mig", LOST, -math.inf, math.inf, "predictable"),
    Expected("mig", BUSY, 0.60, 0.70, "60 to 70 %"),
)


class Came(NamedTuple):
    """A claim, what was measured of it, and whether it held."""

    claim: Expected
    mode: str
    value: Interval | None
    verdict: str

    def said(self) -> str:
        """As a sentence."""
        c, value = self.claim, self.value
        gain = value is not None and c.what == LOST and value.value < 0
        shown = Interval(-value.value, -value.high, -value.low) if value and gain else value
        came = f"came {'a gain of ' if gain else ''}{percent(shown)}: {self.verdict}" if shown else self.verdict
        return f"{spoken(self.mode)}, {c.what}: expected {c.said}, {came}"


def came(f: Findings) -> Iterator[Came]:
    """Each claim, in each mode of that name."""
    measured = f.mixes.stp.modes()
    for claim in CLAIMS:
        modes = [mode for mode in measured if mode.startswith(claim.mode)] or [claim.mode]
        for mode in sorted(modes, key=rank):
            # Whether MIG is predictable is no number of ours: without a card that was cut, nothing is said of it.
            value = None if math.isinf(claim.high) else _value(f, claim, mode)
            yield Came(claim, mode, value, verdict(value, claim))


def _value(f: Findings, claim: Expected, mode: str) -> Interval | None:
    return overhead(f.alike(mode)) if claim.what == LOST else utilisation(f, mode)


def verdict(value: Interval | None, claim: Expected) -> str:
    """Held, did not hold, or its limits reach to both sides."""
    if value is None:
        return NOT_MEASURED
    low, high = (value.low, value.high) if math.isfinite(value.low) else (value.value, value.value)
    if claim.low <= low and min(high, 1.0) <= claim.high:
        return "held"
    return "did not hold" if high < claim.low or low > claim.high else "cannot be told: its limits reach to both sides"


def expected_table(f: Findings) -> pl.DataFrame:
    """One row a claim."""
    return frame(
        {
            "mode": c.mode,
            "what": c.claim.what,
            "expected": c.claim.said,
            **spread_out("came", c.value),
            "verdict": c.verdict,
        }
        for c in came(f)
    )
