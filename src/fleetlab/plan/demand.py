"""What is to be placed: kinds and counts from a TOML or CSV file, or who is alive in a trace at some time.

Both are a Workload whose times do not matter: `instances` says how many of each there are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Trace, Workload, WorkloadError, toml
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.censoring import IMPUTED, run_times
from fleetlab.core.coverage import Coverage
from fleetlab.core.durations import in_seconds
from fleetlab.core.steps import Steps
from fleetlab.core.workload import SCHEMA
from fleetlab.plan.problem import Floats

KEYS = ("count", "app", *REQUESTS, "gpu_type", "max_per_node")
WHOLE = {name: SCHEMA["instances" if name == "count" else name] for name in ("count", *REQUESTS, "max_per_node")}
LARGEST: dict[pl.DataType, int] = {pl.Int32(): 2**31 - 1, pl.Int64(): 2**40}
EXAMPLE = "[[instance]] on a line, then count = 8, gpu_milli = 500, cpu_milli = 4000 and so on"
STEPS = 20_000  # instants among which the busiest is looked for


def demand(path: Path | str) -> Workload:
    """Read a demand: `[[instance]]` entries of a TOML file, or the rows of a CSV file with the same names."""
    path = Path(path)
    entries = _from_csv(path) if path.suffix.lower() == ".csv" else _from_toml(path)
    rows = [_entry(entry, k + 1, path.name) for k, entry in enumerate(entries)]
    frame = pl.DataFrame(rows, schema={name: SCHEMA[name] for name in rows[0]}, strict=False)
    return Workload.of(frame, source=path.name)


def _from_toml(path: Path) -> list[dict[str, Any]]:
    entries = toml.load(path, "the demand", EXAMPLE).get("instance")
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
        raise WorkloadError(f"{path.name}: no [[instance]] entry in it", hint=EXAMPLE)
    return entries


def _from_csv(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text("utf-8")
        rows = _full(pl.read_csv(text.encode(), infer_schema=False)).to_dicts() if text.strip() else []
    except OSError as e:
        msg = f"cannot read the demand: {path}: {e.strerror}"
        raise WorkloadError(msg, hint=f"a header of {', '.join(KEYS)}") from None
    except (pl.exceptions.PolarsError, ValueError) as e:
        msg = f"{path.name}: not CSV: {str(e).splitlines()[0]}"
        raise WorkloadError(msg, hint=f"a header of {', '.join(KEYS)}") from None
    if not rows:
        raise WorkloadError(f"{path.name}: no row in it", hint=f"a header of {', '.join(KEYS)}, then a row a kind")
    return [{name: _cell(name, value) for name, value in row.items() if value is not None} for row in rows]


def _full(rows: pl.DataFrame) -> pl.DataFrame:
    """Without lines that have nothing in them."""
    text = pl.all().str.strip_chars()
    return rows.with_columns(pl.when(text != "").then(pl.all())).filter(~pl.all_horizontal(pl.all().is_null()))


def _cell(name: str, value: str) -> int | str | list[str]:
    if name == "gpu_type":
        return [word.strip() for word in value.split("|") if word.strip()]
    try:
        return int(value.strip()) if name in WHOLE else value.strip()
    except ValueError:
        return value  # said to be no whole number where entries are looked at


def _entry(entry: dict[str, Any], k: int, source: str) -> dict[str, Any]:
    """One kind as a row of a workload."""
    if unknown := [name for name in entry if name not in KEYS]:
        raise WorkloadError(f"{source}: unknown key in entry {k}: {unknown}", hint=f"keys: {', '.join(KEYS)}")
    for name, kind in WHOLE.items():
        least, largest = 1 if name == "count" else 0, LARGEST[kind]
        value = entry.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
            msg = f"{source}: `{name}` of entry {k} is not a whole number from {least} to {largest:,}: {value!r}"
            raise WorkloadError(msg, hint="amounts are integers: milli-CPUs, milli-GPUs, MiB")
    types = entry.get("gpu_type", [])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(t, str) for t in types):
        msg = f"{source}: `gpu_type` of entry {k} is neither a name nor a list of names: {types!r}"
        raise WorkloadError(msg, hint='gpu_type = "V100", or gpu_type = ["V100", "A100"]')
    amounts = {name: entry.get(name, 0) for name in REQUESTS}
    return {
        "submit": 0.0, "app": str(entry["app"]) if "app" in entry else None, "instances": entry.get("count", 1),
        **amounts, "gpu_types": types, "max_per_node": entry.get("max_per_node", 0),
    }  # fmt: skip


# -- from a trace ------------------------------------------------------------------------------------------------------


def alive(trace: Trace, at: str | float = "busiest") -> Workload:
    """Who is alive in a trace at a time: seconds from its first submission, `2d`, `3h`, `90m`; or when it is busiest.

    An instance lives from its start to its end where the log has them; one that is older than the log from its
    beginning; one that has no end to the end of the log. Where a log has no starts, jobs are taken to begin when they
    are submitted. The busiest moment is that at which the sum over resources of what is held, each as a part of its own
    peak, is highest.
    """
    workload = trace.workload
    if not len(workload):
        msg = f"{workload.source}: the trace has no jobs"
        raise WorkloadError(msg, hint="`fleetlab show TRACE` lists what is in a trace")
    begin, end = lives(workload)
    when = busiest(workload, begin, end) if at == "busiest" else _seconds(at)
    there = (begin <= when) & (end > when)
    if not there.any():
        msg = f"{workload.source}: no job runs {when:g} s after the first submission"
        raise WorkloadError(msg, hint="--at busiest, or a time inside the log")
    never = workload.frame.filter(pl.Series(np.isinf(begin))).select("job", reason=pl.lit("never started"))
    counted = Coverage.of(run_times(workload, "hold", 0), never, "counted")
    frame, source = workload.frame.filter(pl.Series(there)), f"{workload.source} at {when:.0f} s"
    return replace(workload, frame=frame, source=source, notes=(*workload.notes, counted.line))


def present(workload: Workload, now: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the jobs that run just before a time and go on, and those that were submitted before it and still wait.

    One that ends at that time has left; one that is submitted at that time is yet to come.
    """
    begin, end = lives(workload)
    running = (begin < now) & (end > now)
    starts = np.isfinite(begin) | (workload.frame["status"] == "waiting").to_numpy()
    waiting = (workload.frame["submit"].to_numpy() < now) & (begin >= now) & starts
    return workload.frame.filter(pl.Series(running)), workload.frame.filter(pl.Series(waiting))


