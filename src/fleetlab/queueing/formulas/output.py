"""The output of a formula, and the metrics that formulas share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from fleetlab.core import Estimate, WorkloadError

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class FormulaOutput:
    """Numbers to say first, tables, and what a reader must know."""

    summary: Sequence[Estimate]
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def stable(rho: float) -> tuple[str, ...]:
    """The note that a queue without end deserves."""
    return () if rho < 1 else (f"{no_steady_state(rho)}: the queue grows without bound",)


def no_steady_state(rho: float) -> str:
    """Say that a load cannot be served.

    >>> no_steady_state(1.1234)
    'unstable: load 1.12 ≥ 1, no steady state'
    """
    return f"unstable: load {rho:.3g} ≥ 1, no steady state"


def waits(*, rho: float, wait: float, mean: float, lam: float) -> list[Estimate]:
    """Load, mean wait, mean response and, by Little's law, how many wait."""
    return [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate.exact("mean wait", wait, "s"),
        Estimate.exact("mean response", wait + mean, "s"),
        Estimate.exact("mean number waiting", lam * wait),
    ]


def quantiles(chance: float, wait: float) -> list[Estimate]:
    """Of a wait that is 0, or else exponential: its mean and the chance that there is one say it all."""
    return [Estimate.exact(f"P{100 * q:.0f} wait", quantile(q, chance, wait), "s") for q in QUANTILES]


def quantile(q: float, chance: float, wait: float) -> float:
    """The time that a share q waits no longer than, where a wait is exponential if there is one at all."""
    if chance <= 1 - q:
        return 0.0
    return wait / chance * math.log(chance / (1 - q))


def classes(**columns: Sequence[float]) -> dict[str, pl.DataFrame]:
    """One row a class, counted from 1 as the theory does."""
    length = len(next(iter(columns.values())))
    return {"classes": pl.DataFrame({"class": range(1, length + 1), **columns})}


def alike(**lists: Sequence[object]) -> int:
    """How many classes there are; every list must say the same."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) != 1:
        lengths_text = ", ".join(f"{name} {n}" for name, n in lengths.items())
        msg = f"different numbers of classes: {lengths_text}"
        raise WorkloadError(msg, hint="give one value per class, comma-separated: --lam 0.2,0.5")
    return next(iter(lengths.values()))
