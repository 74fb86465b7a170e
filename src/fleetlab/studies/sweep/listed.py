"""What a run store has: listed, filtered, compared, exported."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Figure, FleetlabError, Provenance, Result, WorkloadError
from fleetlab.studies.sweep import _catalogue
from fleetlab.studies.sweep._cases import AXES, RULES
from fleetlab.studies.sweep._found import (
    Pair,
    Words,
    case_table,
    difference_figures,
    difference_table,
    load_figures,
)
from fleetlab.studies.sweep._store import Record, Store
from fleetlab.studies.sweep.study import METRICS

# Cells of another trace, draw or fleetlab, or with other files of the same name, are never taken together.
APART = ("source", "draw", "files", "version", "code")
KNOWN = (*AXES, *APART, "seed", "engine")
WRONG = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class Runs(Result):
    """Cells of a store, as a table each."""

    provenance: Provenance
    cells: pl.DataFrame
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Runs {self.provenance.source}: {self.cells.height:,} cells>"

    def summary(self) -> list[Estimate]:
        """How many cells there are, and how long they took."""
        failed = int(self.cells["failed"].is_not_null().sum())
        took = float(self.cells["took"].sum())
        return [
            Estimate.exact("cells", self.cells.height),
            Estimate.exact("cells failed", failed),
            Estimate.exact("played for", took / 3600, "h"),
        ]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Differences where they were asked for, the mean of every case, and every cell."""
        return {**self.frames, "cells": self.cells}

    def export(self, path: Path | str) -> Path:
        """Write every cell as CSV or Parquet, by the name's end; all of it or nothing."""
        path = Path(path)
        if path.suffix not in (".csv", ".parquet"):
            msg = f"cells are exported as .csv or .parquet, not: {path.name}"
            raise WorkloadError(msg, hint="--out cells.csv, or --out cells.parquet")
        buffer = io.BytesIO()
        (self.cells.write_csv if path.suffix == ".csv" else self.cells.write_parquet)(buffer)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            beside.write_bytes(buffer.getbuffer())
            os.replace(beside, path)  # noqa: PTH105
        except OSError as e:
            beside.unlink(missing_ok=True)
            msg = f"cannot write: {path}: {e.strerror or e}"
            raise FleetlabError(msg, hint="look at the folder, its permissions and free space") from None
        return path


def runs(
    store: Path | str,
    *,
    where: Mapping[str, str] | None = None,
    against: Mapping[str, str] | None = None,
    metrics: Sequence[str] = METRICS,
) -> Runs:
    """List the cells of a store that have some words, and hold the others against those that have certain words.

    `where` keeps the cells that have all its words; `against` names the words of the case that others are compared
    with, all else being the same.
    """
    asked, base = dict(where or {}), dict(against or {})
    for told, what, known in ((asked, "cell", KNOWN), (base, "case", (*AXES, *APART))):
        if unknown := [word for word in told if word not in known]:
            msg = f"a {what} has no word: `{unknown[0]}`"
            raise WorkloadError(msg, hint=f"there are {', '.join(known)}")
    records = _catalogue.search(Store.at(store), {w: _plain(v) for w, v in asked.items()})
    found, units = _grouped(records)
    _metrics_are(metrics, units)
    pairs = _pairs(found, base)
    if base and found and not pairs:
        msg = f"no two cases differ in these words alone: {base}"
        raise WorkloadError(msg, hint="`fleetlab runs STORE` lists the cases that there are")
    frames = {}
    if pairs:
        frames["differences"] = difference_table(
            found, pairs, metrics, units, lambda p: sorted(set(found[p.case]) & set(found[p.base])), lambda _: WRONG
        )
    if found:
        frames["cases"] = case_table(found, metrics, units, lambda c: sorted(found[c]), lambda _: WRONG)
    drawn = load_figures(frames["cases"], metrics) if found else {}
    if pairs:
        drawn |= difference_figures(frames["differences"], metrics)
    settings = {"where": asked, "against": base, "metrics": list(metrics)}
    notes = [f"the {len(pairs) * len(metrics):,} intervals of differences hold all at once with 95 % (Bonferroni)"]
    notes.append("as if the number of seeds had been fixed before: `fleetlab sweep` knows when it was not")
    said = tuple(notes) if pairs else ()
    return Runs(Provenance("runs", str(store), settings), _cells(records), frames, drawn, said)


