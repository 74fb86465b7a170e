"""What do jobs ask for and use, in how many instances, who asks, and where do they run?"""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.describe import published
from fleetlab.describe.ecdf import Curve, curve, share
from fleetlab.describe.section import Section, rough
from fleetlab.describe.sections.users import users
from fleetlab.describe.trace_view import WHOLE, Seen
from fleetlab.describe.usage import AMOUNTS, used_by_row
from fleetlab.stats import Floats, Ints

COMMON = 10  # shares of a GPU in a table, the most asked for
KINDS = ("0", "(0,1)", "1", "2", "4", "8")  # of GPUs an instance, as the FGD paper cuts it
OTHER = "other"


def space(seen: Seen, section: Section) -> None:
    """Put together requests, use, users, gangs and places."""
    _by_request(seen, section)
    rows = used_by_row(seen.trace.usage, seen.frame)
    if rows is None:
        section.lacks("what jobs used", "the trace has no usage")
    for name in AMOUNTS:
        _amount(seen, section, name, rows)
    _over_use(seen, section)
    _gangs(seen, section)
    users(seen, section)
    _priorities(seen, section)
    _places(seen, section)


# -- requests ----------------------------------------------------------------------------------------------------------


def _by_request(seen: Seen, section: Section) -> None:
    """Jobs and GPUs by how many GPUs an instance asks for."""
    milli = pl.col("gpu_milli")
    whole = [pl.when(milli == int(k) * WHOLE).then(pl.lit(k)) for k in KINDS if k.isdigit()]
    kind = pl.coalesce(*whole, pl.when(milli < WHOLE).then(pl.lit("(0,1)")), pl.lit(OTHER))
    many = pl.col("instances").cast(pl.Int64)
    gpus = (milli.cast(pl.Int64) * many).sum() / WHOLE
    table = (
        seen.frame.group_by(kind.cast(pl.Enum([*KINDS, OTHER])).alias("GPUs an instance"))
        .agg(pl.len().alias("jobs"), many.sum().alias("instances"), gpus.alias("GPUs"))
        .sort("GPUs an instance")
        .with_columns(pl.col("GPUs an instance").cast(pl.String))
    )
    shares = [(100 * pl.col(c) / pl.col(c).sum()).alias(f"{c}, %") for c in ("jobs", "instances", "GPUs")]
    section.tables["by GPU request"] = table.with_columns(shares)
    if seen.gpu.any():
        _classes(seen, section)
        asked = 100 * float(seen.gpu.mean())
        part = 100 * float(((seen.milli > 0) & (seen.milli < WHOLE)).sum() / seen.gpu.sum())
        section.sentences.append(f"{asked:.3g} % of the jobs ask for GPUs, {part:.3g} % of those for less than one.")


def _classes(seen: Seen, section: Section) -> None:
    """GPU jobs by the classes of the PAI paper, and by type; and which shares of a GPU they ask for."""
    gpu = seen.frame.filter(pl.col("gpu_milli") > 0)
    for name, column in (("request", "request"), ("type", "type")):
        counted = gpu.group_by(pl.col(column).cast(pl.String).alias(name)).agg(pl.len().alias("jobs"))
        counted = counted.with_columns((100 * pl.col("jobs") / gpu.height).alias("%"))
        counted = counted.sort("jobs", name, descending=[True, False])
        if section.like_pai:
            told = published.numbers(f"GPU jobs by {name}")
            counted = counted.with_columns(
                pl.col(name).replace_strict(dict(told), default=None, return_dtype=pl.Float64).alias("published, %")
            )
        section.tables[f"GPU jobs by {name}"] = counted
    shares = gpu.filter(pl.col("gpu_milli") < WHOLE).group_by("gpu_milli").agg(pl.len().alias("jobs"))
    if shares.height:
        shares = shares.with_columns((100 * pl.col("jobs") / pl.col("jobs").sum()).alias("%"))
        section.tables["shares of a GPU"] = shares.sort("jobs", "gpu_milli", descending=[True, False]).head(COMMON)


def _amount(seen: Seen, section: Section, name: str, rows: pl.DataFrame | None) -> None:
    """Requested and used, an instance; and requested, a job."""
    column, one, unit = AMOUNTS[name]
    in_unit = f", {unit}" if unit != name else ""
    asked = seen.floats(column) / one
    if not asked.any():
        section.lacks(f"{name} requested", "no job asks for any")
        return
    # Of GPUs only those that ask for some are drawn: others are another kind of job.
    where = seen.gpu if name == "GPUs" else None
    curves = seen.curve("requested", asked, weights=seen.instances, where=where)
    if rows is not None and column in rows.columns:
        curves += _used(seen, rows, column, one)
    section.distributions(
        f"{name} an instance", curves, title=f"{name} of an instance: requested and used", unit=unit, of="what",
        x=f"{name} of an instance{in_unit}", y="share of instances, %",
    )  # fmt: skip
    if not seen.gangs:
        return
    whole = seen.curve("requested", asked * seen.instances, where=where)
    section.distributions(
        f"{name} a job", whole, title=f"{name} of all instances of a job", unit=unit, of="what",
        x=f"{name} of a job{in_unit}",
    )  # fmt: skip


def _used(seen: Seen, rows: pl.DataFrame, column: str, one: float) -> list[Curve]:
    values = (rows[column] / one).fill_null(np.nan).to_numpy()
    asked, weights = rows[f"asked_{column}"].to_numpy(), rows["weight"].to_numpy()
    blocks = seen.blocks_at(rows["submit"].to_numpy())
    made = curve("used", values, weights=weights, where=asked > 0, blocks=blocks)
    return [made] if made is not None else []


