"""The trace of 2025: delays, run times, requests over limits, forecasts and placement rules, as they were published."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from fleetlab.core import Trace
from fleetlab.core.progress import Progress
from fleetlab.describe import describe
from fleetlab.forecast import forecast
from fleetlab.reproduce.item import Item, SourceTable, curve_items, items, number_items, outside, places
from fleetlab.reproduce.result import Material, needed
from fleetlab.traces import read

NAME = "dlrm2025"
FOLDERS = ("alibaba-dlrm-v2025", "dlrm2025")
FILE = "disaggregated_DLRM_trace.csv"
DAY = 86_400.0
FIGURES = ("delay by role", "runtime by role", "delay by rule", "requests by role")
REQUESTS = places(NAME)
HOLES = "no network was run: --quick leaves it out, and it needs torch (the extra `bench`)"


def material(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Describe the trace and forecast its demand."""
    place = needed(data, FOLDERS, FILE, "dlrm2025")
    trace = read(place / FILE, "dlrm2025")
    about = describe(trace, only=["services"], seed=seed, progress=progress)
    network = not quick and find_spec("torch") is not None
    demand = forecast(trace, models=["lstm"] if network else ["simple"], trials=0, seed=seed, progress=progress)
    tables = {name: SourceTable(frame) for result in (about, demand) for name, frame in result.tables().items()}
    tables["facts"] = SourceTable(_facts(trace))
    tables["published"] = SourceTable(outside(tables["published"].frame))
    figures = {name: figure for name, figure in about.figures().items() if name in FIGURES}
    notes = (
        "forecasts: 5 minutes ahead, on the last fifth of the trace, RMSE over the mean of the actual values",
        "16,591 instances have a delay, 12,390 of them ended; 4,201 still run, and are in no published run time",
    )
    listed = [*items(NAME), *curve_items(NAME), *number_items(NAME, REQUESTS)]
    rows = listed if network else [_unrun(one) for one in listed]
    return Material(rows, tables, f"dlrm2025, {place.name}", figures | dict(demand.figures()), notes)


def _unrun(one: Item) -> Item:
    """A forecast by a network, where none was run."""
    by_network = one.ours is not None and one.ours.row.get("model") == "lstm"
    return replace(one, not_possible=HOLES) if by_network else one


def _facts(trace: Trace) -> pl.DataFrame:
    """Return counts that no section has."""
    jobs = trace.workload.frame
    role, cores = pl.col("group").cast(pl.String), pl.col("cpu_milli") // 1000
    span = pl.concat([jobs["submit"], jobs["start"], jobs["end"]]).drop_nulls()
    first = float(span.filter(span > 0).min())  # type: ignore[arg-type]
    disk = {str(k): float(v) for k, v in jobs.group_by(role.alias("role")).agg(pl.col("disk_mib").mean()).iter_rows()}
    facts = {
        "instances": jobs.height, "CN": jobs.filter(role == "CN").height, "HN": jobs.filter(role == "HN").height,
        "services": jobs["app"].n_unique(), "days": float(span.max()) / DAY,  # type: ignore[arg-type]
        "no creation": jobs.filter(pl.col("initial")).height, "no deletion": jobs["end"].null_count(),
        "first": first, "last": float(span.max()),  # type: ignore[arg-type]
        "correlation": jobs.select(pl.corr(pl.col("cpu_milli").cast(pl.Float64), "memory_mib")).item(),
        "disk ratio": disk["HN"] / disk["CN"],
        "CN of 64 cores": jobs.filter((role == "CN") & (cores == 64)).height,
        "HN of 12 cores": jobs.filter((role == "HN") & (cores == 12)).height,
        "CN of 48 cores": jobs.filter((role == "CN") & (cores == 48)).height,
    }  # fmt: skip
    return pl.DataFrame({"what": list(facts), "value": [float(x) for x in facts.values()]})
