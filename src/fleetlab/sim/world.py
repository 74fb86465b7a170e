"""A workload and a cluster as the compiled loops take them: tables of records (see `layout`) and columns of seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Workload
from fleetlab.core.catalog import ESTIMATES, NODE_AMOUNTS, RESOURCES
from fleetlab.core.catalog.reasons import (
    CANCELLED,
    FITS_NOWHERE,
    GANG_TOO_LARGE,
    NO_SUCH_NODE,
    REFUSALS,
    UNKNOWN_RUNTIME,
    UNREAD_CONSTRAINT,
)
from fleetlab.core.names import lookup
from fleetlab.core.workload import OWNERS
from fleetlab.sim import layout
from fleetlab.sim.distinct import distinct_rows
from fleetlab.sim.layout import AMOUNTS, WHOLE, Floats, Ints, Records, table
from fleetlab.sim.node_classes import NodeClasses

COVER = 0.95  # of the instances, by the typical shapes that fragmentation is measured against
DEMAND = (*AMOUNTS, "milli", "gpus", "gpu_memory", "types", "per_node", "app", "distinct", "exclusive")
# What high-end means: the order in which types are spared, the strongest last; others rank by their GPU memory.
STRENGTH = (
    "MISC", "K40", "K80", "M60", "P4", "T4", "P40", "P100", "A10", "L4", "V100", "V100M16", "V100M32", "L40", "A30",
    "A100", "A800", "H20", "H800", "H100", "H200", "B200", "GB200",
)  # fmt: skip


class RunningJobs(NamedTuple):
    """Where the first jobs of a world are, which run when a simulation begins: each since its submission."""

    node: Ints  # of each of their instances
    gpus: Ints  # there, as bits counted from the node's first


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The world that the jobs of another were taken from, and what schedulers make of it once for all of these."""

    world: World
    rows: Ints
    made: dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """Who wants what (one entry a job that can run, in order of arrival), and what there is."""

    frame: pl.DataFrame  # the jobs' rows of the workload; `job` is negative for jobs that are not measured
    measured: Ints  # the rows of the others, in order of their numbers
    refused: pl.DataFrame  # job, reason, gpu_hours (null where its runtime is unknown)
    submit: Floats  # on the tick: when the scheduler first looks at it; negative: before the jobs that are measured
    submitted: Floats  # on the tick
    eligible: Floats  # on the tick
    runtime: Floats  # on the tick: how long it holds its GPUs, start-up latency included, to its limit at most
    to_end: Floats  # on the tick: how long it would if no time limit ended it
    estimate: Floats  # 0 where it is learnt from finished jobs
    learner: Ints  # whose finished jobs the estimate is the mean of, 0 to learners - 1; -1: `estimate` stands
    learners: int
    shape: Ints  # its row of `shapes`
    instances: Ints
    gpu_milli: Ints  # of all its instances
    kind: Ints  # its row of `kinds`
    kinds: Records  # KIND: jobs of one kind request the same: a shape, so many times
    first: Ints  # [jobs + 1]: index of its first instance
    user: Ints  # 0 to users - 1; jobs without a user are one user together
    users: list[str]
    priority: Ints
    queue: Ints  # 0 to queues - 1: the set of partitions that it names
    queues: tuple[tuple[str, ...], ...]  # the partitions of each
    of_types: Ints  # bits of the node classes of its GPU types, in whatever partition
    partitions: dict[str, int]  # bits of the node classes in each partition that jobs name
    requested: Ints  # GPU milli an instance, before fractions are rounded up
    shapes: Records  # SHAPE
    nodes: Records  # NODE
    gpus: Records  # GPU
    capacity: Records  # CAPACITY, [nodes]
    apps: Ints  # [apps with a limit, nodes], at least [1, 1]
    largest: Ints  # [2]: CPU and GPU milli of the largest node
    typical: Records  # TYPICAL
    latency: Floats  # on the tick: the part of its runtime in which it starts up and still waits
    unseen: Floats  # on the tick: the part of its runtime after its end, until the scheduler looks again
    running: RunningJobs | None = None  # None: nothing runs when a simulation begins
    origin: Origin | None = None  # None: it was made of a workload

    def leaving_out(self, refused: Ints) -> World:
        """Return it without the jobs that a scheduler refused: each with the number of its reason, 0: taken."""
        rows = self.measured[refused[self.measured] > 0]
        jobs = self.frame[rows]
        hours = pl.Series(self.gpu_milli[rows] / WHOLE * self.runtime[rows] / 3600)
        reasons = pl.Series([REFUSALS[k] for k in refused[rows]], dtype=pl.String)
        more = jobs.select("job", reason=reasons, gpu_hours=hours)
        taken = self.measured[refused[self.measured] == 0]
        return replace(self, measured=taken, refused=pl.concat([self.refused, more], how="vertical_relaxed"))

    def places(self) -> dict[int, RunningJobs]:
        """Return where each job is, by its row, that runs when a simulation begins."""
        if self.running is None:
            return {}
        first = self.first[: int(np.searchsorted(self.first, len(self.running.node), side="right"))].tolist()
        cuts = enumerate(pairwise(first))
        return {k: RunningJobs(*(column[a:b] for column in self.running)) for k, (a, b) in cuts}

    @property
    def before(self) -> int:
        """How many jobs are simulated and not measured."""
        return len(self.submit) - len(self.measured)


