"""Could the schedule that a log recorded have happened on the cluster it names? And would it here have been so?

Nothing here knows a policy. What could not be looked at is said, not passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Result, Trace
from fleetlab.sim import simulate
from fleetlab.studies._spread import over_time
from fleetlab.studies._sweep import VIOLATIONS, violations

WHOLE = 1000  # milli of one GPU
ALL = "all"
# What a node has, and what an instance asks of it.
AMOUNTS = {"GPU milli": "gpu_milli", "CPU milli": "cpu_milli", "memory MiB": "memory_mib", "disk MiB": "disk_mib"}
CHECKS: dict[str, pl.DataType] = {
    "check": pl.String(), "looked at": pl.Int64(), "violations": pl.Int64(), "said": pl.String()
}  # fmt: skip

Progress = Callable[[str, int, float], None]
Check = tuple[str, int, pl.DataFrame, str]  # its name, how many it looked at, what it found, what it could not see


@dataclass(frozen=True, slots=True)
class Audit(Result):
    """What a log's schedule breaks, what was looked at, and how far simulated waits are from recorded ones."""

    checks: pl.DataFrame
    violations: pl.DataFrame
    waits: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """Nothing that was looked at speaks against it."""
        return self.violations.is_empty()

    def __repr__(self) -> str:
        return f"<Audit {self.provenance.source}, {self.violations.height:,} violations>"

    def summary(self) -> list[Estimate]:
        """How many violations, and the waits of all jobs that have both."""
        found = [Estimate.exact("violations", self.violations.height)]
        for row in self.waits.filter(pl.col("class") == ALL).iter_rows(named=True):
            for what, metric in (("recorded", "mean wait, recorded"), ("simulated", "mean wait, simulated"),
                                 ("difference", "simulated less recorded")):  # fmt: skip
                found.append(Estimate(metric, row[what], row[f"{what} low"], row[f"{what} high"], "s"))
        return found

    def tables(self) -> dict[str, pl.DataFrame]:
        """What was looked at, waits by class, and each violation."""
        return {"checks": self.checks, "waits": self.waits, "violations": self.violations}


def audit(
    trace: Trace,
    *,
    order: str = "fifo",
    backfill: str = "greedy",
    placement: str = "best_fit",
    progress: Progress | None = None,
) -> Audit:
    """Is the schedule of a log feasible on its cluster, and how far are simulated waits from recorded ones?"""
    rules = {"order": order, "backfill": backfill, "placement": placement}
    found: list[Check] = []
    for name, looked, broken, said in _checks(trace):
        found.append((name, looked, broken, said))
        if progress:
            progress("checks", len(found), min(1.0, len(found) / 10))
    waits, notes = _waits(trace, rules)
    if unsized := _unsized(trace).height:
        notes += (f"{unsized:,} jobs hold shares of unknown size: only a thousandth of a GPU each is proof",)
    rows = [(name, looked, broken.height, said) for name, looked, broken, said in found]
    broken = pl.concat([b for _, _, b, _ in found]).sort("from", "where", "check", nulls_last=True)
    return Audit(
        checks=pl.DataFrame(rows, schema=CHECKS, orient="row"),
        violations=broken,
        waits=waits,
        provenance=Provenance("audit", trace.workload.source, rules),
        notes=notes,
    )


# -- what is looked at ---------------------------------------------------------------------------------------------


def _unsized(trace: Trace) -> pl.DataFrame:
    """Jobs that count as whole GPUs since nobody knows how large their shares are: the least that one can be is 1."""
    found = trace.series.get("unsized")
    return pl.DataFrame(schema={"job": pl.Int64}) if found is None else found.select("job").collect()


def _checks(trace: Trace) -> Iterator[Check]:
    unsized = pl.col("job").is_in(_unsized(trace)["job"].implode())
    jobs = trace.workload.frame.with_columns(gpu_milli=pl.when(unsized).then(1).otherwise("gpu_milli"))
    yield _times(jobs)
    if trace.cluster is None:
        yield "capacity", 0, _nothing(), "the trace names no cluster: --cluster FILE.toml gives it one"
        return
    # Who ended at an unknown time may have held its part for a second or for good: a violation must not hang on that.
    ran = jobs.filter(pl.col("start").is_not_null() & pl.col("end").is_not_null())
    yield _types_there(jobs, trace.cluster)
    yield from _pools(ran, jobs.height - ran.height, trace.cluster)
    if trace.placements is None:
        yield "nodes", 0, _nothing(), "the log does not say on which nodes jobs ran"
        return
    yield from _nodes(trace.placements, jobs, trace.cluster)


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema=VIOLATIONS)


