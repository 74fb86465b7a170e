"""List, filter, compare and export the cells of a run store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Figure, FleetlabError, Provenance, Result, WorkloadError
from fleetlab.core.files import atomic_write, csv_text
from fleetlab.core.names import lookup
from fleetlab.stats import CONFIDENCE
from fleetlab.studies.sweep.plan import CaseWords
from fleetlab.studies.sweep.store import Record, RunStore, search, words_of
from fleetlab.studies.sweep.study import AXES, METRICS
from fleetlab.studies.sweep.tables import Pair, comparison

# Cells of another trace, resampling or version, or with other files of the same name, are never averaged together.
APART = ("source", "resample", "files", "version", "code")
KNOWN = (*AXES, *APART, "seed", "engine")


@dataclass(frozen=True, slots=True, repr=False)
class Runs(Result):
    """Cells of a store, one row each, and their means and differences."""

    provenance: Provenance
    cells: pl.DataFrame
    findings: tuple[str, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Runs {self.provenance.source}: {self.cells.height:,} cells>"

    def summary(self) -> list[Estimate]:
        """Return how many cells there are, and how long they took."""
        failed = int(self.cells["failed"].is_not_null().sum())
        seconds = float(self.cells["seconds"].sum())
        return [
            Estimate.exact("cells", self.cells.height),
            Estimate.exact("cells failed", failed),
            Estimate.exact("time in cells", seconds / 3600, "h"),
        ]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return differences from the baseline if there is one, the mean of every scenario, and every cell."""
        return {**self.frames, "cells": self.cells}

    def export(self, path: Path | str) -> Path:
        """Write every cell into a file, whole or not at all.

        Parameters
        ----------
        path
            The file, .csv or .parquet.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        WorkloadError
            If it ends in something else.
        FleetlabError
            If it cannot be written.

        Examples
        --------
        >>> import fleetlab
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     _ = fleetlab.sweep("builtin:200", seeds=1, workers=1, store=f"{folder}/store")
        ...     fleetlab.runs(f"{folder}/store").export(f"{folder}/cells.csv").name
        'cells.csv'
        """
        path = Path(path)
        if path.suffix not in (".csv", ".parquet"):
            msg = f"cells are exported as .csv or .parquet, not: {path.name}"
            raise WorkloadError(msg, hint="--out cells.csv, or --out cells.parquet")
        try:
            atomic_write(path, csv_text(self.cells) if path.suffix == ".csv" else self.cells.write_parquet)
        except OSError as e:
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
    """List the cells of a run store, and compare scenarios with a baseline.

    Parameters
    ----------
    store
        The folder of finished cells, as `sweep` makes it.
    where
        Words and their values: only cells that have all of them are listed.
    against
        Words and their values: each scenario is compared with the one that has them and is otherwise the same.
    metrics
        The metrics to list and to compare.

    Returns
    -------
    Runs
        One row per cell, means by scenario, and differences from the baseline.

    Raises
    ------
    FleetlabError
        If there is no run store.

    Examples
    --------
    >>> import fleetlab
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = fleetlab.sweep("builtin:200", seeds=1, workers=1, store=folder)
    ...     fleetlab.runs(folder).summary()[0]
    Estimate(metric='cells', value=1, low=1, high=1, unit='')
    """
    filters, base = dict(where or {}), dict(against or {})
    for words, choices in ((filters, KNOWN), (base, (*AXES, *APART))):
        for word in words:
            lookup("word", word, choices, error=WorkloadError)
    records = search(RunStore.at(store), {word: _spelled(value) for word, value in filters.items()})
    values, units = _by_scenario(records)
    for metric in metrics if units else ():
        lookup("metric", metric, sorted(units), error=WorkloadError)
    pairs = _pairs(values, {word: _spelled(value) for word, value in base.items()})
    if base and values and not pairs:
        msg = f"no two scenarios differ in these words alone: {base}"
        raise WorkloadError(msg, hint="`fleetlab runs STORE` lists the scenarios that there are")

    def seeds(unit: Pair | CaseWords) -> list[int]:
        return sorted(set(values[unit.case]) & set(values[unit.base]) if isinstance(unit, Pair) else values[unit])

    result = comparison(values, pairs, metrics, units, seeds, lambda _: CONFIDENCE)
    settings = {"where": filters, "against": base, "metrics": list(metrics)}
    notes = (
        f"the {len(pairs) * len(metrics):,} intervals of differences hold simultaneously with 95 % (Bonferroni)",
        "they assume a fixed number of seeds: `fleetlab sweep` allows for seeds that were added",
    )
    provenance = Provenance("runs", str(store), settings)
    return Runs(provenance, _cells(records), result.findings, result.frames, result.charts, notes if pairs else ())


def _spelled(value: str) -> str:
    return {"yes": "true", "no": "false", "": "none"}.get(value.lower(), value)


def _by_scenario(records: Sequence[Record]) -> tuple[dict[CaseWords, dict[int, dict[str, Any]]], dict[str, str]]:
    """Return metrics by scenario and seed, and units."""
    values: dict[CaseWords, dict[int, dict[str, Any]]] = {}
    units: dict[str, str] = {}
    for record in records:
        words = words_of(record)
        case = tuple((word, words[word]) for word in (*AXES, *APART))
        values.setdefault(case, {})[record["cell"]["seed"]] = record.get("metrics") or {}
        units |= record.get("units", {})
    return dict(sorted(values.items(), key=lambda pair: [_rank(value) for _, value in pair[0]])), units


def _rank(value: str | float) -> tuple[bool, float, str]:
    """Sort numbers by their size, before names."""
    return (True, 0.0, value) if isinstance(value, str) else (False, value, "")


def _pairs(values: Mapping[CaseWords, Any], base: Mapping[str, str]) -> list[Pair]:
    """Return each scenario with the one that has the words of `base` and is otherwise the same."""
    if not base:
        return []

    def others(case: CaseWords) -> CaseWords:
        policies = {dict(case)[word] for word in base} | set(base.values())
        return tuple((w, _files(str(v), policies) if w == "files" else v) for w, v in case if w not in base)

    bases = {others(case): case for case in values if all(_equal(dict(case)[w], v) for w, v in base.items())}
    return [Pair(case, bases[o]) for case in values if (o := others(case)) in bases and bases[o] != case]


def _files(files: str, policies: set[str | float]) -> str:
    """Return the files that must be the same; an own policy has a file, and `fifo` has none."""
    return " ".join(one for one in files.split() if one.rpartition("=")[0] not in policies)


def _equal(value: str | float, text: str) -> bool:
    """Whether a value is what was written: a load of 1 is one of 1.0 too."""
    if isinstance(value, str):
        return value == text
    try:
        return float(text) == value
    except ValueError:
        return False


def _cells(records: Sequence[Record]) -> pl.DataFrame:
    """Return every cell in a row: its words, how it went, and all metrics."""
    rows: list[dict[str, Any]] = []
    for record in records:
        words = words_of(record)
        row = {"key": record["key"]} | {w: v if w == "load" else str(v) for w, v in words.items() if w != "seed"}
        row |= {"seed": words["seed"], "seconds": record["made"]["seconds"].get("all"), "failed": record.get("failed")}
        rows.append(row | {"schedule": record.get("schedule")} | (record.get("metrics") or {}))
    schema = {"key": pl.String, "failed": pl.String, "schedule": pl.String, "seconds": pl.Float64}
    if not rows:
        return pl.DataFrame(schema=schema)
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {name: schema[name] for name in names if name in schema}
    return pl.DataFrame(
        [{n: row.get(n) for n in names} for row in rows], schema_overrides=kinds, infer_schema_length=None
    )
