"""A Slurm cluster's own log: what `sacct -P` prints, and beside it what `scontrol show node` or `sinfo` does.

A row of sacct is a job, a task of an array, a part of a heterogeneous job, or a step of one of these. Steps go into
their job. Tasks of an array that have not started stand in one row, `103_[1-5%2]`, and come apart here. Times are those
of the cluster's wall clock, which the log does not name. What no column of a workload holds is a series: `summary`.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.core.workload import SCHEMA
from fleetlab.schedulers.slurm.reader.conf import runs_epilog, site_notes
from fleetlab.schedulers.slurm.reader.dependencies import with_dependencies
from fleetlab.schedulers.slurm.reader.jobs import read_jobs
from fleetlab.schedulers.slurm.reader.node_lists import KINDS, kind_of
from fleetlab.schedulers.slurm.reader.nodes import read_nodes
from fleetlab.schedulers.slurm.reader.sacct_json import is_json_log, throttles
from fleetlab.schedulers.slurm.reader.site import events_of, nodes_of, scheduler_of, site_beside, with_site
from fleetlab.schedulers.slurm.reader.site_text import Site
from fleetlab.schedulers.slurm.reader.submissions import is_jobcomp
from fleetlab.schedulers.slurm.reader.summary import (
    notes_of,
    placements,
    series_of,
    with_epilog,
    with_known_reservations,
)
from fleetlab.schedulers.slurm.reader.tres import PerGpu
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import PEEK, Format, Peek, finish, relative_to_first
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.input.times import clip_to_start, moment, valid_zone

# Worth asking for.
COLUMNS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,State,ElapsedRaw,Priority,AllocTRES,ReqTRES,"
    "NodeList,Timelimit,Reason,Flags,Constraints,Reservation,SubmitLine,JobName"  # the last may hold any character
)
DEMAND = ("instances", "cpu_milli", "memory_mib", "gpu_milli", "gpu_types", "distinct_nodes")
SUBMITTED = ("partitions", "constraint", "reservation", "exclusive", "requeue", "nice")


def read(path: Path, intake: Intake, *, zone: str | None = None, since: str | None = None) -> Trace:
    """Read one log of jobs or a folder of them, and what is beside it of the nodes and of the site's configuration."""
    logs, lists, others = _files(path)
    site = site_beside(path, others)
    zone = site.collected.get("zone") or None if zone is None else zone
    named, since = since, _since(site) if since is None else since
    clock = valid_zone("UTC" if zone is None else zone)
    begin = moment(since, clock)
    nodes = read_nodes(*lists[0], intake) if lists else nodes_of(site, intake)
    records = read_jobs(logs, intake, clock, nodes.per_gpu if nodes else PerGpu(), begin)
    jobs, older = clip_to_start(without_throttled_times(with_throttles(_jobs(records.frame), path)), begin)
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
    placed = placements(jobs, records.lists)
    if scheduler is not None and placed is not None:
        scheduler = with_known_reservations(scheduler, placed, jobs)
    if scheduler is not None and runs_epilog(site):
        scheduler = with_epilog(scheduler, placed, jobs)
    return finish(
        intake,
        workload,
        source=source,
        cluster=with_site(nodes.cluster if nodes else None, site),
        scheduler=scheduler,
        placements=placed,
        names=jobs.select("job", "name").lazy(),
        series=series_of(jobs, events_of(site, zero, clock)),
        notes=(
            *notes_of(records, jobs, nodes, zone),
            *waits,
            *(older if since == named or jobs["initial"].any() else ()),
            *(site_notes(site, scheduler) if scheduler else ()),
            *_unread(lists[1:], [s for s in others if s.name not in site.all_files]),
        ),
        settings={"zone": clock, "since": since, "files": [s.name for s in (*logs, *(s for s, _ in lists[:1]))]},
    )


def _since(site: Site) -> str | None:
    """When the log begins, if whoever collected it named a time: `now-30days` is none by now."""
    since = site.collected.get("since", "")
    return since if since[:4].isdigit() else None


