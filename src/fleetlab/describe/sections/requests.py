"""Requests and usage, gang sizes, users, and placements."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core.durations import number
from fleetlab.describe import published
from fleetlab.describe.curves import Ecdf, ecdf, share
from fleetlab.describe.section import Section
from fleetlab.describe.sections.users import users
from fleetlab.describe.trace_view import AMOUNTS, WHOLE, TraceView, used_by_row
from fleetlab.stats import Floats, Ints

COMMON = 10  # shares of a GPU in a table, the most requested
KINDS = ("0", "(0,1)", "1", "2", "4", "8")  # of GPUs per instance, as the FGD paper cuts it
OTHER = "other"
GPU_MEMORY = {"gpu_memory_mib": "mean over the run", "max_gpu_memory_mib": "peak"}
GIB = 1024.0  # MiB


def requests(view: TraceView, section: Section) -> None:
    """Put together requests, use, users, gangs and places."""
    _by_request(view, section)
    rows = used_by_row(view.trace.usage, view.frame)
    if rows is None:
        section.absent("what jobs used", "the trace has no usage")
    for name in AMOUNTS:
        _amount(view, section, name, rows)
    _over_use(view, section)
    _gpu_memory(view, section)
    _gangs(view, section)
    users(view, section)
    _priorities(view, section)
    _places(view, section)


# -- requests ----------------------------------------------------------------------------------------------------------


def _by_request(view: TraceView, section: Section) -> None:
    """Jobs and GPUs by how many GPUs per instance asks for."""
    milli = pl.col("gpu_milli")
    whole = [pl.when(milli == int(k) * WHOLE).then(pl.lit(k)) for k in KINDS if k.isdigit()]
    kind = pl.coalesce(*whole, pl.when(milli < WHOLE).then(pl.lit("(0,1)")), pl.lit(OTHER))
    many = pl.col("instances").cast(pl.Int64)
    gpus = (milli.cast(pl.Int64) * many).sum() / WHOLE
    table = (
        view.frame.group_by(kind.cast(pl.Enum([*KINDS, OTHER])).alias("GPUs per instance"))
        .agg(pl.len().alias("jobs"), many.sum().alias("instances"), gpus.alias("GPUs"))
        .sort("GPUs per instance")
        .with_columns(pl.col("GPUs per instance").cast(pl.String))
    )
    shares = [(100 * pl.col(c) / pl.col(c).sum()).alias(f"{c}, %") for c in ("jobs", "instances", "GPUs")]
    section.tables["by GPUs per instance"] = table.with_columns(shares)
    if view.gpu.any():
        _classes(view, section)
        requested = 100 * float(view.gpu.mean())
        part = 100 * float(((view.milli > 0) & (view.milli < WHOLE)).sum() / view.gpu.sum())
        section.findings.append(f"{requested:.3g} % of the jobs request GPUs, {part:.3g} % of those less than one GPU.")


def _classes(view: TraceView, section: Section) -> None:
    """GPU jobs by the classes of the PAI paper, and by type; and which shares of a GPU they ask for."""
    gpu = view.frame.filter(pl.col("gpu_milli") > 0)
    for name, column in (("request", "request"), ("type", "type")):
        counted = gpu.group_by(pl.col(column).cast(pl.String).alias(name)).agg(pl.len().alias("jobs"))
        counted = counted.with_columns((100 * pl.col("jobs") / gpu.height).alias("%"))
        counted = counted.sort("jobs", name, descending=[True, False])
        if section.like_pai:
            interval = published.numbers(f"GPU jobs by {name}")
            counted = counted.with_columns(
                pl.col(name).replace_strict(dict(interval), default=None, return_dtype=pl.Float64).alias("published, %")
            )
        section.tables[f"GPU jobs by {name}"] = counted
    shares = gpu.filter(pl.col("gpu_milli") < WHOLE).group_by("gpu_milli").agg(pl.len().alias("jobs"))
    if shares.height:
        part, gpus = 100 * pl.col("jobs") / pl.col("jobs").sum(), (pl.col("gpu_milli") / WHOLE).round(3)
        shares = shares.sort("jobs", "gpu_milli", descending=[True, False])
        shares = shares.select(gpus.alias("GPUs per instance"), "jobs", part.alias("%"))
        section.tables["fractional GPUs"] = shares.head(COMMON)


def _amount(view: TraceView, section: Section, name: str, rows: pl.DataFrame | None) -> None:
    """Requested and used, an instance; and requested, a job."""
    column, one, unit = AMOUNTS[name]
    in_unit = f", {unit}" if unit != name else ""
    requested = view.floats(column) / one
    if not requested.any():
        section.absent(f"{name} requested", "no job requests any")
        return
    # Of GPUs only those that ask for some are drawn: others are another kind of job.
    where = view.gpu if name == "GPUs" else None
    curves = view.ecdf("requested", requested, weights=view.instances, where=where)
    if rows is not None and column in rows.columns:
        curves += _used(view, rows, column, one)
    section.distributions(
        f"{name} per instance", curves, title=f"{name} of an instance: requested and used", unit=unit, of="what",
        x=f"{name} of an instance{in_unit}", y="share of instances, %",
    )  # fmt: skip
    if not view.gangs:
        return
    whole = view.ecdf("requested", requested * view.instances, where=where)
    section.distributions(
        f"{name} per job", whole, title=f"{name} of all instances of a job", unit=unit, of="what",
        x=f"{name} of a job{in_unit}",
    )  # fmt: skip


def _used(view: TraceView, rows: pl.DataFrame, column: str, one: float) -> list[Ecdf]:
    values = (rows[column] / one).fill_null(np.nan).to_numpy()
    requested, weights = rows[f"asked_{column}"].to_numpy(), rows["weight"].to_numpy()
    blocks = view.blocks_at(rows["submit"].to_numpy())
    curve = ecdf("used", values, weights=weights, where=requested > 0, blocks=blocks)
    return [curve] if curve is not None else []


def _over_use(view: TraceView, section: Section) -> None:
    """Used over requested, and how many use more than they requested."""
    used = view.used
    if used is None:
        return
    curves, table = [], []
    for name, (column, _, _) in AMOUNTS.items():
        if column not in used.columns:
            continue
        requested, of = view.floats(column), used[column].fill_null(np.nan).to_numpy()
        there = (requested > 0) & np.isfinite(of)
        ratio = np.divide(of, requested, out=np.full(len(requested), np.nan), where=there)
        curves += view.ecdf(name, ratio)
        for word, weights in (("jobs", None), ("instances", view.instances[there])):
            interval = share(ratio[there] > 1, weights, view.blocks.part(there))
            row = dict(zip(("of", "weighted by", "%", "low", "high"), (name, word, *interval), strict=True))
            key = "memory" if name == "memory" else name[:-1]
            paper = published.numbers(f"{word} above their request").get(key) if section.like_pai else None
            table.append(row | ({"published, %": paper} if section.like_pai else {}))
    section.distributions(
        "used over requested", curves, title="Used over requested, by job", unit="", of="what", x="used over requested"
    )
    section.tables["usage above request"] = pl.DataFrame(table, infer_schema_length=None)
    for c in curves:
        if c.series == "GPUs":
            section.say("median utilization of requested GPUs", c.quantiles[50].scaled(100), "%")
    shares = [f"{number(100 * c.quantiles[50][0])} % of requested {c.series}" for c in curves]
    if shares:
        section.findings.append(f"Median usage is {', '.join(shares)}.")


def _gpu_memory(view: TraceView, section: Section) -> None:
    """GPU memory that workers used: lifetime means and peaks."""
    usage = view.trace.usage
    there = set(usage.collect_schema().names()) if usage is not None else set()
    columns = {column: name for column, name in GPU_MEMORY.items() if column in there}
    if usage is None or not columns or "job" not in there:
        section.absent("GPU memory used", "the trace has no usage of it")
        return
    rows = usage.select("job", *columns).collect().join(view.frame.select("job", "submit"), on="job")
    blocks, curves = view.blocks_at(rows["submit"].to_numpy()), []
    for column, name in columns.items():
        values = rows[column].cast(pl.Float64).fill_null(np.nan).to_numpy() / GIB
        curve = ecdf(name, values, blocks=blocks)
        curves += [curve] if curve is not None else []
    section.distributions(
        "GPU memory used", curves, title="GPU memory that a worker used", unit="GiB", of="what",
        x="GPU memory of a worker, GiB", y="share of workers, %",
    )  # fmt: skip


# -- gangs -------------------------------------------------------------------------------------------------------------


def _gangs(view: TraceView, section: Section) -> None:
    many = view.instances
    if not view.gangs:
        section.absent("gang sizes", "every job has one instance")
        return
    curves = [*view.ecdf("jobs", many), *view.ecdf("instances", many, weights=many)]
    section.distributions(
        "gang size", curves, title="Instances of a job: by jobs, and by instances", unit="", of="weighted by",
        x="instances of a job", y="share, %",
    )  # fmt: skip
    gang, requested = many > 1, many * view.milli / WHOLE
    rows = [
        ("jobs that are gangs", gang, None),
        ("instances in gangs", gang, many),
        ("GPUs requested by gangs", gang, requested),
        ("instances in jobs of more than 100 GPUs", requested > 100, many),
    ]
    shares = {name: share(which, weights, view.blocks) for name, which, weights in rows}
    table = [(name, *interval) for name, interval in shares.items()]
    section.tables["gangs"] = pl.DataFrame(table, schema=["what", "%", "low", "high"], orient="row")
    section.say("instances in gangs", shares["instances in gangs"], "%")
    section.findings.append(
        f"{number(shares['jobs that are gangs'].value)} % of the jobs are gangs; they have "
        f"{shares['instances in gangs'].value:.3g} % of the instances."
    )


# -- rules and places --------------------------------------------------------------------------------------------------


def _priorities(view: TraceView, section: Section) -> None:
    counted = view.trace.workload.frame.group_by("priority").agg(pl.len().alias("jobs"))
    if counted.height > 1:
        part = (100 * pl.col("jobs") / pl.col("jobs").sum()).alias("%")
        section.tables["priorities"] = counted.with_columns(part).sort("priority", descending=True)


def _places(view: TraceView, section: Section) -> None:
    """What jobs say of where they may run, and where they did."""
    gpu = view.frame.filter(pl.col("gpu_milli") > 0)
    rows = []
    if gpu.height:
        rows += [
            ("GPU jobs that request GPU types", _part(gpu["gpu_types"].list.len() > 0)),
            ("GPU jobs that request one type", _part(gpu["gpu_types"].list.len() == 1)),
        ]
    limited = _part(view.frame["max_per_node"] > 0)
    rows.append(("jobs with a limit per node", limited))
    placements = view.trace.placements
    if placements is None:
        section.absent("locality", "placements are not in the trace")
    else:
        rows += _locality(view, section, placements)
    section.tables["placement constraints"] = pl.DataFrame(
        [(name, 100 * value) for name, value in rows], schema={"what": pl.String, "%": pl.Float64}, orient="row"
    )


def _part(which: pl.Series) -> float:
    return float(which.to_numpy().mean())


def _locality(view: TraceView, section: Section, placements: pl.LazyFrame) -> list[tuple[str, float]]:
    """On how many nodes do the instances of a gang run?"""
    by_job = (
        placements.filter(pl.col("node").is_not_null())
        .group_by("job")
        .agg(pl.col("node").n_unique().alias("nodes"), pl.len().alias("seen"))
        .collect()
    )
    gangs = by_job.filter(pl.col("seen") > 1)
    if not gangs.height:
        section.absent("locality of gangs", "no gang has two instances with a node")
        return []
    nodes, instances = (gangs[c].cast(pl.Float64).to_numpy() for c in ("nodes", "seen"))
    _draw_nodes(view, section, gangs["job"].to_numpy(), nodes)
    return [
        ("gangs on one node", float((nodes == 1).mean())),
        ("gangs with a node for each instance", float((nodes == instances).mean())),
    ]


def _draw_nodes(view: TraceView, section: Section, job: Ints, nodes: Floats) -> None:
    curve = ecdf("gangs", nodes, blocks=view.blocks.part(job))
    if curve is not None:
        section.distributions(
            "nodes of a gang", [curve], title="Nodes on which a gang runs", unit="", x="nodes of a gang",
            y="share of gangs, %",
        )  # fmt: skip
