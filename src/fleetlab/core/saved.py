"""A result that was saved as JSON and is read again: to be shown, put beside others, or drawn."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core.errors import WorkloadError
from fleetlab.core.figure import Figure
from fleetlab.core.result import Estimate, Provenance

ENDLESS = ("inf", "-inf")  # how JSON, which has no word for it, is told


@dataclass(frozen=True, slots=True)
class Saved:
    """What `as_json` said of a result."""

    provenance: Provenance
    estimates: tuple[Estimate, ...]
    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    drawn: dict[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """The few numbers to say first."""
        return list(self.estimates)

    def tables(self) -> dict[str, pl.DataFrame]:
        """The rest, by name."""
        return self.frames

    def figures(self) -> dict[str, Figure]:
        """Those it had."""
        return self.drawn

    @classmethod
    def load(cls, path: Path | str) -> Saved:
        """Read what a command printed with `--json`."""
        path = Path(path)
        try:
            return cls.of(json.loads(path.read_text("utf-8")))
        except (
            OSError,
            ValueError,
            RecursionError,
            KeyError,
            TypeError,
            AttributeError,
            pl.exceptions.PolarsError,
        ) as e:
            msg = f"not a saved result: {path}: {e}"
            raise WorkloadError(
                msg, hint="`--json` after a command prints one: fleetlab … --json > result.json"
            ) from None

    @classmethod
    def of(cls, about: dict[str, Any]) -> Saved:
        """From the object that `as_json` made."""
        tables = dict(about["tables"])
        notes = tuple(str(row["note"]) for row in tables.pop("notes", []))
        return cls(
            Provenance.from_json(about["provenance"]),
            tuple(_estimate(row) for row in about["summary"]),
            {name: _frame(rows) for name, rows in tables.items()},
            {name: Figure.from_json(one) for name, one in about.get("figures", {}).items()},
            notes,
            tuple(str(line) for line in about.get("sentences") or _said(tables.get("sentences", []))),
        )


def _said(rows: list[dict[str, Any]]) -> list[str]:
    """Sentences that were saved as a table of nothing else."""
    return [line for row in rows if len(row) == 1 for line in row.values() if isinstance(line, str)]


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A table; where all but "inf" are numbers, so is that."""
    for column in {name for row in rows for name, value in row.items() if value in ENDLESS}:
        others = [row.get(column) for row in rows]
        if all(value is None or value in ENDLESS or isinstance(value, float | int) for value in others):
            rows = [row | {column: _number(row.get(column))} for row in rows]
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _number(value: Any) -> Any:  # noqa: ANN401  whatever JSON has
    return float(str(value)) if value in ENDLESS else value


def _estimate(row: dict[str, Any]) -> Estimate:
    """JSON has no NaN: what was not a number was written as null."""
    told = (_number(row[key]) for key in ("value", "low", "high"))
    value, low, high = (float("nan") if one is None else one for one in told)
    return Estimate(str(row["metric"]), value, low, high, str(row["unit"]))
