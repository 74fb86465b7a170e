"""Rows of a store as a trace: they go through the reader of their format, as any log does."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from fleetlab.core import Trace, TraceError
from fleetlab.core.durations import plural
from fleetlab.live.journal import Cursor
from fleetlab.live.rows import UNSEEN
from fleetlab.live.sources import Source
from fleetlab.live.stored import stored_rows
from fleetlab.traces import read

STORE, SITE, NODES, TRACE = "store", "site", "nodes.txt", "trace"  # in the folder of a watch
TRIES = 3  # of reading a store that is folded meanwhile


def read_rows(source: type[Source], rows: Iterable[Mapping[str, Any]], nodes: str, site: Path | None) -> Trace:
    """Read rows as the log that they came from."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "log"
        shutil.copytree(site, folder) if site is not None and site.is_dir() else folder.mkdir()
        source.write_log(rows, nodes, folder)
        return read(folder, source.format)


def trace_of(folder: Path, source: type[Source], *, since: float | None = None) -> Trace:
    """Return the trace of a watched cluster; with `since`, without jobs that ended long before."""
    for attempt in range(TRIES):
        try:
            return _trace(folder, source, since)
        except FileNotFoundError:  # the watcher has joined files just now
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _trace(folder: Path, source: type[Source], since: float | None) -> Trace:
    cursor, rows = stored_rows(folder / STORE, since)
    if cursor.polled is None:
        msg = f"{folder}: no complete poll yet"
        raise TraceError(msg, hint="wait for the first one")
    unseen: dict[str, float] = {}

    def data() -> Iterable[Mapping[str, Any]]:
        for row in rows:
            if row.rank == UNSEEN:
                unseen.update(dict.fromkeys(source.job_names(row.data), row.at))
            yield row.data

    nodes = folder / STORE / NODES
    text = nodes.read_text("utf-8") if nodes.is_file() else ""
    trace = read_rows(source, data(), text, folder / STORE / SITE)
    return _with_times(trace, cursor, unseen)


def _with_times(trace: Trace, cursor: Cursor, unseen: dict[str, float]) -> Trace:
    """Say how long jobs were seen to run: those that run, to the last poll; those that are gone, to their last one."""
    epoch = trace.workload.epoch or 0.0
    until = max(0.0, (cursor.polled or 0.0) - epoch)
    names = trace.names.collect() if trace.names is not None else pl.DataFrame({"job": [], "name": []})
    seen = pl.DataFrame(
        {"name": list(unseen), "seen": [at - epoch for at in unseen.values()]},
        schema={"name": pl.String, "seen": pl.Float64},
    )
    lost = names.join(seen, on="name").select("job", "seen")
    frame = trace.workload.frame.join(lost, on="job", how="left", maintain_order="left")
    gone = pl.col("seen").is_not_null() & pl.col("end").is_null()
    last = pl.when(pl.col("status") == "running").then(until).when(gone).then("seen")
    ran = pl.max_horizontal(last - pl.col("start"), 0.0)
    frame = frame.with_columns(
        runtime_at_least=pl.when(last.is_not_null() & pl.col("start").is_not_null())
        .then(ran)
        .otherwise("runtime_at_least")
    ).drop("seen")
    begun = max(0.0, (cursor.begun or 0.0) - epoch)
    notes = [f"watched: complete from {begun:,.0f} s on; earlier jobs are those that waited or ran then"]
    if lost.height:
        notes.append(f"{plural(lost.height, 'job')} ended unseen: their runtime is at least what was seen of it")
    series = {**trace.series, "end_not_seen": lost.lazy()} if lost.height else trace.series
    settings = {**trace.provenance.settings, "watched_from": begun, "watched_until": until}
    return replace(
        trace,
        workload=replace(trace.workload, frame=frame),
        provenance=replace(trace.provenance, settings=settings),
        notes=(*trace.notes, *notes),
        series=series,
    )
