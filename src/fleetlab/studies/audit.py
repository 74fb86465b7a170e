"""Audit a log: is its recorded schedule feasible on its cluster, and how do recorded waits compare with simulated ones?

The checks know no policy. What cannot be checked is reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Unpack

import polars as pl

from fleetlab.core import Cluster, Estimate, Scenario, Trace, TraceError, Words, WorkloadError
from fleetlab.core.coverage import Coverage
from fleetlab.core.durations import beside_the_log, plural
from fleetlab.core.job_classes import gpu_request, partitions, queue
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import simulate
from fleetlab.sim.simulate import world_of
from fleetlab.stats import ANY, POSITIVE, batch_means

# -- when more is allocated than there is ------------------------------------------------------------------------------

DETAILED = 1000  # violations whose jobs are listed
LISTED_JOBS = 50  # jobs listed per violation
VIOLATIONS: dict[str, pl.DataType] = {
    "check": pl.String(),
    "where": pl.String(),
    "from": pl.Float64(),
    "until": pl.Float64(),
    "allocated": pl.Float64(),
    "capacity": pl.Float64(),
    "jobs": pl.List(pl.Int64()),
}


def overcommitted(allocations: pl.DataFrame, capacity: pl.DataFrame) -> pl.DataFrame:
    """Return the maximal intervals in which more is allocated than there is, with the peak and its instant.

    `allocations` has where, start, end and amount; `capacity` has where and capacity. At one instant ends come before
    starts, and an allocation of no duration counts for nothing.
    """
    allocations = allocations.filter((pl.col("amount") > 0) & (pl.col("end") > pl.col("start")))
    begin = allocations.select("where", time="start", change="amount")
    end = allocations.select("where", time="end", change=-pl.col("amount"))
    level = (
        pl.concat([begin, end])
        .group_by("where", "time")
        .agg(pl.col("change").sum())
        .sort("where", "time")
        .with_columns(allocated=pl.col("change").cum_sum().over("where"), until=pl.col("time").shift(-1).over("where"))
        .join(capacity, on="where", how="left", maintain_order="left")
        .with_columns(over=pl.col("allocated") > pl.col("capacity").fill_null(0))
    )
    level = level.with_columns(interval=pl.struct("where", "over").rle_id())
    return (
        level.filter("over")
        .group_by("interval", maintain_order=True)
        .agg(
            pl.col("where").first(),
            pl.col("time").first().alias("from"),
            pl.col("until").last(),
            pl.col("allocated").max().cast(pl.Float64),
            pl.col("capacity").first().fill_null(0).cast(pl.Float64),
            pl.col("time").get(pl.col("allocated").arg_max()).alias("at"),
        )
        .drop("interval")
    )


def violations(check: str, allocations: pl.DataFrame, capacity: pl.DataFrame) -> pl.DataFrame:
    """Return what `overcommitted` does, with the jobs at each peak; `allocations` has a column `job` too."""
    rows = overcommitted(allocations, capacity).sort("from", "where").with_row_index("row")
    jobs = _jobs_at(allocations, rows.head(DETAILED))
    rows = rows.join(jobs, on="row", how="left", maintain_order="left").with_columns(check=pl.lit(check))
    return rows.select(pl.col(name).cast(kind) for name, kind in VIOLATIONS.items())


def _jobs_at(allocations: pl.DataFrame, peaks: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with an allocation at the peak of each violation."""
    some = allocations.join(peaks.select("where").unique(), on="where", how="semi")
    parts = some.partition_by("where", as_dict=True)
    rows = []
    for row, where, at in peaks.select("row", "where", "at").iter_rows():
        now = (pl.col("start") <= at) & (pl.col("end") > at) & (pl.col("amount") > 0)
        rows.append((row, parts[(where,)].filter(now)["job"].unique().sort().head(LISTED_JOBS).to_list()))
    return pl.DataFrame(rows, schema={"row": pl.UInt32, "jobs": pl.List(pl.Int64)}, orient="row")


