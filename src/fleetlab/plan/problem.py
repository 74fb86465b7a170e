"""Demand and nodes as arrays: kinds of identical instances, classes of identical nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WHOLE = 1000  # milli of a GPU
REQUESTED = (*NODE_AMOUNTS, "gpu_milli", "gpu_memory_mib", "types", "limit", "app")
OFFERED = (*NODE_AMOUNTS, "gpus", "gpu_memory_mib", "gpu_type", "weight")
MOST = 1_000_000  # instances
CARDS = 62  # GPUs of a node: who has which is told by the bits of a number


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Kinds and classes; every instance of a kind may take the place of any other, and so may nodes of a class."""

    ask: Ints  # [kinds, amounts]
    gpus: Ints  # [kinds]: how many GPUs an instance touches; 1 for a share, 0 for none
    milli: Ints  # [kinds]: what it takes of each of them
    vram: Ints  # [kinds]: MiB of each of them
    count: Ints  # [kinds]
    app: Ints  # [kinds]: -1 where there is no limit
    limit: Ints  # [kinds]: instances of the app on one node; 0: any number
    typed: Bools  # [kinds, classes]: may it run on that type of GPU?
    may: Bools  # [kinds, classes]: would an empty node hold it?
    part: Floats  # [kinds, classes]: the largest part of anything that an instance takes of an empty node
    have: Ints  # [classes, amounts]
    cards: Ints  # [classes]: GPUs
    memory: Ints  # [classes]: MiB of each GPU
    weight: Floats  # [classes]: what a node in use counts for
    of: Ints  # [nodes]: the class of each
    rows: pl.DataFrame  # job, instance, kind: one row an instance, in the order of kinds
    first: Ints  # [kinds + 1]: where the rows of a kind begin
    names: pl.Series  # of the nodes

    @property
    def kinds(self) -> int:
        """How many kinds of instances there are."""
        return len(self.count)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.of)

    @property
    def there(self) -> Ints:
        """How many nodes of each class there are."""
        return np.bincount(self.of, minlength=len(self.have)).astype(np.int64)

    def size(self) -> Floats:
        """The part of a node that an instance of each kind takes, of those that may hold it; infinite for none."""
        return np.asarray(np.where(self.may, self.part, np.inf).min(axis=1, initial=np.inf))


def problem(demand: Workload, nodes: Cluster, *, weight: pl.Series | None = None) -> Problem:
    """Put a demand and nodes side by side; `weight` is the weight of each node (default: 1)."""
    if not 0 < demand.instances <= MOST:
        msg = f"{demand.source}: a plan takes 1 to {MOST:,} instances, not: {demand.instances:,}"
        large = "plan a part of it, such as half of the instances on half of the nodes"
        none = "no job may run at that time: `--at busiest`"
        raise WorkloadError(msg, hint=large if demand.instances else none)
    if (cards := int(nodes.frame["gpus"].max() or 0)) > CARDS:  # type: ignore[arg-type]
        msg = f"{nodes.source}: a plan takes nodes of up to {CARDS} GPUs, not: {cards}"
        raise WorkloadError(msg, hint="split larger nodes")
    requests = _requests(demand.frame)
    kinds = requests.group_by(REQUESTED, maintain_order=True).agg(
        pl.col("instances").cast(pl.Int64).sum().alias("count")
    )
    kinds = kinds.with_row_index("kind").with_columns(pl.col("kind").cast(pl.Int64))
    offered = nodes.frame.with_columns(weight=pl.lit(1.0) if weight is None else weight.cast(pl.Float64)).select(
        OFFERED
    )
    classes = offered.group_by(OFFERED, maintain_order=True).agg().with_row_index("class")
    of = offered.join(classes, on=OFFERED, how="left", nulls_equal=True, maintain_order="left")["class"]
    return _joined(requests, kinds, classes, of, nodes.frame["node"])


def _requests(frame: pl.DataFrame) -> pl.DataFrame:
    """What each job asks for; what does not matter to it is left out, so that it does not make a kind of its own."""
    gpu, limited = pl.col("gpu_milli") > 0, pl.col("max_per_node") > 0
    return frame.select(
        "job",
        "instances",
        *NODE_AMOUNTS,
        pl.col("gpu_milli").cast(pl.Int64),
        gpu_memory_mib=pl.when(gpu).then(pl.col("gpu_memory_mib")).otherwise(0),
        types=pl.when(gpu).then(pl.col("gpu_types").list.unique().list.sort()).otherwise([]),
        limit=pl.col("max_per_node").cast(pl.Int64),
        app=pl.when(limited).then(pl.col("app").cast(pl.String).fill_null("")),
    )


def _joined(
    requests: pl.DataFrame, kinds: pl.DataFrame, classes: pl.DataFrame, of: pl.Series, names: pl.Series
) -> Problem:
    gpu = kinds["gpu_milli"].to_numpy()
    share = (gpu > 0) & (gpu < WHOLE)
    apps = kinds["app"].unique(maintain_order=True).drop_nulls()
    ask, have = kinds.select(NODE_AMOUNTS).to_numpy(), classes.select(NODE_AMOUNTS).to_numpy()
    cards, memory = classes["gpus"].to_numpy().astype(np.int64), classes["gpu_memory_mib"].to_numpy()
    gpus, vram = np.where(share, 1, gpu // WHOLE), kinds["gpu_memory_mib"].to_numpy()
    allowed = [[not t or name in t for name in classes["gpu_type"]] for t in kinds["types"].to_list()]
    typed = np.array(allowed, dtype=bool).reshape(len(gpu), len(have)) & ((gpus[:, None] == 0) | (cards > 0))
    fits = (ask[:, None, :] <= have).all(axis=2) & (gpus[:, None] <= cards)
    return Problem(
        ask=ask, gpus=gpus, milli=np.where(share, gpu, np.where(gpu > 0, WHOLE, 0)), vram=vram,
        count=kinds["count"].to_numpy(),
        app=kinds["app"].replace_strict(apps, range(len(apps)), default=-1, return_dtype=pl.Int64).to_numpy(),
        limit=kinds["limit"].to_numpy(), typed=typed,
        may=typed & fits & ((gpus[:, None] == 0) | (vram[:, None] <= memory)),
        part=_part(np.column_stack([ask, gpu]), np.column_stack([have, cards * WHOLE])),
        have=have, cards=cards, memory=memory, weight=classes["weight"].to_numpy(),
        of=of.to_numpy().astype(np.int64), rows=_rows(requests, kinds),
        first=np.append(0, np.cumsum(kinds["count"].to_numpy())), names=names,
    )  # fmt: skip


def _part(requests: Ints, there: Ints) -> Floats:
    """The largest share of anything, [kinds, classes]; infinite where a requested resource is absent."""
    wanted, has = np.broadcast_arrays(requests[:, None, :], there[None, :, :])
    largest = np.where(wanted > 0, np.inf, 0.0)
    return np.asarray(np.divide(wanted, has, out=largest, where=has > 0).max(axis=2))


def _rows(requests: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """One row an instance: its job, its number inside it, its kind."""
    each = requests.join(kinds, on=REQUESTED, how="left", nulls_equal=True, maintain_order="left")
    each = each.select("job", "kind", instance=pl.int_ranges(pl.col("instances").cast(pl.Int64)))
    return each.explode("instance").sort("kind", maintain_order=True).select("job", "instance", "kind")
