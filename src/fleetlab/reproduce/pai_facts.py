"""Numbers of the PAI trace that the paper states and no section of `describe` has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace
from fleetlab.describe.curves import ecdf
from fleetlab.describe.published import hours
from fleetlab.describe.section import Profile
from fleetlab.describe.sections.nodes import OVER_NODES
from fleetlab.describe.trace_view import TraceView
from fleetlab.reproduce.item import SYNTHETIC, Cell, Item, SourceTable
from fleetlab.stats import Floats

SCHEMA = {"what": pl.String, "value": pl.Float64}
HIGH_END = ("V100", "V100M32")
MONTH = 365.25 / 12 * 86_400


def facts(trace: Trace, about: Profile) -> pl.DataFrame:
    """Return one row for each number."""
    jobs, view = trace.workload.frame, TraceView(trace, 0)
    gpu = jobs.filter(pl.col("gpu_milli") > 0)
    # Waits of instances, by what they request and by the type that they have
    types = view.by("type")
    high = sum((types[t] for t in HIGH_END if t in types), np.zeros(len(view.milli), dtype=bool))
    some = view.milli > 0
    parts = {
        "wait P90, shared": (0.9, some & (view.milli < 1000)), "wait P90, whole": (0.9, view.milli >= 1000),
        "wait P50, V100": (0.5, some & high), "wait P90, V100": (0.9, some & high),
        "wait P50, other": (0.5, some & ~high), "wait P90, other": (0.9, some & ~high),
    }  # fmt: skip
    numbers = {name: _quantile(view.wait[where], view.instances[where], q) for name, (q, where) in parts.items()}
    for name, where in view.lengths(view.instances).items():
        finite = where & np.isfinite(view.wait)
        half, many = view.wait[finite] > view.runtime[finite], view.instances[finite]
        numbers[f"{name} waiting half"] = 100 * float((half * many).sum() / many.sum()) if finite.any() else None
    values = _scale(jobs, gpu) | _times(gpu) | numbers | _tables(about) | _statuses(jobs) | _hours(about)
    return pl.DataFrame({"what": list(values), "value": list(values.values())}, schema=SCHEMA)


def _scale(jobs: pl.DataFrame, gpu: pl.DataFrame) -> dict[str, float]:
    by_user = _floats(jobs.drop_nulls("user").group_by("user").agg(pl.col("instances").sum())["instances"])
    many, milli = _floats(gpu["instances"]), _floats(gpu["gpu_milli"])
    return {
        "jobs": jobs.height, "GPU jobs": gpu.height, "million instances": float(_floats(jobs["instances"]).sum()) / 1e6,
        "users": len(by_user), "months": _of(np.max, _floats(jobs["submit"])) / MONTH,
        "largest job": _of(np.max, many * milli / 1000), "instances of the P95 user": _level(by_user, 0.95),
        "instances of the P50 user": _level(by_user, 0.5), "GPUs mean": _of(np.mean, milli) / 1000,
        "GPUs median": _level(milli, 0.5) / 1000, "GPUs largest": _of(np.max, milli) / 1000,
    }  # fmt: skip


def _times(gpu: pl.DataFrame) -> dict[str, float]:
    run, wait = _floats(gpu["runtime"].drop_nulls()), _floats((gpu["start"] - gpu["submit"]).drop_nulls())
    return {
        "runtime mean": _of(np.mean, run), "runtime median": _level(run, 0.5), "runtime longest": _of(np.max, run),
        "wait mean": _of(np.mean, wait), "wait median": _level(wait, 0.5),
    }  # fmt: skip


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).to_numpy()


def _of(function: Callable[[Floats], float], values: Floats) -> float:
    return float(function(values)) if len(values) else math.nan


def _level(values: Floats, level: float) -> float:
    return _of(lambda some: float(np.quantile(some, level)), values)


def _quantile(values: Floats, weights: Floats, level: float) -> float | None:
    finite = np.isfinite(values)
    curve = ecdf("", values[finite], weights=weights[finite])
    return None if curve is None else curve.quantiles[round(100 * level)].value


def _tables(about: Profile) -> dict[str, float | None]:
    """Numbers that sections have, under the names by which they were published."""
    tables, summary = about.tables(), {e.metric: e.value for e in about.summary()}
    top = tables["users"].filter(pl.col("weighted by") == "instances")["top 5 %, %"]
    gangs = tables["gangs"].filter(pl.col("what") == "GPUs requested by gangs")["%"]
    runs = about.curves.get("runs of a group", [])
    numbers: dict[str, float | None] = {
        "instances of the top 5 % of users": top[0] if len(top) else None,
        "GPUs requested by gangs": gangs[0] if len(gangs) else None,
        "jobs in groups with 5 or more runs": 100 * (1 - runs[0].level(4)) if runs else None,
        "instances with a tag": summary.get("instances with a workload tag"),
    }
    above = tables.get("usage above request", pl.DataFrame({"weighted by": [], "of": [], "%": []}))
    for of, percent in above.filter(pl.col("weighted by") == "jobs").select("of", "%").iter_rows():
        numbers[f"below {of}"] = 100 - percent
    return numbers


def _statuses(jobs: pl.DataFrame) -> dict[str, float]:
    counts = jobs.group_by(pl.col("status").cast(pl.String)).len()
    return {str(status): 100 * count / jobs.height for status, count in counts.drop_nulls().iter_rows()}


def _hours(about: Profile) -> dict[str, float]:
    tables, numbers = about.tables(), {}
    if "by hour of day" in tables:
        medians = tables["by hour of day"]["P50"]
        numbers["peak over trough"] = medians.max() / medians.min()  # type: ignore[operator]
    if "by weekday" in tables:
        days = dict(tables["by weekday"].select("day", "jobs").iter_rows())
        ends = [days.pop(day) for day in list(days) if str(day).startswith("S")]  # Saturday and Sunday
        numbers["weekend over weekday"] = (sum(ends) / len(ends)) / (sum(days.values()) / len(days))
    if "requested GPUs by hour of day" in tables:
        wide = tables["requested GPUs by hour of day"].pivot("GPUs", index="hour", values="P50")
        numbers["saved at the peak hour"] = (wide["without sharing"] - wide["with sharing"]).max()
    return numbers  # type: ignore[return-value]


# -- by hour of the day ------------------------------------------------------------------------------------------------

HOURS = "by hour, published"
HOUR_ROWS = {
    "jobs by hour of day": {"Q1": "Q1", "P50": "median", "Q3": "Q3"},
    "requested GPUs by hour of day": {"with sharing": "shared", "without sharing": "alone"},
}
NEAR = 0.14  # 8 % by which a box plot is misread, and 6 %: a standard error of a quartile of 62 days
REQUESTED = (
    "drawn as GPUs that the jobs of an hour request; as GPUs held, the figure contradicts the paper's allocation of "
    "74 % of MISC and 49 % of V100, and the built-in trace, which follows the latter, requests more"
)


def hour_items() -> Iterator[Item]:
    """Yield an item for each published row of 24 values."""
    for figure, rows in HOUR_ROWS.items():
        source = str(hours(figure)["source"])
        work, _, where = source.rpartition(", ")
        for name in rows:
            yield Item(
                where or source, f"{figure}: {name}", "24 points", work or source, "hours",
                ours=Cell(HOURS, {"name": f"{figure}: {name}"}, "outside"), whole=True,
                fitted=figure.startswith("jobs"), why="" if figure.startswith("jobs") else REQUESTED, why_on=SYNTHETIC,
            )  # fmt: skip
    yield Item(
        "cell 20",
        "tasks by hour of a week, one sample week",
        "168 points",
        "analysis notebook of cluster-trace-gpu-v2020",
        not_possible="one week of the log, which the built-in trace does not follow day by day",
    )


def by_hour(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return how many of 24 hours are farther off than can be told, for each published row."""
    rows = []
    for figure, names in HOUR_ROWS.items():
        table = tables.get("by hour of day" if figure.startswith("jobs") else figure)
        for name, key in names.items() if table is not None else ():
            assert table is not None
            mine = table[name] if name in table.columns else table.filter(pl.col("GPUs") == name)["P50"]
            ratio = mine.to_numpy() / np.array(hours(figure)[key], dtype=np.float64)
            off = int((np.abs(np.log(ratio)) > np.log1p(NEAR)).sum())
            text = f"{24 - off} of 24 met; mean ratio {float(ratio.mean()):.2f}"
            rows.append((f"{figure}: {name}", float(off), text))
    schema = {"name": pl.String, "outside": pl.Float64, "outside, text": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


# -- files beside the tables -------------------------------------------------------------------------------------------


def machines(cluster: Cluster) -> dict[str, pl.DataFrame]:
    """Return the machines in all, and by type."""
    f = cluster.frame
    values = {
        "nodes": f.height, "GPU nodes": f.filter(pl.col("gpus") > 0).height, "GPUs": cluster.gpus,
        "CPU nodes": f.filter(pl.col("gpus") == 0).height, "CPUs": f["cpu_milli"].sum() / 1000,
        "memory": f["memory_mib"].sum() / 1024,
    }  # fmt: skip
    by_type = (
        f.drop_nulls("gpu_type")
        .group_by(type=pl.col("gpu_type").cast(pl.String))
        .agg(nodes=pl.len(), GPUs=pl.col("gpus").sum(), CPUs=pl.col("cpu_milli").sum() / 1000)
    )
    facts = pl.DataFrame({"what": list(values), "value": [float(x) for x in values.values()]})
    return {"machines": facts, "machine types": by_type}


def sample(path: Path) -> pl.DataFrame:
    """Return mean and median of the run times of a sample of 60,105 tasks."""
    run = pl.read_csv(path)["service_sec"]
    return pl.DataFrame({"what": ["median", "mean"], "value": [run.median(), run.mean()]})


def philly(path: Path) -> pl.DataFrame:
    """Return quantiles of Philly's run times, from the file beside the trace."""
    frame = pl.read_csv(path)
    run = frame[frame.columns[-1]].cast(pl.Float64, strict=False).drop_nulls()
    return pl.DataFrame({"what": ["P50", "P90"], "value": [run.quantile(q, "linear") for q in (0.5, 0.9)]})


def by_node_size(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table of `describe` with the names by which utilization was published."""
    return frame.filter(pl.col("quantile over") == OVER_NODES).with_columns(key=pl.format("{}, {}", "nodes", "of"))


def explained(item: Item, absent: Mapping[str, str], tables: Mapping[str, SourceTable]) -> Item:
    """Return a number with the reason why it is not possible, where no table has it."""
    why = absent.get(item.what.partition(": ")[0], "")
    return replace(item, not_possible=why) if why and item.ours is not None and item.ours.read(tables) is None else item