# -- the audit ---------------------------------------------------------------------------------------------------------

WHOLE = 1000  # milli of one GPU
ALL = "all"
# What a node has, and an instance requests.
AMOUNTS = {"milli-GPU": "gpu_milli", "milli-CPU": "cpu_milli", "MiB of memory": "memory_mib", "MiB of disk": "disk_mib"}
CHECKS: dict[str, pl.DataType] = {
    "check": pl.String(), "examined": pl.Int64(), "violations": pl.Int64(), "remark": pl.String()
}  # fmt: skip
WAITS = ("recorded wait", "simulated wait", "wait change")


class AuditCheck(NamedTuple):
    """One check: how many rows it examined, the violations, and what it could not examine."""

    name: str
    examined: int
    violations: pl.DataFrame
    remark: str = ""


class Audit(FieldsResult):
    """The violations of a recorded schedule, the checks, and recorded and simulated waits."""

    @property
    def checks(self) -> pl.DataFrame:
        """One row per check."""
        return self.frames["checks"]

    @property
    def waits(self) -> pl.DataFrame:
        """Recorded and simulated waits by class of jobs."""
        return self.frames["waits"]

    @property
    def violations(self) -> pl.DataFrame:
        """One row per violation."""
        return self.frames["violations"]

    @property
    def feasible(self) -> bool:
        """Whether no check found a violation."""
        return self.violations.is_empty()


def audit(
    source: ScenarioLike, cluster: Cluster | None = None, *, progress: Progress = silent, **words: Unpack[Words]
) -> Audit:
    """Check whether the schedule of a log is feasible on its cluster, and compare recorded with simulated waits.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it; the words choose the policy of the simulation.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    progress
        Called as the simulation advances.

    Returns
    -------
    Audit
        The violations by check, and recorded beside simulated waits.

    Raises
    ------
    TraceError
        If the trace cannot be opened, or has no cluster.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.audit("builtin:200")
    <Audit: The recorded schedule is feasible: no violation in 6 checks.>
    """
    scenario = Scenario.of(source, cluster, **words)
    if scenario.load != 1:
        raise WorkloadError("an audit compares with the log as recorded: leave `load` out")
    nodes = _cluster(scenario)
    checks: list[AuditCheck] = []
    for check in _checks(scenario.trace, nodes):
        checks.append(check)
        progress("checking the recorded schedule", len(checks), min(1.0, len(checks) / 10))
    both, notes = _both(scenario, nodes)
    waits, agreement = _waits(both), _agreement(both, scenario)
    if unsized := _listed(scenario.trace, "unsized").height:
        notes += (f"{unsized:,} jobs have a fraction of a GPU of unknown size: they count as one milli-GPU",)
    rows = [(c.name, c.examined, c.violations.height, c.remark) for c in checks]
    broken = pl.concat([c.violations for c in checks]).sort("from", "where", "check", nulls_last=True)
    frames = {"checks": pl.DataFrame(rows, schema=CHECKS, orient="row"), "waits": waits, "violations": broken}
    frames |= {"agreement": agreement} if agreement.height else {}
    settings = scenario.policy.words() if nodes is None else scenario.words()
    provenance = scenario.provenance("audit", settings)
    refused = None if nodes is None else world_of(scenario).refused
    coverage = Coverage.of(scenario.run_times, refused)
    return Audit(
        provenance,
        (*_findings(frames, synthetic=scenario.trace.workload.synthetic), *_of_accounts(scenario, agreement)),
        _estimates(frames),
        frames,
        notes=notes,
        coverage=coverage,
    )


def _cluster(scenario: Scenario) -> Cluster | None:
    try:
        return scenario.cluster
    except TraceError:  # the trace has none: times can be checked all the same
        return None


