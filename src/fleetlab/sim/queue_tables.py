"""The tables of queues and limits for compiled code (`quota`), from the queues of a scenario and its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, PolicyError, WorkloadError
from fleetlab.core.catalog.reasons import ABOVE_JOB_LIMIT, ABOVE_QUEUE, ABOVE_QUOTA
from fleetlab.core.queue_rules import LIMITS_ALONE, Queues
from fleetlab.core.queues import Amounts, JobLimits, Limits, Qos, Queue
from fleetlab.sim.layout import WHOLE, Floats, Ints, table
from fleetlab.sim.queue_tree import TreeTables, tree_tables
from fleetlab.sim.quota import MEMBER, NO_LIMIT, QUEUE_ROW, Quotas

JOBS = "jobs"
UNITS = {JOBS: 1, "gpu": WHOLE, "cpu": 1000, "memory": 1, "node": 1}  # milli of GPUs and cores, MiB
TYPED = "gpu:"
MINUTE = 60.0
LimitKey = tuple[str, ...]  # what a limit is of
USER = "user"  # a quota of GPUs


@dataclass(frozen=True, slots=True, eq=False)
class Tenants:
    """Jobs that count in the same queue and the same limits."""

    of_job: Ints
    row: Ints  # [tenants]: in the tree
    limits: list[list[int]]  # [tenants]: entries of `keys` and `all_limits`
    job_limits: list[list[JobLimits]]  # [tenants]
    keys: list[LimitKey]
    all_limits: list[Limits]


@dataclass(frozen=True, slots=True, eq=False)
class JobQueues:
    """The queues of a scenario and the quotas of its users, in GPUs, on a cluster."""

    queues: Queues = field(default_factory=lambda: Queues(rules=LIMITS_ALONE))
    quota: Mapping[str, float] = field(default_factory=dict)
    cluster: Cluster | None = None

    def refusals(self, frame: pl.DataFrame) -> pl.Series:
        """Return why a job can never run, row by row; null where it can."""
        units = _units(self.queues)
        tenants, tree, asks = self._tenants(frame), self._tree(units), _asks(frame, units)
        if self.queues.tree and min(tenants.row, default=0) == len(tree.rows):
            raise self._no_queue(frame[self.queues.column].cast(pl.String).drop_nulls().unique(maintain_order=True))
        most = np.array([_most(tenants, k, units, of_users=False) for k in range(len(tenants.row))])
        of_user = np.array([_most(tenants, k, units, of_users=True) for k in range(len(tenants.row))])
        most = np.minimum(most.reshape(-1, len(units)), tree.potential[tenants.row])
        reason = np.where(_outside(frame, tenants, asks, units), ABOVE_JOB_LIMIT, "")
        reason = np.where((asks > most[tenants.of_job]).any(axis=1), ABOVE_QUEUE, reason)
        reason = np.where((asks > of_user.reshape(-1, len(units))[tenants.of_job]).any(axis=1), ABOVE_QUOTA, reason)
        return pl.Series("reason", [text or None for text in reason.tolist()], dtype=pl.String)

    def tables(self, frame: pl.DataFrame) -> tuple[Quotas, Ints]:
        """Return the queues as compiled code takes them, and the member of each job."""
        units = _units(self.queues)
        tenants, tree, asks = self._tenants(frame), self._tree(units), _asks(frame, units)
        alike = np.column_stack([tenants.of_job, asks])
        distinct, member = np.unique(alike, axis=0, return_inverse=True)
        of = [tenants.limits[tenant] for tenant in distinct[:, 0]]
        end = np.cumsum([len(limits) for limits in of], dtype=np.int64)
        first = end - np.array([len(limits) for limits in of], dtype=np.int64)
        members = table(
            len(distinct), MEMBER, queue=tenants.row[distinct[:, 0]], first_limit=first, end_limit=end,
        )  # fmt: skip
        limits, seconds = _limit_tables(tenants.all_limits, units)
        quotas = Quotas(
            members=members, queues=tree.queues, asks=np.ascontiguousarray(distinct[:, 1:]),
            limits_of=np.array([k for limits_of in of for k in limits_of], dtype=np.int64), amounts=tree.amounts,
            limits=limits, seconds=seconds, shares=tree.shares,
            submitted=np.array(
                [(NO_LIMIT if of.submitted is None else of.submitted, 0) for of in tenants.all_limits], dtype=np.int64
            ).reshape(-1, 2),
        )  # fmt: skip
        return quotas, member.reshape(-1).astype(np.int64)

    def _tree(self, units: Mapping[str, int]) -> TreeTables:
        return tree_tables(self.queues, units, _totals(self.cluster, units))

    def _tenants(self, frame: pl.DataFrame) -> Tenants:
        names = frame.select(
            pl.col(self.queues.column).cast(pl.String).fill_null("").alias("name"),
            pl.col("user").cast(pl.String).fill_null("").alias("of_user"),
            pl.col("qos").cast(pl.String).fill_null("").alias("of_qos"),
        )
        distinct = names.unique(maintain_order=True).with_row_index("tenant")
        of_job = names.join(distinct, on=names.columns, how="left", maintain_order="left")["tenant"]
        rows, numbers = self._tree(_units(self.queues)).rows, dict[LimitKey, int]()
        places, all_limits, limits, job_limits = list[int](), list[Limits](), list[list[int]](), list[list[JobLimits]]()
        for _, name, user, qos in distinct.iter_rows():
            queue = self.queues.tree.of(name, user)
            places.append(rows[queue.name] if queue else len(rows))
            mine = []
            for key, stated in self._limits(queue, name, user, qos):
                if key not in numbers:
                    numbers[key] = len(all_limits)
                    all_limits.append(stated)
                mine.append(numbers[key])
            limits.append(mine)
            job_limits.append(list(self._job_limits(queue, qos)))
        return Tenants(_ints(of_job), np.array(places, dtype=np.int64), limits, job_limits, list(numbers), all_limits)

    def _no_queue(self, named: pl.Series) -> WorkloadError:
        column = self.queues.column
        msg = f"no job is in one of the queues: the column `{column}` names {', '.join(named[:3]) or 'none'}"
        return WorkloadError(msg, hint=f"queues are {', '.join(list(self.queues.tree)[:5])}; column = … names another")

    def _limits(self, queue: Queue | None, name: str, user: str, qos: str) -> Iterator[tuple[LimitKey, Limits]]:
        """Yield the limits that a job counts in."""
        if user in self.quota:
            yield (USER, user), Limits(resources={"gpu": self.quota[user]})
        pairs: list[tuple[LimitKey, Limits]] = []
        for level in self.queues.tree.path(queue.name) if queue else ():
            pairs += [(("queue", level.name), level.limits), (("queue user", level.name, user), level.per_user)]
        for q in self._classes(queue, qos):
            pairs += [(("qos", q.name), q.limits), (("qos user", q.name, user), q.per_user)]
            pairs += [(("qos account", q.name, name), q.per_account)]
        yield from (pair for pair in pairs if pair[1] != Limits())

    def _job_limits(self, queue: Queue | None, qos: str) -> Iterator[JobLimits]:
        levels = self.queues.tree.path(queue.name) if queue else ()
        yield from (owner.job for owner in (*levels, *self._classes(queue, qos)) if owner.job != JobLimits())

    def _classes(self, queue: Queue | None, qos: str) -> list[Qos]:
        named = qos or (queue.default_qos if queue else None)
        return [q for q in self.queues.qos if q.name == named]


def no_quotas() -> Quotas:
    """Return the tables where there are no queues and no limits."""
    ints, floats = np.zeros((0, 4, 1), dtype=np.int64), np.zeros((0, 4, 1))
    return Quotas(
        table(0, MEMBER), table(0, QUEUE_ROW), np.zeros((0, 1), dtype=np.int64), np.zeros(0, dtype=np.int64),
        ints, ints.copy(), floats, floats.copy(), np.zeros((0, 2), dtype=np.int64),
    )  # fmt: skip


def _units(queues: Queues) -> dict[str, int]:
    """Return the resources that quotas and limits are of, with the units in which they are counted."""
    owners: list[Queue | Qos] = [*queues.tree.values(), *queues.qos]
    stated: list[Amounts] = []
    for owner in owners:
        stated += [getattr(owner, name, {}) for name in ("guaranteed", "borrowing", "lending")]
        limits = [getattr(owner, name, None) for name in ("limits", "per_user", "per_account")]
        stated += [amounts for of in limits if of for amounts in (of.resources, of.minutes)]
        stated += [owner.job.resources, owner.job.at_least]
    named = dict.fromkeys(name for amounts in stated for name in amounts)
    if unknown := [name for name in named if name not in UNITS and not name.startswith(TYPED) and name != "billing"]:
        msg = f"a quota or limit of `{unknown[0]}`, which is no resource"
        raise PolicyError(msg, hint=f"resources are {', '.join(list(UNITS)[1:])} and gpu:TYPE, such as gpu:A100")
    return UNITS | {name: WHOLE for name in named if name.startswith(TYPED)}


def _asks(frame: pl.DataFrame, units: Mapping[str, int]) -> Ints:
    """Return what each job requests: [jobs, resources]; of a GPU type only if it may use no other."""
    count = _ints(frame["instances"])
    gpu, apart = _ints(frame["gpu_milli"]) * count, (frame["distinct_nodes"] | frame["exclusive"]).to_numpy()
    columns = [
        np.ones(frame.height, dtype=np.int64), gpu, _ints(frame["cpu_milli"]) * count,
        _ints(frame["memory_mib"]) * count, np.where(apart, count, 1),
    ]  # fmt: skip
    only = pl.when(pl.col("gpu_types").list.len() == 1).then(pl.col("gpu_types").list.first()).fill_null("")
    kind = frame.select(only.alias("kind"))["kind"].to_numpy()
    columns += [np.where(kind == name.removeprefix(TYPED), gpu, 0) for name in units if name.startswith(TYPED)]
    return np.stack(columns, axis=1).astype(np.int64)


def _totals(cluster: Cluster | None, units: Mapping[str, int]) -> dict[str, float]:
    """Return what the cluster has of each resource that shares are compared by."""
    if cluster is None:
        return {}
    nodes = cluster.frame
    cpu, memory, gpus = (_ints(nodes[column]) for column in ("cpu_milli", "memory_mib", "gpus"))
    totals = {"cpu": float(cpu.sum()), "memory": float(memory.sum()), "gpu": float(gpus.sum() * WHOLE)}
    for name in units:
        if name.startswith(TYPED):
            mine = (nodes["gpu_type"] == name.removeprefix(TYPED)).fill_null(value=False).to_numpy()
            totals[name] = float(gpus[mine].sum() * WHOLE)
    return totals


def _row(amounts: Amounts, units: Mapping[str, int], missing: float) -> list[float]:
    return [round(amounts[name] * unit) if name in amounts else missing for name, unit in units.items()]


def _at_once(limits: Limits) -> Amounts:
    return dict(limits.resources) | ({} if limits.jobs is None else {JOBS: limits.jobs})


def _limit_tables(all_limits: Iterable[Limits], units: Mapping[str, int]) -> tuple[Ints, Floats]:
    most = [_row(_at_once(of), units, NO_LIMIT) for of in all_limits]
    spent = [[value * MINUTE for value in _row(of.minutes, units, np.inf)] for of in all_limits]
    shape = (len(most), len(units))
    limits = np.zeros((len(most), 2, len(units)), dtype=np.int64)
    limits[:, 0] = np.array(most, dtype=np.int64).reshape(shape)
    seconds = np.zeros((len(most), 3, len(units)))
    seconds[:, 0] = np.array(spent, dtype=np.float64).reshape(shape)
    return limits, seconds


def _most(tenants: Tenants, tenant: int, units: Mapping[str, int], *, of_users: bool) -> Floats:
    """Return the most that a job may ever hold by its limits: those of quotas of users, or all others."""
    most = np.full(len(units), np.inf)
    for k in tenants.limits[tenant]:
        if (tenants.keys[k][0] == USER) == of_users:
            most = np.minimum(most, _row(_at_once(tenants.all_limits[k]), units, np.inf))
            spent = np.array(_row(tenants.all_limits[k].minutes, units, np.inf))
            most = np.where(spent <= 0, 0, most)
            if tenants.all_limits[k].submitted == 0:
                most[0] = 0
    return most


def _outside(frame: pl.DataFrame, tenants: Tenants, asks: Ints, units: Mapping[str, int]) -> NDArray[np.bool_]:
    """Return which jobs are larger, smaller or longer than one job of their queue or QOS may be."""
    size = (len(tenants.row), len(units))
    most, least, wall = np.full(size, np.inf), np.zeros(size), np.full(size[0], np.inf)
    for tenant, stated in enumerate(tenants.job_limits):
        for limits in stated:
            most[tenant] = np.minimum(most[tenant], _row(limits.resources, units, np.inf))
            least[tenant] = np.maximum(least[tenant], _row(limits.at_least, units, 0))
            wall[tenant] = min(wall[tenant], np.inf if limits.wall is None else limits.wall)
    of, limit = tenants.of_job, frame["limit"].fill_null(0.0).to_numpy()
    return (asks > most[of]).any(axis=1) | (asks < least[of]).any(axis=1) | (limit > wall[of])


def _ints(column: pl.Series) -> Ints:
    return column.to_numpy().astype(np.int64)
