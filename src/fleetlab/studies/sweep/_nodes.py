"""A cluster with nodes added or taken away, as a few words say: `T4 +20`, `-10%`, `T4 +20, V100 -25%`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import count

import numpy as np
import polars as pl

from fleetlab.core import WorkloadError
from fleetlab.studies.sweep._cases import AS_IT_IS

EDIT = re.compile(r"(?:(?P<pool>\S.*?)\s+)?(?P<sign>[+-])\s*(?P<count>\d{1,9}(?:\.\d{1,6})?)\s*(?P<percent>%)?")
HINT = f'nodes = ["{AS_IT_IS}", "+10%", "T4 +20", "T4 +20, V100 -25%"]'


def edited(nodes: pl.DataFrame, words: str) -> pl.DataFrame:
    """The nodes after all edits, each of a pool or GPU type, or of all pools in proportion."""
    if words == AS_IT_IS:
        return nodes
    for part in words.split(","):
        found = EDIT.fullmatch(part.strip())
        if found is None or ("." in found["count"] and not found["percent"]):
            msg = f"not an edit of nodes: `{words}`"
            raise WorkloadError(msg, hint=HINT)
        nodes = _one(nodes, found["pool"], float(found["count"]) * (1 if found["sign"] == "+" else -1),
                     percent=bool(found["percent"]))  # fmt: skip
    return nodes


def _one(nodes: pl.DataFrame, pool: str | None, by: float, *, percent: bool) -> pl.DataFrame:
    mine = _chosen(nodes, pool)
    there = int(mine.sum())
    wanted = there + (round(there * by / 100) if percent else int(by))
    if wanted < 1 or wanted > 1_000_000:
        msg = f"{there:,} nodes{f' of {pool}' if pool else ''} cannot become: {wanted:,}"
        raise WorkloadError(msg, hint=HINT)
    kinds = [c for c in nodes.columns if c != "node"]
    parts = nodes.filter(mine).partition_by(kinds, maintain_order=True)
    sizes = shared_out(wanted, [part.height for part in parts])
    made = [_so_many(part, size) for part, size in zip(parts, sizes, strict=True)]
    return _apart(pl.concat([nodes.filter(~mine), *made]))


def _apart(nodes: pl.DataFrame) -> pl.DataFrame:
    """No name twice: what was added by one edit may be there again by the next."""
    if nodes["node"].n_unique() == nodes.height:
        return nodes
    names: dict[str, None] = {}
    for name in nodes["node"]:
        free = next(n for k in count() if (n := f"{name}+{k}" if k else name) not in names)
        names[free] = None
    return nodes.with_columns(node=pl.Series(list(names)))


def _chosen(nodes: pl.DataFrame, pool: str | None) -> pl.Series:
    if pool is None:
        return pl.Series([True] * nodes.height, dtype=pl.Boolean)
    found = ((nodes["pool"] == pool) | (nodes["gpu_type"] == pool)).fill_null(value=False)
    if not found.any():
        names = sorted({*nodes["pool"], *nodes["gpu_type"].drop_nulls()} - {"default"})
        near = get_close_matches(pool, names, 1)
        msg = f"no pool or GPU type by that name: `{pool}`" + (f"; did you mean {near[0]}?" if near else "")
        raise WorkloadError(msg, hint=f"there are {', '.join(names)}")
    return found


def shared_out(total: int, weights: list[int]) -> list[int]:
    """A whole number in proportion to weights, to the last one: what is left goes to the largest remainders.

    >>> shared_out(10, [1, 1, 1]), shared_out(3, [4, 2])
    ([4, 3, 3], [2, 1])
    """
    exact = np.array(weights, dtype=np.float64) * total / sum(weights)
    sizes = np.floor(exact + 1e-9).astype(np.int64)
    for k in np.argsort(sizes - exact, kind="stable")[: total - int(sizes.sum())]:
        sizes[k] += 1
    return [int(size) for size in sizes]


def _so_many(part: pl.DataFrame, size: int) -> pl.DataFrame:
    """The first of them; where there are not enough, some again under other names."""
    again = part[(np.arange(size) % part.height).tolist()]
    turn = pl.int_range(pl.len()) // part.height
    return again.with_columns(
        node=pl.when(turn > 0).then(pl.format("{}#{}", "node", turn)).otherwise("node").cast(pl.String)
    )
