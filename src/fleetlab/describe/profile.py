"""The result of `describe`: sections with estimates, tables and figures, and what is not in the trace."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, say
from fleetlab.describe import comparison, published
from fleetlab.describe.ecdf import Ecdf
from fleetlab.describe.section import Section

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
            tables["distances"] = comparison.distances(self.curves, self.other.curves, self.units)
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
        ours = self._drawn()
        if self.other is None:
            return ours
        names = _apart(self.provenance.source, self.other.provenance.source)
        return comparison.overlaid(ours, self.other._drawn(), names)

    def _drawn(self) -> dict[str, Figure]:
        return {name: figure for s in self.sections for name, figure in s.figures.items()}

    @property
    def curves(self) -> dict[str, list[Ecdf]]:
        """The distribution functions, by figure."""
        return {name: curves for s in self.sections for name, curves in s.compared.items()}

    @property
    def units(self) -> dict[str, str]:
        """What each figure is measured in."""
        return {name: unit for s in self.sections for name, unit in s.units.items()}


def _apart(ours: str, theirs: str) -> tuple[str, str]:
    return (ours, theirs) if ours != theirs else (f"{ours} (first)", f"{theirs} (second)")
