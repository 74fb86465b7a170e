"""Poisson arrivals of jobs by class, for comparisons with theory."""

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


class RuntimeLaw(NamedTuple):
    """A distribution of runtimes, named as in `queueing`."""

    shape: str
    mean: float = 1.0
    scv: float = 1.0  # squared coefficient of variation

    @property
    def spelling(self) -> str:
        """The text that `solve` takes."""
        return f"{self.shape}:{self.mean!r}" + (
            f":{self.scv!r}" if self.shape in ("hyperexponential", "lognormal") else ""
        )

    @property
    def second(self) -> float:
        """E[S²]."""
        return self.mean**2 * (1 + self.scv)

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Return random runtimes."""
        if self.shape == "deterministic":
            return np.full(count, self.mean)
        if self.shape == "lognormal":
            width = math.log1p(self.scv)
            return rng.lognormal(math.log(self.mean) - width / 2, width**0.5, count)
        # Two exponentials with half of the work each; with an SCV of 1 they are the same.
        first = (1 + ((self.scv - 1) / (self.scv + 1)) ** 0.5) / 2
        mean = np.where(rng.random(count) < first, self.mean / (2 * first), self.mean / (2 * (1 - first)))
        return np.asarray(mean * rng.exponential(1.0, count))


EXPONENTIAL = RuntimeLaw("exponential")
CONSTANT = RuntimeLaw("deterministic", scv=0.0)


class JobClass(NamedTuple):
    """A class of jobs."""

    chance: float = 1.0
    need: int = 1  # GPUs
    law: RuntimeLaw = EXPONENTIAL
    priority: int = 0


class JobStream(NamedTuple):
    """The jobs of one run, in order of arrival."""

    gap: Floats  # seconds since the one before
    job_class: Ints
    runtime: Floats
    need: Ints
    priority: Ints

    @property
    def submit(self) -> Floats:
        """Seconds from the first."""
        return np.asarray(np.cumsum(self.gap) - self.gap[0])

    def workload(self) -> Workload:
        """Return the jobs as a workload."""
        columns = {"submit": self.submit, "runtime": self.runtime, "gpu_milli": self.need * 1000}
        return Workload.of(pl.DataFrame(columns | {"priority": self.priority}), source="theory")


def poisson(classes: tuple[JobClass, ...], rate: float, count: int, seed: list[int]) -> JobStream:
    """Return jobs that arrive at this rate, each of a random class."""
    rng = np.random.default_rng(seed)
    gap = rng.exponential(1 / rate, count)
    job_class = rng.choice(len(classes), count, p=[k.chance for k in classes])
    runtime = np.choose(job_class, [k.law.draw(rng, count) for k in classes])
    need, priority = (
        np.array(x, dtype=np.int64)[job_class] for x in ([k.need for k in classes], [k.priority for k in classes])
    )
    return JobStream(gap, job_class, runtime, need, priority)


def seed_of(name: str, *numbers: int) -> list[int]:
    """Return a seed for one case, independent of the other cases."""
    return [zlib.crc32(name.encode()), *numbers]


def gpus(count: int) -> Cluster:
    """Return a cluster of so many GPUs, in nodes of eight where possible."""
    return Cluster.uniform(count // 8, 8) if count % 8 == 0 else Cluster.uniform(1, count)


def load(classes: tuple[JobClass, ...]) -> float:
    """Return the mean GPU-seconds per job."""
    return sum(k.chance * k.need * k.law.mean for k in classes)
