"""A Slurm cluster's own log: what `sacct -P` prints, and beside it what `scontrol show node` or `sinfo` does.

A row of sacct is a job, a task of an array, a part of a heterogeneous job, or a step of one of these. Steps go into
their job. Tasks of an array that have not started stand in one row, `103_[1-5%2]`, and come apart here. Times are those
of the cluster's wall clock, which the log does not name. The time that users asked for is the series `requested`, the
partitions that they named are `partition`, and jobs whose share of a GPU has no known size are `unsized`.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.core.trace import PLACEMENTS
from fleetlab.core.workload import SCHEMA
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import PEEK, Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.input.log_start import clip_to_start, moment
from fleetlab.traces.input.timestamps import valid_zone
from fleetlab.traces.slurm.conf import site_notes
from fleetlab.traces.slurm.dependencies import with_dependencies
from fleetlab.traces.slurm.jobs import JobRecords, read_jobs
from fleetlab.traces.slurm.node_lists import KINDS, kind_of
from fleetlab.traces.slurm.nodes import NodeInventory, read_nodes
from fleetlab.traces.slurm.sacct_json import is_json_log, throttles
from fleetlab.traces.slurm.site import scheduler_of, site_beside, with_site
from fleetlab.traces.slurm.tres import PerGpu

# Worth asking for.
COLUMNS = "JobID,User,Account,JobName,Partition,Submit,Eligible,Start,End,State,AllocTRES,ReqTRES,NodeList,Timelimit"
HOLD_SECONDS = 60  # seconds between submission and eligibility that Slurm itself may take
DEMAND = ("instances", "cpu_milli", "memory_mib", "gpu_milli", "gpu_types", "distinct_nodes")
SUBMITTED = ("partitions", "constraint", "reservation", "exclusive", "nice")


def read(path: Path, intake: Intake, *, zone: str | None = None, since: str | None = None) -> Trace:
    """Read one log of jobs or a folder of them, and what is beside it of the nodes and of the site's configuration."""
    clock = valid_zone(zone or "UTC")
    logs, lists, others = _files(path)
    site = site_beside(path, others)
    others = [source for source in others if source.name not in site.seen]
    nodes = read_nodes(*lists[0], intake) if lists else None
    begin = moment(since, clock)
    records = read_jobs(logs, intake, clock, nodes.per_gpu if nodes else PerGpu(), begin)
    jobs, older = clip_to_start(with_throttles(_jobs(records.frame), others), begin)
    jobs, zero = relative_to_first(jobs)
    jobs = jobs.with_columns(job=pl.int_range(pl.len(), dtype=pl.Int64))
    jobs, waits = with_dependencies(jobs)
    source = f"slurm:{logs[0].stem if len(logs) == 1 else path.name}"
    workload = Workload.of(
        jobs.select(c for c in jobs.columns if c in SCHEMA),
        source=source,
        epoch=zero if len(jobs) else None,
        zone=clock,
    )
    more = jobs.height - records.rows  # tasks of an array, beyond the one that its row counts for
    intake.keep("jobs", len(workload) - more + records.steps)
    scheduler = scheduler_of(site, zero, clock) if site else None
    return finish(
        intake,
        workload,
        source=source,
        cluster=with_site(nodes.cluster if nodes else None, site),
        scheduler=scheduler,
        placements=_placements(jobs, records.lists),
        names=jobs.select("job", "name").lazy(),
        series=_series(jobs),
        notes=(
            *_notes(records, nodes, zone),
            *waits,
            *older,
            *(site_notes(site, scheduler) if scheduler else ()),
            *_unread(lists[1:], others),
        ),
        settings={"zone": clock, "since": since, "files": [s.name for s in (*logs, *(s for s, _ in lists[:1]))]},
    )


