"""What is changed, one thing at a time: each change takes a case and gives another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np
import polars as pl

from fleetlab.core import PolicyError

MORE = 0.1  # of the nodes of a type
LARGEST = 62  # GPUs on one node: more the simulator does not hold
WHOLE = 1000  # milli of one GPU
CPU_ONLY = "CPU"  # what nodes without GPUs are called
TOTALS = ("cpu_milli", "memory_mib", "rdma_milli", "disk_mib")


@dataclass(frozen=True, slots=True)
class Case:
    """What is simulated: jobs, nodes, and the words of the rules."""

    jobs: pl.DataFrame
    nodes: pl.DataFrame
    rules: Mapping[str, str]

    def ruled(self, **rules: str) -> Case:
        """The same by other rules."""
        return replace(self, rules={**self.rules, **rules})

    def asking(self, **columns: pl.Expr) -> Case:
        """The same jobs with other wishes."""
        return replace(self, jobs=self.jobs.with_columns(**columns))


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is changed, what it takes, and which reasons of the wait ledger it removes."""

    name: str  # as `--changes` takes it
    title: str
    todo: str
    price: str
    lifts: tuple[str, ...]
    moot: Callable[[Case], bool]  # it would change nothing
    make: Callable[[Case], Case]
    why: str = ""  # why it may take off more than the reasons it removes


def _any(case: Case, what: pl.Expr) -> bool:
    return bool(case.jobs.select(what.any()).item())


def types_of(nodes: pl.DataFrame) -> list[str]:
    """The GPU types there are; where there is no GPU at all, the nodes without."""
    return sorted(set(nodes.filter(pl.col("gpus") > 0)["gpu_type"])) or [CPU_ONLY]


def _of_type(name: str) -> pl.Expr:
    return pl.col("gpus") == 0 if name == CPU_ONLY else (pl.col("gpu_type") == name) & (pl.col("gpus") > 0)


