"""A section of a profile: estimates, findings, tables, figures, and what is not in the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from fleetlab.core import Estimate, Figure
from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.ecdf import Ecdf, table
from fleetlab.stats import Interval

MOST_SAID = 4  # medians in a figure's text


@dataclass(eq=False)
class Section:
    """What one section found; `compared` has the curves of each figure, `units` what they are measured in."""

    name: str
    trace: str = ""  # the public trace that it is, or is made to be like: what was published of it stands beside
    estimates: list[Estimate] = field(default_factory=list)
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    compared: dict[str, list[Ecdf]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def like_pai(self) -> bool:
        """Is it the PAI trace, or made to be like it?"""
        return self.trace == published.PAI

    @property
    def has_published(self) -> bool:
        """Was anything published of this trace?"""
        return self.trace in published.traces()

    def published(self, name: str) -> Mapping[str, float]:
        """Published numbers by name; none where they are of another trace."""
        return published.numbers(name, self.trace)

    def say(self, metric: str, told: Interval, unit: str = "") -> None:
        """A number to say first."""
        self.estimates.append(Estimate(metric, *told, unit))

    def absent(self, what: str, why: str) -> None:
        """Name what the trace does not have."""
        self.missing.append((what, why))

    def distributions(
        self,
        name: str,
        curves: Sequence[Ecdf],
        *,
        title: str,
        unit: str,
        of: str = "of",
        x: str | None = None,
        y: str = "share of jobs, %",
        log_x: bool = True,
        tabled: bool = True,
    ) -> None:
        """Draw distribution functions, put their quantiles into a table, keep them to be compared."""
        if not curves:
            return
        if tabled:
            self.tables[name] = table(curves, of)
        self.compared[name], self.units[name] = list(curves), unit
        frame = pl.concat([_positive(c.points()) if log_x else c.points() for c in curves])
        if self.has_published:
            points = published.points(name, [c.series for c in curves], self.trace)
            frame = pl.concat([frame, points.filter(pl.col("x") > 0) if log_x else points], how="diagonal")
        label = x or f"{name.split(' by ')[0].split(',')[0]}, {unit}"
        if frame.height:
            self.figures[name] = Figure(title, "line", frame, label, y, _alt(curves, unit), log_x=log_x)


def _positive(points: pl.DataFrame) -> pl.DataFrame:
    # A logarithmic axis has no 0: the curve enters it at the height that is at or below 0.
    return points.filter(pl.col("x") > 0)


def _amount(value: float, unit: str) -> str:
    """Return a number with its unit; one of a unit in the plural is in the singular.

    >>> _amount(1.0, "CPUs"), _amount(2.0, "CPUs"), _amount(1.0, "ms"), _amount(1.0, "")
    ('1 CPU', '2 CPUs', '1 ms', '1')
    """
    one = unit if unit in ("s", "ms") else unit.removesuffix("s")
    return f"{number(value)} {one if value == 1 else unit}".rstrip()


def _alt(curves: Sequence[Ecdf], unit: str) -> str:
    medians = [f"{c.series} {_amount(c.quantiles[50][0], unit)}" for c in curves[:MOST_SAID]]
    rest = f" and {len(curves) - MOST_SAID} more" if len(curves) > MOST_SAID else ""
    return "distribution functions; medians: " + ", ".join(medians) + rest
