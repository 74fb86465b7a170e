"""Common claims about each mode, compared with the measurements.

The claims are typical assumptions: time slicing has an overhead of 10 to 30 % and a utilization above 80 %, MPS an
overhead below 10 % at a utilization above 85 %, and MIG is predictable at 60 to 70 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from fleetlab.bench.analysis.findings import Findings, overhead, utilization
from fleetlab.bench.analysis.mixes import interval_columns
from fleetlab.bench.analysis.modes import mode_name, mode_order
from fleetlab.bench.analysis.wording import NOT_MEASURED, lost_or_gained, percent
from fleetlab.bench.results.cells import table
from fleetlab.stats import Interval

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
