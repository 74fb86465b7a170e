"""What is asked of the real Slurm: jobs of seconds to a minute, and what else happens, each at its time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

USERS = {"ann": 6, "bob": 3, "cyd": 3, "dee": 3, "eve": 2, "fay": 2, "gus": 1, "hal": 1}  # how often each submits
SHAPES = {(1, 1): 40, (1, 2): 21, (1, 4): 16, (1, 8): 14, (2, 8): 6, (3, 8): 2, (4, 8): 1}  # nodes, GPUs on each
SHORTEST, LONGEST = 3, 60  # s
OVERESTIMATES = (1.1, 2, 4, 6)  # time limits over runtimes


@dataclass(frozen=True, slots=True)
class Job:
    """A submission; `words` go to sbatch as they stand, and `{k12}` in them is the id of job k12."""

    key: str
    at: float
    user: str
    nodes: int
    gpus: int  # on each node
    seconds: int
    limit: int  # minutes
    words: tuple[str, ...] = ()
    script: str | None = None  # instead of sleeping
    kind: str = "plain"

    @property
    def work(self) -> float:
        """GPU-seconds."""
        return self.nodes * self.gpus * self.seconds

    def command(self) -> list[str]:
        """Return the words that submit it."""
        # A word that says how many nodes or GPUs stands for the usual ones.
        shape = [] if self.gpus == 0 else [f"-N{self.nodes}", f"--gpus-per-node={self.gpus}"]
        words = ["sbatch", f"--uid={self.user}", "-D", "/tmp", "-o", "/dev/null", *shape, f"-t{self.limit}"]
        return [*words, *self.words, "--wrap", self.script or f"sleep {self.seconds}"]

    def adding(self, *words: str, kind: str | None = None) -> Job:
        """Return it with more words for sbatch."""
        return replace(self, words=(*self.words, *words), kind=kind or self.kind)


@dataclass(frozen=True, slots=True)
class Act:
    """A command at a time: a node fails, a reservation is made, a job is released."""

    at: float
    words: tuple[str, ...]
    kind: str = "act"


@dataclass(frozen=True, slots=True)
class Replay:
    """All that happens in a run, in order of time."""

    jobs: tuple[Job, ...]
    acts: tuple[Act, ...] = ()

    def steps(self) -> list[Job | Act]:
        """Return jobs and acts by time."""
        return sorted([*self.jobs, *self.acts], key=lambda step: step.at)


def draw_jobs(count: int, gpus: int, load: float, seed: int) -> list[Job]:
    """Draw jobs that come at random, so fast that they keep `gpus` GPUs at `load`."""
    draws = random.Random(seed)
    jobs = [_job(number, draws) for number in range(count)]
    gaps = [draws.expovariate(1.0) for _ in jobs]
    pace = sum(job.work for job in jobs) / gpus / load / sum(gaps)  # s for each unit of a gap
    at = 0.0
    timed = []
    for job, gap in zip(jobs, gaps, strict=True):
        at += gap * pace
        timed.append(replace(job, at=round(at, 2)))
    return timed


def _job(number: int, draws: random.Random) -> Job:
    nodes, gpus = draws.choices(list(SHAPES), list(SHAPES.values()))[0]
    seconds = round(min(LONGEST, max(SHORTEST, draws.lognormvariate(2.6, 0.8))))
    limit = max(1, math.ceil(int(seconds * draws.choice(OVERESTIMATES)) / 60))
    user = draws.choices(list(USERS), list(USERS.values()))[0]
    return Job(f"k{number}", 0.0, user, nodes, gpus, seconds, limit)


def span(jobs: Iterable[Job]) -> float:
    """Return when the last is submitted."""
    return max(job.at for job in jobs)
