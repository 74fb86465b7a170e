"""The changes that a diagnosis simulates, one at a time: each takes a scenario and returns another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from shlex import quote
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, PolicyError, Scenario
from fleetlab.core.catalog import BACKFILLS, NODE_AMOUNTS
from fleetlab.core.durations import plural
from fleetlab.core.names import lookup
from fleetlab.core.nodes import chosen
from fleetlab.core.schedulers import SettingChange
from fleetlab.sim.simulate import world_of

MORE = 0.1  # of the nodes of a type
LARGEST = 62  # GPUs on one node: the most that the simulator takes
WHOLE = 1000  # milli of one GPU
CPU_ONLY = "CPU"  # the type of a cluster without GPUs
NO_EFFECT = "it would change nothing here"
NO_TYPES = pl.lit([], dtype=pl.List(pl.String))
NAMES = pl.List(pl.String())
OF_NODES: dict[str, pl.DataType] = {"gpu_type": pl.String(), "partitions": NAMES, "features": NAMES}
FRACTION = (pl.col("gpu_milli") > 0) & (pl.col("gpu_milli") < WHOLE)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One change: what to do, what it requires, and which wait reasons it removes."""

    name: str  # as `changes` takes it
    title: str
    action: str
    requires: str
    removes: tuple[str, ...]
    skip: Callable[[Scenario], str]  # why it is not simulated; empty: it is
    change: Mapping[str, Any] | Callable[[Scenario], Scenario]  # words of a scenario, or what no word says
    edits: str = ""  # of what no word says: what it changes
    why: str = ""  # why it may remove more waiting than that of its reasons
    line: str = ""  # of the scheduler's configuration that says it

    def apply(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the change."""
        return self.change(scenario) if callable(self.change) else scenario.replace(**self.change)

    def options(self, scenario: Scenario) -> str | None:
        """Return the options of `simulate` that say it; None where none do."""
        if callable(self.change) or any(v is None and k in scenario.policy.words() for k, v in self.change.items()):
            return None
        given = {name: value for name, value in self.change.items() if value is not None}
        return " ".join(f"--{name.replace('_', '-')} {quote(value)}" for name, value in given.items())


# -- jobs ------------------------------------------------------------------------------------------------------------


def _unless_any(condition: pl.Expr) -> Callable[[Scenario], str]:
    return lambda s: "" if s.workload.frame.select(condition.any()).item() else NO_EFFECT


def _requests(**columns: pl.Expr) -> Callable[[Scenario], Scenario]:
    """Return a change of what jobs request, also of those that run before."""
    return lambda scenario: _with_columns(scenario, *(column.alias(name) for name, column in columns.items()))


def _with_columns(scenario: Scenario, *columns: pl.Expr) -> Scenario:
    before, workload = scenario.before_with_estimate, scenario.workload
    changed = scenario.on(replace(workload, frame=workload.frame.with_columns(*columns)))
    return changed.with_before(before and replace(before, frame=before.frame.with_columns(*columns)))


def _split(scenario: Scenario) -> Scenario:
    """Make each instance a job of its own, in the order of the jobs; of those that run before, too."""
    workload, before = scenario.workload, scenario.before_with_estimate
    changed = scenario.on(workload.split_instances(), workload.instance_rows)
    if before is None:
        return changed
    rows = np.repeat(np.arange(before.frame.height), before.frame["instances"].to_numpy())
    frame = before.frame[rows].with_columns(instances=pl.lit(1, dtype=pl.Int32))
    estimate = None if before.estimate is None else before.estimate.gather(rows)
    return changed.with_before(replace(before, frame=frame, rows=before.rows[rows], estimate=estimate))


# -- nodes -----------------------------------------------------------------------------------------------------------


def gpu_types(cluster: Cluster) -> list[str]:
    """Return the GPU types of a cluster; `CPU` where it has none."""
    return sorted(set(cluster.frame.filter(pl.col("gpus") > 0)["gpu_type"])) or [CPU_ONLY]


def _merged(cluster: Cluster) -> Cluster:
    """Merge each pool into one node, or into as few as the simulator takes."""
    kinds = ["gpu_type", "gpu_memory_mib", "partitions", "features"]
    typed = cluster.frame.with_columns(pl.when(pl.col("gpus") > 0).then("gpu_type").alias("gpu_type"))
    amounts = (pl.col(c).cast(pl.Int64).sum() for c in ("gpus", *NODE_AMOUNTS))
    pools = typed.group_by(kinds, maintain_order=True).agg(*amounts)
    rows = [part for row in pools.iter_rows(named=True) for part in _parts(row)]
    nodes = pl.DataFrame(rows, schema_overrides=OF_NODES).with_columns(
        node=pl.format("pool-{}", pl.int_range(pl.len())), pool=pl.col("gpu_type").fill_null(CPU_ONLY)
    )
    return Cluster.of(nodes, source=f"{cluster.source}, merged")


def _parts(pool: dict[str, Any]) -> list[dict[str, Any]]:
    """Cut a pool into equal nodes; remainders go to the first of them."""
    count = -(-pool["gpus"] // LARGEST) or 1
    fixed = {name: pool[name] for name in ("gpu_type", "gpu_memory_mib", "partitions", "features")}
    return [
        fixed | {a: pool[a] // count + (k < pool[a] % count) for a in ("gpus", *NODE_AMOUNTS)} for k in range(count)
    ]


def _merge(scenario: Scenario) -> Scenario:
    nodes = _merged(scenario.cluster)
    grown = max(1, len(scenario.cluster) // len(nodes))  # limits per node grow with the nodes
    return _requests(max_per_node=pl.col("max_per_node") * grown)(scenario.replace(cluster=nodes, nodes=""))


def _cannot_merge(scenario: Scenario) -> str:
    if scenario.events:
        return "node events name nodes that it would merge"
    return NO_EFFECT if len(_merged(scenario.cluster)) >= len(scenario.cluster) else ""


# -- policies --------------------------------------------------------------------------------------------------------


def _cannot(**words: Any) -> Callable[[Scenario], str]:  # noqa: ANN401
    """Return why a policy cannot be changed so, or that it is so already."""

    def skip(scenario: Scenario) -> str:
        try:
            return NO_EFFECT if scenario.replace(**words).policy == scenario.policy else ""
        except PolicyError as e:
            return str(e)

    return skip


def _cannot_backfill(scenario: Scenario) -> str:
    return NO_EFFECT if BACKFILLS[scenario.policy.backfill].reserves else _cannot(backfill="easy")(scenario)


def _cannot_estimate(scenario: Scenario) -> str:
    if not scenario.workload.names_owners:
        return "no job names a user or group, by which its runtime would be estimated"
    return NO_EFFECT if scenario.policy.order == "sjf" else ""


def _one_type_or_any(scenario: Scenario) -> str:
    several = len(gpu_types(scenario.cluster)) > 1
    return _unless_any(pl.col("gpu_types").list.len() > 0)(scenario) if several else NO_EFFECT


def partitions(scenario: Scenario) -> list[str]:
    """Return the partitions with nodes that jobs name, where there are several."""
    names = set(scenario.workload.frame["partitions"].explode()) & set(scenario.cluster.frame["partitions"].explode())
    return sorted(names - {None}) if len(names - {None}) > 1 else []


def _one_partition(scenario: Scenario) -> str:
    return "" if partitions(scenario) else NO_EFFECT


CHANGES: dict[str, WhatIf] = {
    c.name: c
    for c in (
        WhatIf(
            "types", "any GPU type", "let jobs run on any GPU type that has the memory",
            "changes of what jobs request", ("gpu_type",),
            _one_type_or_any,
            _requests(gpu_types=NO_TYPES), "GPU types of jobs",
            ". Reasons count only the GPU types that a job may use, and the other types had free nodes",
        ),
        WhatIf(
            "partitions", "no partitions", "let jobs run in any partition", "changes of the partitions",
            ("partition", "partition_down"), _one_partition, _requests(partitions=NO_TYPES), "partitions of jobs",
        ),
        WhatIf(
            "cpu", "unlimited CPU", "add CPU to GPU nodes, or reduce the CPU that jobs request", "CPUs", ("cpu",),
            _unless_any(pl.col("cpu_milli") > 0), _requests(cpu_milli=pl.lit(0, dtype=pl.Int64)), "CPU of jobs",
        ),
        WhatIf(
            "memory", "unlimited memory", "add memory to GPU nodes, or reduce the memory that jobs request", "memory",
            ("memory",), _unless_any(pl.col("memory_mib") > 0), _requests(memory_mib=pl.lit(0, dtype=pl.Int64)),
            "memory of jobs",
        ),
        WhatIf(
            "fragmentation", "large nodes", f"use larger nodes (simulated: up to {LARGEST} GPUs a node)",
            "other nodes", ("fragmentation",), _cannot_merge, _merge, "nodes, merged by GPU type",
        ),
        WhatIf(
            "gangs", "no gang scheduling", "let instances start one by one, where the jobs can", "changes of the jobs",
            ("head_of_line", "reservation"), _unless_any(pl.col("instances") > 1), _split,
            "jobs, one per instance",
        ),
        WhatIf(
            "backfill", "EASY backfill",
            "set backfill to easy: later jobs start early only if that does not delay the first", "a setting",
            ("head_of_line",), _cannot_backfill, {"backfill": "easy"},
        ),
        WhatIf(
            "sjf", "shortest job first", "set order to sjf and estimate to group", "a setting", (),
            _cannot_estimate, {"order": "sjf", "estimate": "group"},
        ),
        WhatIf("nothing", "no change", "nothing: it shows that runs are paired", "nothing", (),
               lambda _: "", {}),
    )
}  # fmt: skip


def _of_site(change: SettingChange) -> WhatIf:
    def same(s: Scenario) -> bool:
        return change.scheduler == s.scheduler and s.workload.frame.with_columns(*change.columns).equals(
            s.workload.frame
        )

    def apply(s: Scenario) -> Scenario:
        changed = s.replace(scheduler=change.scheduler)
        same_jobs = s.workload.frame.with_columns(*change.columns).equals(s.workload.frame)
        return changed if same_jobs else _with_columns(changed, *change.columns)

    return WhatIf(
        change.name, change.title, change.action, change.requires, change.removes,
        lambda s: NO_EFFECT if same(s) else "", apply, change.line or f"configuration of {change.scheduler.title}",
        line=change.line,
    )  # fmt: skip


def of_site(scenario: Scenario) -> dict[str, WhatIf]:
    """Return the changes of its settings that the scheduler proposes, by name."""
    own = () if scenario.scheduler is None else scenario.scheduler.what_ifs(scenario.workload.frame)
    return {change.name: _of_site(change) for change in own}


SHARING = "sharing"  # exclusive GPUs where they are shared, and the reverse
NODES = "nodes"  # one change per GPU type, or, where jobs name several, per partition
DEFAULT = (*(name for name in CHANGES if name != "nothing"), SHARING, NODES)


def _sharing(scenario: Scenario) -> WhatIf:
    exclusive = scenario.policy.sharing == "exclusive"
    words = {"sharing": "fractional" if exclusive else "exclusive", "speed": None, "speed_classes": None}
    action = "let jobs that request a fraction share a GPU" if exclusive else "none: it shows the value of sharing"
    return WhatIf(
        SHARING, "fractional GPU sharing" if exclusive else "no GPU sharing", action, "a setting",
        ("gpu", "gpu_type") if exclusive else (), _unless_any(FRACTION), words,
        f"sharing {words['sharing']}, without a speed profile",
    )  # fmt: skip


def _more(gpu_type: str, scenario: Scenario) -> WhatIf:
    cluster, name = scenario.cluster, "" if gpu_type == CPU_ONLY else gpu_type
    named = chosen(cluster.frame, name or None)
    there = int((named & (cluster.frame["gpus"] > 0)).sum()) or int(named.sum())
    count = max(1, round(MORE * there))
    edit = f"{name} +{count}".strip()
    grown = cluster.with_nodes(edit)
    # A partition may be called `down`: "1 more down node" would be one that does not run.
    is_partition = gpu_type != CPU_ONLY and gpu_type not in cluster.frame["gpu_type"]
    of, kind = (f" of partition {gpu_type}", "") if is_partition else ("", f"{gpu_type} ")
    nodes = plural(count, f"more {kind}node") + of
    share = f"{100 * count / there:.0f} %"  # of few nodes, one is more than a tenth
    title = f"{share} more {kind}nodes{of}" if share == f"{100 * MORE:.0f} %" else f"{nodes} (+{share})"
    return WhatIf(
        f"{NODES}:{gpu_type}", title, f"buy or rent {nodes}{_joined(cluster, grown)}",
        f"{nodes}, {plural(grown.gpus - cluster.gpus, 'GPU')}",
        ("gpu", "gpu_type", "partition"), lambda _: "", {"nodes": ", ".join(filter(None, (scenario.nodes, edit)))},
    )  # fmt: skip


def _joined(cluster: Cluster, grown: Cluster) -> str:
    """Say in which partitions added nodes are; nothing where there are no partitions."""
    new = grown.frame.filter(~pl.col("node").is_in(cluster.frame["node"].implode()))
    names = sorted(set(new["partitions"].explode().drop_nulls()))
    return f", in {'partition' if len(names) == 1 else 'partitions'} {', '.join(names)}" if names else ""


def what_if(name: str, scenario: Scenario) -> WhatIf:
    """Return the change of this name, such as `cpu` or `nodes:T4`; several at once are joined by `+`."""
    if len(names := parts_of(name)) > 1:
        return _together(name, [what_if(one, scenario) for one in names], scenario)
    kind, _, gpu_type = name.partition(":")
    if kind == NODES:
        return _more(gpu_type, scenario)
    return _sharing(scenario) if kind == SHARING else (CHANGES | of_site(scenario))[name]


def parts_of(name: str) -> list[str]:
    """Return the changes that a name joins; nodes come last, as a GPU type may have a plus sign.

    >>> parts_of("loops+nodes:A100+")
    ['loops', 'nodes:A100+']
    """
    first, plus, others = ("", "", "") if name.startswith(NODES) else name.partition("+")
    return [first, *parts_of(others)] if plus else [name]


def _together(name: str, changes: Sequence[WhatIf], scenario: Scenario) -> WhatIf:
    """Return several changes as one."""

    def each(of: Callable[[WhatIf], str]) -> list[str]:
        return list(dict.fromkeys(filter(None, map(of, changes))))

    def apply(scenario: Scenario) -> Scenario:
        return reduce(lambda s, change: change.apply(s), changes, scenario)

    return WhatIf(
        name, " and ".join(each(lambda c: c.title)), "; ".join(each(lambda c: c.action)),
        " and ".join(each(lambda c: c.requires)), tuple(reason for c in changes for reason in c.removes),
        lambda s: next(filter(None, (c.skip(s) for c in changes)), ""), apply,
        "; ".join(each(lambda c: c.edits or c.options(scenario) or "")),
    )  # fmt: skip


def chosen_changes(names: Sequence[str], scenario: Scenario) -> list[WhatIf]:
    """Return the changes of these names; `nodes` stands for one per GPU type, or per partition that jobs name.

    A node that is added for a partition is in that one alone; for a GPU type, in those of the node it is a copy of.
    """
    own = of_site(scenario)
    if tuple(names) == DEFAULT:
        names = (*names, *own)
    every = [f"{NODES}:{name}" for name in partitions(scenario) or gpu_types(scenario.cluster)]
    also = [f"{NODES}:{gpu_type}" for gpu_type in gpu_types(scenario.cluster)]
    expanded = dict.fromkeys(name for word in names for name in (every if word == NODES else [word]))
    hint = f"choose from {', '.join((*DEFAULT, *own))}; nodes:TYPE for one GPU type"
    for name in (part for word in expanded for part in parts_of(word)):
        lookup("change", name, [*CHANGES, *own, SHARING, *every, *also], hint=hint, models=":" in name)
    if not expanded:
        raise PolicyError("a diagnosis needs at least one change", hint=hint)
    changes = [what_if(name, scenario) for name in expanded]
    return changes if scenario.scheduler is None else [_under(scenario.scheduler.title, change) for change in changes]


def _under(scheduler: str, change: WhatIf) -> WhatIf:
    """Leave out what replaces the rules of a scheduler: its own are changed with another configuration."""
    if change.name not in ("backfill", "sjf", SHARING):
        return change
    why = f"{scheduler} decides that: `fleetlab compare TRACE --conf FILE` shows another configuration"
    return replace(change, skip=lambda _: why)


def changed(scenario: Scenario, change: WhatIf, refused: pl.Series) -> Scenario:
    """Return a scenario with a change; jobs that cannot run as it is stay out: without a runtime none can.

    What earlier jobs have left is given: it is the same under any change. Where its words alone say all that, they are
    all that changes.
    """
    if not callable(change.change) and not besides(scenario, other := change.apply(scenario), refused):
        return other
    return change.apply(_without(scenario, refused))


def besides(scenario: Scenario, other: Scenario, refused: pl.Series) -> list[str]:
    """Return what a change of nodes or sharing has beside its words, so that the jobs are those of the baseline."""
    if other.nodes == scenario.nodes and other.policy.sharing == scenario.policy.sharing:
        return []
    admitted = len(set(refused) - set(world_of(other).refused["job"])) if len(refused) else 0
    out = [f"without {plural(admitted, 'job')} that cannot run as it is"] if admitted else []
    left, own = scenario.before, other.before
    same = left is own or (left is not None and own is not None and left.frame.equals(own.frame))
    return out if same else [*out, "with what earlier jobs have left on the nodes as they are"]


def _without(scenario: Scenario, jobs: pl.Series) -> Scenario:
    if not len(jobs):
        return scenario.after(scenario)
    runtime = pl.when(~pl.col("job").is_in(jobs.implode())).then("runtime")
    return _with_columns(scenario, runtime.alias("runtime"))
