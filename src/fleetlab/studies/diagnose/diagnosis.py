"""Why do jobs wait, and what would help? One run as it is, and one for each thing that is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Prices, Provenance, Result, Workload, WorkloadError, say
from fleetlab.sim import SimResult, simulate
from fleetlab.studies._blocks import Blocks, Floats
from fleetlab.studies._blocks import estimate as told_as
from fleetlab.studies._lacks import lacking
from fleetlab.studies.believed import beside, named
from fleetlab.studies.diagnose import _checks, _figures, _ledger
from fleetlab.studies.diagnose._changes import LARGEST, WORDS, Case, Change, types_of, wanted
from fleetlab.studies.diagnose._effects import effects, waterfall, what_to_do
from fleetlab.studies.diagnose._runs import Fared, Progress, again
from fleetlab.studies.diagnose._words import findings

HOUR = 3600.0


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Result):
    """Why jobs wait and what would help, with intervals; `findings` are the sentences to read first."""

    provenance: Provenance
    findings: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Diagnosis {say(self.estimates[0])}; first: {self.first or 'nothing'}>"

    @property
    def first(self) -> str | None:
        """The change that surely helps most, by its name; none where none does."""
        helps = self.frames["changes"].filter(pl.col("verdict") == "helps")
        return helps["change"][0] if helps.height else None

    def figures(self) -> dict[str, Figure]:
        """What jobs wait for, when, and what each change takes off."""
        return _figures.figures(self.frames)


def diagnose(
    workload: Workload,
    cluster: Cluster,
    *,
    usage: pl.LazyFrame | None = None,
    changes: Sequence[str] = WORDS,
    order: str = "fifo",
    backfill: str = "greedy",
    placement: str = "best_fit",
    estimate: str | pl.Series = "oracle",
    sharing: str = "fractional",
    prices: Prices | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Why do jobs wait, and what would help? The wait ledger added up, and one thing changed at a time.

    Each of `changes` is simulated again with the same arrivals, in `workers` processes of their own (as many as there
    are cores for a large workload; 0: none); differences are paired, and their intervals come from blocks of time.
    `usage` is what sensors saw of each job, where the trace has it. The rules are those of `simulate`.
    """
    name, columns = named(estimate, len(workload))
    rules = {"order": order, "backfill": backfill, "placement": placement, "estimate": name, "sharing": sharing}
    progress, charged = progress or (lambda *_: None), prices or Prices()
    for name in set(cluster.frame.filter(pl.col("gpus") > 0)["gpu_type"]):
        charged.gpu_hour(name)  # a price that is missing is missed before the work begins
    case = Case(beside(workload.frame, columns), cluster.frame, rules)
    asked = wanted(changes, cluster.frame, rules)
    moot = [c for c in asked if c.moot(case)]
    tried = [c for c in asked if c not in moot]
    progress("as it is", 0, 0.0)
    run = simulate(workload, cluster, **{**rules, "estimate": estimate}, seed=seed, prices=charged)  # type: ignore[arg-type]
    if run.jobs.is_empty():
        raise _refusal(run, workload)
    progress("as it is", 1, 1.0)
    fared = again(run, case, tried, seed=seed, workers=workers, progress=progress)
    settings = {**rules, "changes": [c.name for c in asked], "cluster": cluster.source}
    return _told(run, workload, fared, moot, usage, charged, Provenance("diagnose", workload.source, settings, seed))


def _refusal(run: SimResult, workload: Workload) -> WorkloadError:
    """What to say where no job can run: what no node has enough of."""
    said = [f"{workload.source}: there is no job that could run on this cluster: {len(workload):,} jobs"]
    if unknown := workload.frame["runtime"].null_count():
        said.append(f"of {unknown:,} the run time is not known")
    if lacks := lacking(workload.frame, run.cluster.frame):
        said.append(lacks)
    return WorkloadError("; ".join(said), hint="`fleetlab simulate` lists who is refused, and why")


def _told(
    run: SimResult, workload: Workload, fared: Sequence[Fared], moot: Sequence[Change], usage: pl.LazyFrame | None,
    prices: Prices, provenance: Provenance,
) -> Diagnosis:  # fmt: skip
    waited = _ledger.waited(run, workload)
    wait, submit = waited["wait"].to_numpy(), waited["submit"].to_numpy()
    blocks = Blocks.cut(submit, seed=provenance.seed or 0)
    words, hours = _ledger.reasons_of(run), float(submit.max()) / HOUR
    found = effects(wait, fared, run.cluster.frame, provenance.settings, blocks, hours=hours, prices=prices)
    reasons = _ledger.reasons(run, blocks)
    tail, carried, longest = _ledger.tail(waited, words)
    heads = _ledger.heads(waited, words)
    summary = _summary(wait, reasons, blocks)
    by_name = {f.change.name: f for f in fared}
    said = findings(summary, reasons, found, by_name, (carried, longest), heads, workload.frame, run)
    frames = {
        "findings": pl.DataFrame({"finding": said}),
        "what to do": what_to_do(found),
        "changes": found,
        "waterfall": waterfall(float(wait.mean()), found),
        "waiting": reasons,
        **{f"by {name}": _ledger.by(waited, name, words, blocks) for name in ("pool", "request", "gang size", "hour")},
        "worst hours": _ledger.worst_hours(waited, words, workload),
        "tail": tail,
        **({"heads": heads} if provenance.settings["backfill"] == "none" else {}),
        "checks": _checks.checks(run, waited, usage, blocks),
        "CPU by pool": _checks.by_pool(run),
    }
    return Diagnosis(provenance, tuple(said), summary, frames, _notes(run, workload, fared, moot))


def _summary(wait: Floats, reasons: pl.DataFrame, blocks: Blocks) -> tuple[Estimate, ...]:
    """How long they wait, and for what most."""
    mean, p90 = told_as("mean wait", blocks.mean(wait), "s"), told_as("P90 wait", blocks.quantile(wait, 0.9), "s")
    count = Estimate.exact("jobs", len(wait))
    first = reasons.row(0, named=True)
    if not first["seconds"]:
        return mean, p90, count
    told = tuple(math.nan if first[c] is None else first[c] for c in ("share", "low", "high"))
    return mean, p90, told_as(f"waiting for `{first['reason']}`", told, "%", times=100), count  # type: ignore[arg-type]


def _notes(run: SimResult, workload: Workload, fared: Sequence[Fared], moot: Sequence[Change]) -> tuple[str, ...]:
    names = {f.change.name for f in fared}
    said = ["changes are made one at a time and overlap: what they take off does not add up"]
    if "fragments" in names and any(
        run.cluster.frame.filter(pl.col("gpu_type") == t)["gpus"].sum() > LARGEST for t in types_of(run.cluster.frame)
    ):
        said.append(
            f"no fragmentation: nodes of up to {LARGEST} GPUs, the most that the simulator holds, not one a pool"
        )
    if "gangs" in names:
        said.append("gangs split: a job has waited when its last instance runs")
    said += [f"{c.title}: not tried, it would change nothing here" for c in moot]
    said += [
        f"{f.change.title}: {n:,} jobs could not run any more; the difference is of the others"
        for f in fared
        if (n := int(np.isnan(f.wait).sum()))
    ]
    if workload.epoch is None:
        said.append("the log does not tell the time of day: hours count from the first submission")
    if refused := run.refused.height:
        said.append(
            f"{refused:,} jobs are left out: they could not run on this cluster, or their run time is not known"
        )
    return tuple(said)