def _over_use(seen: Seen, section: Section) -> None:
    """Used over requested, and how many use more than they asked for."""
    used = seen.used
    if used is None:
        return
    curves, table = [], []
    for name, (column, _, _) in AMOUNTS.items():
        if column not in used.columns:
            continue
        asked, of = seen.floats(column), used[column].fill_null(np.nan).to_numpy()
        there = (asked > 0) & np.isfinite(of)
        ratio = np.divide(of, asked, out=np.full(len(asked), np.nan), where=there)
        curves += seen.curve(name, ratio)
        for word, weights in (("jobs", None), ("instances", seen.instances[there])):
            told = share(ratio[there] > 1, weights, seen.blocks.part(there))
            row = dict(zip(("of", "weighed by", "%", "low", "high"), (name, word, *told), strict=True))
            key = "memory" if name == "memory" else name[:-1]
            paper = published.numbers(f"{word} above their request").get(key) if section.like_pai else None
            table.append(row | ({"published, %": paper} if section.like_pai else {}))
    section.distributions(
        "used of requested", curves, title="Used over requested, by job", unit="", of="what", x="used over requested"
    )
    section.tables["use above the request"] = pl.DataFrame(table, infer_schema_length=None)
    for c in curves:
        if c.series == "GPUs":
            section.say("median use of the GPUs asked for", c.quantiles[50].scaled(100), "%")
    said = [f"{rough(100 * c.quantiles[50][0])} % of the {c.series}" for c in curves]
    if said:
        section.sentences.append(f"Half of the jobs use less than {', '.join(said)} that they ask for.")


# -- gangs -------------------------------------------------------------------------------------------------------------


def _gangs(seen: Seen, section: Section) -> None:
    many = seen.instances
    if not seen.gangs:
        section.lacks("gang sizes", "every job has one instance")
        return
    curves = [*seen.curve("jobs", many), *seen.curve("instances", many, weights=many)]
    section.distributions(
        "gang size", curves, title="Instances of a job: by jobs, and by instances", unit="", of="weighed by",
        x="instances of a job", y="share, %",
    )  # fmt: skip
    gang, asked = many > 1, many * seen.milli / WHOLE
    rows = [
        ("jobs that are gangs", gang, None),
        ("instances in gangs", gang, many),
        ("GPUs asked for by gangs", gang, asked),
        ("instances in jobs of more than 100 GPUs", asked > 100, many),
    ]
    shares = {name: share(which, weights, seen.blocks) for name, which, weights in rows}
    table = [(name, *interval) for name, interval in shares.items()]
    section.tables["gangs"] = pl.DataFrame(table, schema=["what", "%", "low", "high"], orient="row")
    section.say("instances in gangs", shares["instances in gangs"], "%")
    section.sentences.append(
        f"{rough(shares['jobs that are gangs'].value)} % of the jobs are gangs; they have "
        f"{shares['instances in gangs'].value:.3g} % of the instances."
    )


# -- rules and places --------------------------------------------------------------------------------------------------


def _priorities(seen: Seen, section: Section) -> None:
    counted = seen.trace.workload.frame.group_by("priority").agg(pl.len().alias("jobs"))
    if counted.height > 1:
        part = (100 * pl.col("jobs") / pl.col("jobs").sum()).alias("%")
        section.tables["priorities"] = counted.with_columns(part).sort("priority", descending=True)


def _places(seen: Seen, section: Section) -> None:
    """What jobs say of where they may run, and where they did."""
    gpu = seen.frame.filter(pl.col("gpu_milli") > 0)
    rows = []
    if gpu.height:
        rows += [
            ("GPU jobs that name GPU types", _part(gpu["gpu_types"].list.len() > 0)),
            ("GPU jobs that name one type", _part(gpu["gpu_types"].list.len() == 1)),
        ]
    limited = _part(seen.frame["max_per_node"] > 0)
    rows.append(("jobs with a limit for each node", limited))
    placements = seen.trace.placements
    if placements is None:
        section.lacks("locality", "the trace does not tell on which nodes instances ran")
    else:
        rows += _locality(seen, section, placements)
    section.tables["places"] = pl.DataFrame(
        [(name, 100 * value) for name, value in rows], schema={"what": pl.String, "%": pl.Float64}, orient="row"
    )


def _part(which: pl.Series) -> float:
    return float(which.to_numpy().mean())


def _locality(seen: Seen, section: Section, placements: pl.LazyFrame) -> list[tuple[str, float]]:
    """On how many nodes do the instances of a gang run?"""
    by_job = (
        placements.filter(pl.col("node").is_not_null())
        .group_by("job")
        .agg(pl.col("node").n_unique().alias("nodes"), pl.len().alias("seen"))
        .collect()
    )
    gangs = by_job.filter(pl.col("seen") > 1)
    if not gangs.height:
        section.lacks("locality of gangs", "no gang has two instances with a node")
        return []
    nodes, instances = (gangs[c].cast(pl.Float64).to_numpy() for c in ("nodes", "seen"))
    _draw_nodes(seen, section, gangs["job"].to_numpy(), nodes)
    return [
        ("gangs on one node", float((nodes == 1).mean())),
        ("gangs with a node for each instance", float((nodes == instances).mean())),
    ]


def _draw_nodes(seen: Seen, section: Section, job: Ints, nodes: Floats) -> None:
    made = curve("gangs", nodes, blocks=seen.blocks.part(job))
    if made is not None:
        section.distributions(
            "nodes of a gang", [made], title="Nodes on which a gang runs", unit="", x="nodes of a gang",
            y="share of gangs, %",
        )  # fmt: skip
