"""The cluster: one row a node."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import columns as column_types
from fleetlab.core import nodes, toml
from fleetlab.core.catalog import GPU_AMOUNTS, NODE_AMOUNTS
from fleetlab.core.cells import Framed, noun_cell
from fleetlab.core.errors import WorkloadError
from fleetlab.core.names import lookup

AMOUNTS = (*GPU_AMOUNTS, *NODE_AMOUNTS)
SCHEMA: dict[str, pl.DataType] = {
    "node": pl.String(),
    "pool": pl.String(),
    "gpu_type": pl.String(),
    **{name: pl.Int32() if name == "gpus" else pl.Int64() for name in AMOUNTS},
    "partitions": pl.List(pl.String()),
    "features": pl.List(pl.String()),
    "weight": pl.Int32(),
}

DEFAULTS: dict[str, pl.Expr] = {
    "pool": pl.lit("default"),
    "gpu_type": pl.lit(None),
    **dict.fromkeys(AMOUNTS, pl.lit(0)),
    "partitions": pl.lit([], dtype=pl.List(pl.String())),
    "features": pl.lit([], dtype=pl.List(pl.String())),
    "weight": pl.lit(1),
}


@dataclass(frozen=True, slots=True)
class Cluster(Framed):
    """Nodes, checked once; build them with `of`, `uniform` or `from_toml`.

    Parameters
    ----------
    frame
        One row a node. `gpu_memory_mib` is that of each of its GPUs, the other amounts are of the whole node. A node
        may be in several `partitions`, and has `features` that jobs may ask for. Slurm takes nodes of a low `weight`
        first.
    source
        Where they are from, for provenance.

    Examples
    --------
    >>> Cluster.uniform(2, 8).with_nodes("GPU +1")
    <Cluster 3 nodes, 24 GPUs, uniform, nodes GPU +1>
    """

    frame: pl.DataFrame
    source: str

    @classmethod
    def of(cls, frame: pl.DataFrame, *, source: str) -> Cluster:
        """Build one from a table.

        Parameters
        ----------
        frame
            A unique `node` in each row; other columns of a cluster take their defaults where they are missing.
        source
            Where it is from, for provenance and errors.

        Returns
        -------
        Cluster
            The nodes, checked.

        Raises
        ------
        WorkloadError
            If a column is unknown, a name is missing or given twice, or an amount is negative.

        Examples
        --------
        >>> Cluster.of(pl.DataFrame({"node": ["a", "b"], "gpu_type": "T4", "gpus": [2, 4]}), source="by hand")
        <Cluster 2 nodes, 6 GPUs, by hand>
        """
        if unknown := [c for c in frame.columns if c not in SCHEMA]:
            msg = f"{source}: no such column in a cluster: {unknown}"
            raise WorkloadError(msg, hint=f"there are {', '.join(SCHEMA)}")
        if "node" not in frame.columns:
            msg = f"{source}: a cluster needs the column: `node`"
            raise WorkloadError(msg, hint="a name for each node, none twice")
        frame = frame.with_columns(**{k: v for k, v in DEFAULTS.items() if k not in frame.columns})
        frame = column_types.cast(frame.select(list(SCHEMA)), SCHEMA, source=source, noun="cluster")
        _obeys(frame, source)
        return cls(frame, source)

    @classmethod
    def uniform(
        cls,
        nodes: int,
        gpus: int,
        *,
        gpu_type: str = "GPU",
        gpu_memory_mib: int = 81_920,
        cpu_milli: int = 128_000,
        memory_mib: int = 1_048_576,
        **amounts: int,
    ) -> Cluster:
        """Make nodes of one kind.

        Parameters
        ----------
        nodes
            How many.
        gpus
            GPUs of each.
        gpu_type
            Their type (default: GPU).
        gpu_memory_mib
            Memory of each GPU, in MiB (default: 80 GiB).
        cpu_milli
            CPU of each node, in thousandths of a core (default: 128 cores).
        memory_mib
            Memory of each node, in MiB (default: 1 TiB).
        **amounts
            Other columns of a cluster, such as `disk_mib`.

        Returns
        -------
        Cluster
            Nodes named node-0, node-1 and so on.

        Raises
        ------
        WorkloadError
            If there is no node, or an amount is negative.

        Examples
        --------
        >>> Cluster.uniform(2, 8)
        <Cluster 2 nodes, 16 GPUs, uniform>
        """
        row = {"gpu_type": gpu_type if gpus else None, "gpus": gpus, "gpu_memory_mib": gpu_memory_mib if gpus else 0}
        row |= {"cpu_milli": cpu_milli, "memory_mib": memory_mib, **amounts}
        return cls.of(_repeat(row, nodes, "node"), source="uniform")

    @classmethod
    def from_toml(cls, path: Path | str) -> Cluster:
        r"""Read `[[node]]` entries, each with a `count` and the columns of a cluster.

        Nodes are named by the pool and GPU type of their entry, and numbered: gpu-A10-0. So a name stays when a count
        changes or another pool goes. `node` names them instead, numbered where there is a `count`.

        Parameters
        ----------
        path
            The TOML file.

        Returns
        -------
        Cluster
            The nodes of all entries.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or an entry has an unknown key or an impossible value.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "nodes.toml")
        ...     _ = file.write_text('[[node]]\ncount = 4\ngpu_type = "T4"\ngpus = 2\n')
        ...     Cluster.from_toml(file)
        <Cluster 4 nodes, 8 GPUs, nodes.toml>
        """
        path = Path(path)
        hint = "[[node]] on a line, then count = 40, gpus = 8 and so on"
        entries = toml.load(path, "the cluster file", hint).get("node")
        if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
            raise WorkloadError(f"{path.name}: no [[node]] entry in it", hint=hint)
        # Each entry takes its own defaults: one may leave out what another gives.
        name_counts: Counter[str] = Counter()
        frames = [cls.of(_entry(e, k, path.name, name_counts), source=path.name).frame for k, e in enumerate(entries)]
        return cls.of(pl.concat(frames), source=path.name)

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        return f"<Cluster {len(self):,} nodes, {self.gpus:,} GPUs, {self.source}>"

    def _repr_html_(self) -> str:
        return noun_cell(repr(self).strip("<>"), {"nodes": self.by_type()})

    def by_type(self) -> pl.DataFrame:
        """Return how many nodes there are of each GPU type, and what they have together.

        Returns
        -------
        polars.DataFrame
            `gpu_type`, `nodes`, `gpus`, `cpu_milli`, `memory_mib`; most GPUs first.

        Examples
        --------
        >>> Cluster.uniform(2, 8, gpu_type="T4").by_type().select("gpu_type", "nodes", "gpus").rows()
        [('T4', 2, 16)]
        """
        amounts = [pl.col(c).cast(pl.Int64).sum() for c in ("gpus", "cpu_milli", "memory_mib")]
        counted = self.frame.group_by("gpu_type").agg(pl.len().alias("nodes"), *amounts)
        return counted.sort("gpus", "gpu_type", descending=True)

    @property
    def gpus(self) -> int:
        """How many GPUs all nodes have together."""
        return int(self.frame["gpus"].cast(pl.Int64).sum())  # polars adds up in the column's own width

    # -- other sizes -------------------------------------------------------------------------------------------------

    def with_nodes(self, edits: str, count: int | None = None) -> Cluster:
        """Add or remove nodes; the kinds of nodes of a pool change in proportion.

        Parameters
        ----------
        edits
            By pool or GPU type: `"T4 +20, V100 -25%"`; or one name, with a `count`.
        count
            How many nodes of that name there are to be.

        Returns
        -------
        Cluster
            The other cluster; this one stays as it is.

        Raises
        ------
        WorkloadError
            If there is no pool or GPU type by that name, or fewer nodes than are removed.

        Examples
        --------
        >>> Cluster.uniform(10, 8, gpu_type="T4").with_nodes("T4 +20%")
        <Cluster 12 nodes, 96 GPUs, uniform, nodes T4 +20%>
        """
        parsed = nodes.parse(edits if count is None else f"{edits} {count}")
        if not parsed:
            return self
        source = f"{self.source}, nodes {', '.join(map(str, parsed))}"
        return Cluster.of(nodes.edited(self.frame, parsed), source=source)

    def without(self, *names: str) -> Cluster:
        """Remove nodes, pools or GPU types.

        Parameters
        ----------
        *names
            The names of nodes, pools or GPU types.

        Returns
        -------
        Cluster
            The nodes that are left.

        Raises
        ------
        WorkloadError
            If there is nothing by that name.

        Examples
        --------
        >>> Cluster.uniform(10, 8).without("node-0", "node-9")
        <Cluster 8 nodes, 64 GPUs, uniform without node-0, node-9>
        """
        names_by_column = {c: set(self.frame[c].drop_nulls()) for c in ("node", "pool", "gpu_type")}
        for name in names:
            lookup("node, pool or GPU type", name, sorted(set.union(*names_by_column.values())), error=WorkloadError)
        remaining = self.frame.filter(
            ~pl.any_horizontal(pl.col(*names_by_column).is_in(list(names)).fill_null(value=False))
        )
        return Cluster.of(remaining, source=f"{self.source} without {', '.join(names)}")

    def scaled(self, factor: float | Fraction, pool: str | None = None) -> Cluster:
        """Scale a pool or GPU type, or the whole cluster, with at least one node of each kind.

        Parameters
        ----------
        factor
            What numbers of nodes are multiplied by.
        pool
            The pool or GPU type (default: all).

        Returns
        -------
        Cluster
            The other cluster; this one stays as it is.

        Raises
        ------
        WorkloadError
            If the factor is not above 0, or there is no such pool.

        Examples
        --------
        >>> Cluster.uniform(10, 8).scaled(1.5)
        <Cluster 15 nodes, 120 GPUs, uniform × 1.5>
        """
        if not 0 < factor < 1e6:
            msg = f"a cluster is scaled by a number above 0: {factor}"
            raise WorkloadError(msg, hint="scaled(1.2) for 20 % more nodes")
        return Cluster.of(nodes.scaled(self.frame, factor, pool), source=f"{self.source} × {float(factor):g}")

    def to_toml(self) -> str:
        """Return the cluster as `[[node]]` entries, one per kind; `from_toml` reads them, with its own node names.

        Returns
        -------
        str
            The text of a TOML file.

        Examples
        --------
        >>> print(Cluster.uniform(2, 8, gpu_type="T4", cpu_milli=8000, memory_mib=0, gpu_memory_mib=0).to_toml())
        [[node]]
        count = 2
        gpu_type = "T4"
        gpus = 8
        cpu_milli = 8000
        """
        kinds = [c for c in SCHEMA if c != "node"]
        counted = self.frame.group_by(kinds, maintain_order=True).agg(count=pl.len()).select("count", *kinds)
        usual = Cluster.of(pl.DataFrame({"node": ["a"]}), source="").frame.row(0, named=True)
        rows = [{k: v for k, v in row.items() if v != usual.get(k)} for row in counted.iter_rows(named=True)]
        return "\n".join("[[node]]\n" + toml.dumps(row) for row in rows).rstrip()


def _entry(entry: dict[str, Any], k: int, source: str, name_counts: Counter[str]) -> pl.DataFrame:
    count = entry.get("count", 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= 1_000_000:
        msg = f"{source}: `count` of [[node]] entry {k + 1} is not a number from 1 to 1,000,000: {count!r}"
        raise WorkloadError(msg, hint="count = 40 makes forty such nodes")
    row = {name: value for name, value in entry.items() if name not in ("count", "node")}
    if unknown := [name for name in row if name not in SCHEMA]:
        msg = f"{source}: no such key in [[node]] entry {k + 1}: {unknown}"
        raise WorkloadError(msg, hint=f"there are count, {', '.join(SCHEMA)}")
    if wrong := [n for n in row if n in AMOUNTS and (not isinstance(row[n], int) or isinstance(row[n], bool))]:
        msg = f"{source}: not a whole number in [[node]] entry {k + 1}: {wrong}"
        raise WorkloadError(msg, hint="milli-CPUs, MiB and GPUs are counted, so that they add up")
    if wrong := [n for n in ("node", "pool", "gpu_type") if not isinstance(entry.get(n, ""), str)]:
        msg = f"{source}: not a name in [[node]] entry {k + 1}: {wrong}"
        raise WorkloadError(msg, hint='names stand in quotes: gpu_type = "V100"')
    name = _name(entry, name_counts)
    return _repeat(row, count, name) if "count" in entry or "node" not in entry else _rows(row, [name])


def _name(entry: dict[str, Any], name_counts: Counter[str]) -> str:
    """Its own, or pool and GPU type; the second entry of the same is told apart by its number."""
    if "node" in entry:
        return str(entry["node"])
    name = "-".join(dict.fromkeys(word for key in ("pool", "gpu_type") if (word := entry.get(key)))) or "node"
    name_counts[name] += 1
    return name if name_counts[name] == 1 else f"{name}.{name_counts[name]}"


def _repeat(row: dict[str, Any], count: int, name: str) -> pl.DataFrame:
    if count < 1:
        raise WorkloadError(f"a cluster needs at least one node, not: {count}")
    return _rows(row, [f"{name}-{i}" for i in range(count)])


def _rows(row: dict[str, Any], names: list[str]) -> pl.DataFrame:
    try:
        return pl.DataFrame({"node": names}).with_columns(**{k: pl.lit(v) for k, v in row.items()})
    except pl.exceptions.PolarsError as e:  # a number of more digits than any column holds
        msg = f"a node cannot have that: {row}: {str(e).splitlines()[0]}"
        raise WorkloadError(msg, hint="milli-CPUs, MiB and GPUs are whole numbers below 2^63") from None


def _obeys(frame: pl.DataFrame, source: str) -> None:
    if frame["node"].null_count() or frame["node"].n_unique() != frame.height:
        twice = frame["node"].filter(frame["node"].is_duplicated()).first()
        msg = f"{source}: a node is named twice or not at all: {twice!r}"
        raise WorkloadError(msg, hint='each node needs a name of its own; node = "rack7" gives an entry one')
    for name in ("pool", *AMOUNTS):
        if frame[name].null_count():
            msg = f"{source}: column `{name}` has missing values: {frame[name].null_count()}"
            raise WorkloadError(msg, hint="give every node a value, or leave the column out to take its default")
    for name in AMOUNTS:
        if frame.height and (below := frame.filter(pl.col(name) < 0)).height:
            raise WorkloadError(f"{source}: `{name}` is negative in node: {below['node'][0]}")
    if frame.filter((pl.col("gpus") > 0) & pl.col("gpu_type").is_null()).height:
        msg = f"{source}: a node with GPUs does not say of which type"
        raise WorkloadError(msg, hint="give `gpu_type` a name, any name")