def world(
    workload: Workload, cluster: Cluster, *, estimate: str | Sequence[float] | pl.Series = "oracle",
    part: int = 1, refusals: Callable[[pl.DataFrame], pl.Series] | None = None, before: pl.DataFrame | None = None,
    latency: Floats | None = None, cycle: float = 0.0, phase: float = 0.0,
) -> World:  # fmt: skip
    """Put a workload and a cluster into tables; jobs that can never run are refused, with their reasons.

    A fraction of a GPU is rounded up to whole parts of `part` milli each. `refusals` tells why jobs can never run by
    the quotas and limits of their queues. The jobs `before` come before those of the workload, and their estimates and
    `latency` (the seconds that each job takes to start) too. With a `cycle`, the scheduler looks at the queue
    at its multiples alone, counted from `phase` seconds before second 0.
    """
    gpu = pl.col("gpu_milli")
    jobs = workload.frame if before is None else pl.concat([before, workload.frame])
    jobs = jobs.with_columns(eligible=pl.coalesce("eligible", "submit"))
    jobs = jobs.with_columns(latency=pl.lit(0.0) if latency is None else pl.Series(latency))
    jobs = jobs.with_columns(whole=pl.col("runtime") + pl.col("latency"), runtime=_to_limit() + pl.col("latency"))
    # Where all arrivals and ends are seen at multiples of the cycle, so are all starts.
    look = _next_look(pl.col("eligible") + phase, cycle) - phase if cycle else pl.col("eligible")
    observed = _next_look(pl.col("runtime"), cycle)
    frame = jobs.with_columns(
        pl.col("app").cast(pl.String).fill_null(""), estimate=_estimates(jobs, estimate), requested=gpu,
        look=pl.when(_runs_at_start()).then(-layout.TICK).otherwise(look),
        runtime=observed + pl.when(_runs_at_start()).then(layout.TICK).otherwise(0.0),
        unseen=observed - pl.col("runtime"),
    )  # fmt: skip
    # To sort rows that are in order takes as long as if they were not.
    frame = frame.rechunk() if frame["look"].is_sorted() else frame.sort("look", maintain_order=True)
    if part > 1:
        frame = frame.with_columns(gpu_milli=pl.when(gpu < WHOLE).then((gpu + part - 1) // part * part).otherwise(gpu))
    classes = NodeClasses.of(frame, cluster)
    frame = frame.with_columns(mask=pl.Series(classes.mask), of_types=pl.Series(classes.of_types))
    frame = frame.with_columns(queue_number=pl.Series(classes.queue))
    frame, refused = _able(frame, cluster, classes, refusals)
    shapes, shape = _shapes(frame)
    instances = _ints(frame["instances"])
    kinds, kind = _kinds(shape, instances)
    nodes, gpus = node_tables(cluster, classes.of_node)
    learner, learners = _learners(frame, estimate)
    user, users = _users(frame)
    queues, queue = np.unique(_ints(frame["queue_number"]), return_inverse=True)
    limited = (int(shapes.app.max(initial=0)) + 1, len(nodes)) if (shapes.per_node > 0).any() else (1, 1)
    return World(
        frame=frame.drop(
            "whole", "estimate", "requested", "latency", "look", "unseen", "mask", "of_types", "queue_number"
        ),
        measured=_in_order(frame["job"]),
        refused=refused.filter(pl.col("job") >= 0),
        submit=_on_tick(frame["look"]),
        submitted=_on_tick(frame["submit"]),
        eligible=np.minimum(_on_tick(frame["eligible"]), _on_tick(frame["look"])),
        runtime=_on_tick(frame["runtime"]),
        to_end=np.maximum(_on_tick(frame["whole"]), _on_tick(frame["runtime"])),
        estimate=np.zeros(frame.height) if learners else _on_tick(frame["estimate"].fill_null(frame["runtime"])),
        learner=learner,
        learners=learners,
        shape=shape,
        instances=instances,
        gpu_milli=shapes.gpus[shape] * shapes.milli[shape] * instances,
        kind=kind,
        kinds=kinds,
        first=np.append(0, np.cumsum(instances)),
        user=user,
        users=users,
        priority=_ints(frame["priority"]),
        queue=queue,
        queues=tuple(classes.queues[q] for q in queues) or classes.queues[:1],
        of_types=_ints(frame["of_types"]),
        partitions=classes.of_partition,
        requested=_ints(frame["requested"]),
        shapes=shapes,
        nodes=nodes,
        gpus=gpus,
        capacity=_capacity(cluster),
        apps=np.zeros(limited, dtype=np.int64),
        largest=np.array([max(1, nodes[f].max(initial=0)) for f in ("free_cpu", "free_gpu")], dtype=np.int64),
        typical=_typical(shapes, shape, instances),
        latency=_on_tick(frame["latency"]),
        unseen=_on_tick(frame["unseen"]),
    )


def _to_limit() -> pl.Expr:
    """How long a job runs: its time limit ends it, unless the log saw it end later."""
    runtime, limit = pl.col("runtime"), pl.col("limit")
    return pl.when(pl.col("end").is_null() & (runtime > limit)).then(limit).otherwise(runtime)


def _next_look(time: pl.Expr, cycle: float) -> pl.Expr:
    return (time / cycle).ceil() * cycle if cycle else time


def _in_order(jobs: pl.Series) -> Ints:
    number = _ints(jobs)
    rows = np.flatnonzero(number >= 0)
    return rows[np.argsort(number[rows], kind="stable")]


def _on_tick(column: pl.Series) -> Floats:
    return np.rint(column.to_numpy().astype(np.float64) / layout.TICK) * layout.TICK


def _runs_at_start() -> pl.Expr:
    """Which jobs run when the log begins: they are placed before all others; pending ones the log saw start."""
    return pl.col("initial") & (pl.col("job") >= 0) & (pl.col("start").is_null() | (pl.col("start") <= 0))


def _estimates(jobs: pl.DataFrame, estimate: str | Sequence[float] | pl.Series) -> pl.Series:
    """Return the estimate of each job's runtime; null: none."""
    if isinstance(estimate, str):
        hint = f"choose from {', '.join(ESTIMATES.names)}; or pass a column of seconds, one per job"
        lookup("estimate", estimate, ESTIMATES.names, hint=hint)
        return jobs["runtime"]
    values = pl.Series("estimate", estimate, dtype=pl.Float64, strict=False)
    if len(values) != len(jobs) or (bad := values.is_nan() | values.is_infinite() | (values < 0)).any():
        what = f"{len(values)} values for {len(jobs)} jobs" if len(values) != len(jobs) else str(values.filter(bad)[0])
        msg = f"a column of estimates has one number of seconds a job, none below 0: {what}"
        raise PolicyError(msg, hint="null where nothing is known of a job: then its true runtime is taken")
    return values


# -- who cannot run at all ---------------------------------------------------------------------------------------


def _able(
    frame: pl.DataFrame, cluster: Cluster, classes: NodeClasses, refusals: Callable[[pl.DataFrame], pl.Series] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The jobs that can run on the cluster when it is empty, and the others with their reasons."""
    fits = _fitting_instances(frame, cluster, classes.of_node)
    by_queue = pl.lit(None, dtype=pl.String) if refusals is None else pl.lit(refusals(frame))
    reason = (
        pl.when(pl.col("runtime").is_null() & (pl.col("status") == "cancelled")).then(pl.lit(CANCELLED))
        .when(pl.col("runtime").is_null()).then(pl.lit(UNKNOWN_RUNTIME))
        .when(pl.Series(classes.unreadable)).then(pl.lit(UNREAD_CONSTRAINT))
        .when(pl.Series(classes.nowhere)).then(pl.lit(NO_SUCH_NODE))
        .when(fits == 0).then(pl.lit(FITS_NOWHERE))
        .when(fits < frame["instances"]).then(pl.lit(GANG_TOO_LARGE))
        .otherwise(by_queue)
    )  # fmt: skip
    jobs = frame.with_columns(reason=reason)
    hours = pl.col("requested").cast(pl.Int64) * pl.col("instances") / layout.WHOLE * pl.col("runtime") / 3600
    refused = jobs.filter(pl.col("reason").is_not_null()).select("job", "reason", gpu_hours=hours)
    return jobs.filter(pl.col("reason").is_null()).drop("reason"), refused


def _fitting_instances(frame: pl.DataFrame, cluster: Cluster, of_node: Ints) -> pl.Series:
    """How many instances of each job the empty cluster holds."""
    columns = ("mask", "max_per_node", "distinct_nodes", "exclusive")
    asks = frame.select(*(resource.request for resource in RESOURCES), *columns)
    distinct, ask = distinct_rows(asks)
    has = cluster.frame.select(*(resource.capacity for resource in RESOURCES))
    has = has.with_columns(bit=pl.Series(np.left_shift(np.int64(1), of_node)))
    wanted = {name: _ints(distinct[name].fill_null(0)) for name in distinct.columns}
    fits = np.zeros(distinct.height, dtype=np.int64)
    for node in has.group_by(pl.all(), maintain_order=True).len().iter_rows(named=True):
        fits += _on_node(wanted, node) * node["len"]
    return pl.Series(fits[ask], dtype=pl.Int64)


def _on_node(ask: dict[str, Ints], node: dict[str, Any]) -> Ints:
    """How many of each ask an empty node of this kind holds."""
    fits = np.where(ask["max_per_node"] > 0, ask["max_per_node"], 1 << 40)
    fits = np.where(ask["distinct_nodes"] | ask["exclusive"], np.minimum(fits, 1), fits)
    for name in NODE_AMOUNTS:
        fits = np.where(ask[name] > 0, np.minimum(fits, node[name] // np.maximum(ask[name], 1)), fits)
    milli, memory = ask["gpu_milli"], ask["gpu_memory_mib"]
    each = np.where(memory > 0, node["gpu_memory_mib"] // np.maximum(memory, 1), WHOLE)
    shares = node["gpus"] * np.minimum(WHOLE // np.maximum(milli, 1), each)
    wholes = np.where(node["gpu_memory_mib"] >= memory, node["gpus"] * WHOLE // np.maximum(milli, 1), 0)
    by_gpu = np.minimum(fits, np.where(milli >= WHOLE, wholes, shares))
    return np.where(ask["mask"] & node["bit"], np.where(milli == 0, fits, by_gpu), 0).astype(np.int64)


# -- what they ask for -------------------------------------------------------------------------------------------


def _shapes(frame: pl.DataFrame) -> tuple[Records, Ints]:
    """The distinct demands of an instance, and which of them each job has."""
    gpu, limit = pl.col("gpu_milli").cast(pl.Int64), pl.col("max_per_node")
    # At most one instance of the app on a node, or an exclusive node, is a node for each instance of the job too.
    distinct_nodes = pl.col("distinct_nodes") & (pl.col("instances") > 1) & (limit != 1) & ~pl.col("exclusive")
    apps = sorted(set(frame.filter(limit > 0)["app"]))
    app = pl.col("app").replace_strict(apps, list(range(len(apps))), default=0, return_dtype=pl.Int64)
    demand = frame.select(
        *(pl.col(column).alias(name) for name, column in zip(AMOUNTS, NODE_AMOUNTS, strict=True)),
        pl.when(gpu >= WHOLE).then(WHOLE).otherwise(gpu).alias("milli"),
        pl.when(gpu == 0).then(0).when(gpu < WHOLE).then(1).otherwise(gpu // WHOLE).alias("gpus"),
        pl.col("gpu_memory_mib").alias("gpu_memory"),
        pl.col("mask").alias("types"),
        pl.when(distinct_nodes).then(1).otherwise(limit).alias("per_node"),
        pl.when(distinct_nodes).then(len(apps)).when(limit > 0).then(app).otherwise(0).alias("app"),
        distinct_nodes.cast(pl.Int64).alias("distinct"),
        pl.col("exclusive").cast(pl.Int64),
    )
    distinct, shape = distinct_rows(demand)
    shapes = table(distinct.height, layout.SHAPE, **{name: _ints(distinct[name]) for name in DEMAND})
    shapes.request = np.where(shapes.milli < WHOLE, 0, np.minimum(shapes.gpus, layout.REQUESTS - 1))
    return shapes, shape


def _kinds(shape: Ints, instances: Ints) -> tuple[Records, Ints]:
    distinct, kind = distinct_rows(pl.DataFrame({"shape": shape, "instances": instances}))
    columns = {"shape_id": _ints(distinct["shape"]), "instances": _ints(distinct["instances"])}
    return table(distinct.height, layout.KIND, **columns), kind


def groups_of(world: World, kind: np.dtype[Any], member: Ints | None, by: Ints | None = None) -> tuple[Records, Ints]:
    """Return the groups of jobs that fit or fail together and wait for the same, and the group of each job.

    `member` tells jobs apart that count in other queues and limits (see `quota`); `by` numbers what else does.
    """
    member = np.full(len(world.kind), -1) if member is None else member
    alike = pl.DataFrame({"kind": world.kind, "member": member, "queue": world.queue, "of_types": world.of_types})
    alike = alike if by is None else alike.with_columns(by=by)
    distinct, group = distinct_rows(alike)
    kinds = world.kinds[distinct["kind"].to_numpy()]
    shapes = world.shapes[kinds.shape_id]
    groups = table(
        len(kinds), kind, shape_id=kinds.shape_id, instances=kinds.instances, member=distinct["member"].to_numpy(),
        queue=distinct["queue"].to_numpy(), of_types=distinct["of_types"].to_numpy(),
        gpu_milli=kinds.instances * shapes.gpus * shapes.milli,
    )  # fmt: skip
    return groups, group


def _learners(frame: pl.DataFrame, estimate: object) -> tuple[Ints, int]:
    none = np.full(frame.height, -1, dtype=np.int64)
    if not isinstance(estimate, str) or not ESTIMATES[estimate].columns:
        return none, 0
    owners = [name for name in ESTIMATES[estimate].columns if name in OWNERS]
    if frame.height and all(frame[name].null_count() == frame.height for name in owners):
        msg = f"estimate `{estimate}` learns from jobs of the same {' or '.join(owners)}, and no job names one"
        hint = "estimate=oracle takes true runtimes; or read such a column: fleetlab read csv FILE --map user=COLUMN"
        raise PolicyError(msg, hint=hint)
    # A job without a group is estimated by its user alone.
    learner = frame.select(pl.struct(ESTIMATES[estimate].columns).rank("dense").alias("learner"))["learner"]
    learners = _ints(learner) - 1 if frame.height else none
    return learners, int(learners.max(initial=-1)) + 1


def _users(frame: pl.DataFrame) -> tuple[Ints, list[str]]:
    names = frame["user"].cast(pl.String).fill_null("")
    users = names.unique().sort().to_list()
    return _ints(names.replace_strict(users, list(range(len(users))), return_dtype=pl.Int64)), users


def _typical(shapes: Records, shape: Ints, instances: Ints) -> Records:
    """The shapes that stand for the workload: most frequent first until they cover 95 % of it; memory aside."""
    count = np.bincount(shape, weights=instances, minlength=len(shapes)).astype(np.int64)
    fields = ("cpu", "milli", "gpus", "types")
    rows = (
        pl.DataFrame({name: shapes[name] for name in fields} | {"count": count})
        .group_by(fields, maintain_order=True)
        .agg(pl.col("count").sum())
        .sort("count", descending=True, maintain_order=True)
    )
    if rows.is_empty():
        return table(0, layout.TYPICAL)
    covered = rows["count"].cum_sum() / rows["count"].sum()
    rows = rows.head(int((covered < COVER).sum()) + 1)
    share = (rows["count"] / rows["count"].sum()).to_numpy()
    return table(rows.height, layout.TYPICAL, share=share, **{name: _ints(rows[name]) for name in fields})


# -- what there is -----------------------------------------------------------------------------------------------


def node_tables(cluster: Cluster, of_node: Ints) -> tuple[Records, Records]:
    """Return the tables of the nodes and GPUs of an empty cluster; `of_node` has the class of each node."""
    c = cluster.frame
    count = _ints(c["gpus"])
    end, bit = np.cumsum(count), np.left_shift(np.int64(1), of_node)
    nodes = table(
        len(count), layout.NODE, free_gpu=count * WHOLE, idle_gpus=count, up=1,
        largest_free=np.where(count > 0, WHOLE, 0), first_gpu=end - count, end_gpu=end, node_class=bit,
        gpu_type=np.where(count > 0, bit, 0), type_number=np.where(count > 0, of_node, -1),
        number=np.arange(len(count)),
        free=np.stack([_ints(c[column]) for column in NODE_AMOUNTS], axis=1),
    )  # fmt: skip
    owner = np.repeat(np.arange(len(count)), count)
    return nodes, table(len(owner), layout.GPU, free=WHOLE, free_memory=_ints(c["gpu_memory_mib"])[owner], node=owner)


def _capacity(cluster: Cluster) -> Records:
    c = cluster.frame
    names = sorted(set(c["gpu_type"].drop_nulls()), key=lambda name: _strength(name, c))
    tier = {name: k for k, name in enumerate(names)}
    tiers = [tier.get(name, 0) for name in c["gpu_type"]]
    cpu, memory, gpu = (_ints(c[name]) for name in ("cpu_milli", "memory_mib", "gpus"))
    return table(c.height, layout.CAPACITY, cpu=cpu, memory=memory, gpu=gpu * WHOLE, tier=tiers)


def _strength(name: str, nodes: pl.DataFrame) -> tuple[int, int, str]:
    memory = int(_ints(nodes.filter(pl.col("gpu_type") == name)["gpu_memory_mib"]).max(initial=0))
    return STRENGTH.index(name) if name in STRENGTH else len(STRENGTH), memory, name


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)
