"""Build the trace of a store, or predict from it: `python -m fleetlab.live.analyze trace|predict SYSTEM FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import polars as pl

from fleetlab.core import Trace
from fleetlab.core.errors import FleetlabError, TraceError, WorkloadError
from fleetlab.core.files import atomic_write
from fleetlab.core.sources import Source, source_kind
from fleetlab.live.journal import PREDICTED, STORE, TRACE, Snapshot, queue_of, trace_of
from fleetlab.studies.eta import eta

PAST_S = 14 * 86_400.0  # s of history that predictions are made from
REPLAYS = 100
Values = list[tuple[str, str, float]]


def predict(trace: Trace, source: type[Source], requests: list[str]) -> dict[str, Values]:
    """Return how long the jobs that wait are predicted to wait still, by queue, and jobs that would come now."""
    waits: Values = []
    now = trace.provenance.settings["watched_until"]  # else it would be the last moment at which something waited
    try:
        queue = eta(trace, at=now, replays=REPLAYS, calibrate=0, starts="log").frames["queue"]
    except WorkloadError:  # nothing waits, or all that waits can never start
        queue = None
    if queue is not None:
        names = _queues(trace, source)
        seconds = queue.select(queue=pl.col("job").replace_strict(names, default="none"), seconds="median, s")
        for name, part in seconds.group_by("queue"):
            for level in (0.5, 0.9):
                value = part["seconds"].quantile(level, "lower")
                waits.append((str(name[0]), f"{level:g}", float(value) if value is not None else float("nan")))
    answers: Values = []
    for request in requests:
        start = eta(trace, request=request, at=now, replays=REPLAYS, calibrate=0, starts="log").frames["start"]
        answers += [
            (request, f"{float(q[1:]) / 100:g}", float(s))
            for q, s in start.select("quantile", "start in, s").iter_rows()
            if q in ("P10", "P50", "P90")
        ]
    return {"wait": sorted(waits), "request": answers}


def _queues(trace: Trace, source: type[Source]) -> dict[str, str]:
    assert trace.names is not None
    frame = trace.workload.frame
    return dict(frame.select("job", queue=queue_of(source).fill_null("none")).join(trace.names.collect(), on="job")
                .select("name", "queue").iter_rows())  # fmt: skip


def main() -> int:
    """Do one task; status 1 and a line on stderr where it cannot be done."""
    parser = argparse.ArgumentParser(prog="fleetlab.live.analyze")
    parser.add_argument("task", choices=("trace", "predict"))
    parser.add_argument("system")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--request", action="append", default=[])
    words = parser.parse_args()
    os.nice(5)  # the poll goes first
    folder, source = words.folder, source_kind(words.system)
    try:
        if words.task == "trace":
            trace_of(folder, source).save(folder / TRACE)
            return 0
        polled = Snapshot.load(folder / STORE).cursor.polled or 0.0
        trace = trace_of(folder, source, since=polled - PAST_S)
        try:
            predictions = predict(trace, source, words.request)
        except TraceError:  # no job has waited and started yet: there is nothing to go by
            predictions = {"wait": [], "request": []}
        at = (trace.workload.epoch or 0.0) + trace.provenance.settings["watched_until"]
        atomic_write(folder / STORE / PREDICTED, json.dumps({"at": at, **predictions}))
    except (FleetlabError, OSError) as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
