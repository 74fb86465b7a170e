"""The result of a reproduction: every published number beside ours, the rules, the figures, and where the data are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, Result, WorkloadError
from fleetlab.core.result import FieldsResult
from fleetlab.reproduce.item import (
    DIFFERENT,
    FITTED,
    HOW,
    NOT_POSSIBLE,
    REPRODUCED,
    UNDECIDED,
    UNEXPLAINED,
    VERDICTS,
    Item,
    SourceTable,
    rules_table,
)


def folder_of(data: Path | str | None, names: tuple[str, ...], file: str) -> Path | None:
    """Return the folder with this file: `data` itself, or the first of these names in it; None if there is none."""
    if data is None:
        return None
    root = Path(data)
    if not root.is_dir():
        raise WorkloadError(f"no folder of data: {root}", hint="a folder of public traces, or of the files of one")
    return next((place for place in (*(root / name for name in names), root) if any(place.glob(file))), None)


def needed(data: Path | str | None, names: tuple[str, ...], file: str, trace: str) -> Path:
    """Return the folder with this file, or say how to get it."""
    place = folder_of(data, names, file)
    if place is None:
        msg = f"{file} is needed: " + ("no folder of data was given" if data is None else f"not in {data}")
        raise WorkloadError(msg, hint=f"`fleetlab fetch {trace} --into {trace}`, then `--data {trace}`")
    return place


PART = 150  # rows of a table on a page
SCHEMA = dict.fromkeys(
    ("item", "what", "published", "ours", "on", "verdict", "why", "rule", "source"), pl.String()
)  # fmt: skip


@dataclass(frozen=True)
class Material:
    """What a study puts beside its published items: tables, figures, notes, and what they are of."""

    items: Sequence[Item]
    tables: Mapping[str, SourceTable]
    source: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Reproduction(Result):
    """Published numbers beside ours."""

    title: str
    frame: pl.DataFrame
    provenance: Provenance
    charts: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, title: str, material: Material, provenance: Provenance) -> Reproduction:
        """Compare every item."""
        rows = [one.compare(material.tables) for one in material.items]
        return cls(title, pl.DataFrame(rows, schema=SCHEMA), provenance, material.figures, material.notes)

    @property
    def count(self) -> Counter[str]:
        """How many rows there are of each verdict."""
        return Counter(self.frame["verdict"].to_list())

    @property
    def passed(self) -> bool:
        """Whether no difference is unexplained; what is not decided is no difference."""
        return not self.count[UNEXPLAINED]

    @property
    def findings(self) -> tuple[str, ...]:
        """What came out, in two or three sentences."""
        count = self.count
        parts = ", ".join(f"{count[v]:,} {v}" for v in VERDICTS if count[v] or v == NOT_POSSIBLE)
        sentences = [f"{self.title}: {self.frame.height:,} published numbers and curves: {parts}."]
        if count[FITTED]:
            sentences.append(
                f"Fitted: the built-in trace is made from these {count[FITTED]:,}; that it has them says nothing of "
                "the paper. With the published tables (--data DIR) they are compared with the log itself."
            )
        if count[UNDECIDED]:
            quick = self.provenance.settings.get("quick")
            sentences.append(f"{HOW} {'Run without --quick.' if quick else 'More random runs would narrow it.'}")
        return tuple(sentences)

    def summary(self) -> list[Estimate]:
        """Return how many rows there are of each verdict."""
        return [Estimate.exact(verdict, self.count[verdict]) for verdict in VERDICTS]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return every published number, and the rules."""
        return {
            "published numbers": self.frame,
            "rules": rules_table().filter(pl.col("rule").is_in(self.frame["rule"].unique().to_list())),
        }


def paged(result: Reproduction) -> FieldsResult:
    """Return the same for a page, whose tables are short: by verdict, what differs first, in parts."""
    parts: dict[str, pl.DataFrame] = {}
    for verdict in (UNEXPLAINED, DIFFERENT, UNDECIDED, NOT_POSSIBLE, REPRODUCED, FITTED):
        rows = result.frame.filter(pl.col("verdict") == verdict).drop("verdict")
        for first in range(0, rows.height, PART):
            part = rows.slice(first, PART)
            name = verdict if rows.height <= PART else f"{verdict}, {first + 1} to {first + part.height}"
            parts[name] = part
    parts["rules"] = result.tables()["rules"]
    return FieldsResult(result.provenance, result.findings, result.summary(), parts, result.charts, result.notes)
