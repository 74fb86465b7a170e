"""Audits: the schedules of the simulator must be feasible; recorded schedules are audited too."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core import Provenance, Trace, Workload
from fleetlab.core.progress import Progress
from fleetlab.core.trace import PLACEMENTS
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import NORMAL, Statistic
from fleetlab.studies.audit import Audit, audit
from fleetlab.studies.validate import openb, pai
from fleetlab.studies.validate.line import Line, exactly
from fleetlab.traces import read, synthesize

JOBS = 20_000
PLACEMENTS_AUDITED = ("best_fit", "worst_fit", "fgd")
SAMPLED = "its waits are sampled from published quantiles, not from a schedule"


def compare(data: Path | None, *, seed: int, progress: Progress) -> tuple[list[Line], list[str]]:
    """Count the violations of each schedule, and compare recorded with simulated waits where a trace has both."""
    made = synthesize("pai2020", jobs=JOBS, seed=seed)
    assert made.cluster is not None
    lines = []
    for k, placement in enumerate(PLACEMENTS_AUDITED):
        schedule = simulate(made.workload, made.cluster, placement=placement, warm_up="none")
        result = audit(as_trace(schedule), placement=placement)
        lines += [_violations(f"simulated by {placement}", result), *_again(f"simulated by {placement}", result)]
        progress("auditing schedules", k + 1, (k + 1) / (len(PLACEMENTS_AUDITED) + 3))
    lines += _log("built-in", audit(made), SAMPLED)
    if data is None:
        return lines, ["left out: audits of real logs: no folder of real traces was given (--data DIR)"]
    notes = []
    if (data / openb.FOLDER).is_dir():
        pods = read(data / openb.FOLDER / openb.PODS, "openb2023")
        lines += _log("openb 2023", audit(pods), "the waits of pods are the scheduler's latency")
    else:
        notes.append(f"left out: audit of openb 2023: not in {data.name}: {openb.FOLDER}")
    if (data / pai.FOLDER).is_dir():
        tail = read(data / pai.FOLDER / pai.TAIL, "pai2020")
        machines = read(data / pai.FOLDER / pai.SPEC, "pai2020").cluster
        lines += _log("PAI, tail of instances", audit(replace(tail, cluster=machines)), "")
        notes.append("audit of PAI: the tail of the instance table has no requests: only nodes can be checked")
    else:
        notes.append(f"left out: audit of PAI: not in {data.name}: {pai.FOLDER}")
    progress("auditing schedules", len(PLACEMENTS_AUDITED) + 3, 1.0)
    return lines, notes


def as_trace(result: SimResult) -> Trace:
    """Return a simulated schedule as a trace, as if a log had recorded it."""
    times = result.jobs.select("job", "start", "end")
    frame = (
        result.world.frame[result.world.measured]
        .drop("start", "end")
        .join(times, on="job", how="left", maintain_order="left")
    )
    placed = result.placements.join(times, on="job", maintain_order="left")
    rows = placed.select("job", pl.int_range(pl.len()).alias("worker"), "node", pl.lit("completed").alias("status"),
                         "start", "end")  # fmt: skip
    workload = Workload.of(frame.drop("job"), source="simulated")
    numbers = frame.select("job", number=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = rows.join(numbers, on="job", maintain_order="left").with_columns(job="number").drop("number")
    return Trace(workload, Provenance("simulate", "simulated"), cluster=result.cluster,
                 placements=rows.cast(PLACEMENTS).lazy())  # type: ignore[arg-type]  # fmt: skip


def _violations(name: str, result: Audit) -> Line:
    return exactly(name, "violations", 0, result.violations.height)


def _again(name: str, result: Audit) -> list[Line]:
    """Compare a schedule with its simulation under the same policy: they are equal."""
    rows = result.waits.filter(pl.col("class") == "all").iter_rows(named=True)
    return [
        exactly(name, "mean wait when simulated again, s", row["recorded wait"], row["simulated wait"]) for row in rows
    ]


def _log(name: str, result: Audit, why: str) -> list[Line]:
    """Return lines about a log, which do not count for or against the simulator."""
    count = replace(exactly(name, "violations", 0, result.violations.height, why), counts=False)
    waits = []
    for row in result.waits.iter_rows(named=True):
        # The interval is that of the difference: both waits are of the same jobs.
        error = (row["wait change high"] - row["wait change"]) / NORMAL
        mean = Statistic.symmetric(row["simulated wait"], error, math.inf)
        waits.append(Line(name, f"mean wait, {row['class']}, s", row["recorded wait"], mean, why=why, counts=False))
    return [count, *waits]