def _files(path: Path) -> tuple[list[SourceFile], list[tuple[SourceFile, str]], list[SourceFile]]:
    """The logs of jobs, the lists of nodes with the best first, and what is neither."""
    here = sources(path)
    beside = here if path.is_dir() else sources(path.parent)
    peek = Peek(path)
    begins = {source: peek.beginning(source).lstrip("\ufeff") for source in {*here, *beside}}
    logs = [source for source in here if _is_log(begins[source])]
    logs = logs or [source for source in here if is_json_log(begins[source])]  # the same, with fewer columns
    if not logs:
        for source in here:
            with source.open() as stream:
                stream.read(PEEK)  # a damaged archive says so itself
        nodes = "a list of nodes but " if any(kind_of(begins[source]) for source in here) else ""
        msg = f"{path.name}: {nodes}no job log: its first line must have JobID, Submit and State, separated by |"
        raise TraceError(msg, hint=f"sacct -a -P -S 2024-01-01 -o {COLUMNS}")
    lists = [(s, kind) for s in beside if s not in logs and (kind := kind_of(begins[s]))]
    lists.sort(key=lambda listed: (KINDS.index(listed[1]), listed[0].stem != "nodes", listed[0].name))
    others = [s for s in here if s not in logs and s not in [known for known, _ in lists]]
    return logs, lists, others


def _is_log(beginning: str) -> bool:
    names = {name.strip() for name in beginning.split("\n", 1)[0].split("|")}
    return {"JobID", "Submit", "State"} <= names


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    # Tasks of an array and parts of a heterogeneous job belong together: the number before `_` or `+` is theirs.
    parent = pl.concat_str("Cluster", pl.lit("/"), pl.col("JobID").str.extract(r"^(\d+)")).rank("dense") - 1
    text = {"user": "User", "group": "JobName", "app": "Account", "queue": "Account", "qos": "QOS"}
    tells, last = pl.col("eligible").is_not_null().any(), pl.max_horizontal(pl.col("submit", "start", "end").max())
    in_array = pl.col("JobID").str.contains("_", literal=True)
    return records.select(
        *("name", "JobIDRaw", "User", "JobName", "wish", "begin", "hold", "NodeList", "unsized", "on_first", "hosts"),
        *("Flags", "Reason", "State", "piece"),
        *("submit", "start", "end", "runtime", "status", "limit"),
        *DEMAND,
        *SUBMITTED,
        parent=parent,
        gang=pl.when(pl.col("JobID").str.contains("+", literal=True)).then(parent),
        array=pl.when(in_array).then(parent),
        array_limit=pl.when(in_array).then(pl.col("array_limit").max().over(parent)).otherwise(0),
        # A pending job that is not eligible yet is not until the log ends.
        eligible=pl.when((pl.col("status") == "waiting") & pl.col("eligible").is_null() & tells)
        .then(last)
        .otherwise(pl.max_horizontal("submit", pl.min_horizontal("eligible", "start"))),
        ran=pl.col("start").is_not_null(),
        priority=pl.col("priority").fill_null(0).cast(pl.Int32),
        **{name: pl.when(pl.col(column) != "").then(column) for name, column in text.items()},
    )


def with_throttles(jobs: pl.DataFrame, others: list[SourceFile]) -> pl.DataFrame:
    """Take from JSON beside a log how many tasks of an array may run at once, where the log has no such thing."""
    logs = [source for source in others if is_json_log(Peek(source.path).beginning(source))]
    if not logs or not jobs["array"].count() or jobs["array_limit"].any():
        return jobs
    number = pl.col("name").str.extract(r"(\d+)_[^_]*$")
    known = throttles(logs[0])
    jobs = jobs.with_columns(number=number).join(known, on="number", how="left", maintain_order="left")
    return jobs.with_columns(array_limit=pl.coalesce("most", "array_limit")).drop("number", "most")


def _series(jobs: pl.DataFrame) -> dict[str, pl.LazyFrame]:
    """What the log tells of jobs that a workload has no column for."""
    series = {
        "requested": jobs.filter(pl.col("limit").is_not_null()).select("job", seconds="limit"),
        "eligible_logged": jobs.filter(pl.col("eligible_logged").is_not_null()).select(
            "job", eligible="eligible_logged"
        ),
        "unsized": jobs.filter("unsized").select("job"),
    }
    return {name: frame.lazy() for name, frame in series.items() if frame.height}


