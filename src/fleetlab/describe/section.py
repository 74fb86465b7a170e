"""A section of a profile: estimates, findings, tables, figures, and what is not in the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, say
from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.curves import Ecdf, table
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

    def say(self, metric: str, interval: Interval, unit: str = "") -> None:
        """A number to say first."""
        self.estimates.append(Estimate(metric, *interval, unit))

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
        frame = pl.concat([c.points() for c in curves])
        if self.has_published:
            points = published.points(name, [c.series for c in curves], self.trace)
            frame = pl.concat([frame, points], how="diagonal")
        if log_x:  # a logarithmic axis has no 0: a curve enters it at the height that is at or below 0
            frame = frame.filter(pl.col("x") > 0)
        label = x or f"{name.split(' by ')[0].split(',')[0]}, {unit}"
        if frame.height:
            self.figures[name] = Figure(title, "line", frame, label, y, _alt(curves, unit), log_x=log_x)


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


MISSING = {"section": pl.String, "what": pl.String, "why": pl.String}


@dataclass(frozen=True, eq=False, repr=False)
class Profile(Result):
    """A trace described; with `other`, beside another one."""

    sections: tuple[Section, ...]
    provenance: Provenance
    jobs: int
    notes: tuple[str, ...] = ()
    other: Profile | None = None

    def __repr__(self) -> str:
        named = ", ".join(s.name for s in self.sections)
        return f"<Profile {self.provenance.source}: {say(self.summary()[0])}; {named}>"

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, in words."""
        return tuple(sentence for s in self.sections for sentence in s.findings)

    def summary(self) -> list[Estimate]:
        """How many jobs there are, and the first numbers of every section."""
        return [Estimate.exact("jobs", self.jobs), *(e for s in self.sections for e in s.estimates)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """What was found in words, distances to the other trace and to what was published, tables, what is missing."""
        tables: dict[str, pl.DataFrame] = {}
        if self.other is not None:
            tables["distances"] = published.distances(self.curves, self.other.curves, self.units)
        for trace in sorted({s.trace for s in self.sections if s.has_published}):
            if (beside := published.beside(self.curves, trace)).height:
                tables["published"] = beside
        tables |= {name: frame for s in self.sections for name, frame in s.tables.items()}
        return tables | {"missing": self.missing}

    @property
    def missing(self) -> pl.DataFrame:
        """What the trace does not have, by section, and why."""
        rows = [(s.name, what, why) for s in self.sections for what, why in s.missing]
        return pl.DataFrame(rows, schema=MISSING, orient="row")

    def figures(self) -> dict[str, Figure]:
        """Every figure; with another trace, both on the same axes."""
        ours = self._own_figures()
        if self.other is None:
            return ours
        names = _distinct(self.provenance.source, self.other.provenance.source)
        return published.overlaid(ours, self.other._own_figures(), names)

    def _own_figures(self) -> dict[str, Figure]:
        return {name: figure for s in self.sections for name, figure in s.figures.items()}

    @property
    def curves(self) -> dict[str, list[Ecdf]]:
        """The distribution functions, by figure."""
        return {name: curves for s in self.sections for name, curves in s.compared.items()}

    @property
    def units(self) -> dict[str, str]:
        """What each figure is measured in."""
        return {name: unit for s in self.sections for name, unit in s.units.items()}


def _distinct(ours: str, theirs: str) -> tuple[str, str]:
    return (ours, theirs) if ours != theirs else (f"{ours} (first)", f"{theirs} (second)")