def lives(workload: Workload) -> tuple[Floats, Floats]:
    """When each job begins and ends; infinite for one that never begins, or has no end.

    One whose end is lost, which is not to say that it runs on, lasts as long as jobs like it.
    """
    filled = run_times(workload, "hold", 0)
    has_end = (filled.origin == IMPUTED) | workload.frame["runtime_at_least"].is_null()
    f = filled.workload.frame.with_columns(runtime=pl.when(has_end).then("runtime"))
    if f["start"].null_count() == f.height:
        begin = pl.col("submit")
    else:
        begin = pl.when(pl.col("initial") & pl.col("start").is_null()).then(0.0).otherwise(pl.col("start"))
    times = f.select(begin=begin, end=pl.coalesce("end", begin + pl.col("runtime")))
    waits = (f["status"] == "waiting").to_numpy()
    start, stop = (times[c].fill_null(math.inf).to_numpy().copy() for c in ("begin", "end"))
    start[waits] = math.inf
    return start, stop


def busiest(workload: Workload, begin: Floats, end: Floats) -> float:
    """The moment at which most is held, of everything in proportion to its peak."""
    times = np.unique(begin[np.isfinite(begin)])
    if not len(times):
        raise WorkloadError(f"{workload.source}: no job starts", hint="the trace needs starts or submissions")
    if len(times) > STEPS:
        times = times[np.linspace(0, len(times) - 1, STEPS).astype(np.int64)]
    total = np.zeros(len(times))
    for name in REQUESTS:
        amount = (workload.frame[name].cast(pl.Float64) * workload.frame["instances"]).to_numpy()
        level = Steps.of(begin, end, amount).at(times)
        if (peak := level.max()) > 0:
            total += level / peak
    return float(times[total.argmax()])


def _seconds(at: str | float) -> float:
    seconds = in_seconds(at)
    if not math.isfinite(seconds):
        msg = f"not a time: `{at}`"
        raise WorkloadError(msg, hint="`busiest`, seconds, or such as 90m, 3h, 2d after the first submission")
    return seconds
