"""What a Slurm log tells beyond the columns of a workload: series by name, and notes on what was decided.

Series: `requested` (time limits, as an estimate), `eligible_logged` (when Slurm saw dependencies fulfilled),
`started_by` (main or backfill loop), `reason` (why a job last waited), `attempts` (runs and pieces of jobs with more
than one, and runs that a preemption or a node ended), `suspended` (seconds), `events` (of nodes), `unsized` and
`unsplit` (jobs whose share of a GPU, or of each node, is not known).
"""

from __future__ import annotations

import polars as pl

from fleetlab.traces.slurm.attempts import LOST
from fleetlab.traces.slurm.jobs import JobRecords
from fleetlab.traces.slurm.nodes import NodeInventory

HOLD_SECONDS = 60  # seconds between submission and eligibility that Slurm itself may take
LOOPS = {"SchedMain": "main", "SchedBackfill": "backfill", "SchedSubmit": "submit"}
SHORTEST = 1.0  # s: less is a job whose seconds were rounded


def series_of(jobs: pl.DataFrame, events: pl.DataFrame | None) -> dict[str, pl.LazyFrame]:
    """Return what the log tells of jobs and nodes that has no column."""
    loop = pl.coalesce(
        pl.when(pl.col("Flags").str.contains(flag, literal=True)).then(pl.lit(name)) for flag, name in LOOPS.items()
    )
    attempt, of = pl.int_range(1, pl.len() + 1).over("name"), pl.len().over("name")
    stopped = pl.col("end") - pl.col("start") - pl.col("runtime")
    series = {
        "requested": jobs.filter(pl.col("limit").is_not_null()).select("job", seconds="limit"),
        "eligible_logged": jobs.select("job", eligible="eligible_logged").drop_nulls(),
        "started_by": jobs.select("job", loop=loop).drop_nulls(),
        "reason": jobs.filter(pl.col("Reason").is_in(["", "None"]).not_()).select("job", reason="Reason"),
        "attempts": jobs.select("job", "name", attempt=attempt, of=of, state="State", resized="piece").filter(
            (pl.col("of") > 1) | pl.col("state").str.contains(LOST)
        ),
        "suspended": jobs.select("job", seconds=stopped).filter(pl.col("seconds") > SHORTEST),
        "unsized": jobs.filter("unsized").select("job"),
        "unsplit": jobs.filter(pl.col("unsplit") & pl.col("ran")).select("job"),
    }
    if events is not None:
        series["events"] = events
    return {name: frame.lazy() for name, frame in series.items() if frame.height}


def notes_of(records: JobRecords, jobs: pl.DataFrame, nodes: NodeInventory | None, zone: str | None) -> tuple[str, ...]:
    """Say what was decided on the way, and of how many jobs."""
    frame = records.frame
    apart = frame.filter("array")
    rows, untold = apart.select("file", "line").unique().height, frame["untold"].sum()
    late = jobs.filter(pl.col("eligible") - pl.col("submit") > HOLD_SECONDS).height
    again = jobs.filter(pl.col("name").is_duplicated())
    clusters = frame.filter(pl.col("Cluster") != "")["Cluster"].n_unique()
    pieces, runs = again.filter("piece").height, again.filter(~pl.col("piece")).height
    several = f"the log has jobs of {clusters:,} clusters, on one list of nodes: `sacct -M NAME` lists those of one"
    notes = {
        "times are read as UTC, since the log has no time zone: set `zone`": zone is None,
        f"{records.steps:,} job steps are counted with their jobs": records.steps,
        several: clusters > 1,
        f"{rows:,} rows stand for array tasks that had not started: {apart.height:,} jobs": rows,
        f"{untold:,} rows stand for an unknown number of array tasks: each is one job here": untold,
        f"{frame['uneven'].sum():,} jobs have GPUs that are not divided evenly by their nodes: "
        "counted as one instance per GPU or task": frame["uneven"].any(),
        f"{frame['got'].sum():,} jobs have no requested GPU type: the allocated type is used": frame["got"].any(),
        f"{frame['unsized'].sum():,} jobs have fractional GPUs of unknown size: counted as whole GPUs; "
        f"{'the list of nodes does not give it' if nodes else 'a list of nodes would give the size'}": frame[
            "unsized"
        ].any(),
        f"{runs:,} rows are runs of jobs that were put back into the queue: a job each, after the one before": runs,
        f"{pieces:,} rows are sizes of jobs that were resized while they ran: a job each, after the one before": pieces,
        f"{late:,} jobs became eligible more than a minute after submission (dependency or begin time): "
        "that time counts as waiting, with the reason `not_eligible`": late,
        "no column Eligible: time held by a dependency or a begin time counts as waiting": frame.height
        and not (frame["Eligible"] != "").any(),
        "no job has a GPU: AccountingStorageTRES in slurm.conf must include gres/gpu": frame.height
        and not frame["gpu_milli"].sum(),
        "the node lists are too long to keep: no placements": records.lists is None,
        "no list of nodes beside the log: make one with `scontrol show node > nodes.txt`": nodes is None,
    }
    return (*(note for note, holds in notes.items() if holds), *(nodes.notes if nodes else ()))
