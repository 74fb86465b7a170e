"""How much of the machines is given away and used, by node type; CPUs beside GPUs; what machines measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Figure
from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, Curve, curve
from fleetlab.describe.occupancy import Held
from fleetlab.describe.section import Section
from fleetlab.describe.sections.arrivals import MOST_POINTS
from fleetlab.describe.trace_view import CPU_ONLY, HOUR, WHOLE, Seen
from fleetlab.describe.usage import AMOUNTS
from fleetlab.stats import POSITIVE, Floats, Ints

ALL = "all"
HELD, USED = "held", "used"
THERE = {"GPUs": ("gpus", 1), "CPUs": ("cpu_milli", WHOLE), "memory": ("memory_mib", 1024)}
METRICS = {"cpu": "%", "gpu": "%", "cpu_usr": "%", "cpu_kernel": "%", "cpu_iowait": "%", "net_receive": "as logged",
           "load_1": "processes"}  # fmt: skip
FULL = 100.0


def machines(seen: Seen, section: Section) -> None:
    """Put together allocation, use and metrics of machines."""
    cluster = seen.trace.cluster
    if cluster is None:
        section.lacks("allocation and use of machines", "the trace has no cluster: `--cluster FILE.toml` gives it one")
    else:
        section.tables["nodes"] = _nodes(cluster)
        _allocation(seen, section, cluster)
        _cpus_by_gpu(seen, section, cluster)
    _metrics(seen, section)


def _nodes(cluster: Cluster) -> pl.DataFrame:
    sums = [(pl.col(c).cast(pl.Int64).sum() / one).alias(name) for name, (c, one) in THERE.items()]
    kind = pl.col("gpu_type").fill_null(CPU_ONLY).alias("type")
    return cluster.frame.group_by(kind).agg(pl.len().alias("nodes"), *sums).sort("GPUs", "type", descending=True)


# -- what is held and used ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The nodes of one type, and the jobs that must be on them."""

    name: str
    there: dict[str, float]
    where: Bools | None


def _pools(seen: Seen, nodes: pl.DataFrame) -> list[Pool]:
    """All nodes; and those of each type that jobs can be told to be on."""
    every = Pool(ALL, {name: float(nodes[name].sum()) for name in THERE}, None)
    types = [t for t in seen.types if t in nodes["type"].to_list()]
    rows = {row["type"]: row for row in nodes.iter_rows(named=True)}
    return [every, *(Pool(t, {n: float(rows[t][n]) for n in THERE}, seen.is_("type", t)) for t in types)]


def _allocation(seen: Seen, section: Section, cluster: Cluster) -> None:
    """Hourly means of what is held and used, in percent of what there is, while jobs are submitted."""
    if seen.span < HOUR or not np.isfinite(seen.held_until).any():
        section.lacks("allocation over time", "the log does not tell when jobs started and ended, or is under an hour")
        return
    edges = np.arange(0.0, seen.span + 1, HOUR)
    pools = _pools(seen, section.tables["nodes"])
    if unplaced := int((seen.gpu & ~_any(pools[1:], seen)).sum()):
        section.lacks(f"the node type of {unplaced:,} GPU jobs", "they may run on several, or on none that is here")
    found = list(_shares(seen, pools, edges))
    _tabled(section, found)
    _drawn(section, found, edges)
    if any(c.largest > FULL for _, _, _, c, _ in found):
        section.lacks(
            "a schedule that fits",
            "at some hours more is held than there is: starts and ends are not those of this cluster",
        )


def _any(pools: list[Pool], seen: Seen) -> Bools:
    placed = np.zeros(len(seen.gpu), dtype=bool)
    for pool in pools:
        placed |= pool.where if pool.where is not None else False
    return placed


Found = tuple[str, str, str, Curve, Floats]  # pool, what, held or used; over the hours


