"""`python -m benchmarks.statistics`: how often intervals of `fleetlab.stats` hold a truth that is known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
from tests.stats.processes import ar1, coverage, mm1_mean, mm1_quantile, mm1_waits

from fleetlab.stats import ANY, POSITIVE, BlockBootstrap, Range, Statistic, batch_means, mean_of_runs, paired_difference

RUNS = 400
LEVELS = (0.5, 0.9, 0.99)
Row = tuple[str, int, list[float]]


def twenty_batches(values: np.ndarray) -> Statistic:
    """Return what is often done: twenty batches, taken for independent."""
    return mean_of_runs([part.mean() for part in np.array_split(values, 20)])


def covered(runs: np.ndarray, mean: float, quantile: Callable[[float], float], within: Range) -> list[float]:
    """Return the coverage of the mean by each method, and of quantiles."""
    blocks = BlockBootstrap.of_times(np.arange(runs.shape[1]) + 0.5)
    quantiles = [blocks.quantiles(x, LEVELS) for x in runs]
    return [
        coverage([twenty_batches(x) for x in runs], mean),
        coverage([batch_means(x, within) for x in runs], mean),
        coverage([blocks.mean(x, within) for x in runs], mean),
        *(coverage([q[k].statistic(within) for q in quantiles], quantile(p)) for k, p in enumerate(LEVELS)),
    ]


def rows(rng: np.random.Generator) -> Iterator[Row]:
    """Yield the coverage of single runs."""
    for phi in (0.5, 0.8, 0.9):
        for jobs in (1000, 5000):
            spread = NormalDist(0, 1 / math.sqrt(1 - phi**2))
            yield f"AR(1), φ {phi}", jobs, covered(ar1(rng, phi, jobs, RUNS), 0.0, spread.inv_cdf, ANY)
    for rho in (0.5, 0.7, 0.8, 0.9):
        for jobs in (2000, 5000, 20_000, 100_000):
            (waits,) = mm1_waits(rng, rho, jobs, RUNS if jobs <= 20_000 else RUNS // 4)
            truth = lambda q, rho=rho: mm1_quantile(rho, q)  # noqa: E731
            yield f"M/M/1 waits, ρ {rho}", jobs, covered(waits, mm1_mean(rho), truth, POSITIVE)


def paired(rng: np.random.Generator) -> Iterator[Row]:
    """Yield the coverage of differences between an M/M/1 queue and one that is faster, with the same jobs."""
    for rho, jobs, speed in ((0.5, 5000, 1.1), (0.7, 5000, 1.1), (0.8, 20_000, 1.05), (0.8, 20_000, 1.3)):
        slow, fast = mm1_waits(rng, rho, jobs, RUNS, (1.0, speed))
        blocks = BlockBootstrap.of_times(np.arange(jobs) + 0.5)
        pairs = [
            [(blocks.means(x), *blocks.quantiles(x, (0.5, 0.9))) for x in pair] for pair in zip(slow, fast, strict=True)
        ]
        found = [[paired_difference(a, b) for a, b in zip(*pair, strict=True)] for pair in pairs]
        truths = [mm1_mean(rho, speed) - mm1_mean(rho)]
        truths += [mm1_quantile(rho, q, speed) - mm1_quantile(rho, q) for q in (0.5, 0.9)]
        shares = [coverage([f[k] for f in found], truth) for k, truth in enumerate(truths)]
        yield f"M/M/1, ρ {rho}, {speed} times as fast", jobs, shares


def table(columns: list[str], lines: Iterator[Row]) -> None:
    """Print rows as they come."""
    print("| series | jobs | " + " | ".join(columns) + " |\n|---|" + "--:|" * (len(columns) + 1))
    for name, jobs, shares in lines:
        cells = " | ".join("–" if math.isnan(x) else f"{100 * x:.0f}" for x in shares)
        print(f"| {name} | {jobs:,} | {cells} |", flush=True)


def main() -> None:
    """Print both tables, and what intervals of a large run cost."""
    table(["20 batches", "batch means", "bootstrap", "P50", "P90", "P99"], rows(np.random.default_rng(1)))
    print()
    table(["mean", "P50", "P90"], paired(np.random.default_rng(2)))
    rng = np.random.default_rng(3)
    times, waits = np.sort(rng.random(100_000)), rng.exponential(size=100_000)
    began = time.process_time()
    blocks = BlockBootstrap.of_times(times)
    blocks.mean(waits, POSITIVE)
    blocks.quantiles(waits, LEVELS)
    print(f"\nmean, P50, P90 and P99 of 100,000 jobs: {1000 * (time.process_time() - began):.0f} ms of CPU time")


if __name__ == "__main__":
    main()
