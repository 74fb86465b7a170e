"""The paper "MLaaS in the Wild" (Weng et al., NSDI'22): its figures, tables and results on policies.

With the published tables of the trace its jobs are described; without, the built-in trace, which is made from the
paper's statistics: what it was made from is `fitted`, not reproduced. Policies are simulated on the built-in trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Figure, Trace
from fleetlab.core.progress import Progress
from fleetlab.describe import describe
from fleetlab.reproduce import pai_facts
from fleetlab.reproduce.item import (
    LOG,
    SYNTHETIC,
    Cell,
    Item,
    SourceTable,
    curve_items,
    items,
    number_items,
    outside,
    places,
    with_limits,
    without,
)
from fleetlab.reproduce.result import Material, folder_of
from fleetlab.stats import Statistic
from fleetlab.studies.validate import published as study
from fleetlab.studies.validate.published import PLACEMENTS, RATE, figure_metric
from fleetlab.traces import read, synthesize

NAME = "nsdi22"
FOLDERS = ("alibaba-pai-v2020", "pai2020", "pai")
TASKS, SPEC = "pai_task_table", "pai_machine_spec"
SAMPLE, PHILLY = "task_sample_60105/alibaba_trace_sub.csv", "philly_runtime.csv"
FULL, QUICK = 1_260_920, 100_000
FEWER = f"of the whole trace only; --quick has {QUICK:,} jobs"
LONG = "--quick leaves it out: it takes two minutes"
METRIC = "needs pai_machine_metric and pai_sensor_table, which are not in the data given"
PLACES = places(NAME)
ABSENT = {
    "P50 utilization of nodes": METRIC, "P90 utilization of nodes": METRIC, "node metrics": METRIC,
    "workload tags": "needs pai_group_tag_table: the built-in trace has no tags",
}  # fmt: skip
FIGURES = (
    "runtime", "runtime by GPU type", "wait by GPUs per instance, instances", "wait by GPU type, instances",
    "wait over JCT, instances", "GPUs per instance", "CPUs per instance", "memory per instance", "gang size",
    "jobs per user", "jobs by hour of day", "requested GPUs by hour of day", "runs of a group",
)  # fmt: skip


def material(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Describe the trace, and simulate the policies of the paper."""
    material = described(data, quick=quick, seed=seed, progress=progress)
    lines, frames = policies(seed=seed, quick=quick, progress=progress)
    lines = without(lines, LONG) if quick else lines
    tables = {name: SourceTable(frame, SYNTHETIC, random=True) for name, frame in frames.items()}
    figures = {**figure_13(frames["policies"]), **material.figures}
    return replace(material, items=[*material.items, *lines], tables={**material.tables, **tables}, figures=figures)