def _estimates(frames: Mapping[str, pl.DataFrame]) -> tuple[Estimate, ...]:
    estimates = [Estimate.exact("violations", frames["violations"].height)]
    names = dict(zip(WAITS, ("mean wait, recorded", "mean wait, simulated", "simulated minus recorded"), strict=True))
    for row in frames["waits"].filter(pl.col("class") == ALL).iter_rows(named=True):
        estimates += [Estimate(names[w], row[w], row[f"{w} low"], row[f"{w} high"], "s") for w in WAITS]
    return tuple(estimates)


def _findings(frames: Mapping[str, pl.DataFrame], *, synthetic: bool) -> tuple[str, ...]:
    """Return whether the schedule is feasible, and the waits of a log whose jobs somebody waited for."""
    count, checks = frames["violations"].height, frames["checks"]
    done = checks.filter(pl.col("examined") > 0).height
    findings = [f"The recorded schedule has {count:,} violations in {done} checks." if count else
                f"The recorded schedule is feasible: no violation in {done} checks."]  # fmt: skip
    findings += [
        beside_the_log(row["recorded wait"], row["simulated wait"])
        for row in frames["waits"].filter(pl.col("class") == ALL).iter_rows(named=True)
        if not synthetic
    ]
    return tuple(findings)


# -- checks ----------------------------------------------------------------------------------------------------------


def _listed(trace: Trace, name: str) -> pl.DataFrame:
    """Return the jobs of a series.

    `unsized` ones count as whole GPUs because the size of their fraction is unknown; of `unsplit` ones it is unknown
    how much each of their nodes gave.
    """
    series = trace.series.get(name)
    return pl.DataFrame(schema={"job": pl.Int64}) if series is None else series.select("job").collect()


def _checks(trace: Trace, cluster: Cluster | None) -> Iterator[AuditCheck]:
    unsized = pl.col("job").is_in(_listed(trace, "unsized")["job"].implode())
    jobs = trace.workload.frame.with_columns(gpu_milli=pl.when(unsized).then(1).otherwise("gpu_milli"))
    yield _times(jobs)
    if cluster is None:
        yield AuditCheck("capacity", 0, _none(), "the trace has no cluster: --cluster FILE.toml gives it one")
        return
    # The allocation of a job without an end may have been a second or a year: no violation must depend on it.
    ran = jobs.filter(pl.col("start").is_not_null() & pl.col("end").is_not_null())
    yield _gpu_types(jobs, cluster)
    yield from _pools(ran, jobs.height - ran.height, cluster)
    if trace.placements is None:
        yield AuditCheck("nodes", 0, _none(), "the log does not say on which nodes jobs ran")
        return
    yield from _nodes(trace.placements, jobs, cluster, _listed(trace, "unsplit"))


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema=VIOLATIONS)


