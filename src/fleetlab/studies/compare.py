"""Several policies on the same arrivals: who waits how long by each, and how sure the difference to the first is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Result, Workload, WorkloadError, say
from fleetlab.sim import simulate
from fleetlab.studies._blocks import Blocks, Floats
from fleetlab.studies._blocks import estimate as told_as
from fleetlab.studies._crew import Arrays, crew, play
from fleetlab.studies.believed import apart, beside

Progress = Callable[[str, int, float], None]
Rules = Mapping[str, str]
JOBS, HARDWARE = "jobs.arrow", "nodes.arrow"
ENDED = ("job", "submit", "wait")
PARTS = ("order", "backfill", "placement", "estimate", "sharing")
FIVE = ("fifo", "fifo/easy", "smallest", "sjf/greedy/best_fit/group", "sjf")  # the last knows run times beforehand
POINTS = 200  # of a curve


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """Waits by each policy, with intervals, and how far each is from the first."""

    provenance: Provenance
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    charts: Mapping[str, Figure]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Comparison of {self.frames['policies'].height} policies: {self.findings[0]}>"


def compare(
    workload: Workload, cluster: Cluster, *, policies: Sequence[str] = FIVE,
    estimates: Mapping[str, pl.Series] | None = None, seed: int = 0,
    workers: int | None = None, progress: Progress | None = None,
) -> Comparison:  # fmt: skip
    """Play each policy with the same arrivals; the first is what the others are held against.

    A policy is `ORDER/BACKFILL/PLACE/ESTIMATE/SHARING`, of which what is last may be left out. Only jobs that ended
    by every policy count, so that the same ones are compared. `estimates` are columns of seconds, one a job, that a
    policy may name as its estimate. Intervals come from blocks of time, drawn alike for all.
    Large workloads are played in `workers` processes at once, one for each core unless told.
    """
    progress = progress or (lambda *_: None)
    rules = {name: rules_of(name) for name in dict.fromkeys(policies)}
    if len(rules) < 2:
        msg = f"at least two different policies are needed to compare: {', '.join(rules) or 'none'}"
        raise WorkloadError(msg, hint="fifo,sjf,fifo/easy,sjf/greedy/best_fit/group")
    jobs = beside(workload.frame, estimates or {})
    runs = _played(jobs, workload.instances, cluster, rules, seed=seed, workers=workers, progress=progress)
    settings = {"policies": list(rules), "cluster": cluster.source}
    return _told(runs, len(workload), Provenance("compare", workload.source, settings, seed))


def _played(
    jobs: pl.DataFrame, instances: int, cluster: Cluster, rules: Mapping[str, Rules], *,
    seed: int, workers: int | None, progress: Progress,
) -> dict[str, Arrays]:  # fmt: skip
    """What became of each job, by policy."""
    # Backfilling takes several times as long: begun last, one core would wait for it.
    order = sorted(rules, key=lambda name: rules[name].get("backfill", "greedy") == "greedy")
    with TemporaryDirectory(prefix="fleetlab-") as folder:
        jobs.write_ipc(Path(folder) / JOBS, compression="uncompressed")
        cluster.frame.write_ipc(Path(folder) / HARDWARE, compression="uncompressed")
        ended: list[int] = []

        def done(k: int) -> None:
            ended.append(k)
            progress("policies", len(ended), len(ended) / len(order))

        progress("policies", 0, 0.0)
        calls = [{"folder": folder, "rules": dict(rules[name]), "seed": seed} for name in order]
        count = crew(instances, workers)
        found = dict(zip(order, play(f"{__name__}:one", calls, Path(folder), workers=count, done=done), strict=True))
    return {name: found[name] for name in rules}


def one(folder: str, rules: Rules, seed: int) -> dict[str, Any]:
    """Play one policy: the jobs that ended, how long each waited, and those that were refused, with the reason."""
    jobs, nodes = (pl.read_ipc(Path(folder) / f) for f in (JOBS, HARDWARE))
    jobs, told = apart(jobs, rules)
    run = simulate(Workload.of(jobs, source="compared"), Cluster.of(nodes, source="compared"), **told, seed=seed)
    ended = run.jobs.filter(pl.col("status") == "done")
    return {
        **{name: ended[name].to_numpy() for name in ENDED},
        "refused": run.refused["job"].to_numpy(), "reason": np.array(run.refused["reason"].to_list(), dtype=str),
    }  # fmt: skip


def rules_of(words: str) -> Rules:
    """A policy by its words.

    >>> rules_of("sjf/easy")
    {'order': 'sjf', 'backfill': 'easy'}
    """
    parts = words.split("/")
    if len(parts) > len(PARTS) or not all(parts):
        msg = f"not a policy: `{words}`"
        raise WorkloadError(msg, hint=f"{'/'.join(p.upper() for p in PARTS)}, such as sjf/easy/best_fit/group")
    return dict(zip(PARTS, parts, strict=False))


def _told(runs: Mapping[str, Arrays], jobs: int, provenance: Provenance) -> Comparison:
    waits, submit = _alike({name: pl.DataFrame({c: run[c] for c in ENDED}) for name, run in runs.items()})
    refused = _refused(runs)
    blocks = Blocks.cut(submit, seed=provenance.seed or 0)
    first, base = next(iter(waits.items()))
    rows = pl.DataFrame([_row(name, wait, base, blocks) for name, wait in waits.items()])
    means = tuple(
        told_as(f"mean wait, {name}", (row["mean wait"], row["low"], row["high"]), "s")
        for name, row in zip(waits, rows.iter_rows(named=True), strict=True)
    )
    frames = {"policies": rows, "refused": refused}
    notes = []
    if turned_away := int(refused["jobs"].sum()):
        notes.append(f"{turned_away:,} jobs are refused and left out: see the table")
    if left := jobs - turned_away - len(submit):
        notes.append(f"{left:,} jobs did not end by every policy and are left out")
    return Comparison(provenance, means, frames, _figures(waits, rows), _words(rows, first), tuple(notes))


def _refused(runs: Mapping[str, Arrays]) -> pl.DataFrame:
    """How many jobs could never run by one policy or another, and why."""
    each = pl.concat(
        [
            pl.DataFrame({"job": run["refused"], "reason": run["reason"]}, schema_overrides={"reason": pl.String})
            for run in runs.values()
        ]
    ).unique("job", keep="first", maintain_order=True)
    return each.group_by("reason").agg(jobs=pl.len()).sort("jobs", "reason", descending=[True, False])


def _alike(frames: Mapping[str, pl.DataFrame]) -> tuple[dict[str, Floats], Floats]:
    """The waits of jobs that ended by every policy, in one order."""
    names = list(frames)
    joined = frames[names[0]].rename({"wait": names[0]})
    for name in names[1:]:
        joined = joined.join(frames[name].select("job", pl.col("wait").alias(name)), on="job", maintain_order="left")
    if joined.is_empty():
        msg = "no job ended by every policy"
        raise WorkloadError(msg, hint="`fleetlab simulate` lists who is refused, and why")
    return {n: joined[n].to_numpy() for n in names}, joined["submit"].to_numpy()


def _row(name: str, wait: Floats, base: Floats, blocks: Blocks) -> dict[str, object]:
    mean, low, high = blocks.mean(wait)
    p90 = blocks.quantile(wait, 0.9)
    change, least, most = blocks.mean(wait - base)
    return {
        "policy": name, "mean wait": mean, "low": low, "high": high,
        "P90 wait": p90[0], "P90 low": p90[1], "P90 high": p90[2], "P99 wait": blocks.quantile(wait, 0.99)[0],
        "waited at all": float((wait > 0).mean()),
        "difference": change, "difference low": least, "difference high": most,
    }  # fmt: skip


def _words(rows: pl.DataFrame, first: str) -> tuple[str, ...]:
    best = rows.sort("mean wait").row(0, named=True)
    base = rows.row(0, named=True)
    if best["policy"] == first or best["difference high"] >= 0:
        return (f"of {rows.height} policies none surely has jobs wait less than {first}",)
    share = 1 - best["mean wait"] / base["mean wait"] if base["mean wait"] else 0.0
    saved = Estimate("", -best["difference"], -best["difference high"], -best["difference low"], "s")
    return (
        f"by {best['policy']}{_knows(best['policy'])} jobs wait {100 * share:.0f} % less than by {first}: "
        f"on the mean{say(saved)} less",
        *(f"{name} makes them wait longer" for name in _worse(rows)),
    )


def _knows(policy: str) -> str:
    """Whoever takes the shortest first and is told no estimate knows what nobody does: say so."""
    rules = rules_of(policy)
    told = rules.get("estimate", "oracle") == "oracle" and rules["order"] in ("sjf", "srpt", "server_filling_srpt")
    return ", which knows run times beforehand," if told else ""


def _worse(rows: pl.DataFrame) -> list[str]:
    return rows.filter(pl.col("difference low") > 0)["policy"].to_list()


def _figures(waits: Mapping[str, Floats], rows: pl.DataFrame) -> dict[str, Figure]:
    means = rows.select(x="policy", y="mean wait", low="low", high="high")
    alt = "; ".join(f"{r['policy']}: {r['mean wait']:.0f} s" for r in rows.iter_rows(named=True))
    return {
        "mean wait by policy": Figure("Mean wait by policy", "bar", means, "policy", "mean wait, s", alt),
        "waits by policy": Figure(
            "How waits are spread", "line", _curves(waits), "wait, s", "share of jobs that wait no longer",
            "; ".join(f"{name}: {np.mean(w <= 60):.0%} wait at most a minute" for name, w in waits.items()), log_x=True,
        ),
    }  # fmt: skip


def _curves(waits: Mapping[str, Floats]) -> pl.DataFrame:
    longest = max(float(w.max(initial=1.0)) for w in waits.values())
    at = np.geomspace(1.0, max(longest, 10.0), POINTS)
    parts = [
        pl.DataFrame({"x": at, "y": np.searchsorted(np.sort(w), at, side="right") / len(w)}).with_columns(
            series=pl.lit(n)
        )
        for n, w in waits.items()
    ]
    return pl.concat(parts)
