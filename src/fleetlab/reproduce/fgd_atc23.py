"""FGD's packing table (Weng et al., ATC'23), on the pods and nodes that its authors published."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fleetlab.core import Figure, Trace
from fleetlab.core.progress import Progress
from fleetlab.describe import describe
from fleetlab.reproduce.item import Cell, Item, SourceTable, catalogue, items, with_limits
from fleetlab.reproduce.result import Material, folder_of, needed
from fleetlab.sim import pack
from fleetlab.stats import PERCENT, Statistic, mean_of_runs
from fleetlab.studies.validate.line import independent
from fleetlab.traces import read

NAME = "fgd-atc23"
FOLDERS = ("alibaba-openb-v2023", "openb2023")
PODS = "openb_pod_list_default.csv"
LISTS = ("default", "gpushare40", "multigpu20", "gpuspec10", "cpu050")
POLICIES: dict[str, str] = catalogue(NAME)["policies"]  # placements by the authors' names
PLACEMENTS = tuple(POLICIES.values())
SEEDS, QUICK = 10, 4  # runs of each placement; the authors have ten
FIRST = 42  # the authors' first seed; the random numbers are not theirs
RESULTS = {"allo.csv": "allocated", "frag.csv": "fragmented"}


def material(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Pack the five lists, and compare with the authors' results."""
    place = needed(data, FOLDERS, PODS, "openb2023")
    curves, tables = _packed(place, range(FIRST + seed, FIRST + seed + (QUICK if quick else SEEDS)), progress)
    theirs = folder_of(data, ("fgd-expected-results",), "allo.csv")
    beside = [] if theirs is None else list(_curves(theirs, curves))
    tables["packing"] = SourceTable(_table(curves), random=True)
    tables["gain"] = SourceTable(_gain(curves), random=True)
    schema = {"name": pl.String, "gap": pl.Float64, "gap, text": pl.String}
    tables["curves"] = SourceTable(pl.DataFrame([row for _, row in beside], schema=schema, orient="row"))
    notes = (
        f"{QUICK if quick else SEEDS} runs of each placement on each list; the authors have 10, by other draws",
        "curves: the largest difference of the mean of ours from the mean of theirs, at 0 to 130 % arrived demand",
        *(() if beside else ("no fgd-expected-results in the data: the 60 curves are not compared",)),
    )
    compared = [x for x, _ in beside] or [_NO_CURVES]
    return Material([*items(NAME), *compared], tables, f"openb2023, {place.name}", _figures(curves, theirs), notes)


_NO_CURVES = Item(
    "curves", "allocated and fragmented GPUs by arrived demand, 5 lists, 6 placements", "60 curves",
    "the authors' simulator, experiments/analysis/expected_results",
    not_possible="the authors' results (fgd-expected-results/allo.csv, frag.csv) are not in the data given",
)  # fmt: skip


def _packed(place: Path, seeds: range, progress: Progress) -> tuple[pl.DataFrame, dict[str, SourceTable]]:
    frames, tables = [], {}
    for k, name in enumerate(LISTS):
        trace = read(place / f"openb_pod_list_{name}.csv", "openb2023")
        assert trace.cluster is not None
        packed = pack(trace.workload, trace.cluster, placements=PLACEMENTS, seeds=seeds)
        frames.append(packed.curves.with_columns(list=pl.lit(name)))
        progress("packing the five lists of pods", k + 1, (k + 1) / len(LISTS))
        if name == "default":
            about = describe(trace, only=["requests"]).tables()
            tables = {key: SourceTable(frame) for key, frame in about.items()} | {"openb": SourceTable(_facts(trace))}
    return pl.concat(frames), tables


def _facts(trace: Trace) -> pl.DataFrame:
    """Return counts of nodes and pods, and mean requests."""
    assert trace.cluster is not None
    nodes, pods = trace.cluster.frame, trace.workload.frame
    some = nodes.filter(pl.col("gpus") > 0)
    facts = {
        "nodes": nodes.height, "GPU nodes": some.height, "GPUs": trace.cluster.gpus, "pods": pods.height,
        "cores": some["cpu_milli"].to_numpy().sum() / 1000, "mean CPU": pods["cpu_milli"].to_numpy().mean() / 1000,
        "mean GPU": pods["gpu_milli"].to_numpy().mean() / 1000,
    }  # fmt: skip
    return pl.DataFrame({"what": list(facts), "value": [float(x) for x in facts.values()]})