def _shares(seen: Seen, pools: list[Pool], edges: Floats) -> Iterator[Found]:
    used, held = seen.used, Held.by_jobs(seen, edges)
    blocks = seen.blocks_at(edges[:-1])
    for what, (column, one, _) in AMOUNTS.items():
        amounts = {HELD: seen.instances * seen.floats(column) / one}
        if used is not None and column in used.columns:
            amounts[USED] = seen.instances * used[column].fill_null(0.0).to_numpy() / one
        for pool in pools:
            for how, values in amounts.items():
                if pool.there[what] > 0 and values.any():
                    hourly = FULL * held.mean(values, pool.where) / pool.there[what]
                    made = curve(pool.name, hourly, blocks=blocks)
                    if made is not None:
                        yield pool.name, what, how, made, hourly


def _tabled(section: Section, found: list[Found]) -> None:
    rows = []
    for pool, what, how, c, _ in found:
        row: dict[str, object] = {"type": pool, "of": what, "how": how}
        for name, told in (("mean, %", c.mean), ("P50", c.quantiles[50]), ("P90", c.quantiles[90])):
            row |= dict(zip((name, f"{name.split(',')[0]} low", f"{name.split(',')[0]} high"), told, strict=True))
        if section.like_pai:
            paper = published.numbers(f"{what} held").get(pool) if what in ("GPUs", "CPUs") and how == HELD else None
            row["published, %"] = paper
        rows.append(row)
        if (pool, what) == (ALL, "GPUs"):
            section.say(f"GPUs {how} on average", c.mean, "%")
    section.tables["held and used"] = pl.DataFrame(rows, infer_schema_length=None)
    held = [(pool, c.mean[0]) for pool, what, how, c, _ in found if what == "GPUs" and how == HELD and pool != ALL]
    if len(held) > 1:
        most, least = max(held, key=lambda p: p[1]), min(held, key=lambda p: p[1])
        section.sentences.append(
            f"Of the GPUs, {most[0]} are held most ({most[1]:.0f} % on average), {least[0]} least ({least[1]:.0f} %)."
        )