def more_nodes(nodes: pl.DataFrame, name: str, count: int) -> pl.DataFrame:
    """So many more nodes of a type, like those that are there, taken evenly over them."""
    like = nodes.filter(_of_type(name))
    at = (np.arange(count) * like.height // count) if count <= like.height else np.arange(count) % like.height
    new = like[at.tolist()].with_columns(node=pl.format("{}+{}", "node", pl.int_range(pl.len())))
    return pl.concat([nodes, new])


def _tenth(nodes: pl.DataFrame, name: str) -> int:
    return max(1, round(MORE * nodes.filter(_of_type(name)).height))


def _merged(case: Case) -> Case:
    """Each pool as one node, or as few as the simulator holds; limits for each node grow with it."""
    kinds = ["gpu_type", "gpu_memory_mib"]
    pools = case.nodes.with_columns(pl.when(pl.col("gpus") > 0).then("gpu_type").alias("gpu_type")).group_by(
        kinds, maintain_order=True
    )
    summed = pools.agg(pl.len().alias("were"), *(pl.col(c).cast(pl.Int64).sum() for c in ("gpus", *TOTALS)))
    rows = [part for row in summed.iter_rows(named=True) for part in _parts(row)]
    nodes = pl.DataFrame(rows, schema_overrides={"gpu_type": pl.String}).with_columns(
        node=pl.format("pool-{}", pl.int_range(pl.len())), pool=pl.col("gpu_type").fill_null(CPU_ONLY)
    )
    grown = max(1, case.nodes.height // nodes.height)
    return replace(case.asking(max_per_node=pl.col("max_per_node") * grown), nodes=nodes)


def _parts(pool: dict[str, int]) -> list[dict[str, int]]:
    """A pool cut into equal nodes, what does not divide going to the first of them."""
    count = -(-pool["gpus"] // LARGEST) or 1
    amounts = ("gpus", *TOTALS)
    fixed = {"gpu_type": pool["gpu_type"], "gpu_memory_mib": pool["gpu_memory_mib"]}
    return [fixed | {a: pool[a] // count + (k < pool[a] % count) for a in amounts} for k in range(count)]


def _split(case: Case) -> Case:
    """Each instance a job of its own, in the order of the jobs; what no rule looks at is left out, to be small."""
    rows = np.repeat(np.arange(case.jobs.height), case.jobs["instances"].to_numpy())
    jobs = case.jobs.select(pl.exclude("job", "parent", "status", "start", "end"))[rows]
    return replace(case, jobs=jobs.with_columns(instances=pl.lit(1, dtype=pl.Int32)))


SHARE = (pl.col("gpu_milli") > 0) & (pl.col("gpu_milli") < WHOLE)

CHANGES: dict[str, Change] = {
    c.name: c
    for c in (
        Change(
            "types", "no type constraints", "let jobs run on any GPU type that has the memory",
            "a change of what jobs ask for", ("gpu_type",),
            lambda case: len(types_of(case.nodes)) < 2 or not _any(case, pl.col("gpu_types").list.len() > 0),
            lambda case: case.asking(gpu_types=pl.lit([], dtype=pl.List(pl.String))),
            ": the ledger looks no further than the types that a job may use, and others had room of every kind",
        ),
        Change(
            "cpu", "CPU unlimited", "more CPU beside the GPUs, or jobs that ask for less of it", "CPUs", ("cpu",),
            lambda case: not _any(case, pl.col("cpu_milli") > 0),
            lambda case: case.asking(cpu_milli=pl.lit(0, dtype=pl.Int64)),
        ),
        Change(
            "memory", "memory unlimited", "more memory beside the GPUs, or jobs that ask for less of it", "memory",
            ("memory",),
            lambda case: not _any(case, pl.col("memory_mib") > 0),
            lambda case: case.asking(memory_mib=pl.lit(0, dtype=pl.Int64)),
        ),
        Change(
            "fragments", "no fragmentation", "pack closer: another `placement`, larger nodes, sizes that divide them",
            "a setting, or other nodes", ("fragmentation",),
            lambda case: _merged(case).nodes.height >= case.nodes.height,
            _merged,
        ),
        Change(
            "gangs", "gangs split", "let instances start one by one, where the jobs can", "a change of the jobs",
            ("gang", "head_of_line"),
            lambda case: not _any(case, pl.col("instances") > 1),
            _split,
        ),
        Change(
            "backfill", "backfill", "backfill `easy`: others may pass a head that does not fit",
            "a setting", ("head_of_line",),
            lambda case: case.rules["backfill"] in ("easy", "conservative"),
            lambda case: case.ruled(backfill="easy"),
        ),
        Change(
            "sjf", "shortest first", "order `sjf` with `group` estimates", "a setting", ("queue_order",),
            lambda case: case.rules["order"] == "sjf",
            lambda case: case.ruled(order="sjf", estimate="group"),
        ),
        Change("nothing", "the same again", "nothing: it shows that runs are paired", "nothing", (),
               lambda _: False, lambda case: case),
    )
}  # fmt: skip
SHARING = "sharing"  # on where it is off, off where it is on
NODES = "nodes"  # one change for each type
WORDS = (*(name for name in CHANGES if name != "nothing"), SHARING, NODES)


def _sharing(rules: Mapping[str, str]) -> Change:
    off = rules["sharing"] == "exclusive"
    todo = "let jobs share a GPU where they ask for less than one" if off else "no: this is what sharing is worth"
    return Change(
        SHARING, f"sharing {'on' if off else 'off'}", todo, "a setting", ("gpu", "gpu_type") if off else (),
        lambda case: not _any(case, SHARE),
        lambda case: case.ruled(sharing="fractional" if off else "exclusive"),
    )  # fmt: skip


def _more(name: str, nodes: pl.DataFrame) -> Change:
    count = _tenth(nodes, name)
    gpus = int(more_nodes(nodes, name, count)["gpus"][nodes.height :].cast(pl.Int64).sum())
    nodes_of = f"{count:,} more {name} node{'s' if count > 1 else ''}"
    share = f"{100 * count / nodes.filter(_of_type(name)).height:.0f} %"  # of few nodes, one is more than a tenth
    title = f"{share} more {name} nodes" if share == f"{100 * MORE:.0f} %" else f"{nodes_of} (+{share})"
    return Change(
        f"{NODES}:{name}", title, f"buy or rent {nodes_of}", f"{nodes_of}, {gpus:,} GPU{'s' if gpus != 1 else ''}",
        ("gpu", "gpu_type"), lambda _: False,
        lambda case: replace(case, nodes=more_nodes(case.nodes, name, count)),
    )  # fmt: skip


def change(name: str, nodes: pl.DataFrame, rules: Mapping[str, str]) -> Change:
    """The change by its name, such as `cpu` or `nodes:T4`."""
    kind, _, of = name.partition(":")
    if kind == NODES:
        return _more(of, nodes)
    return _sharing(rules) if kind == SHARING else CHANGES[name]


def wanted(words: Sequence[str], nodes: pl.DataFrame, rules: Mapping[str, str]) -> list[Change]:
    """The changes that are asked for; `nodes` stands for one of each type."""
    every = [f"{NODES}:{name}" for name in types_of(nodes)]
    names = [name for word in words for name in (every if word == NODES else [word])]
    known = {*CHANGES, SHARING, *every}
    for name in names:
        if name not in known:
            near = get_close_matches(name, [*WORDS, *every], 1)
            msg = f"no change by that name: `{name}`" + (f"; did you mean {near[0]}?" if near else "")
            raise PolicyError(msg, hint=f"there are {', '.join(WORDS)}; nodes:TYPE for one type")
    if not names:
        msg = "a diagnosis needs something to change"
        raise PolicyError(msg, hint=f"there are {', '.join(WORDS)}")
    return [change(name, nodes, rules) for name in dict.fromkeys(names)]
