"""What a Slurm log tells beyond the columns of a workload: series by name, and notes on what was decided.

Series: `requested` (time limits, as an estimate), `eligible_logged` (when Slurm saw dependencies fulfilled),
`started_by` (main or backfill loop), `reason` (why a job last waited), `attempts` (runs and pieces of jobs with more
than one, and runs that a preemption or a node ended), `suspended` (seconds), `events` (of nodes), `unsized` and
`unsplit` (jobs whose share of a GPU, or of each node, is not known).
"""

from __future__ import annotations

import re
from dataclasses import replace

import polars as pl

from fleetlab.core.trace import PLACEMENTS
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.reader.attempts import LOST
from fleetlab.schedulers.slurm.reader.jobs import JobRecords
from fleetlab.schedulers.slurm.reader.nodes import NodeInventory

# -- what `sdiag` says of the two loops: how long a cycle took, and how deep it looked ---------------------------------

MAIN, BACKFILL = "Main schedule statistics", "Backfilling stats"
MS = 1e-3  # of a microsecond, in which sdiag counts


def cycles_note(text: str) -> str:
    r"""Return how long cycles took, beside the simulated ones; empty where the text does not tell.

    >>> cycles_note("Backfilling stats\n\tMax cycle: 9000\n\tMean cycle: 2000\n\tDepth Mean: 40")
    'by sdiag a cycle of the backfill loop took 2 ms (longest 9 ms, 40 jobs deep); simulated: 2 ms and 0.8 ms a job'
    """
    found = [said for name, block in _blocks(text).items() if (said := _cycle(name, block))]
    return f"by sdiag a cycle of {' and of '.join(found)}; simulated: 2 ms and 0.8 ms a job" if found else ""


def _blocks(text: str) -> dict[str, str]:
    """Return the lines below each of the two headings."""
    blocks = {}
    for name, heading in (("the main loop", MAIN), ("the backfill loop", BACKFILL)):
        match = re.search(rf"^{heading}[^\n]*\n((?:[ \t]+[^\n]*(?:\n|$))+)", text, re.MULTILINE)
        if match:
            blocks[name] = match[1]
    return blocks


def _cycle(name: str, block: str) -> str:
    mean, longest = (_number(block, label) for label in ("Mean cycle", "Max cycle"))
    if mean is None or longest is None:
        return ""
    depth = _number(block, "Mean depth cycle") or _number(block, "Depth Mean")
    deep = f", {depth:,} jobs deep" if depth else ""
    return f"{name} took {mean * MS:,.3g} ms (longest {longest * MS:,.3g} ms{deep})"


def _number(block: str, label: str) -> int | None:
    match = re.search(rf"^\s*{label}:\s*(\d+)", block, re.MULTILINE)
    return int(match[1]) if match else None


# -- on which node each instance of a job ran, as far as the log tells -------------------------------------------------


def placements(jobs: pl.DataFrame, lists: pl.DataFrame | None) -> pl.LazyFrame | None:
    """One row for each instance of a job, unfolded only when somebody asks: a log of a large machine has many.

    Of a job with more instances than nodes the first node is known, by its batch step, and so is the second of two.
    Where it is not known how many were on a node, there is one row for it: fewer than there were.
    """
    if lists is None or not lists["node"].list.len().sum():
        return None
    ran = jobs.lazy().filter("ran").select("job", "NodeList", "status", "start", "end", "instances", "on_first")
    named = lists.lazy().filter(pl.col("node").list.len() > 0)
    named = named.with_columns(at=pl.int_ranges(pl.col("node").list.len()), hosts=pl.col("node").list.len())
    rows = ran.join(named, on="NodeList", maintain_order="left").explode("node", "at")
    rows = rows.with_columns(row=pl.int_ranges(0, _on_node())).explode("row")
    rows = rows.with_columns(worker=pl.int_range(pl.len()).over("job"))
    return rows.select(list(PLACEMENTS)).cast(PLACEMENTS)  # type: ignore[arg-type]


def _on_node() -> pl.Expr:
    """How many instances were on a node, at least."""
    instances, hosts = pl.col("instances").cast(pl.Int64), pl.col("hosts").cast(pl.Int64)
    first = pl.col("on_first").clip(1, pl.max_horizontal(instances - hosts + 1, 1))
    return (
        pl.when(instances <= hosts).then(1)
        .when(hosts == 1).then(instances)
        .when(pl.col("at") == 0).then(first)
        .when((hosts == 2) & (pl.col("on_first") > 0)).then(instances - first)
        .otherwise(1)
    )  # fmt: skip


# -- how long nodes complete after a job: no file of Slurm's says how long an epilog runs, but the log -----------------

FEW = 50  # starts on a node that had a job before
EARLIEST = 0.01  # of the gaps on a node between the end of a job and the next start: those where a job waited
LONGEST = 600.0  # s


def with_epilog(scheduler: Slurm, placements: pl.LazyFrame | None, jobs: pl.DataFrame) -> Slurm:
    """Return a site's Slurm with the seconds in which a node takes no job after one has ended there."""
    if placements is None:
        return scheduler
    on_node = placements.select("job", "node").unique().collect()
    runs = on_node.join(jobs.select("job", "start", "end").drop_nulls(), on="job")
    ends = runs.select("node", "end").sort("end")
    gaps = (
        runs.select("node", "start")
        .sort("start")
        .join_asof(ends, left_on="start", right_on="end", by="node", strategy="backward", check_sortedness=False)
        .select(gap=pl.col("start") - pl.col("end"))
        .filter((pl.col("gap") > 0) & (pl.col("gap") <= LONGEST))["gap"]  # 0: it may have started just before the end
    )
    if gaps.len() < FEW:
        return scheduler
    shortest = gaps.quantile(EARLIEST)
    return replace(scheduler, epilog=float(shortest or 0.0))


def with_known_reservations(scheduler: Slurm, placements: pl.LazyFrame, jobs: pl.DataFrame) -> Slurm:
    """Return a site's Slurm whose reservations are there since jobs no longer started that would run into them.

    No command of Slurm lists when a reservation was made. Before it, jobs start on its nodes whose time limits reach
    into it; so it was made at the last such start, or after.
    """
    if not scheduler.reservations:
        return scheduler
    timed = jobs.select("job", "start", "limit", "reservation").drop_nulls(["start", "limit"])
    on_nodes = placements.select("job", pl.col("node").cast(pl.String)).unique().collect().join(timed, on="job")
    moved = []
    for kept in scheduler.reservations:
        into = on_nodes.filter(
            pl.col("node").is_in(list(kept.nodes)) & (pl.col("reservation").fill_null("") != kept.name)
            & (pl.col("start") < kept.begin) & (pl.col("start") + pl.col("limit") > kept.begin)
        )  # fmt: skip
        moved.append(replace(kept, known=into["start"].max()))  # type: ignore[arg-type]
    return replace(scheduler, reservations=tuple(moved))


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