def _drawn(section: Section, found: list[Found], edges: Floats) -> None:
    every = -(-(len(edges) - 1) // (MOST_POINTS // 5))
    starts = np.arange(0, len(edges) - 1, every)
    for what in THERE:
        for how in (HELD, USED):
            of = [(pool, hourly) for pool, w, h, _, hourly in found if (w, h) == (what, how)]
            if of:
                frames = [_thinned(pool, hourly, edges, starts) for pool, hourly in of]
                section.figures[f"{what} {how} by node type"] = Figure(
                    f"{what} {how}, by node type", "line", pl.concat(frames), "day", f"{what} {how}, %",
                    f"{what} {how}, of what there is: " + ", ".join(f"{p} {h.mean():.0f} %" for p, h in of),
                )  # fmt: skip


def _thinned(pool: str, hourly: Floats, edges: Floats, starts: Ints) -> pl.DataFrame:
    means = np.add.reduceat(hourly, starts) / np.diff(np.append(starts, len(hourly)))
    return pl.DataFrame({"x": edges[:-1][starts] / 86_400, "y": means}).with_columns(series=pl.lit(pool))


# -- CPUs beside GPUs --------------------------------------------------------------------------------------------------


def _cpus_by_gpu(seen: Seen, section: Section, cluster: Cluster) -> None:
    """CPUs a GPU: what nodes have, and what instances ask for, by how many GPUs their nodes have."""
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    if not nodes.height or not seen.gpu.any():
        section.lacks("CPUs beside GPUs", "no node has GPUs, or no job asks for one")
        return
    sizes = dict(nodes.group_by("gpu_type").agg(pl.col("gpus").unique()).iter_rows())
    of_size: dict[str, list[str]] = {}
    for name, counts in sorted(sizes.items()):
        of_size.setdefault(f"{counts[0]}-GPU nodes" if len(counts) == 1 else "mixed nodes", []).append(name)
    rows = [_ratio_row(section, ALL, cluster.frame, seen, seen.gpu)]
    for kind, types in sorted(of_size.items(), key=lambda kv: kv[0], reverse=True):
        where = seen.gpu & seen.frame["type"].cast(pl.String).is_in(types).to_numpy()
        rows.append(_ratio_row(section, kind, nodes.filter(pl.col("gpu_type").is_in(types)), seen, where))
    section.tables["CPUs a GPU"] = pl.DataFrame(rows, infer_schema_length=None)


def _ratio_row(section: Section, kind: str, nodes: pl.DataFrame, seen: Seen, where: Bools) -> dict[str, object]:
    offered = float(nodes["cpu_milli"].sum()) / WHOLE / float(nodes["gpus"].cast(pl.Int64).sum())
    cpu, milli, many = seen.floats("cpu_milli")[where], seen.milli[where], seen.instances[where]
    blocks = seen.blocks.part(where)
    if not len(many):
        return {"nodes": kind, "offered": offered}
    each = blocks.ratio(blocks.sums(many * cpu / milli), blocks.sums(many), POSITIVE).interval()
    row: dict[str, object] = {"nodes": kind, "offered": offered}
    row |= dict(zip(("asked, mean of instances", "low", "high"), each, strict=True))
    row |= {"asked, in all": float((many * cpu).sum() / (many * milli).sum())}
    if section.like_pai:
        row |= {f"{w}, published": published.numbers(f"CPUs a GPU {w}").get(kind) for w in ("offered", "asked")}
    return row


# -- what machines measured --------------------------------------------------------------------------------------------


def _metrics(seen: Seen, section: Section) -> None:
    """Utilisation, network and I/O wait, where machines measured them."""
    series = seen.trace.series.get("machine_metric")
    there = set(series.collect_schema().names()) if series is not None else set()
    wanted = [m for m in METRICS if m in there]
    if series is None or not wanted or not {"node", "start", "end"} <= there:
        section.lacks("network and I/O wait of machines", "the trace has no metrics of machines")
        return
    frame = series.select("node", "start", "end", *wanted).collect()
    if seen.trace.cluster is not None:
        kinds = seen.trace.cluster.frame.select("node", type=pl.col("gpu_type").fill_null(CPU_ONLY))
        frame = frame.with_columns(pl.col("node").cast(pl.String)).join(kinds, on="node", how="left")
    else:
        frame = frame.with_columns(type=pl.lit(ALL))
    curves = {(kind, m): c for m in wanted for kind, c in _by_type(frame, m, seen)}
    rows = [_metric_row(kind, m, c) for (kind, m), c in curves.items()]
    section.tables["metrics of machines"] = pl.DataFrame(rows, infer_schema_length=None)
    for m in wanted:
        of = [c for (_, metric), c in curves.items() if metric == m]
        section.distributions(
            f"{m} of machines", of, title=f"{m} of machines, weighed by time", unit=METRICS[m], x=f"{m}, {METRICS[m]}",
            y="share of machine time, %", log_x=m in ("cpu_iowait", "net_receive"), tabled=False,
        )  # fmt: skip


def _by_type(frame: pl.DataFrame, metric: str, seen: Seen) -> Iterator[tuple[str, Curve]]:
    lasted = (frame["end"] - frame["start"]).fill_null(0.0).to_numpy()
    # A row that does not say how long it lasted counts for little, but counts.
    weights = np.maximum(np.nan_to_num(lasted), 1.0)
    blocks = seen.blocks_at(np.nan_to_num(frame["start"].fill_null(0.0).to_numpy()))
    values = frame[metric].cast(pl.Float64).fill_null(np.nan).to_numpy()
    for kind in sorted(frame["type"].drop_nulls().unique().to_list()):
        where = (frame["type"] == kind).fill_null(value=False).to_numpy()
        made = curve(kind, values, weights=weights, where=where, blocks=blocks)
        if made is not None:
            yield kind, made


def _metric_row(kind: str, metric: str, c: Curve) -> dict[str, object]:
    row: dict[str, object] = {
        "type": kind,
        "metric": metric,
        "unit": METRICS[metric],
        "rows": c.count,
        "mean": c.mean[0],
    }
    for name, told in (("P50", c.quantiles[50]), ("P90", c.quantiles[90])):
        row |= dict(zip((name, f"{name} low", f"{name} high"), told, strict=True))
    return row