def _of_jobs(check: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return violations of one job each; `rows` has job and, where known, where, from and until."""
    table = rows.with_columns(jobs=pl.concat_list("job"), check=pl.lit(check))
    table = table.with_columns(pl.lit(None).alias(name) for name in VIOLATIONS if name not in table.columns)
    return table.select(pl.col(name).cast(kind) for name, kind in VIOLATIONS.items())


def _times(jobs: pl.DataFrame) -> AuditCheck:
    with_times = jobs.filter(pl.col("start").is_not_null())
    early = with_times.filter(pl.col("start") < pl.col("submit"))
    rows = early.select("job", pl.col("start").alias("from"), pl.col("submit").alias("until"))
    not_counted = jobs.height - with_times.height
    remark = f"{plural(not_counted, 'job')} without a start" if not_counted else ""
    return AuditCheck("no start before submit", with_times.height, _of_jobs("start before submit", rows), remark)


def _gpu_types(jobs: pl.DataFrame, cluster: Cluster) -> AuditCheck:
    there = cluster.frame["gpu_type"].drop_nulls().unique().to_list()
    typed = jobs.filter((pl.col("gpu_milli") > 0) & (pl.col("gpu_types").list.len() > 0))
    able = pl.col("gpu_types").list.eval(pl.element().is_in(there)).list.any()
    rows = typed.filter(~able).select("job", pl.col("gpu_types").list.join(", ").alias("where"),
                                      pl.col("submit").alias("from"))  # fmt: skip
    return AuditCheck("GPU types of the cluster", typed.height, _of_jobs("no node of its GPU types", rows))


def _pools(ran: pl.DataFrame, without: int, cluster: Cluster) -> Iterator[AuditCheck]:
    """Check the whole cluster, and each set of GPU types that jobs name, with the jobs that may use no other.

    If any set is overcommitted, no placement is feasible; the reverse does not hold.
    """
    not_counted = [f"{plural(without, 'job')} without a start or an end not counted"] if without else []
    for what, column in AMOUNTS.items():
        total = int(cluster.frame.select(_capacity(column).sum()).item())
        remarks = [*not_counted, *(["no node has any"] if not total else [])]
        allocations = _allocations(ran, column).with_columns(where=pl.lit(ALL))
        capacity = pl.DataFrame({"where": [ALL], "capacity": [total]})
        if column == "gpu_milli":
            allocations, capacity = _by_types(ran, allocations, capacity, cluster)
        broken = violations(f"more {what} than the cluster has", allocations, capacity)
        yield AuditCheck(f"{what} of the cluster", ran.height, broken, "; ".join(remarks))


def _capacity(column: str) -> pl.Expr:
    return pl.col("gpus").cast(pl.Int64) * WHOLE if column == "gpu_milli" else pl.col(column)


def _allocations(ran: pl.DataFrame, column: str) -> pl.DataFrame:
    return ran.select("job", "start", "end", amount=pl.col(column).cast(pl.Int64) * pl.col("instances"))


def _by_types(
    ran: pl.DataFrame, allocations: pl.DataFrame, capacity: pl.DataFrame, cluster: Cluster
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add each set of GPU types that jobs name: all jobs that must run inside it, and the GPUs it has."""
    named = ran.with_columns(types=pl.col("gpu_types").list.sort().list.join("|"))
    gpus = dict(cluster.frame.group_by("gpu_type").agg(_capacity("gpu_milli").sum()).drop_nulls().iter_rows())
    sets = [types for types in named["types"].unique().sort() if types]
    parts, capacities = [allocations], [capacity]
    for types in sets:
        inside = [other for other in sets if set(other.split("|")) <= set(types.split("|"))]
        mine = _allocations(named.filter(pl.col("types").is_in(inside)), "gpu_milli")
        parts.append(mine.with_columns(where=pl.lit(types)))
        total = sum(gpus.get(t, 0) for t in types.split("|"))
        capacities.append(pl.DataFrame({"where": [types], "capacity": [total]}))
    return pl.concat(parts), pl.concat(capacities)


def _nodes(
    placements: pl.LazyFrame, jobs: pl.DataFrame, cluster: Cluster, unsplit: pl.DataFrame
) -> Iterator[AuditCheck]:
    """Check the nodes on which the log saw instances."""
    requests = jobs.select("job", "instances", "gpu_types", "app", "max_per_node", *AMOUNTS.values())
    rows = placements.select("job", pl.col("node").cast(pl.String), "start", "end").collect()
    placed = rows.drop_nulls(["node", "start", "end"]).join(requests, on="job", how="inner")
    # A row for a part of an instance would count too much; one for several instances counts too little.
    whole = placed.filter(pl.len().over("job", "start") <= pl.col("instances"))
    remarks = []
    if not_placed := rows.height - placed.height:
        remarks.append(f"{not_placed:,} placements without a node, a start or an end")
    if parts := placed.height - whole.height:
        remarks.append(f"{parts:,} parts of instances")
    remark = " and ".join(remarks) + (" are left out" if remarks else "")
    on_nodes = whole.join(cluster.frame.select("node", "gpu_type", there="node"), on="node", how="left")
    columns = pl.col("node").alias("where"), pl.col("start").alias("from"), pl.col("end").alias("until")
    unknown = on_nodes.filter(pl.col("there").is_null()).select("job", *columns)
    yield AuditCheck("nodes of the cluster", on_nodes.height, _of_jobs("no such node", unknown), remark)
    on_nodes = on_nodes.filter(pl.col("there").is_not_null())
    typed = on_nodes.filter((pl.col("gpu_types").list.len() > 0) & (pl.col("gpu_milli") > 0))
    wrong = typed.filter(~pl.col("gpu_type").is_in(pl.col("gpu_types"))).select("job", *columns)
    yield AuditCheck("GPU types of nodes", typed.height, _of_jobs("node of another GPU type", wrong))
    yield from _on_nodes(on_nodes.with_columns(unsplit=pl.col("job").is_in(unsplit["job"].implode())), cluster)


def _on_nodes(placed: pl.DataFrame, cluster: Cluster) -> Iterator[AuditCheck]:
    for what, column in AMOUNTS.items():
        capacity = cluster.frame.select(where="node", capacity=_capacity(column))
        exact = placed.filter(~pl.col("unsplit"))
        allocations = exact.select("job", "start", "end", where="node", amount=pl.col(column).cast(pl.Int64))
        allocations = pl.concat([allocations, _least(placed.filter("unsplit"), column, capacity)])
        allocations = allocations.filter(pl.col("amount") > 0)
        remark = "" if allocations.height else f"no placed job requests any {what}"
        broken = violations(f"more {what} than the node has", allocations, capacity)
        yield AuditCheck(f"{what} of each node", allocations.height, broken, remark)
    limited = placed.filter((pl.col("max_per_node") > 0) & pl.col("app").is_not_null())
    name = pl.concat_str("node", pl.lit(", "), pl.col("app").cast(pl.String))
    allocations = limited.select("job", "start", "end", where=name, amount=pl.lit(1, dtype=pl.Int64))
    capacity = limited.group_by(where=name).agg(capacity=pl.col("max_per_node").max().cast(pl.Int64))
    broken = violations("more instances of an app than allowed", allocations, capacity)
    yield AuditCheck("instances of an app per node", allocations.height, broken)


def _least(placed: pl.DataFrame, column: str, capacity: pl.DataFrame) -> pl.DataFrame:
    """Return what each node gave at least to jobs whose split is unknown: what its other nodes cannot have given."""
    whole = pl.col(column).cast(pl.Int64) * pl.col("instances")
    nodes = placed.select("job", "start", "end", "node", whole=whole).unique(maintain_order=True)
    nodes = nodes.join(capacity, left_on="node", right_on="where", how="left", maintain_order="left")
    others = pl.col("capacity").sum().over("job", "start") - pl.col("capacity")
    least = pl.max_horizontal(pl.col("whole") - others, 0)
    return nodes.select("job", "start", "end", where="node", amount=least)


# -- waits -----------------------------------------------------------------------------------------------------------


def _waits(both: pl.DataFrame | None) -> pl.DataFrame:
    """Return mean waits by class, recorded and simulated, of jobs that have both."""
    schema = {"class": pl.String(), "jobs": pl.Int64()}
    for what in WAITS:
        schema |= {what: pl.Float64(), f"{what} low": pl.Float64(), f"{what} high": pl.Float64()}
    schema |= {"P90 recorded wait": pl.Float64(), "P90 simulated wait": pl.Float64()}
    if both is None:
        return pl.DataFrame(schema=schema)
    parts = {ALL: both} | {str(k[0]): v for k, v in sorted(both.partition_by("class", as_dict=True).items())}
    return pl.DataFrame([_row(name, part) for name, part in parts.items()], schema=schema, orient="row")


AGREEMENT: dict[str, pl.DataType] = {
    "of": pl.String(), "jobs": pl.Int64(), "recorded wait": pl.Float64(), "simulated wait": pl.Float64(),
    "ratio": pl.Float64(), "correlation": pl.Float64(),
}  # fmt: skip
FEWEST = 30  # jobs of a partition or account that has a row
KINDS = {"partition": partitions(), "account": queue()}


def _agreement(both: pl.DataFrame | None, scenario: Scenario) -> pl.DataFrame:
    """Return how close simulated waits are to recorded ones: of all jobs, and by partition and account."""
    if both is None:
        return pl.DataFrame(schema=AGREEMENT)
    named = both.join(scenario.workload.frame.select("job", **KINDS), on="job", maintain_order="left")
    parts = {ALL: named}
    for kind in KINDS:
        if named[kind].n_unique() > 1:
            parts |= {f"{kind} {k[0]}": part for k, part in sorted(named.partition_by(kind, as_dict=True).items())}
    rows = [
        (name, part.height, recorded, simulated, simulated / recorded if recorded else None, _correlation(part))
        for name, part in parts.items()
        if part.height >= FEWEST or name == ALL
        for recorded, simulated in part.select(pl.col("recorded").mean(), pl.col("simulated").mean()).iter_rows()
    ]
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def _correlation(part: pl.DataFrame) -> float | None:
    value = part.select(pl.corr("recorded", "simulated")).item()
    return None if value is None or math.isnan(value) else float(value)


def _of_accounts(scenario: Scenario, agreement: pl.DataFrame) -> list[str]:
    """Say how well waits agree job by job, and, where accounts are not known, what that means by account."""
    findings = []
    if agreement.height and (value := agreement["correlation"][0]) is not None:
        findings.append(f"Job by job, recorded and simulated waits have a correlation of {value:.2f}.")
    site = scenario.scheduler
    accounts = None if site is None else site.accounts()
    tree = accounts is not None and any(queue.parent for queue in accounts.tree.values())
    if site is not None and "fair share" in site.ranks_by() and not tree:
        findings.append(
            "By account, waits are less close: the configuration has no tree of accounts, and all shares are taken to "
            "be equal. `sacctmgr dump` or `sacctmgr show assoc -P` beside the log has them."
        )
    return findings


def _both(scenario: Scenario, cluster: Cluster | None) -> tuple[pl.DataFrame | None, tuple[str, ...]]:
    """Return one row per job with both waits, in order of arrival; or a note why there is none."""
    recorded = scenario.workload.frame.filter(pl.col("runtime").is_not_null() & (pl.col("start") >= pl.col("submit")))
    if cluster is None:
        return None, ("waits are not simulated: the trace has no cluster",)
    if recorded.is_empty():
        return None, ("waits are not compared: no job of the log has a start and a runtime",)
    result = simulate(scenario.replace(min_coverage=0.0))  # what the log asks for is examined anyway
    both = recorded.select("job", gpu_request().alias("class")).join(result.recorded, on="job").sort("job")
    notes = [f"waits are simulated in one run of the log as it is, with {scenario.title} and the recorded runtimes"]
    for reason, count in result.refused.group_by("reason").len().sort("reason").iter_rows():
        notes.append(f"{count:,} jobs are not simulated, so that others may wait less: {reason}")
    return (both if both.height else None), tuple(notes)


def _row(name: str, part: pl.DataFrame) -> tuple[object, ...]:
    recorded, simulated = part["recorded"].to_numpy(), part["simulated"].to_numpy()
    row: list[object] = [name, part.height]
    for values, within in ((recorded, POSITIVE), (simulated, POSITIVE), (simulated - recorded, ANY)):
        row += batch_means(values, within).interval()
    return (*row, part["recorded"].quantile(0.9, "linear"), part["simulated"].quantile(0.9, "linear"))