def _files(path: Path) -> tuple[list[SourceFile], list[tuple[SourceFile, str]], list[SourceFile]]:
    """The logs of jobs, the lists of nodes with the best first, and what is neither."""
    here = sources(path)
    beside = here if path.is_dir() else sources(path.parent)
    peek = Peek(path)
    begins = {source: peek.beginning(source).lstrip("\ufeff") for source in {*here, *beside}}
    logs = [source for source in here if _is_log(begins[source])]
    for form in (is_json_log, is_jobcomp):  # the same jobs, with fewer columns
        logs = logs or [source for source in here if form(begins[source])]
    if not logs:
        for source in here:
            with source.open() as stream:
                stream.read(PEEK)  # a damaged archive says so itself
        nodes = "a list of nodes but " if any(kind_of(begins[source]) for source in here) else ""
        msg = f"{path.name}: {nodes}no job log: its first line must have JobID, Submit and State, separated by |"
        raise TraceError(msg, hint=f"sacct -a -D -P -S 2024-01-01 -o {COLUMNS}")
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
        *("name", "JobIDRaw", "User", "JobName", "wish", "begin", "hold", "NodeList", "on_first"),
        *("unsized", "unsplit", "Flags", "Reason", "State", "piece"),
        *("submit", "start", "end", "runtime", "status", "limit"),
        *DEMAND,
        *SUBMITTED,
        parent=parent,
        gang=pl.when(pl.col("JobID").str.contains("+", literal=True)).then(parent),
        array=pl.when(in_array).then(parent),
        array_limit=pl.when(in_array).then(pl.col("array_limit").max().over(parent)).otherwise(0),
        # A pending job that is not eligible yet is not until the log ends; of others, nothing is known without a time.
        eligible=pl.when((pl.col("status") == "waiting") & pl.col("eligible").is_null() & tells)
        .then(last)
        .when(pl.col("eligible").is_not_null())
        .then(pl.max_horizontal("submit", pl.min_horizontal("eligible", "start"))),
        ran=pl.col("start").is_not_null(),
        with_line=pl.col("SubmitLine") != "",
        initial=pl.lit(value=False),  # until a beginning is named: what has no start was cancelled while it waited
        priority=pl.col("priority").fill_null(0).cast(pl.Int32),
        **{name: pl.when(pl.col(column) != "").then(column) for name, column in text.items()},
    )


def with_throttles(jobs: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Take from JSON beside a log how many tasks of an array may run at once, where the log has no such thing."""
    unknown = pl.col("array").is_not_null() & (pl.col("array_limit") == 0)
    if jobs["with_line"].any() or not jobs.select(unknown.any()).item():
        return jobs
    beside = sources(path if path.is_dir() else path.parent)
    logs = [source for source in beside if is_json_log(Peek(path).beginning(source))]
    if not logs:
        return jobs
    number = pl.col("name").str.extract(r"(\d+)_[^_]*$")
    known = throttles(logs[0])
    jobs = jobs.with_columns(number=number).join(known, on="number", how="left", maintain_order="left")
    limit = pl.when(unknown).then(pl.coalesce("most", "array_limit")).otherwise("array_limit")
    return jobs.with_columns(array_limit=limit).drop("number", "most")


def without_throttled_times(jobs: pl.DataFrame) -> pl.DataFrame:
    """Let all tasks of an array with a throttle be eligible with the first of them.

    Slurm logs a task as eligible when the throttle lets it start. When that is depends on the schedule: it is a limit.
    """
    throttled = (pl.col("array_limit") > 0) & pl.col("eligible").is_not_null() & ~pl.col("hold")
    first = pl.max_horizontal("submit", pl.col("eligible").min().over("array"))
    return jobs.with_columns(eligible=pl.when(throttled).then(first).otherwise("eligible"))


def _unread(lists: list[tuple[SourceFile, str]], others: list[SourceFile]) -> tuple[str, ...]:
    passed = [source.name for source, _ in lists] + [source.name for source in others]
    return (f"not read: {', '.join(passed[:10])}",) if passed else ()


def _fits(peek: Peek) -> bool:
    # A list of nodes alone is Slurm's too: its reader tells what is missing.
    lists = (kind_of(peek.beginning(source).lstrip("\ufeff")) for source in peek.files.values())
    logs = peek.has_columns("JobID", "Submit", "State", separator="|")
    begins = (peek.beginning(source) for source in sources(peek.path))
    return logs or any(lists) or any(is_json_log(text) or is_jobcomp(text) for text in begins)


FORMAT = Format(
    name="slurm",
    title="Slurm's own log",
    expects="what `sacct -a -D -P` (JobID, Submit, State at least) or `--json` prints; beside it what `scontrol show "
    "node`, `sinfo`, `scontrol show config|partition|reservation`, `sacctmgr` and `sshare` do, and slurm.conf",
    licence="yours",
    origin="your cluster: sacct(1), scontrol(1), sinfo(1), sacctmgr(1), sshare(1), slurm.conf(5)",
    read=read,
    fits=_fits,
    unpacks=True,
    options=frozenset({"zone", "since"}),
)
