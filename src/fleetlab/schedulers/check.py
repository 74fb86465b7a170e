"""Does a scheduler keep the laws that every simulation keeps? Asked on a few small worlds that are drawn."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Feature, PolicyError, Scenario, Workload
from fleetlab.core.events import Drain, Outage
from fleetlab.sim.engine.begin import running_of
from fleetlab.sim.layout import DONE, TICK, WHOLE
from fleetlab.sim.result import SimResult
from fleetlab.sim.schedule import Segments
from fleetlab.sim.simulate import play_from, simulate
from fleetlab.sim.world_rows import Times, take

NODES, GPUS = 3, 4  # of each world; every job fits there when it is empty
SPAN = 600.0  # seconds in which all jobs arrive but the last
LAST = 900.0  # when that arrives
DOWN, DRAINED = (120.0, 400.0), (200.0, 700.0)  # when the first node is down, and the second takes no jobs
STOPS = (150.0, SPAN)  # where a simulation is stopped, to compare with the whole
SECOND = 1.0  # some loops know times in whole seconds
CLOSE = 1e-3  # seconds: times are rounded to the tick, sums of many of them by less than this


def check_scheduler(scheduler: Any, *, fractions: bool = True, seed: int = 0) -> None:  # noqa: ANN401
    """Refuse a scheduler that breaks a law of every simulation: a PolicyError names the law, the job and the time.

    It simulates small workloads that are drawn: every job runs to its end, and as long as it should; nothing is
    allocated twice or on a node that is down; the reasons and the holders of a wait add up to it; the same seed gives
    the same schedule; a simulation that is stopped is a beginning of the whole one; how long a job runs changes
    nothing before it ends; nothing that the last job brings changes what was decided before it arrives; and jobs that
    run when a simulation begins go on where they are.

    Parameters
    ----------
    scheduler
        What `scheduler` takes in every verb: an object with `decide`, its class, a `Scheduler`, or a name.
    fractions
        Whether some jobs ask for a fraction of a GPU; not for a configuration that gives whole ones.
    seed
        Which jobs are drawn.

    Raises
    ------
    PolicyError
        If it breaks a law.

    Examples
    --------
    >>> import fleetlab
    >>> class ShortestThatFits:
    ...     def decide(self, view):
    ...         jobs = sorted(view.waiting, key=lambda job: job.estimate)
    ...         return [start for job in jobs if (start := view.try_start(job))]
    >>> fleetlab.check_scheduler(ShortestThatFits())
    >>> class Forgets:
    ...     def decide(self, view):
    ...         return [start for job in view.arrived if (start := view.try_start(job))]
    >>> fleetlab.check_scheduler(Forgets())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetlab.core.errors.PolicyError: ... every job runs to its end: job ...
    """
    if scheduler is None:
        msg = "no scheduler to check: None"
        raise PolicyError(msg, hint="an object or a class with `def decide(self, view)`, a `Scheduler`, or a name")
    check, jobs = _Check(scheduler, seed), drawn(seed)
    if not fractions:
        jobs = jobs.with_columns(gpu_milli=(pl.col("gpu_milli") + WHOLE - 1) // WHOLE * WHOLE)
    result = check.simulate(jobs)
    check.conservation(result)
    check.allocation(result)
    check.ledger(result)
    check.same(result, check.simulate(jobs), np.inf, "the same seed gives the same schedule")
    for until in STOPS:
        part = check.simulate(jobs, until=until)
        check.stopped(part, until)
        check.same(result, part, until, "a simulation that is stopped is a beginning of the whole one")
    check.run_times(jobs)
    for field, value in ANOTHER.items():
        other = check.simulate(_with_last(jobs, field, value))
        law = f"nothing that a job brings is known before it arrives, as its {field}"
        check.same(result, other, LAST, law)
    if check.honors(Feature.NODE_EVENTS):
        check.node_events(jobs)
    if check.honors(Feature.RUNNING_JOBS):
        check.running_jobs(result)


# -- what is drawn -----------------------------------------------------------------------------------------------------

ANOTHER: dict[str, Any] = {
    "submit": LAST + 100.0, "runtime": 700.0, "instances": 3, "gpu_milli": 4000, "cpu_milli": 4000, "priority": 9,
    "user": "cy",
}  # fmt: skip


def drawn(seed: int, count: int = 40) -> pl.DataFrame:
    """Return jobs: fractions of a GPU, whole ones, none and gangs; so many at once that they wait."""
    rng = np.random.default_rng(seed)
    gpu = rng.choice([0, 300, 500, 1000, 2000, 4000], count)
    frame = pl.DataFrame({
        "submit": np.append(0.0, np.sort(rng.integers(1, int(SPAN), count - 1))),
        "runtime": rng.integers(1, 240, count).astype(np.float64),
        "instances": rng.choice([1, 1, 2, 3], count),
        "cpu_milli": rng.choice([500, 1000, 2000], count), "memory_mib": 256, "gpu_milli": gpu,
        "priority": rng.integers(0, 3, count), "user": rng.choice(["ann", "bob", "cy"], count),
    })  # fmt: skip
    last = {"submit": LAST, "runtime": 50.0, "instances": 1, "cpu_milli": 1000, "memory_mib": 256, "gpu_milli": 1000,
            "priority": 0, "user": "ann"}  # fmt: skip
    return pl.concat([frame, pl.DataFrame(last)], how="vertical_relaxed")


def _with_last(jobs: pl.DataFrame, field: str, value: Any) -> pl.DataFrame:  # noqa: ANN401
    last = pl.int_range(pl.len()) == pl.len() - 1
    return jobs.with_columns(pl.when(last).then(pl.lit(value)).otherwise(pl.col(field)).alias(field))


# -- the laws ----------------------------------------------------------------------------------------------------------


class _Check:
    """A scheduler, and what is asked of its schedules."""

    def __init__(self, scheduler: Any, seed: int) -> None:  # noqa: ANN401
        self.scheduler, self.seed = scheduler, seed
        self.cluster = Cluster.uniform(NODES, GPUS)
        s = self._scenario(drawn(seed)).scheduler
        self.declared = None if s is None else s.honors  # None: the event-driven rules, which honor all
        self.title = "the event-driven scheduler" if s is None else s.title
        own = getattr(s, "decides", None)
        if own is not None:
            self.title = f"scheduler `{type(own).__name__}`"

    def honors(self, feature: Feature) -> bool:
        return self.declared is None or feature in self.declared

    def _scenario(self, jobs: pl.DataFrame, **words: Any) -> Scenario:  # noqa: ANN401
        workload = Workload.of(jobs, source="drawn")
        words = {"scheduler": self.scheduler, "warm_up": "none", "seed": self.seed} | words
        return Scenario.of(workload, self.cluster, **words)

    def simulate(self, jobs: pl.DataFrame, **words: Any) -> SimResult:  # noqa: ANN401
        return simulate(self._scenario(jobs, **words))

    def refuse(self, law: str, job: int | np.integer, time: float | np.floating, what: str) -> NoReturn:
        who = f"job {job} " if job >= 0 else ""
        msg = f"{self.title} breaks a law, {law}: {who}{what} at {time:,.6g} s"
        raise PolicyError(msg, hint=f"`fleetlab.check_scheduler(…, seed={self.seed})` draws the same jobs again")

    def conservation(self, result: SimResult) -> None:
        """Every job runs to its end, once, as long as it should, on all its instances and not before it comes."""
        law, played, world = "every job runs to its end", result.played, result.world
        for k in np.flatnonzero(played.status != DONE):
            start = played.start[k]
            what = "never starts" if np.isnan(start) else "starts and does not end"
            self.refuse(law, k, world.submit[k] if np.isnan(start) else start, what)
        runs = played.runs(world.first)
        instances = runs.instances(world.instances)
        law = "a job runs after it has come and until it ends"
        for k in np.flatnonzero((runs.begin < world.submit[runs.job] - CLOSE) | (runs.end < runs.begin)):
            self.refuse(law, runs.job[k], runs.begin[k], "runs")
        for k in np.flatnonzero(runs.end > played.end[runs.job] + CLOSE):
            self.refuse(law, runs.job[k], runs.end[k], "still runs")
        if self.honors(Feature.GANGS):
            self._once_at_a_time(runs)
        held = np.bincount(runs.job, (runs.end - runs.begin) * instances, len(world.submit))
        should = (world.runtime + played.lost) * world.instances
        law = "a job runs as long as its work takes"
        for k in np.flatnonzero(np.abs(held - should) > CLOSE * world.instances):
            what = f"has run {held[k]:,.6g} s, summed over instances, in place of {should[k]:,.6g} s,"
            self.refuse(law, k, played.end[k], what)

    def _once_at_a_time(self, runs: Segments) -> None:
        by_job = np.lexsort((runs.begin, runs.job))
        job, begin, end = runs.job[by_job], runs.begin[by_job], runs.end[by_job]
        for k in np.flatnonzero((job[1:] == job[:-1]) & (begin[1:] < end[:-1] - CLOSE)):
            self.refuse("a job runs once at a time", job[k + 1], begin[k + 1], "is started while it runs")

    def allocation(self, result: SimResult) -> None:
        """Nothing is allocated twice: every instant is replayed."""
        try:
            result.timeline(every=SPAN)
        except AssertionError as error:
            msg = f"{self.title} breaks a law, nothing is allocated twice: {error}"
            hint = f"`fleetlab.check_scheduler(…, seed={self.seed})` draws the same jobs again"
            raise PolicyError(msg, hint=hint) from error

    def ledger(self, result: SimResult) -> None:
        """The reasons of a wait add up to it, and so do those who held what was missing."""
        waits = dict(result.jobs.select("job", "wait").iter_rows())
        for name, table in (("reasons", result.ledger), ("holders", result.holders)):
            sums = table.select("job", sum=pl.sum_horizontal(pl.exclude("job")))
            for job, seconds in sums.iter_rows():
                if abs(seconds - (waits[job] or 0.0)) > CLOSE:
                    what = f"waits {waits[job]:,.6g} s, of which its {name} explain {seconds:,.6g} s, submitted"
                    at = float(result.jobs.filter(pl.col("job") == job)["submit"][0])
                    self.refuse(f"the {name} of a wait add up to it", job, at, what)

    def same(self, result: SimResult, other: SimResult, until: float, law: str) -> None:
        """Up to a time the same jobs start, on the same nodes."""
        ours, theirs = (_starts(one, until) for one in (result, other))
        if differ := sorted(ours ^ theirs):
            time, job, node = differ[0]
            where = self.cluster.frame["node"][node]
            self.refuse(law, job, time, f"starts on {where} in one of two simulations only,")

    def run_times(self, jobs: pl.DataFrame) -> None:
        """Where run times are estimated, those of jobs that wait change nothing."""
        if not self.honors(Feature.GANGS):
            jobs = jobs.with_columns(instances=1)  # so that a row of the schedule is a job
        result = self.simulate(jobs, estimate="user")
        waits = result.jobs["start"].fill_null(np.inf) >= SPAN
        other = self.simulate(jobs.with_columns(runtime=pl.when(waits).then(1.0).otherwise("runtime")), estimate="user")
        self.same(result, other, SPAN, "how long a job runs is not known before it ends, by `estimate`")

    def stopped(self, part: SimResult, until: float) -> None:
        """Nothing happens after the end of a simulation."""
        law, played = "nothing happens after `until`", part.played
        for k in np.flatnonzero((played.start > until) | (played.end > until)):
            late = max(time for time in (played.start[k], played.end[k]) if not np.isnan(time))
            self.refuse(law, k, late, f"starts or ends after {until:g} s,")

    def running_jobs(self, result: SimResult) -> None:
        """A job that runs when a simulation begins goes on where it is: the state at a time is where another begins."""
        world, played, at = result.world, result.played, SPAN / 2
        runs = played.runs(world.first)
        counts = runs.instances(world.instances)
        there = np.flatnonzero((runs.begin < at) & (runs.end > at) & (counts == world.instances[runs.job]))
        there = there[np.argsort(runs.begin[there], kind="stable")]
        running = runs.job[there]
        waits = np.setdiff1d(np.flatnonzero(~(played.end <= at)), running)
        rows, begin = np.append(running, waits), runs.begin[there] - at
        look, zeros = np.append(begin, np.maximum(world.submit[waits] - at, 0.0)), np.zeros(len(rows))
        times = Times(look, look, world.runtime[rows], world.runtime[rows], zeros)
        begins, _ = take(world, rows, times, frame=True)
        where, got = (
            np.concatenate([column[runs.first[k] : runs.first[k] + counts[k]] for k in there])
            for column in (runs.where, runs.got)
        )
        found = play_from(self._scenario(drawn(self.seed)), begins, running_of(begins, begin, where, got))
        if found is None:
            return  # event-driven rules that only the loop knows which begins empty
        others, law = found.runs(begins.first), "a job that runs when a simulation begins goes on where it is"
        first = dict(reversed(list(zip(others.job.tolist(), range(len(others.job)), strict=True))))
        for k, job in enumerate(running):
            run, own = first.get(k, -1), slice(begins.first[k], begins.first[k + 1])
            if run < 0 or abs(others.begin[run] - begin[k]) > SECOND:
                self.refuse(law, job, at, "does not run on")
            mine = others.where[others.first[run] :][: own.stop - own.start]
            if (mine != where[own]).any() or others.end[run] > begin[k] + world.runtime[job] + SECOND:
                self.refuse(law, job, at, "is on other nodes, or runs longer,")

    def node_events(self, jobs: pl.DataFrame) -> None:
        """Nothing runs on a node that is down, and nothing begins on one that is drained."""
        names = self.cluster.frame["node"].to_list()
        events = (Outage(*DOWN, [names[0]]), Drain(*DRAINED, [names[1]]))
        result = self.simulate(jobs, events=events)
        self.allocation(result)
        self.ledger(result)
        runs = result.played.runs(result.world.first)
        counts = runs.instances(result.world.instances)
        first = runs.first[: len(runs.job)]
        for k, (begin, end) in enumerate(zip(runs.begin, runs.end, strict=True)):
            nodes = set(runs.where[first[k] : first[k] + counts[k]].tolist())
            if 0 in nodes and begin < DOWN[1] - TICK and end > DOWN[0] + TICK:
                self.refuse("nothing runs on a node that is down", runs.job[k], max(begin, DOWN[0]), "runs there")
            if 1 in nodes and DRAINED[0] + TICK < begin < DRAINED[1] - TICK:
                self.refuse("nothing begins on a node that is drained", runs.job[k], begin, "starts there")
        for late in np.flatnonzero(result.played.status != DONE):
            self.refuse("every job runs to its end", late, result.world.submit[late], "never ends, submitted")


def _starts(result: SimResult, until: float) -> set[tuple[float, int, int]]:
    """Return when runs begin before a time, of which job, and on which node its first instance is."""
    runs = result.played.runs(result.world.first)
    early = runs.begin < until - TICK
    if not len(runs.where):
        return set()
    first = runs.where[runs.first[: len(runs.job)]]
    return set(zip(runs.begin[early].tolist(), runs.job[early].tolist(), first[early].tolist(), strict=True))
