"""openb (Alibaba 2023): pods on a nearly idle cluster, whose delays are the latency of the scheduler.

It can show how long a scheduler takes when resources are free. It cannot show waiting: at the recorded times the pods
never need more than 1 % of the GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import numpy as np
import polars as pl

from fleetlab.sim import simulate
from fleetlab.stats import BlockBootstrap, Floats, batch_means
from fleetlab.studies.validate.line import Line, paired
from fleetlab.traces import read

FOLDER = "alibaba-openb-v2023"
PODS = "openb_pod_list_default.csv"
CAN = "openb 2023: a nearly idle cluster. It shows the scheduler's own latency, not waiting for GPUs"


def compare(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare recorded delays with simulated waits, and fit a distribution to the rest."""
    trace = read(data / FOLDER / PODS, "openb2023")
    assert trace.cluster is not None
    jobs = simulate(trace.workload, trace.cluster).jobs
    log = trace.workload.frame.select("job", recorded=pl.col("start") - pl.col("submit"))
    both = jobs.select("job", "wait", "gpu_milli").join(log.drop_nulls(), on="job").sort("job")
    delay, wait = both["recorded"].to_numpy(), both["wait"].to_numpy()
    why = "the log's delays are the scheduler's latency: the simulator decides at once"
    lines = [
        Line("openb 2023, all pods", "mean delay, s", float(delay.mean()), paired(wait, delay), why=why, counts=False),
        Line("openb 2023, all pods", "share of pods that wait", 0.0, batch_means((wait > 0).astype(np.float64))),
    ]
    # Fitted to every other pod, and compared with the rest.
    law = fitted((delay - wait)[::2])
    return [*lines, *_quantiles(law, (delay - wait)[1::2])], [CAN, law.sentence()]


def _quantiles(law: Latency, latency: Floats) -> list[Line]:
    """Compare quantiles of the fitted distribution with those of the log, with bootstrap intervals."""
    blocks, lines = BlockBootstrap.of_series(len(latency)), []
    for share in (0.5, 0.75, 0.9, 0.99):
        log = blocks.quantile(latency, share)
        lines.append(
            Line("openb 2023, latency by the fitted law", f"P{100 * share:g}, s", law.quantile(share), log, near=0.15,
                 why="times are whole seconds, and two lognormals are not all of it", counts=False)
        )  # fmt: skip
    return lines


@dataclass(frozen=True)
class Latency:
    """Scheduler latency: zero, or one of two lognormal distributions (the next scheduling cycle, or a later one)."""

    zero: float  # the share that is zero
    share: tuple[float, float]  # of each law, of the others
    middle: tuple[float, float]  # of logarithms
    width: tuple[float, float]

    def quantile(self, share: float) -> float:
        """The seconds that this share takes no longer than, by bisection."""
        if share <= self.zero:
            return 0.0
        low, high = -10.0, 30.0
        for _ in range(60):
            at = (low + high) / 2
            below = sum(
                p * NormalDist(m, w).cdf(at) for p, m, w in zip(self.share, self.middle, self.width, strict=True)
            )
            low, high = (at, high) if below < (share - self.zero) / (1 - self.zero) else (low, at)
        return math.exp(high)

    def sentence(self) -> str:
        """Return the distribution as a sentence."""
        parts = [
            f"{100 * (1 - self.zero) * p:.0f} % lognormal around {math.exp(m):.2g} s (σ {w:.2g})"
            for p, m, w in zip(self.share, self.middle, self.width, strict=True)
        ]
        return f"openb 2023, scheduler latency: {100 * self.zero:.0f} % none, {' and '.join(parts)}"


def fitted(latency: Floats, rounds: int = 200) -> Latency:
    """The likeliest law, by expectation and maximisation (Dempster, Laird and Rubin 1977)."""
    x = np.log(latency[latency > 0])
    share, middle = np.array([0.5, 0.5]), np.quantile(x, [0.25, 0.75])
    width = np.full(2, x.std() / 2)
    for _ in range(rounds):
        density = share * np.exp(-(((x[:, None] - middle) / width) ** 2) / 2) / width
        mine = density / density.sum(axis=1, keepdims=True)
        weight = mine.sum(axis=0)
        share, middle = weight / len(x), (mine * x[:, None]).sum(axis=0) / weight
        # Times are whole seconds: a law as narrow as a point would only fit the rounding.
        width = np.maximum(np.sqrt((mine * (x[:, None] - middle) ** 2).sum(axis=0) / weight), 0.1)
    pairs = [tuple(float(v) for v in values) for values in (share, middle, width)]
    return Latency(float((latency <= 0).mean()), *pairs)  # type: ignore[arg-type]