def _table(curves: pl.DataFrame) -> pl.DataFrame:
    """Return the mean over runs by list and placement, with the interval of its difference from the authors' mean."""
    spread, rows = catalogue(NAME)["spread"], []
    for (name, placement), part in curves.group_by("list", "placement", maintain_order=True):
        full, end = (part.filter(pl.col("arrived") == at) for at in (100, 130))
        unallocated = mean_of_runs((100 - full["allocated"]).to_numpy(), PERCENT)
        theirs = Statistic.symmetric(0.0, spread[f"{name}/{placement}"] / 10**0.5, 9)
        of_free = (100 * end["fragmented"] / (100 - end["allocated"])).to_numpy()
        statistics = {
            "unallocated": independent(unallocated, theirs),
            "allocated at 130": mean_of_runs(end["allocated"].to_numpy(), PERCENT),
            "fragmented of free at 130": mean_of_runs(of_free, PERCENT),
        }
        rows.append({"list": name, "placement": placement} | with_limits(statistics))
    return pl.DataFrame(rows)


def _gain(curves: pl.DataFrame) -> pl.DataFrame:
    """Return how many fewer GPUs FGD leaves than the others, on the default list, and its own fragmentation."""
    full = curves.filter((pl.col("list") == "default") & (pl.col("arrived") == 100))
    runs = {str(p): part.sort("seed") for (p,), part in full.group_by("placement")}
    unallocated = {p: (100 - part["allocated"]).to_numpy() for p, part in runs.items()}
    rows = []
    for p, x in unallocated.items():
        if p != "fgd":
            fewer = mean_of_runs(100 * (1 - unallocated["fgd"] / x), (-math.inf, 100.0))
            more = mean_of_runs((x - unallocated["fgd"]) / 100 * 6212)
            rows.append({"than": p} | with_limits({"fewer, %": fewer, "GPUs": more}))
    own = mean_of_runs(runs["fgd"]["fragmented"].to_numpy(), PERCENT)
    return pl.DataFrame([*rows, {"than": "fragmentation at 100 %"} | with_limits({"fewer, %": own})])


def _curves(theirs: Path, curves: pl.DataFrame) -> Iterator[tuple[Item, tuple[str, float, str]]]:
    """Compare whole curves: the largest difference of means, in points of capacity."""
    ours = curves.group_by("list", "placement", "arrived").agg(pl.col("allocated", "fragmented").mean())
    for file, column in RESULTS.items():
        published = _means(theirs / file)
        both = ours.join(published, on=["list", "placement", "arrived"]).with_columns(
            gap=(pl.col(column) - pl.col("published")).abs()
        )
        for (name, placement), part in sorted(both.group_by("list", "placement")):
            key = f"{name}, {placement}, {column}"
            item = Item(
                f"curve, {name}", f"{column} GPUs by arrived demand, {placement}", f"{part.height} points",
                f"the authors' simulator, {file}, mean of ten seeds", "packed curve",
                ours=Cell("curves", {"name": key}, "gap"),
            )  # fmt: skip
            gap = float(part["gap"].max())  # type: ignore[arg-type]
            yield item, (key, gap, f"off by {gap:.2f} points at most")


def _means(path: Path) -> pl.DataFrame:
    """Return the authors' means by list, placement and arrived demand."""
    frame = pl.read_csv(path)
    marks = [c for c in frame.columns if c.isdigit()]
    long = frame.unpivot(marks, index=["workload", "sc_policy"], variable_name="arrived", value_name="published")
    return (
        long.with_columns(
            list=pl.col("workload").str.strip_prefix("openb_pod_list_"),
            placement=pl.col("sc_policy").replace_strict(POLICIES),
            arrived=pl.col("arrived").cast(pl.Int64),
        )
        .group_by("list", "placement", "arrived")
        .agg(pl.col("published").mean())
    )


def _figures(curves: pl.DataFrame, theirs: Path | None) -> dict[str, Figure]:
    """Draw the default list: ours as lines, theirs as series of their own."""
    default = curves.filter(pl.col("list") == "default")
    figures = {}
    for file, column in RESULTS.items():
        ours = default.group_by("placement", "arrived", maintain_order=True).agg(y=pl.col(column).mean())
        frames = [ours.select(x=pl.col("arrived").cast(pl.Float64), y="y", series="placement")]
        if theirs is not None:
            published = _means(theirs / file).filter((pl.col("list") == "default") & (pl.col("arrived") % 10 == 0))
            published = published.sort("placement", "arrived")
            frames.append(
                published.select(
                    x=pl.col("arrived").cast(pl.Float64), y="published", series=pl.col("placement") + ", published"
                )
            )
        title = f"{column.capitalize()} GPUs by arrived demand, default list"
        alt = f"{column} GPUs of each placement as demand arrives, ours and the authors'"
        figures[f"{column} GPUs"] = Figure(
            title, "line", pl.concat(frames), "arrived GPU demand, %", f"{column}, %", alt
        )
    return figures
