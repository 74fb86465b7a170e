"""Edits of a table of nodes, as a few words say: `T4 +20`, `-10%`, `T4 400`, `T4 +20, V100 -25%`."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from fleetlab.core.errors import WorkloadError
from fleetlab.core.names import clip, lookup

if TYPE_CHECKING:
    import polars as pl

# A pool or GPU type, then +N, -N or a percentage; or, after a space or a colon, how many nodes it shall have.
EDIT = re.compile(
    r"(?:(?P<pool>\S.*?)(?:\s+|\s*:\s*|(?=\s*[+-])))?(?P<sign>[+-])?\s*(?P<count>\d{1,9}(?:\.\d{1,6})?)\s*(?P<percent>%)?"
)
HINT = "such as `+10%`, `T4 +20`, `T4 400`, or `T4 +20, V100 -25%`"
MOST = 1_000_000
CPU_ONLY = "CPU-only"  # the name of all nodes without a GPU
PLACE = "place"  # of a node among all, while they are edited


class Edit(NamedTuple):
    """One edit: of a pool or GPU type, or of all nodes in proportion."""

    pool: str | None
    sign: str  # + or -; empty: the number of nodes
    number: str
    percent: bool

    def __str__(self) -> str:
        return f"{self.pool + ' ' if self.pool else ''}{self.sign}{self.number}{'%' if self.percent else ''}"

    def size(self, nodes: int) -> int:
        """Return how many of so many nodes there are afterwards."""
        by = float(self.number)
        if not self.sign:
            return int(by)
        by = by if self.sign == "+" else -by
        return nodes + (round(nodes * by / 100) if self.percent else int(by))


def parse(text: str) -> tuple[Edit, ...]:
    """Read edits separated by commas; no text, no edits.

    >>> [str(edit) for edit in parse("T4 +20, V100 -25%,P100:4")]
    ['T4 +20', 'V100 -25%', 'P100 4']
    """
    return tuple(_edit(part.strip(), text) for part in text.split(",")) if text.strip() else ()


def _edit(part: str, text: str) -> Edit:
    match = EDIT.fullmatch(part)
    edit = match and Edit(match["pool"], match["sign"] or "", match["count"], bool(match["percent"]))
    whole = edit and (edit.percent or "." not in edit.number)
    if not edit or not whole or (edit.percent and not edit.sign) or (not edit.sign and not edit.pool):
        msg = f"not an edit of nodes: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    return edit


def edited(nodes: pl.DataFrame, edits: tuple[Edit, ...]) -> pl.DataFrame:
    """Return the nodes after all edits: the kinds of nodes in a pool change in proportion."""
    for edit in edits:
        mask = chosen(nodes, edit.pool)
        size = edit.size(int(mask.sum()))
        if size < (0 if mask.sum() < nodes.height else 1) or size > MOST:
            msg = f"{mask.sum():,} nodes{f' of {edit.pool}' if edit.pool else ''} cannot become: {size:,}"
            msg = f"no node would be left: `{edit}`" if size == 0 else msg
            raise WorkloadError(msg, hint=HINT)
        nodes = _unique_names(_resized(nodes, mask, size, edit.pool if is_partition(nodes, edit.pool) else None))
    return nodes


def is_partition(nodes: pl.DataFrame, pool: str | None) -> bool:
    """Return whether a name is that of a partition, and not of a GPU type; a log may call a pool as its partition."""
    named = pool in (None, CPU_ONLY) or bool((nodes["gpu_type"] == pool).any())
    return not named and bool(nodes["partitions"].list.contains(pool).any())


def chosen(nodes: pl.DataFrame, pool: str | None) -> pl.Series:
    """Return which nodes are in the pool, or have the GPU type, or are in the partition, of that name.

    `CPU-only` are those without a GPU.
    """
    import polars as pl

    if pool is None:
        return pl.repeat(value=True, n=nodes.height, eager=True, dtype=pl.Boolean)
    mask = ((nodes["pool"] == pool) | (nodes["gpu_type"] == pool)).fill_null(value=False)
    if pool == CPU_ONLY:
        mask = nodes["gpus"] == 0
    if not mask.any():
        mask = nodes["partitions"].list.contains(pool)
    if not mask.any():
        names = {*nodes["pool"], *nodes["gpu_type"].drop_nulls(), *nodes["partitions"].explode().drop_nulls()}
        lookup("pool or GPU type", pool, sorted(names - {"default"}), error=WorkloadError, models=True)
    return mask


def scaled(nodes: pl.DataFrame, factor: float | Fraction, pool: str | None) -> pl.DataFrame:
    """Return a pool, or all pools, scaled by a factor: each kind of node in proportion, rounded up to at least one."""
    import polars as pl

    mask, parts = chosen(nodes, pool), []
    for part in kinds_of(nodes, mask):
        again = _cycle(part, max(1, math.ceil(part.height * factor - 1e-9)))
        parts.append(again.with_columns(node=pl.format("{}#{}", "node", pl.int_range(pl.len()))))
    return _put_back(nodes, mask, parts)


def proportional(total: int, weights: list[int]) -> list[int]:
    """Split a whole number in proportion to weights; what is left goes to the largest remainders.

    >>> proportional(10, [1, 1, 1]), proportional(3, [4, 2])
    ([4, 3, 3], [2, 1])
    """
    exact = [weight * total / sum(weights) for weight in weights]
    sizes = [math.floor(size + 1e-9) for size in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda k: sizes[k] - exact[k])
    for k in by_remainder[: total - sum(sizes)]:
        sizes[k] += 1
    return sizes


def _resized(nodes: pl.DataFrame, mask: pl.Series, size: int, partition: str | None) -> pl.DataFrame:
    """Return the chosen nodes with others as many; one that is added for a partition is in that one alone.

    Copies in all partitions of their nodes would be the same for every partition that has these nodes.
    """
    import polars as pl

    kinds, parts = kinds_of(nodes, mask), []
    sizes = proportional(size, [part.height for part in kinds])
    for part, count_ in zip(kinds, sizes, strict=True):
        turn = pl.int_range(pl.len()) // part.height
        name = pl.when(turn > 0).then(pl.format("{}#{}", "node", turn)).otherwise("node").cast(pl.String)
        rows = _cycle(part, count_)
        if partition is not None:
            alone = pl.lit([partition], dtype=rows.schema["partitions"])
            rows = rows.with_columns(partitions=pl.when(turn > 0).then(alone).otherwise("partitions"))
        parts.append(rows.with_columns(node=name))
    return _put_back(nodes, mask, parts)


def kinds_of(nodes: pl.DataFrame, mask: pl.Series) -> list[pl.DataFrame]:
    """Return the chosen nodes by kind, each with its place among all nodes."""
    kind = [name for name in nodes.columns if name != "node"]
    return nodes.with_row_index(PLACE).filter(mask).partition_by(kind, maintain_order=True)


def _cycle(part: pl.DataFrame, size: int) -> pl.DataFrame:
    """Return the first `size` rows, starting over where there are not enough; added ones follow the last of them."""
    again, last = part[[k % part.height for k in range(size)]], part.height - 1
    return again.with_columns(part[[min(k, last) for k in range(size)]][PLACE])


def _put_back(nodes: pl.DataFrame, mask: pl.Series, parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Return all nodes in their order, with these parts for the chosen ones.

    Of equally good nodes the first is taken: a pool that went to the end would change waits without any other size.
    """
    import polars as pl

    others = nodes.with_row_index(PLACE).filter(~mask)
    return pl.concat([others, *parts]).sort(PLACE, maintain_order=True).drop(PLACE)


def _unique_names(nodes: pl.DataFrame) -> pl.DataFrame:
    """Rename nodes whose name two edits have added."""
    import polars as pl

    if nodes["node"].n_unique() == nodes.height:
        return nodes
    names: dict[str, None] = {}
    for name in nodes["node"]:
        free = next(n for k in count() if (n := f"{name}+{k}" if k else name) not in names)
        names[free] = None
    return nodes.with_columns(node=pl.Series(list(names)))
