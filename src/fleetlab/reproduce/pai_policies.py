"""The paper's results on policies, by the simulations of `validate`, and its figure 19."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core import Figure
from fleetlab.core.progress import Progress
from fleetlab.reproduce.item import Cell, Item, with_limits
from fleetlab.stats import Statistic
from fleetlab.studies.validate import policies as study
from fleetlab.studies.validate.reserving import PLACEMENTS, RATE, figure_metric

FITTED_BY = "V100 jobs that start at once, balanced"
WHY = {
    FITTED_BY: (f"{RATE:g} times the arrival rate was chosen by two seeds (47 and 38 %), these are the mean of more"),
    "reduction of all waits": (
        "it depends on the load, which the paper does not tell: 62 to 74 % at 1.5 times the arrival rate, 37 % at "
        f"twice; {RATE:g} times was chosen by the V100 jobs that start at once, not by it"
    ),
}
FIGURE = f"PAI, {study.BURST:,} jobs"
ITEMS = {
    study.DEMO_RUN: ("demo", "simulator of cluster-trace-gpu-v2020, README"),
    FIGURE: ("figure 13", "MLaaS in the Wild (NSDI'22), figure 13"),
    study.RESERVING: ("text", "MLaaS in the Wild (NSDI'22), text and figure 19"),
    "PAI, sharing": ("text", "MLaaS in the Wild (NSDI'22), text"),
}
RUNS, FIGURE_RUNS, QUICK_RUNS = 10, study.SEEDS, 3


def policies(*, seed: int, quick: bool, progress: Progress) -> tuple[list[Item], dict[str, pl.DataFrame]]:
    """Return the items of the paper's results on policies, and the tables of ours."""
    runs, figures = (QUICK_RUNS, 0) if quick else (RUNS, FIGURE_RUNS)
    found = study.measured(seed=seed, runs=runs, figures=figures, progress=progress)
    rows = [(metric, *found[metric].interval()) for metric in study.PUBLISHED if metric in found]
    schema = {"metric": pl.String, "value": pl.Float64, "value low": pl.Float64, "value high": pl.Float64}
    listed = [_item(name, p) for name, p in study.PUBLISHED.items() if p.case != study.PREDICTED]
    return listed, {"policies": pl.DataFrame(rows, schema=schema, orient="row"), "figure 19": _figure_19(found)}


def _figure_19(found: Mapping[str, Statistic]) -> pl.DataFrame:
    """Return a row a placement: which jobs start at once, and the waits of V100 jobs, with intervals."""
    names = {p: figure_metric(p, "") for p in PLACEMENTS}
    numbers = {p: {m.removeprefix(n): x for m, x in found.items() if m.startswith(n)} for p, n in names.items()}
    return pl.DataFrame([{"placement": p} | with_limits(numbers[p]) for p in PLACEMENTS])


def _item(metric: str, published: study.Published) -> Item:
    """What was predicted is an item of `describe`; what --quick leaves out says so."""
    item, source = ITEMS[published.case]
    return Item(
        item, metric, f"{published.number:.3f}", source, "simulated",
        ours=Cell("policies", {"metric": metric}, "value"), why=_why(metric, published), whole=published.case == FIGURE,
        fitted=metric == FITTED_BY,  # the arrival rate was chosen by it
    )  # fmt: skip


def _why(metric: str, published: study.Published) -> str:
    """Why a result may differ; no estimate can be better than an oracle, of which the reason speaks."""
    return WHY.get(metric) or published.why or (study.EXCLUDE if published.case == FIGURE else "")


def figure_13(found: pl.DataFrame) -> dict[str, Figure]:
    """Draw by how much shortest first cuts the mean JCT of FIFO, by capacity: published and ours."""
    ours = {metric: 100 * value for metric, value in found.select("metric", "value").iter_rows()}
    rows = []
    for name, means in study.CAPACITY.items():
        for gpus, mean in means.items() if name != "fifo" else ():
            published = 100 * (1 - mean / study.CAPACITY["fifo"][gpus])
            rows.append((float(gpus), published, f"{name}, published"))
            if (metric := study.cut_metric(name, gpus)) in ours:
                rows.append((float(gpus), ours[metric], name))
    frame = pl.DataFrame(rows, schema={"x": pl.Float64, "y": pl.Float64, "series": pl.String}, orient="row")
    title = "Figure 13: reduction of the mean JCT of FIFO by shortest first, by what estimates know"
    alt = "reductions by user, group, group and GPU, and an oracle, at 3,000 to 6,500 GPUs, published and ours"
    return {"shortest first": Figure(title, "line", frame, "GPUs", "reduction of the mean JCT, %", alt)}