def described(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Describe the log, or the built-in trace, beside all items but those of policies."""
    place = folder_of(data, FOLDERS, "pai_*")
    trace, on = _trace(place, quick=quick, seed=seed, progress=progress)
    about = describe(trace, seed=seed, progress=progress)
    tables = {name: SourceTable(frame, on) for name, frame in about.tables().items()}
    if "published" in tables:
        tables["published"] = SourceTable(outside(tables["published"].frame), on)
    tables[pai_facts.HOURS] = SourceTable(pai_facts.by_hour(about.tables()), on)
    tables["facts"] = SourceTable(pai_facts.facts(trace, about), on)
    if "utilization by node size" in tables:
        tables["node utilization"] = SourceTable(pai_facts.by_node_size(tables["utilization by node size"].frame), on)
    tables |= _real(place, trace, on)
    figures = {name: figure for name, figure in about.figures().items() if name in FIGURES}
    listed = _listed(tables, quick=quick and on == SYNTHETIC)
    return Material(listed, tables, trace.workload.source, figures, _notes(place, on, quick=quick))


def _trace(place: Path | None, *, quick: bool, seed: int, progress: Progress) -> tuple[Trace, str]:
    """Return the log, where its task table is there, else the built-in trace."""
    if place is not None and _table(place, TASKS) is not None:
        return read(place, "pai2020", progress=progress), LOG
    return synthesize("pai2020", jobs=QUICK if quick else FULL, seed=seed), SYNTHETIC


def _table(place: Path, name: str) -> Path | None:
    """Return the file of a table, packed or not; its header lies beside it, and is none."""
    return next((path for path in sorted(place.glob(f"{name}.*")) if path.suffix != ".header"), None)


def _real(place: Path | None, trace: Trace, on: str) -> dict[str, SourceTable]:
    """Return what the files that are there say: machines, a sample of run times, Philly's run times."""
    spec = None if place is None or on == LOG else _table(place, SPEC)
    cluster, where = (trace.cluster, on) if spec is None else (read(spec, "pai2020").cluster, LOG)
    tables = {} if cluster is None else _machines(cluster, where)
    if place is not None and (place / SAMPLE).is_file():
        tables["sample"] = SourceTable(pai_facts.sample(place / SAMPLE), "sample of the log")
    if place is not None and (place / PHILLY).is_file():
        tables["philly"] = SourceTable(pai_facts.philly(place / PHILLY))
    return tables


def _machines(cluster: Cluster, on: str) -> dict[str, SourceTable]:
    frames = pai_facts.machines(cluster)
    return {name: SourceTable(frame, on) for name, frame in frames.items()}


def _listed(tables: Mapping[str, SourceTable], *, quick: bool) -> list[Item]:
    """Return all items but those of policies; what no table has says which file it needs."""
    absent = {name: why for name, why in ABSENT.items() if PLACES[name].table not in tables or name == "workload tags"}
    unmeasured = {
        f"{level} utilization of nodes": METRIC for level in ("P50", "P90") if "node utilization" not in tables
    }
    curves = curve_items("pai2020", missing=unmeasured)
    numbers = [pai_facts.explained(x, absent, tables) for x in number_items("pai2020", PLACES)]
    listed = [*items(NAME), *curves, *numbers, *pai_facts.hour_items()]
    return without(listed, FEWER) if quick else listed


def _notes(place: Path | None, on: str, *, quick: bool) -> tuple[str, ...]:
    jobs = QUICK if quick else FULL
    what = (
        f"the tables in {place.name}" if on == LOG and place is not None
        else f"the built-in trace of {jobs:,} jobs, which is made from the paper's statistics; `fleetlab fetch pai2020 "
        "--into pai2020`, then `--data pai2020`, describes the log itself"
    )  # fmt: skip
    return (
        f"described: {what}",
        "simulated, on the built-in trace: shortest first by the authors' protocol (one pool, 23.22 CPUs a GPU, a "
        "thousand jobs a minute), sharing, and reserve and pack; docs/measurements/published.md has the two numbers "
        "that were fitted there (70,000 jobs; 1.75 times the arrival rate)",
    )


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
    means = study.policy_means(seed=seed, runs=runs, figures=figures, progress=progress)
    rows = [(metric, *means[metric].interval()) for metric in study.PUBLISHED if metric in means]
    schema = {"metric": pl.String, "value": pl.Float64, "value low": pl.Float64, "value high": pl.Float64}
    listed = [_item(name, p) for name, p in study.PUBLISHED.items() if p.case != study.PREDICTED]
    return listed, {"policies": pl.DataFrame(rows, schema=schema, orient="row"), "figure 19": _figure_19(means)}


def _figure_19(means: Mapping[str, Statistic]) -> pl.DataFrame:
    """Return a row a placement: which jobs start at once, and the waits of V100 jobs, with intervals."""
    names = {p: figure_metric(p, "") for p in PLACEMENTS}
    numbers = {p: {m.removeprefix(n): x for m, x in means.items() if m.startswith(n)} for p, n in names.items()}
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


def figure_13(measured: pl.DataFrame) -> dict[str, Figure]:
    """Draw by how much shortest first cuts the mean JCT of FIFO, by capacity: published and ours."""
    ours = {metric: 100 * value for metric, value in measured.select("metric", "value").iter_rows()}
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
