"""The paper's results on policies, by the simulations of `validate`, and its figure 19."""

from __future__ import annotations

import polars as pl

from fleetlab.core import Figure
from fleetlab.core.progress import Progress
from fleetlab.reproduce.item import Cell, Item
from fleetlab.sim import simulate
from fleetlab.studies.validate import policies as study
from fleetlab.traces import synthesize

WHY = {
    "V100 jobs that start at once, balanced": (
        f"{study.RATE:g} times the arrival rate was chosen by two seeds (47 and 38 %), these are the mean of more"
    ),
}
FIGURE = f"PAI, {study.BURST:,} jobs"
ITEMS = {
    study.DEMO_RUN: ("demo", "simulator of cluster-trace-gpu-v2020, README"),
    FIGURE: ("figure 13", "MLaaS in the Wild (NSDI'22), figure 13"),
    study.RESERVING: ("text", "MLaaS in the Wild (NSDI'22), text and figure 19"),
    "PAI, sharing": ("text", "MLaaS in the Wild (NSDI'22), text"),
}
QUICK_RUNS = 2
QUICK_JOBS = 60_000
UPTO = {"P80": 0.8, "P90": 0.9, "P95": 0.95}


def policies(*, seed: int, quick: bool, progress: Progress) -> tuple[list[Item], pl.DataFrame]:
    """Return the items of the paper's results on policies, and the table of ours."""
    runs = QUICK_RUNS if quick else study.SEEDS
    lines = study.compare(seed=seed, progress=progress, runs=runs, figure=not quick)
    rows = [(line.metric, *line.simulated.interval()) for line in lines]
    schema = {"metric": pl.String, "value": pl.Float64, "value low": pl.Float64, "value high": pl.Float64}
    listed = [_item(name, p) for name, p in study.PUBLISHED.items() if p.case != study.PREDICTED]
    return listed, pl.DataFrame(rows, schema=schema, orient="row")


def _item(metric: str, published: study.Published) -> Item:
    """What was predicted is an item of `describe`; what --quick leaves out says so."""
    item, source = ITEMS[published.case]
    return Item(
        item, metric, f"{published.number:.3f}", source, "simulated",
        ours=Cell("policies", {"metric": metric}, "value"), why=_why(metric, published), whole=published.case == FIGURE,
        fitted=metric in WHY,  # the arrival rate was chosen by it
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


def figure_19(*, seed: int, quick: bool) -> pl.DataFrame:
    """Return which jobs start at once, and the waits of V100 jobs, under load balancing and reserve-and-pack."""
    trace = synthesize("pai2020", jobs=QUICK_JOBS if quick else study.JOBS, seed=seed)
    assert trace.cluster is not None
    workload, rows = trace.workload.at_load(study.RATE), []
    for placement in ("worst_fit", "reserve_and_pack"):
        jobs = simulate(workload, trace.cluster, placement=placement).jobs.filter(pl.col("gpu_milli") > 0)
        picky = jobs.filter(pl.col("gpu_types").list.first().is_in(["V100", "V100M32"]))
        shares = {name: _at_once(some) for name, some in (("all", jobs), ("V100", picky))}
        row: dict[str, object] = {f"{who} {what}": x for who, pair in shares.items() for what, x in pair.items()}
        rows.append({"placement": placement} | row | {name: picky["wait"].quantile(q) for name, q in UPTO.items()})
    return pl.DataFrame(rows)


def _at_once(jobs: pl.DataFrame) -> dict[str, float]:
    """Percent of jobs, and of instances, that wait a second at most."""
    quick, many = jobs["wait"].to_numpy() <= 1, jobs["instances"].to_numpy()
    return {"jobs": 100 * float(quick.mean()), "instances": 100 * float(many[quick].sum() / many.sum())}
