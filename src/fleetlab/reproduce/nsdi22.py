"""The paper "MLaaS in the Wild" (Weng et al., NSDI'22): its figures, tables and results on policies.

With the published tables of the trace its jobs are described; without, the built-in trace, which is made from the
paper's statistics: what it was made from is `fitted`, not reproduced. Policies are simulated on the built-in trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleetlab.core import Cluster, Trace
from fleetlab.core.progress import Progress
from fleetlab.describe import describe
from fleetlab.reproduce import pai_facts
from fleetlab.reproduce.beside import Place, curve_items, number_items, outside
from fleetlab.reproduce.data import folder_of
from fleetlab.reproduce.item import LOG, SYNTHETIC, Found, Item, items, without
from fleetlab.reproduce.pai_policies import figure_13, policies
from fleetlab.reproduce.result import Material
from fleetlab.traces import read, synthesize

NAME = "nsdi22"
FOLDERS = ("alibaba-pai-v2020", "pai2020", "pai")
TASKS, SPEC = "pai_task_table", "pai_machine_spec"
SAMPLE, PHILLY = "task_sample_60105/alibaba_trace_sub.csv", "philly_runtime.csv"
FULL, QUICK = 1_260_920, 100_000
FEWER = f"of the whole trace only; --quick has {QUICK:,} jobs"
LONG = "--quick leaves it out: it takes two minutes"
METRIC = "needs pai_machine_metric and pai_sensor_table, which are not in the data given"
TREE = "the paper has a regression tree, and does not say what it learnt from; ours is the mean of earlier jobs"
USERS = (
    "run times of the built-in trace are drawn from smooth curves, so the jobs of a large user are spread along them"
)
SPREAD = (
    "the built-in trace has 19.5 as the mean over instances, 11.5 in total: the published curves of CPU and GPU "
    "requests leave no more"
)
ALLOCATION = "allocation and utilization"
PLURAL = {"CPU": "CPUs", "GPU": "GPUs"}
PLACES: Mapping[str, Place] = {
    "GPU jobs by request": Place("GPU jobs by request", "request", "%"),
    "GPU jobs by type": Place("GPU jobs by type", "type", "%"),
    "jobs above their request": Place("usage above request", "of", "%", "printed", {"weighted by": "jobs"}, PLURAL),
    "instances above their request": Place(
        "usage above request", "of", "%", "stated", {"weighted by": "instances"}, PLURAL
    ),
    "CPUs per GPU offered": Place("CPUs per GPU", "nodes", "offered", "printed", unit=""),
    "CPUs per GPU requested": Place("CPUs per GPU", "nodes", "requested, mean of instances", unit="", why={"": SPREAD}),
    "GPUs allocated": Place(ALLOCATION, "type", "mean, %", "allocated", {"of": "GPUs", "how": "allocated"}),
    "CPUs allocated": Place(ALLOCATION, "type", "mean, %", "allocated", {"of": "CPUs", "how": "allocated"}),
    "P50 utilization of nodes": Place("node utilization", "key", "mean of P50, %", fitted=False),
    "P90 utilization of nodes": Place("node utilization", "key", "mean of P90, %", "stated", fitted=False),
    "jobs by status": Place("facts", "what", "value", "printed"),
    "workload tags": Place("facts", "what", "value", "stated"),
    "node metrics": Place("node metrics", "metric", "P50", row={"type": "all"}, fitted=False),
    "users": Place("facts", "what", "value", "stated"),
    "predicted within 5 %": Place("predictions", "by", "within 5 %", why={"": TREE, "user": USERS, "user+gpu": USERS}),
    "predicted within 25 %": Place("predictions", "by", "within 25 %", "stated", why={"": TREE}),
}  # fmt: skip
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
    made = described(data, quick=quick, seed=seed, progress=progress)
    lines, found = policies(seed=seed, quick=quick, progress=progress)
    lines = without(lines, LONG) if quick else lines
    tables = {name: Found(frame, SYNTHETIC, random=True) for name, frame in found.items()}
    drawn = {**figure_13(found["policies"]), **made.figures}
    return replace(made, items=[*made.items, *lines], tables={**made.tables, **tables}, figures=drawn)


def described(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Describe the log, or the built-in trace, beside all items but those of policies."""
    place = folder_of(data, FOLDERS, "pai_*")
    trace, on = _trace(place, quick=quick, seed=seed, progress=progress)
    about = describe(trace, seed=seed, progress=progress)
    tables = {name: Found(frame, on) for name, frame in about.tables().items()}
    if "published" in tables:
        tables["published"] = Found(outside(tables["published"].frame), on)
    tables[pai_facts.HOURS] = Found(pai_facts.by_hour(about.tables()), on)
    tables["facts"] = Found(pai_facts.facts(trace, about), on)
    if "utilization by node size" in tables:
        tables["node utilization"] = Found(pai_facts.by_node_size(tables["utilization by node size"].frame), on)
    tables |= _real(place, trace, on)
    drawn = {name: figure for name, figure in about.figures().items() if name in FIGURES}
    listed = _listed(tables, quick=quick and on == SYNTHETIC)
    return Material(listed, tables, trace.workload.source, drawn, _notes(place, on, quick=quick))


def _trace(place: Path | None, *, quick: bool, seed: int, progress: Progress) -> tuple[Trace, str]:
    """Return the log, where its task table is there, else the built-in trace."""
    if place is not None and _table(place, TASKS) is not None:
        return read(place, "pai2020", progress=progress), LOG
    return synthesize("pai2020", jobs=QUICK if quick else FULL, seed=seed), SYNTHETIC


def _table(place: Path, name: str) -> Path | None:
    """Return the file of a table, packed or not; its header lies beside it, and is none."""
    return next((path for path in sorted(place.glob(f"{name}.*")) if path.suffix != ".header"), None)


def _real(place: Path | None, trace: Trace, on: str) -> dict[str, Found]:
    """Return what the files that are there say: machines, a sample of run times, Philly's run times."""
    spec = None if place is None or on == LOG else _table(place, SPEC)
    cluster, where = (trace.cluster, on) if spec is None else (read(spec, "pai2020").cluster, LOG)
    found = {} if cluster is None else _machines(cluster, where)
    if place is not None and (place / SAMPLE).is_file():
        found["sample"] = Found(pai_facts.sample(place / SAMPLE), "sample of the log")
    if place is not None and (place / PHILLY).is_file():
        found["philly"] = Found(pai_facts.philly(place / PHILLY))
    return found


def _machines(cluster: Cluster, on: str) -> dict[str, Found]:
    made = pai_facts.machines(cluster)
    return {name: Found(frame, on) for name, frame in made.items()}


def _listed(tables: Mapping[str, Found], *, quick: bool) -> list[Item]:
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
