"""What comes in, where theory knows what must come out: Poisson arrivals of jobs by class."""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetlab.core import Cluster, Workload

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Law(NamedTuple):
    """Run times by the words of the queueing room, which knows the moments; here they are drawn."""

    shape: str
    mean: float = 1.0
    scv: float = 1.0  # squared coefficient of variation

    @property
    def words(self) -> str:
        """As `solve` takes it."""
        return f"{self.shape}:{self.mean!r}" + (
            f":{self.scv!r}" if self.shape in ("hyperexponential", "lognormal") else ""
        )

    @property
    def second(self) -> float:
        """E[S²]."""
        return self.mean**2 * (1 + self.scv)

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """So many run times."""
        if self.shape == "deterministic":
            return np.full(count, self.mean)
        if self.shape == "lognormal":
            width = math.log1p(self.scv)
            return rng.lognormal(math.log(self.mean) - width / 2, width**0.5, count)
        # Two exponentials that carry half of the work each; with an SCV of 1 they are the same.
        first = (1 + ((self.scv - 1) / (self.scv + 1)) ** 0.5) / 2
        mean = np.where(rng.random(count) < first, self.mean / (2 * first), self.mean / (2 * (1 - first)))
        return np.asarray(mean * rng.exponential(1.0, count))


EXPONENTIAL = Law("exponential")
CONSTANT = Law("deterministic", scv=0.0)


class Kind(NamedTuple):
    """A class of jobs."""

    chance: float = 1.0
    need: int = 1  # GPUs
    law: Law = EXPONENTIAL
    priority: int = 0


class Input(NamedTuple):
    """The jobs of one run, in order of arrival."""

    gap: Floats  # seconds since the one before
    kind: Ints
    runtime: Floats
    need: Ints
    priority: Ints

    @property
    def submit(self) -> Floats:
        """Seconds from the first."""
        return np.asarray(np.cumsum(self.gap) - self.gap[0])

    def workload(self) -> Workload:
        """As the simulator takes it."""
        columns = {"submit": self.submit, "runtime": self.runtime, "gpu_milli": self.need * 1000}
        return Workload.of(pl.DataFrame(columns | {"priority": self.priority}), source="theory")


def poisson(kinds: tuple[Kind, ...], rate: float, count: int, seed: list[int]) -> Input:
    """So many jobs at this rate, each of a kind by lot."""
    rng = np.random.default_rng(seed)
    gap = rng.exponential(1 / rate, count)
    kind = rng.choice(len(kinds), count, p=[k.chance for k in kinds])
    runtime = np.choose(kind, [k.law.draw(rng, count) for k in kinds])
    need, priority = (np.array(x, dtype=np.int64)[kind] for x in ([k.need for k in kinds], [k.priority for k in kinds]))
    return Input(gap, kind, runtime, need, priority)


def seed_of(name: str, *numbers: int) -> list[int]:
    """A seed for this case alone, so that none hangs on which others there are."""
    return [zlib.crc32(name.encode()), *numbers]


def gpus(count: int) -> Cluster:
    """A cluster of so many GPUs, in nodes of eight where that is a whole number of them."""
    return Cluster.uniform(count // 8, 8) if count % 8 == 0 else Cluster.uniform(1, count)


def load(kinds: tuple[Kind, ...]) -> float:
    """GPU-seconds that a job brings, on average."""
    return sum(k.chance * k.need * k.law.mean for k in kinds)