def _broken(check: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Violations of one job each; `rows` has job and, where there is one, where, from and until."""
    missing = {name: kind for name, kind in VIOLATIONS.items() if name not in rows.columns}
    found = rows.with_columns(jobs=pl.concat_list("job"), check=pl.lit(check))
    found = found.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items() if name not in
                               ("jobs", "check"))  # fmt: skip
    return found.select(pl.col(name).cast(kind) for name, kind in VIOLATIONS.items())


def _times(jobs: pl.DataFrame) -> Check:
    known = jobs.filter(pl.col("start").is_not_null())
    early = known.filter(pl.col("start") < pl.col("submit"))
    rows = early.select("job", pl.col("start").alias("from"), pl.col("submit").alias("until"))
    left = jobs.height - known.height
    return ("no start before its submit", known.height, _broken("a start before its submit", rows),
            f"{left:,} jobs have no start" if left else "")  # fmt: skip


def _types_there(jobs: pl.DataFrame, cluster: Cluster) -> Check:
    there = cluster.frame["gpu_type"].drop_nulls().unique().to_list()
    asked = jobs.filter((pl.col("gpu_milli") > 0) & (pl.col("gpu_types").list.len() > 0))
    able = pl.col("gpu_types").list.eval(pl.element().is_in(there)).list.any()
    rows = asked.filter(~able).select("job", pl.col("gpu_types").list.join(", ").alias("where"),
                                      pl.col("submit").alias("from"))  # fmt: skip
    return "types that the cluster has", asked.height, _broken("no node of its GPU types", rows), ""


def _pools(ran: pl.DataFrame, never: int, cluster: Cluster) -> Iterator[Check]:
    """What is held of each set of GPU types that jobs name, by those who may use no other; and of the whole cluster.

    If any set is held beyond what there is, no placement at all could have been; the other way round need not be.
    """
    left = [f"{never:,} jobs lack a start or an end, and are left out"] if never else []
    for what, column in AMOUNTS.items():
        total = int(cluster.frame.select(_there(column).sum()).item())
        said = [*left, *(["no node has any"] if not total else [])]
        held = _held(ran, column).with_columns(where=pl.lit(ALL))
        room = pl.DataFrame({"where": [ALL], "room": [total]})
        if column == "gpu_milli":
            held, room = _by_types(ran, held, room, cluster)
        yield (
            f"{what} of the cluster",
            ran.height,
            violations(f"more {what} than there is", held, room),
            "; ".join(said),
        )


def _there(column: str) -> pl.Expr:
    return pl.col("gpus").cast(pl.Int64) * WHOLE if column == "gpu_milli" else pl.col(column)


def _held(ran: pl.DataFrame, column: str) -> pl.DataFrame:
    return ran.select("job", "start", "end", amount=pl.col(column).cast(pl.Int64) * pl.col("instances"))


def _by_types(
    ran: pl.DataFrame, held: pl.DataFrame, room: pl.DataFrame, cluster: Cluster
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The same for each set of types that a job names: all demand that must lie inside it, beside what it has."""
    named = ran.with_columns(types=pl.col("gpu_types").list.sort().list.join("|"))
    gpus = dict(cluster.frame.group_by("gpu_type").agg(_there("gpu_milli").sum()).drop_nulls().iter_rows())
    sets = [words for words in named["types"].unique().sort() if words]
    more_held, more_room = [held], [room]
    for words in sets:
        inside = [other for other in sets if set(other.split("|")) <= set(words.split("|"))]
        mine = _held(named.filter(pl.col("types").is_in(inside)), "gpu_milli")
        more_held.append(mine.with_columns(where=pl.lit(words)))
        there = sum(gpus.get(t, 0) for t in words.split("|"))
        more_room.append(pl.DataFrame({"where": [words], "room": [there]}))
    return pl.concat(more_held), pl.concat(more_room)


def _nodes(placements: pl.LazyFrame, jobs: pl.DataFrame, cluster: Cluster) -> Iterator[Check]:
    """What instances hold of the node on which the log saw them."""
    asks = jobs.select("job", "instances", "gpu_types", "app", "max_per_node", *AMOUNTS.values())
    rows = placements.select("job", pl.col("node").cast(pl.String), "start", "end").collect()
    placed = rows.drop_nulls(["node", "start", "end"]).join(asks, on="job", how="inner")
    # A row that stands for less than an instance would count too much; one that stands for more counts too little.
    part = pl.len().over("job", "start") > pl.col("instances")
    whole = placed.filter(~part)
    said = []
    if left := rows.height - placed.height:
        said.append(f"{left:,} placements lack a node, a start or an end")
    if cut := placed.height - whole.height:
        said.append(f"{cut:,} are parts of instances")
    words = "; ".join(said) + (", and are left out" if said else "")
    where = whole.join(cluster.frame.select("node", "gpu_type", known="node"), on="node", how="left")
    named = pl.col("node").alias("where"), pl.col("start").alias("from"), pl.col("end").alias("until")
    strange = where.filter(pl.col("known").is_null()).select("job", *named)
    yield "nodes that the cluster has", where.height, _broken("no such node", strange), words
    known = where.filter(pl.col("known").is_not_null())
    picky = known.filter((pl.col("gpu_types").list.len() > 0) & (pl.col("gpu_milli") > 0))
    wrong = picky.filter(~pl.col("gpu_type").is_in(pl.col("gpu_types"))).select("job", *named)
    yield "types of nodes", picky.height, _broken("not one of its GPU types", wrong), ""
    yield from _on_nodes(known, cluster)


def _on_nodes(placed: pl.DataFrame, cluster: Cluster) -> Iterator[Check]:
    for what, column in AMOUNTS.items():
        room = cluster.frame.select(where="node", room=_there(column))
        held = placed.select("job", "start", "end", where="node", amount=pl.col(column).cast(pl.Int64))
        held = held.filter(pl.col("amount") > 0)
        said = "" if held.height else f"no placed job says how much {what} it asks for"
        yield f"{what} of each node", held.height, violations(f"more {what} than the node has", held, room), said
    limited = placed.filter((pl.col("max_per_node") > 0) & pl.col("app").is_not_null())
    name = pl.concat_str("node", pl.lit(", "), pl.col("app").cast(pl.String))
    held = limited.select("job", "start", "end", where=name, amount=pl.lit(1, dtype=pl.Int64))
    room = limited.group_by(where=name).agg(room=pl.col("max_per_node").max().cast(pl.Int64))
    yield "instances of an app on one node", held.height, violations("more of its app than allowed", held, room), ""


# -- waits ---------------------------------------------------------------------------------------------------------

WAITS = ("recorded", "simulated", "difference")


def _waits(trace: Trace, rules: dict[str, str]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Mean waits by class, as recorded and as simulated, of jobs that have both."""
    schema = {"class": pl.String(), "jobs": pl.Int64()}
    for what in WAITS:
        schema |= {what: pl.Float64(), f"{what} low": pl.Float64(), f"{what} high": pl.Float64()}
    schema |= {"P90 recorded": pl.Float64(), "P90 simulated": pl.Float64()}
    both, notes = _both(trace, rules)
    if both is None:
        return pl.DataFrame(schema=schema), notes
    parts = {ALL: both} | {str(k[0]): v for k, v in sorted(both.partition_by("class", as_dict=True).items())}
    return pl.DataFrame([_row(name, part) for name, part in parts.items()], schema=schema, orient="row"), notes


def _both(trace: Trace, rules: dict[str, str]) -> tuple[pl.DataFrame | None, tuple[str, ...]]:
    """A row for each job with both waits, in order of arrival; or a word why there is none."""
    seen = trace.workload.frame.filter(pl.col("runtime").is_not_null() & (pl.col("start") >= pl.col("submit")))
    if trace.cluster is None:
        return None, ("waits are not simulated: the trace names no cluster",)
    if seen.is_empty():
        return None, ("waits are not compared: no job of the log has a start and a run time",)
    result = simulate(trace.workload, trace.cluster, **rules)  # type: ignore[arg-type]
    done = result.jobs.filter(pl.col("status") == "done").select("job", simulated="wait")
    both = seen.select("job", _class(), recorded=pl.col("start") - pl.col("submit")).join(done, on="job").sort("job")
    notes = [f"waits are simulated by {'/'.join(rules.values())}, with run times as recorded"]
    for reason, count in result.refused.group_by("reason").len().sort("reason").iter_rows():
        notes.append(f"{count:,} jobs are not replayed, and waits lack what they took: {reason}")
    return (both if both.height else None), tuple(notes)


def _class() -> pl.Expr:
    gpu = pl.col("gpu_milli")
    return (
        pl.when(gpu == 0).then(pl.lit("no GPU"))
        .when(gpu < WHOLE).then(pl.lit("a share"))
        .when(gpu == WHOLE).then(pl.lit("one GPU"))
        .otherwise(pl.lit("more GPUs"))
        .alias("class")
    )  # fmt: skip


def _row(name: str, part: pl.DataFrame) -> tuple[object, ...]:
    recorded, simulated = part["recorded"].to_numpy(), part["simulated"].to_numpy()
    row: list[object] = [name, part.height]
    for values, least in ((recorded, 0.0), (simulated, 0.0), (simulated - recorded, -math.inf)):
        mean = over_time(values)
        low, high = mean.between()
        row += [mean.value, max(low, least), high]  # `max` keeps its first where that is nan: no interval stays none
    return (*row, part["recorded"].quantile(0.9, "linear"), part["simulated"].quantile(0.9, "linear"))
