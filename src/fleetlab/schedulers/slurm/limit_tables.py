"""The limits that hold for each job, from a site's classes of service, accounts and partitions.

Slurm looks at the QOS of the partition, then at that of the job (the other way around with OverPartQOS), then at the
user's association, then at the accounts above it. Of the two QOS the first that sets a limit counts, and what either
sets is not looked for in associations. Limits on a group (`Grp…`) that no QOS sets hold in each account of the chain;
others (`Max…`) are the nearest association's. Limits are by resource: a QOS that limits GPUs leaves CPUs to accounts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fleetlab.core.queues import JobLimits, Qos, Queue
from fleetlab.schedulers.slurm.config import Slurm as Site
from fleetlab.schedulers.slurm.state import Slurm
from fleetlab.sim import limits as kinds
from fleetlab.sim.associations import places
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.limits import Kept, LimitGroups
from fleetlab.sim.world import World

RESOURCES = ("cpu", "memory", "node", "gpu", "billing")  # before GPUs of one type, as `limits` numbers them
Key = tuple[str, ...]
Rule = tuple[int, Key, str, float]  # kind, group, resource, most
NOBODY: Key = ()  # the group of a limit on one job
USER, ACCOUNT, ALL = "user", "account", "all"


def resource_names(nodes: pl.DataFrame) -> tuple[str, ...]:
    """Return the columns of resources: those that every site has, then GPUs by type."""
    types = sorted(set(nodes.filter(pl.col("gpus") > 0)["gpu_type"].drop_nulls()))
    return (*RESOURCES, *(f"gpu:{name.lower()}" for name in types))


@dataclass(frozen=True, slots=True)
class Submitter:
    """Whose job it is, of which class and in which partition: jobs alike in this have the same rules."""

    user: str
    account: str
    qos: Qos | None
    partition_qos: Qos | None
    path: tuple[Queue, ...]  # its association and the accounts above

    @property
    def classes(self) -> list[Qos]:
        """The QOS that hold, the first first."""
        job, partition = self.qos, self.partition_qos
        if job is None or partition is None or job.name == partition.name:
            return [q for q in (job or partition,) if q is not None]
        over = "overpartqos" in _flags(job)
        return [job, partition] if over else [partition, job]

    def keys(self) -> Iterator[Key]:
        """Yield every group that the job may count in."""
        for q in self.classes:
            yield from (self.key(q, whose) for whose in (ALL, ACCOUNT, USER))
        for queue in self.path:
            yield ("queue", queue.name)
        if self.path:
            yield ("association", self.path[0].name, self.user)

    def key(self, qos: Qos, whose: str) -> Key:
        """Return a group of a class of service."""
        return ("qos", qos.name, *{USER: (USER, self.user), ACCOUNT: (ACCOUNT, self.account)}.get(whose, ()))


def _flags(qos: Qos) -> set[str]:
    return {flag.lower() for flag in qos.flags}


# -- rules in Slurm's order ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Rules:
    """Rules of one submitter; what a QOS has set is not asked of the next, nor of associations."""

    who: Submitter
    taken: set[tuple[int, str, str]] = field(default_factory=set)  # kind, whose, resource

    def all(self) -> list[Rule]:
        """Return the rules in the order in which Slurm looks at them."""
        before = [rule for q in self.who.classes for rule in self._counts(q)]
        before += self._chain(self._counts_of)
        after = [rule for q in self.who.classes for rule in self._amounts(q)]
        after += self._chain(self._amounts_of)
        submitted = [rule for q in self.who.classes for rule in self._submitted(q)]
        return before + after + submitted + self._chain(self._submitted_of)

    def _set(self, kind: int, whose: str, key: Key, given: Mapping[str, float | None]) -> Iterator[Rule]:
        """Yield what a QOS sets and none before it has."""
        for name, most in given.items():
            if most is not None and (kind, whose, name) not in self.taken:
                self.taken.add((kind, whose, name))
                yield kind, key, name, most

    def _left(self, kind: int, key: Key, given: Mapping[str, float | None], *whose: str) -> Iterator[Rule]:
        """Yield what an association sets and no QOS has."""
        for name, most in given.items():
            if most is not None and not any((kind, who, name) in self.taken for who in whose or (ALL,)):
                yield kind, key, name, most

    def _counts(self, q: Qos) -> Iterator[Rule]:
        group, account, user = (self.who.key(q, whose) for whose in (ALL, ACCOUNT, USER))
        yield from self._set(kinds.JOBS, ALL, group, {"": q.limits.jobs})
        yield from self._set(kinds.WALL, ALL, group, {"": q.limits.wall_minutes})
        yield from self._set(kinds.JOBS, ACCOUNT, account, {"": q.per_account.jobs})
        yield from self._set(kinds.JOBS, USER, user, {"": q.per_user.jobs})
        yield from self._set(kinds.JOB_WALL, ALL, NOBODY, {"": _minutes(q.job.wall)})

    def _amounts(self, q: Qos) -> Iterator[Rule]:
        groups = {whose: self.who.key(q, whose) for whose in (ALL, ACCOUNT, USER)}
        limits = {ALL: q.limits, ACCOUNT: q.per_account, USER: q.per_user}
        yield from self._set(kinds.SPENT, ALL, groups[ALL], q.limits.minutes)
        yield from self._set(kinds.HELD, ALL, groups[ALL], q.limits.resources)
        yield from self._set(kinds.AHEAD, ALL, groups[ALL], q.limits.running_minutes)
        for kind, given in _of_one_job(q.job).items():
            yield from self._set(kind, ALL, NOBODY, given)
        for whose in (ACCOUNT, USER):
            yield from self._set(kinds.HELD, whose, groups[whose], limits[whose].resources)
        for whose in (ACCOUNT, USER):
            yield from self._set(kinds.AHEAD, whose, groups[whose], limits[whose].running_minutes)

    def _submitted(self, q: Qos) -> Iterator[Rule]:
        for whose, limits in ((ALL, q.limits), (ACCOUNT, q.per_account), (USER, q.per_user)):
            yield from self._set(kinds.SUBMITTED, whose, self.who.key(q, whose), {"": limits.submitted})

    def _chain(self, of: Callable[..., Iterator[Rule]]) -> list[Rule]:
        return [rule for level, queue in enumerate(self.who.path) for rule in of(queue, first=level == 0)]

    def _counts_of(self, queue: Queue, *, first: bool) -> Iterator[Rule]:
        key = ("queue", queue.name)
        yield from self._left(kinds.JOBS, key, {"": queue.limits.jobs})
        yield from self._left(kinds.WALL, key, {"": queue.limits.wall_minutes})
        if first:
            own = ("association", queue.name, self.who.user)
            yield from self._left(kinds.JOBS, own, {"": _nearest(self.who.path, "jobs")}, ACCOUNT, USER)
            yield from self._left(kinds.JOB_WALL, NOBODY, {"": _minutes(_job_limits(self.who.path).wall)})

    def _amounts_of(self, queue: Queue, *, first: bool) -> Iterator[Rule]:
        key = ("queue", queue.name)
        yield from self._left(kinds.SPENT, key, queue.limits.minutes)
        yield from self._left(kinds.HELD, key, queue.limits.resources)
        yield from self._left(kinds.AHEAD, key, queue.limits.running_minutes)
        if first:
            for kind, given in _of_one_job(_job_limits(self.who.path)).items():
                if kind != kinds.AT_LEAST:  # QOS alone have it
                    yield from self._left(kind, NOBODY, given)

    def _submitted_of(self, queue: Queue, *, first: bool) -> Iterator[Rule]:
        yield from self._left(kinds.SUBMITTED, ("queue", queue.name), {"": queue.limits.submitted})
        if first:
            own = ("association", queue.name, self.who.user)
            yield from self._left(kinds.SUBMITTED, own, {"": _nearest(self.who.path, "submitted")}, ACCOUNT, USER)


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds / kinds.MINUTE


def _nearest(path: Sequence[Queue], what: str) -> int | None:
    """Return a limit on a user's own jobs: the nearest account's that sets one."""
    return next((most for queue in path if (most := getattr(queue.per_user, what)) is not None), None)


def _job_limits(path: Sequence[Queue]) -> JobLimits:
    """Return limits on one job, each resource by the nearest account that limits it."""

    def joined(what: str) -> dict[str, float]:
        return {name: most for queue in reversed(path) for name, most in getattr(queue.job, what).items()}

    wall = next((queue.job.wall for queue in path if queue.job.wall is not None), None)
    return JobLimits(joined("resources"), {}, joined("per_node"), joined("minutes"), wall)


def _of_one_job(job: JobLimits) -> dict[int, Mapping[str, float]]:
    return {
        kinds.JOB_MINUTES: job.minutes,
        kinds.PER_JOB: job.resources,
        kinds.PER_NODE: job.per_node,
        kinds.AT_LEAST: job.at_least,
    }


# -- tables ----------------------------------------------------------------------------------------------------------


def groups_of(world: World, site: Site, s: Slurm, names: Sequence[str], types: Sequence[str | None]) -> LimitGroups:
    """Return the groups with a limit and the rules of each job; `names` are resources, `types` of GPUs, by node."""
    who, profile = _submitters(world, site, s)
    rules = [[rule for rule in Rules(one).all() if rule[2] in ("", *names)] for one in who] if _enforced(site) else []
    rules = rules or [[] for _ in who]
    number = {key: k for k, key in enumerate(dict.fromkeys(rule[1] for mine in rules for rule in mine if rule[1]))}
    of = [[number[key] for key in one.keys() if key in number] for one in who]  # noqa: SIM118  not a mapping
    table = [_row(rule, number, names) for mine in rules for rule in mine]
    kinds_there = {rule[0] for mine in rules for rule in mine}
    by_node = any(rule[0] == kinds.HELD and rule[2] == "node" for mine in rules for rule in mine)
    size, safe = max(1, len(number)), "safe" in site.enforce
    running, held = np.zeros(size, np.int64), np.zeros((size, len(names)))
    on_node = np.zeros((size, len(s.nodes)) if by_node else (1, 1), np.int64)
    return LimitGroups(
        profile=profile, first=_offsets(of), of=_flat(of), first_rule=_offsets(rules),
        rules=np.array(table, dtype=np.int64).reshape(-1, 4),
        deny=np.array([any("denyonlimit" in _flags(q) for q in one.classes) for one in who], dtype=np.int64),
        row=_rows(site, number), running=running, submitted=np.zeros(size, np.int64),
        held=held, ahead=held.copy(), on_node=on_node, counts_nodes=int(by_node),
        safe=int(safe), kills=int(not safe and bool(kinds_there & {kinds.SPENT, kinds.WALL, kinds.JOB_MINUTES})),
        minutes=_limit_minutes(site, s), requests=requests_of(world, s, names),
        node_type=np.array([names.index(f"gpu:{t.lower()}") if t else -1 for t in types], dtype=np.int64),
        array_size=np.bincount(s.jobs.array + 1)[1:].astype(np.int64),
        array_fate=np.zeros(max(1, len(s.array_running)), np.int64),
        kept=Kept(running.copy(), held.copy(), held.copy(), on_node.copy(), np.zeros(len(names))),
    )  # fmt: skip


def _enforced(site: Site) -> bool:
    return not site.enforce or not {"limits", "safe"}.isdisjoint(site.enforce)


def _submitters(world: World, site: Site, s: Slurm) -> tuple[list[Submitter], Ints]:
    """Return the distinct submitters, and which of them each job is in each of its partitions."""
    frame = world.frame.select(pl.col("user", "queue").cast(pl.String).fill_null(""))
    classes = {q.name: q for q in site.qos}
    of_partition = [classes.get(part.qos or "") for part in site.partitions]
    found: dict[tuple[str, str, int, int], int] = {}
    who: list[Submitter] = []
    profile: list[int] = []
    columns = (s.jobs[name].tolist() for name in ("qos", "first_partition", "partitions"))
    named = s.partition_of.tolist()
    for (user, account), qos, first, count in zip(frame.iter_rows(), *columns, strict=True):
        for p in named[first : first + count]:
            if (user, account, qos, p) not in found:
                found[user, account, qos, p] = len(who)
                queue = site.queues.of(account, user)
                path = tuple(site.queues.path(queue.name)) if queue else ()
                who.append(Submitter(user, account, site.qos[qos] if qos >= 0 else None, of_partition[p], path))
            profile.append(found[user, account, qos, p])
    return who, np.array(profile, dtype=np.int64)


def _row(rule: Rule, number: Mapping[Key, int], names: Sequence[str]) -> tuple[int, int, int, int]:
    kind, key, name, most = rule
    return kind, number.get(key, -1), names.index(name) if name else 0, math.floor(most)


def _rows(site: Site, number: Mapping[Key, int]) -> Ints:
    """Return the rows of usage: those of associations, then of classes of service."""
    queues = places(site.queues)
    rows: dict[Key, int] = {("queue", name): row for name, row in queues.items()}
    first = max(queues.values(), default=0) + 1
    rows |= {("qos", q.name): first + k for k, q in enumerate(site.qos)}
    return np.array([rows.get(key, -1) for key in number] or [-1], dtype=np.int64)


def _limit_minutes(site: Site, s: Slurm) -> Floats:
    factors = [q.usage_factor if "usagefactorsafe" in _flags(q) else 1.0 for q in site.qos]
    factor = np.array([*factors, 1.0])[s.jobs.qos]
    return np.floor(np.floor(s.jobs.limit / kinds.MINUTE) * factor)


def requests_of(world: World, s: Slurm, names: Sequence[str]) -> Floats:
    """Return what jobs request; GPUs of a type count where a job names that type."""
    jobs = s.jobs
    nodes = np.where(jobs.distinct == 1, jobs.instances, 1)
    cpus = np.maximum(jobs.instances * jobs.cpu // 1000, 1)
    gpus = jobs.instances * jobs.gpus
    columns = [cpus, jobs.instances * jobs.memory, nodes, gpus, cpus]
    named = [{t.lower() for t in given} for given in world.frame["gpu_types"].to_list()]
    for name in names[len(RESOURCES) :]:
        mine = np.array([given == {name.removeprefix("gpu:")} for given in named], dtype=bool)
        columns.append(np.where(mine, gpus, 0))
    return np.stack([column.astype(np.float64) for column in columns], axis=1)


def _offsets(lists: Sequence[Sequence[object]]) -> Ints:
    return np.append(0, np.cumsum([len(mine) for mine in lists])).astype(np.int64)


def _flat(lists: Sequence[Sequence[int]]) -> Ints:
    return np.array([item for mine in lists for item in mine], dtype=np.int64)
