"""How many nodes for a goal? A queueing model guesses, simulations with intervals answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from fleetlab._student import student
from fleetlab.core import Cluster, Estimate, Provenance, Result, Workload, WorkloadError, say
from fleetlab.studies import _crew
from fleetlab.studies._blocks import NORMAL, Floats
from fleetlab.studies._spread import USUAL
from fleetlab.studies.believed import beside, named
from fleetlab.studies.capacity import _growth, _sizes
from fleetlab.studies.capacity._goal import Goal
from fleetlab.studies.capacity._search import FARTHEST, Curve, Point, rows

Progress = Callable[[str, int, float], None]
RESAMPLES = 3
MANY = 10**6  # degrees of freedom, where runs do not differ


@dataclass(frozen=True, slots=True, repr=False)
class Capacity(Result):
    """The smallest cluster that meets a goal, and the curve around it."""

    provenance: Provenance
    estimates: tuple[Estimate, ...]
    frames: Mapping[str, pl.DataFrame]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Capacity {say(self.estimates[0])}, {say(self.estimates[1])}>"


def capacity(
    workload: Workload,
    cluster: Cluster,
    *,
    slo: str,
    pool: str | None = None,
    growth: float = 1.0,
    resamples: int = RESAMPLES,
    order: str = "fifo",
    backfill: str = "greedy",
    placement: str = "best_fit",
    estimate: str | pl.Series = "oracle",
    sharing: str = "fractional",
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Capacity:
    """How many nodes for a goal such as `p90 wait < 600`? The smallest cluster that meets it, and the curve around.

    Nodes of one `pool` (or GPU type) are scaled, and the jobs that may run there count; or all pools in proportion,
    and all jobs. With `growth` users' days are drawn again, `resamples` times, and laid over those that are there. The
    rules are those of `simulate`; `workers` are processes of their own.
    """
    goal = Goal.read(slo)
    _growth.check(growth)
    _possible(goal, workload, cluster, pool, resamples)
    name, columns = named(estimate, len(workload))
    rules = {"order": order, "backfill": backfill, "placement": placement, "estimate": name, "sharing": sharing}
    seeds = range(seed, seed + (resamples if growth != 1 else 1))
    drawn = [_growth.grown(workload, growth, seed=k) for k in seeds]
    tables = [
        beside(w.frame, {n: c.gather(_growth.drawn(workload, growth, seed=k)[0]) for n, c in columns.items()})
        for w, k in zip(drawn, seeds, strict=True)
    ]
    settings = {"slo": slo, "pool": pool, "growth": growth, **rules, "cluster": cluster.source}
    asked = _Asked(workload, cluster, goal, pool, drawn, Provenance("capacity", workload.source, settings, seed))
    with TemporaryDirectory(prefix="fleetlab-") as folder:
        crew = _crew.crew(drawn[0].instances, workers)
        call = {"folder": folder, "pool": pool, "slo": slo, "rules": rules, "seed": seed}
        attempt = asked.attempts(tables, call, crew, progress or (lambda *_: None))
        return asked.answer(Curve(goal.limit, attempt), at_once=max(1, crew // len(drawn)))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked: whose goal, which nodes, and the workloads that were drawn."""

    workload: Workload
    cluster: Cluster
    goal: Goal
    pool: str | None
    drawn: Sequence[Workload]
    provenance: Provenance

    def attempts(
        self, tables: Sequence[pl.DataFrame], call: Mapping[str, Any], crew: int, progress: Progress
    ) -> Callable[[Sequence[int]], list[Point]]:
        """How to simulate sizes: every resample of the workload, with its estimates, at each of them."""
        folder, each = Path(call["folder"]), len(tables)
        for k, table in enumerate(tables):
            table.write_ipc(folder / f"{k}.arrow", compression="uncompressed")
        self.cluster.frame.write_ipc(folder / _sizes.HARDWARE, compression="uncompressed")
        ended: list[int] = []

        def done(_: int) -> None:
            ended.append(1)
            progress("sizes", len(ended), 1 - 0.9 ** len(ended))  # how many there will be is not known

        def attempt(sizes: Sequence[int]) -> list[Point]:
            calls = [{**call, "jobs": f"{k}.arrow", "size": size} for size in sizes for k in range(each)]
            found = _crew.play(f"{_sizes.__name__}:one", calls, folder, workers=crew, done=done)
            return [_point(size, found[i * each : (i + 1) * each], self.goal) for i, size in enumerate(sizes)]

        return attempt

    def answer(self, curve: Curve, *, at_once: int) -> Capacity:
        """Look for the smallest size that meets the goal, that may, and that does for sure; then around the first."""
        guess = _sizes.guess(self.drawn[0], self.cluster.frame, self.pool, self.goal)
        now = int(_sizes.chosen(self.cluster.frame, self.pool).sum())
        most = FARTHEST * max(guess, now)
        curve.look([guess])
        at = curve.smallest("value", most=most, at_once=at_once)
        if at is None:
            raise curve.refusal()
        low, high = at, None
        if not math.isnan(at.high):
            # Far below the answer nobody needs to know where the goal might just be met.
            low = curve.smallest("low", least=max(1, at.size // 2), most=most, at_once=at_once) or at
            high = curve.smallest("high", most=most, at_once=at_once) if at.ever else None
        curve.around(at.size)
        goal, of = self.goal, f"{self.pool} nodes" if self.pool else "nodes"
        summary = (
            _between(f"{of} for {goal} < {goal.limit:g}", "nodes", at, low, high),
            Estimate(f"{goal} then", at.value, at.low, at.high, goal.unit),
            Estimate.exact(f"{of} now", now),
            Estimate.exact(f"{of} by the queueing model", guess),
            _between("GPUs then", "gpus", at, low, high),
            Estimate.exact("GPUs now", self.cluster.gpus),
        )
        points = pl.DataFrame(rows(curve.points, goal.limit)).with_columns(pl.col("low", "high").fill_nan(None))
        frames = {"curve": points, "nodes": self._kinds(at.size)}
        return Capacity(self.provenance, summary, frames, self._notes(at))

    def _kinds(self, size: int) -> pl.DataFrame:
        """Nodes of each pool and GPU type, now and then."""
        nodes, kinds = self.cluster.frame, ["pool", "gpu_type", "gpus"]
        both = {"now": nodes, "then": _sizes.sized(nodes, self.pool, size)}
        now, then = (n.group_by(kinds, maintain_order=True).len(name) for name, n in both.items())
        return now.join(then, on=kinds, how="left", nulls_equal=True, maintain_order="left")

    def _notes(self, at: Point) -> tuple[str, ...]:
        said, jobs = [], self.workload.frame
        if self.provenance.settings["growth"] != 1:
            work = [_gpu_time(w) / max(_gpu_time(self.workload), 1e-9) for w in self.drawn]
            said.append(f"GPU time in the resamples: {min(work):.3g} to {max(work):.3g} times that of the trace")
        if (count := int(_sizes.counted(jobs, self.cluster.frame, self.pool).sum())) != len(jobs):
            said.append(f"the goal is measured on the {count:,} jobs that may run on {self.pool}")
        if unknown := jobs["runtime"].null_count():
            said.append(f"{unknown:,} jobs are left out: their run time is not known")
        if math.isnan(at.high):
            drawn = f"; the resamples gave {at.between[0]:,.4g} to {at.between[1]:,.4g}" if len(self.drawn) > 1 else ""
            said.append(f"too few jobs for an interval: of no size it is sure that it meets the goal{drawn}")
        if at.never:
            said.append(f"jobs that do not fit on these nodes at all, and count as waiting for ever: {at.never:,}")
        return tuple(said)


def _possible(goal: Goal, workload: Workload, cluster: Cluster, pool: str | None, resamples: int) -> None:
    """Refuse what no number of nodes brings, before work begins."""
    if not 1 <= resamples <= 100:
        msg = f"resamples is a number from 1 to 100: {resamples}"
        raise WorkloadError(msg, hint="3 unless told")
    jobs = workload.frame.filter(_sizes.counted(workload.frame, cluster.frame, pool)).drop_nulls("runtime")
    best = _sizes.at_best(jobs, goal)
    if not len(best):
        where = f" may run on `{pool}`" if pool else " has a run time that is known"
        msg = f"{workload.source}: no job{where}"
        raise WorkloadError(msg, hint="a goal is measured on the jobs that may run on the nodes that are scaled")
    if (least := goal.of(best)) >= goal.limit:
        msg = f"no number of nodes meets the goal: with nobody waiting the {goal} is {least:,.5g}{goal.unit and ' s'}"
        raise WorkloadError(msg, hint=f"a limit above that, not {goal.limit:g}")


def _point(size: int, runs: Sequence[Mapping[str, Any]], goal: Goal) -> Point:
    """The runs of one size as one."""
    first, hint = runs[0], "`fleetlab simulate` lists who is refused, and why"
    if first["nowhere"] == first["jobs"]:
        msg = f"no job could run on such nodes, however many there are: {first['lacks']}".removesuffix(": ")
        raise WorkloadError(msg, hint=hint)
    told, best = (np.array([r[what] for r in runs]) for what in ("told", "best"))
    if first["nowhere"] and best[:, 0].mean() >= goal.limit:
        who = f"of {first['jobs']:,} jobs {first['nowhere']:,} fit on no node"
        msg = f"no number of nodes meets the goal: {who}, and wait for ever: {first['lacks']}"
        raise WorkloadError(msg, hint=hint)
    told[told > _sizes.FAR] = np.inf
    between = float(told[:, 0].min()), float(told[:, 0].max())
    never, ever = max(int(r["never"]) for r in runs), not (best > _sizes.FAR).any()
    nodes, gpus, reason = int(first["nodes"]), int(first["gpus"]), str(first["reason"])
    return Point(size, *pooled(told), nodes, gpus, never, reason, between, ever)


def pooled(told: Floats) -> tuple[float, float, float]:
    """One value and interval of several runs, each with its own: spread within and between (Rubin 1987).

    Where the spread within is not known, that of both is not.

    >>> pooled(np.array([[2.0, 1.0, 3.0]]))
    (2.0, 1.0, 3.0)
    """
    runs, value = len(told), float(told[:, 0].mean())
    if np.isnan(told).any():
        return value, math.nan, math.nan
    if runs == 1 or not np.isfinite(told).all():
        return value, max(0.0, float(told[:, 1].mean())), float(told[:, 2].mean())
    within = float((((told[:, 2] - told[:, 1]) / (2 * NORMAL)) ** 2).mean())
    between = (1 + 1 / runs) * float(told[:, 0].var(ddof=1))
    freedom = (runs - 1) * (1 + within / between) ** 2 if between else MANY
    half = student(int(min(freedom, MANY)), USUAL) * (within + between) ** 0.5
    return value, max(0.0, value - half), value + half


def _between(metric: str, what: str, at: Point, low: Point, high: Point | None) -> Estimate:
    """Nodes or GPUs of the answer, from where the goal may be met to where it surely is; of no interval comes none."""
    value = getattr(at, what)
    if math.isnan(at.high):
        return Estimate(metric, value, math.nan, math.nan, "")
    return Estimate(metric, value, min(value, getattr(low, what)), max(value, getattr(high, what, math.inf)), "")


def _gpu_time(workload: Workload) -> float:
    f = workload.frame
    return float((f["gpu_milli"].cast(pl.Float64) * f["instances"] * f["runtime"].fill_null(0.0)).sum())