def _placements(jobs: pl.DataFrame, lists: pl.DataFrame | None) -> pl.LazyFrame | None:
    """One row for each job and node of it, unfolded only when somebody asks: a log of a large machine has many."""
    if lists is None or not lists["node"].list.len().sum():
        return None
    ran = jobs.lazy().filter("ran").select("job", "NodeList", "status", "start", "end")
    named = lists.lazy().filter(pl.col("node").list.len() > 0)
    named = named.with_columns(worker=pl.int_ranges(pl.col("node").list.len()))
    split_arrays = ran.join(named, on="NodeList", maintain_order="left").explode("node", "worker")
    return split_arrays.select(list(PLACEMENTS)).cast(PLACEMENTS)  # type: ignore[arg-type]


def _notes(records: JobRecords, nodes: NodeInventory | None, zone: str | None) -> tuple[str, ...]:
    frame = records.frame
    apart = frame.filter("array")
    rows, untold = apart.select("file", "line").n_unique(), frame["untold"].sum()
    ran = frame.filter(pl.col("eligible") - pl.col("submit") > HOLD_SECONDS).height
    notes = {
        "times are read as UTC, since the log has no time zone: set `zone`": zone is None,
        f"{records.steps:,} job steps are counted with their jobs": records.steps,
        f"{rows:,} rows stand for array tasks that had not started: {apart.height:,} jobs": rows,
        f"{untold:,} rows stand for an unknown number of array tasks: each is one job here": untold,
        f"{frame['uneven'].sum():,} jobs have GPUs that do not divide evenly by their nodes: "
        "counted as one instance per GPU": frame["uneven"].any(),
        f"{frame['got'].sum():,} jobs have no requested GPU type: the allocated type is used": frame["got"].any(),
        f"{frame['unsized'].sum():,} jobs have fractional GPUs of unknown size: counted as whole GPUs; "
        f"{'the list of nodes does not give it' if nodes else 'a list of nodes would give the size'}": frame[
            "unsized"
        ].any(),
        f"{ran:,} jobs became eligible more than a minute after submission (dependency or begin time): "
        "that time counts as waiting, with the reason `not_eligible`": ran,
        "no column Eligible: time held by a dependency or a begin time counts as waiting": frame.height
        and not (frame["Eligible"] != "").any(),
        "no job has a GPU: AccountingStorageTRES in slurm.conf must include gres/gpu": frame.height
        and not frame["gpu_milli"].sum(),
        "the node lists are too long to keep: no placements": records.lists is None,
        "no list of nodes beside the log: make one with `scontrol show node > nodes.txt`": nodes is None,
    }
    return (*(note for note, holds in notes.items() if holds), *(nodes.notes if nodes else ()))


def _unread(lists: list[tuple[SourceFile, str]], others: list[SourceFile]) -> tuple[str, ...]:
    passed = [source.name for source, _ in lists] + [source.name for source in others]
    return (f"not read: {', '.join(passed[:10])}",) if passed else ()


def _fits(peek: Peek) -> bool:
    # A list of nodes alone is Slurm's too: its reader tells what is missing.
    lists = (kind_of(peek.beginning(source).lstrip("\ufeff")) for source in peek.files.values())
    logs = peek.has_columns("JobID", "Submit", "State", separator="|")
    return logs or any(lists) or any(is_json_log(peek.beginning(source)) for source in peek.files.values())


FORMAT = Format(
    name="slurm",
    title="Slurm's own log",
    expects="what `sacct -a -P` prints, JobID, Submit and State at least; beside it `scontrol show node` or `sinfo`",
    licence="yours",
    origin="your cluster: sacct(1), scontrol(1), sinfo(1)",
    read=read,
    fits=_fits,
    options=frozenset({"zone", "since"}),
)