def _plain(value: str) -> str:
    return {"true": "1", "false": "0", "yes": "1", "no": "0"}.get(value.lower(), value)


def _grouped(records: Sequence[Record]) -> tuple[dict[Words, dict[int, dict[str, Any]]], dict[str, str]]:
    """Metrics by case and seed, and units."""
    found: dict[Words, dict[int, dict[str, Any]]] = {}
    units: dict[str, str] = {}
    for record in records:
        words = _catalogue.words(record)
        case = tuple((word, words[word]) for word in (*AXES, *APART))
        found.setdefault(case, {})[record["cell"]["seed"]] = record.get("metrics") or {}
        units |= record.get("units", {})
    return dict(sorted(found.items(), key=lambda pair: [_rank(value) for _, value in pair[0]])), units


def _rank(value: object) -> tuple[bool, float, str]:
    """Numbers by their size, before names."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)  # type: ignore[arg-type]


def _metrics_are(metrics: Sequence[str], units: Mapping[str, str]) -> None:
    if units and (unknown := [metric for metric in metrics if metric not in units]):
        msg = f"no metric by that name: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(sorted(units))}")


def _pairs(found: Mapping[Words, Any], base: Mapping[str, str]) -> list[Pair]:
    """Each case with the one that has the words of `base` and is otherwise the same."""
    if not base:
        return []

    def others(case: Words) -> Words:
        return tuple((w, _files(v, base) if w == "files" else v) for w, v in case if w not in base)

    bases = {others(case): case for case in found if all(_is(dict(case)[w], v) for w, v in base.items())}
    return [Pair(case, bases[o]) for case in found if (o := others(case)) in bases and bases[o] != case]


def _files(told: str, base: Mapping[str, str]) -> str:
    """Files of the words that must be the same; a policy of one's own has a file, and `fifo` has none."""
    return " ".join(one for one in told.split() if one.partition("=")[0] not in base)


def _is(value: object, told: str) -> bool:
    """Is this what was written? A load of 1 is one of 1.0 too."""
    if isinstance(value, bool) or value is None:
        return str(value).lower() == told.lower()
    if isinstance(value, int | float):
        try:
            return float(told) == value
        except ValueError:
            return False
    return str(value) == told


def _cells(records: Sequence[Record]) -> pl.DataFrame:
    """Every cell in a row: its words, how it went, and all metrics."""
    rows = []
    for record in records:
        words = _catalogue.words(record)
        rules = {word: None if words[word] is None else str(words[word]) for word in RULES}
        rows.append(
            {
                "key": record["key"], "trace": words["trace"], "load": words["load"], "nodes": words["nodes"],
                **rules, "seed": words["seed"], "draw": words["draw"], "source": words["source"],
                "files": words["files"], "version": words["version"], "code": words["code"], "engine": words["engine"],
                "took": record["made"]["seconds"].get("all"), "failed": record.get("failed"),
                "schedule": record.get("schedule"), **(record.get("metrics") or {}),
            }
        )  # fmt: skip
    schema = dict.fromkeys(("failed", "schedule", *RULES), pl.String) | {"took": pl.Float64}
    if not rows:
        return pl.DataFrame(schema={"key": pl.String, **schema})
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {name: schema[name] for name in names if name in schema}
    return pl.DataFrame(
        [{n: row.get(n) for n in names} for row in rows], schema_overrides=kinds, infer_schema_length=None
    )
