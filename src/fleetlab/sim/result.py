"""What a replay found: when each job ran, why it waited, and what that means, with honest intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, Prices, Progress, Provenance, Result, Scenario, WorkloadError
from fleetlab.core.catalog import HOLDERS
from fleetlab.core.coverage import Coverage
from fleetlab.core.durations import beside_the_log, duration, plural
from fleetlab.core.figure import TimelineFigure
from fleetlab.core.job_classes import GPU_REQUEST
from fleetlab.core.result import amount
from fleetlab.core.trace import LOGGED_JOB
from fleetlab.core.words import SITE
from fleetlab.sim import accounts, figures, job_classes
from fleetlab.sim.accounts import HOUR
from fleetlab.sim.codes import BY_ELIGIBLE, BY_START_UP, REASONS
from fleetlab.sim.holdings import Holdings
from fleetlab.sim.layout import TICK, WHOLE, Floats
from fleetlab.sim.ledger import waits
from fleetlab.sim.ledger.ledger import Holders, holders, ledger, ledger_over_time
from fleetlab.sim.ledger.segments import WaitSegments, blockers, queue_heads, wait_segments
from fleetlab.sim.ledger.waits import seconds_between
from fleetlab.sim.measures import Measures, blocks_of, per_day
from fleetlab.sim.result_notes import beginning, in_part, scheduler_notes, timed_out, unfinished
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.timeline import ALL, ClusterUsage, timeline, usage
from fleetlab.sim.world import World
from fleetlab.stats import BLOCKS, SHARE, BlockBootstrap, Interval, Replicates

BOUND = 10.0  # seconds: shorter runtimes count as that in a bounded slowdown
POINTS = 500  # of a timeline, where nobody says how many
MOST_POINTS = 100_000
FEW = 100  # of the one among the tables
ASKED = ("instances", "gpu_milli", "gpu_types", "partitions", "user", "group", "app", "queue")
STATUS = ("waiting", "running", "done", "cut short")
CUT_SHORT = STATUS.index("cut short")


@dataclass(frozen=True, eq=False, repr=False)
class SimResult(Result):
    """Who ran when and where, why they waited, and who was refused; tables are made when they are asked for."""

    world: World
    played: Schedule
    cluster: Cluster
    provenance: Provenance
    prices: Prices = field(default_factory=Prices)
    notes: tuple[str, ...] = ()
    scenario: Scenario | None = None

    @classmethod
    def of(
        cls,
        world: World,
        played: Schedule,
        cluster: Cluster,
        provenance: Provenance,
        *,
        prices: Prices | None = None,
        notes: Sequence[str] = (),
        scenario: Scenario | None = None,
    ) -> SimResult:
        """Take what a loop hands back, and say what a reader must know of it."""
        if played.eligible is not None:  # by dependencies, whose ends the loop decided
            eligible = np.where(np.isinf(played.eligible), played.stopped, played.eligible)
            world = replace(world, eligible=eligible, submit=np.maximum(eligible, np.minimum(world.submit, eligible)))
        sentences = list(notes)
        if played.refused is not None and played.refused.any():
            world = world.leaving_out(played.refused)
        if count := int(timed_out(world, played)[world.measured].sum()):
            sentences.append(f"time limits end {plural(count, 'job')}")
        if played.cut is not None and (count := int((played.cut > 0)[world.measured].sum())):
            sentences.append(
                f"{plural(count, 'job')} ended before the time, by a preemption, with a node or at a limit"
            )
        if count := in_part(world, played):
            sentences.append(
                f"{plural(count, 'job')} with fewer pods than requested, as the least that will do allows: those of "
                "a Job run its completions in more waves, others for as much pod-time"
            )
        if open_jobs := unfinished(world, played):
            sentences.append(
                f"{open_jobs} when the simulation stops: means and quantiles are of the jobs that completed"
            )
        if prices is None:
            sentences.append(
                "energy assumes data-sheet power and a PUE of 1.4, and cost is 1 per GPU-hour of nodes that are up: "
                "`prices` takes your own"
            )
        sentences.append(beginning(world, scenario))
        sentences += scheduler_notes(scenario, cluster)
        return cls(world, played, cluster, provenance, prices or Prices(), tuple(sentences), scenario)

    def __repr__(self) -> str:
        first = "mean wait " + amount(self.summary()[0]) if self.completed.height else "no job completed"
        omitted = f", {self.refused.height:,} left out" if self.refused.height else ""
        return f"<SimResult {self.jobs.height:,} jobs, {self._policy + ', ' if self._policy else ''}{first}{omitted}>"

    @property
    def _policy(self) -> str:
        settings = self.provenance.settings
        if self.scenario is not None and self.scenario.scheduler is not None:
            own, site = self.scenario.scheduler.title, self.scenario.policy.scheduler in (None, SITE)
            return f"{own} as the site is configured" if site else own
        return "/".join(str(settings[k]) for k in ("order", "backfill", "placement") if k in settings)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """What was simulated."""
        load = f", load {self.scenario.load:g}" if self.scenario and self.scenario.load != 1 else ""
        nodes = f"{plural(len(self.cluster), 'node')}, {plural(self.cluster.gpus, 'GPU')}"
        jobs = f"{self.completed.height:,} of {plural(self.jobs.height + self.refused.height, 'job')}"
        what = f"{self._policy}{load}, {nodes}: {jobs}, submitted within {duration(self._span)}".lstrip(", ")
        return (*self._beside_the_log(), what)

    def _beside_the_log(self) -> list[str]:
        """Say what the log recorded of the same jobs."""
        both = self.recorded
        if not both["recorded"].sum() or self.scenario is None:  # logs without starts have those of the submissions
            return []
        if self.scenario.trace.workload.synthetic:  # its waits were drawn, not scheduled
            return []
        return [beside_the_log(*(float(both[name].mean()) for name in ("recorded", "simulated")))]  # type: ignore[arg-type]

    @cached_property
    def coverage(self) -> Coverage | None:
        """Which jobs and GPU-hours of the log were simulated."""
        return None if self.scenario is None else Coverage.of(self.scenario.run_times, self.refused)

    # -- tables, one row a job --------------------------------------------------------------------------------------

    @cached_property
    def _measured(self) -> pl.DataFrame:
        return self.world.frame[self.world.measured]

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """One row a job that could run; times are rounded to the simulator's tick, 60 ns.

        `wait` is all its waiting, `jct` the time from submit to end, `slowdown` jct by runtime (null
        where runtime is 0), `bounded_slowdown` the same with a runtime of at least 10 s; `lost` are seconds of runtime
        lost to failures, or spent on checkpoints and restarts. What did not happen is null. The status of a job that a
        preemption, a failed node or a limit of its site ended for good is `cut short`: it has not completed.
        """
        world, played, mine = self.world, self.played, self.world.measured
        start, alone = played.start + world.latency, world.runtime - world.latency - world.unseen
        alone = np.where((world.submit == -TICK) & world.frame["initial"].to_numpy(), alone - TICK, alone)
        times = {"submit": world.submitted, "runtime": alone, "start": start, "end": played.end}
        columns = {name: pl.Series(name, values[mine], nan_to_null=True) for name, values in times.items()}
        # One that runs when the log begins is placed just before second 0.
        columns |= {name: columns[name].clip(lower_bound=0.0) for name in ("submit", "start")}
        wait = (waits.seconds(world, played) + self._not_eligible + self._start_up)[mine]
        runtime, jct = pl.col("runtime"), pl.col("end") - pl.col("submit")
        bounded = pl.max_horizontal(jct / pl.max_horizontal(runtime, BOUND), pl.lit(1.0))
        state = played.status if played.cut is None else np.where(played.cut > 0, CUT_SHORT, played.status)
        status = pl.Series(state[mine], dtype=pl.Int64).replace_strict(
            list(range(len(STATUS))), STATUS, return_dtype=pl.Enum(STATUS)
        )
        return self._measured.select("job", *ASKED, "initial").with_columns(**columns).select(
            "job", "submit", "runtime", *ASKED, "initial", "start", "end",
            wait=pl.Series(wait),
            jct=jct,
            slowdown=pl.when(runtime > 0).then(jct / runtime),
            bounded_slowdown=pl.when(jct.is_not_null()).then(bounded),
            preemptions=pl.Series(played.preemptions[mine], dtype=pl.Int64),
            failures=pl.Series(played.failures[mine], dtype=pl.Int64),
            lost=pl.Series(played.lost[mine], dtype=pl.Float64),
            status=status,
        )  # fmt: skip

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """The seconds each job waited, by reason; they sum to its `wait`."""
        by_reason = ledger(self.world, self.played)
        by_reason[:, BY_START_UP] = self._start_up
        by_reason[:, BY_ELIGIBLE] += self._not_eligible
        by_reason = by_reason[self.world.measured]
        seconds = {reason: by_reason[:, k] for k, reason in enumerate(REASONS)}
        return self._measured.select("job").with_columns(**{k: pl.Series(k, v) for k, v in seconds.items()})

    @property
    def _start_up(self) -> Floats:
        """The seconds each job that has GPUs took to start."""
        return np.where(np.isnan(self.played.start), 0.0, self.world.latency)

    @property
    def _not_eligible(self) -> Floats:
        """The seconds for which each job could not run whatever was free."""
        return np.maximum(np.minimum(self.world.eligible, self.played.stopped) - self.world.submitted, 0.0)

    @cached_property
    def _holders(self) -> Holders:
        division = holders(self.world, self.played, seed=self.provenance.seed or 0)
        division.seconds[:, HOLDERS.index("nobody")] += (self._start_up + self._not_eligible)[division.job]
        return division

    @cached_property
    def holders(self) -> pl.DataFrame:
        """The seconds each job waited, by who held what it was missing; they sum to its `wait`.

        One row a job; a sample of the jobs where a schedule has very many that wait at once.
        """
        rows, seconds = self._holders.job, self._holders.seconds
        columns = {name: pl.Series(name, seconds[:, k]) for k, name in enumerate(HOLDERS.names)}
        return self.world.frame.select("job")[rows].with_columns(**columns).sort("job")

    def wait_segments(self, job: int) -> pl.DataFrame:
        """Return why one job waited when; by reason the stretches sum to its ledger.

        Parameters
        ----------
        job
            Its number in the workload.

        Returns
        -------
        polars.DataFrame
            `begin`, `end` and `reason` of each stretch. They follow each other without a gap, from its submission to
            its start; those after an interruption too.

        Raises
        ------
        WorkloadError
            If there is no such job, or it was left out.

        Examples
        --------
        >>> import fleetlab
        >>> run = fleetlab.simulate("builtin:200", load=20)
        >>> run.wait_segments(100).columns
        ['begin', 'end', 'reason']
        """
        row = self._row(job)
        segments, world = wait_segments(self.world, self.played, row), self.world
        begin, end, reason = [segments.begin], [segments.end], [segments.reason]
        for seconds, since, why in (
            (self._not_eligible[row], world.submitted[row], BY_ELIGIBLE),
            (self._start_up[row], self.played.start[row], BY_START_UP),
        ):
            if seconds > 0:
                begin.append(np.array([since]))
                end.append(np.array([since + seconds]))
                reason.append(np.array([why]))
        all_of = WaitSegments(np.concatenate(begin), np.concatenate(end), np.concatenate(reason)).merged()
        names = pl.Series([REASONS[k] for k in all_of.reason], dtype=pl.String)
        return pl.DataFrame({"begin": all_of.begin, "end": all_of.end}).with_columns(reason=names)

    def queue_heads(self, job: int) -> pl.DataFrame:
        """Return who was at the head of the queue while one job fitted, but waited for a reservation or for the head.

        Parameters
        ----------
        job
            Its number in the workload.

        Returns
        -------
        polars.DataFrame
            `begin` to `end` of each stretch and the `job`, null where that is not measured; `row` tells those apart.
            Empty where ranks change with time, and under a site's Slurm.

        Raises
        ------
        WorkloadError
            If there is no such job, or it was left out.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.simulate("builtin:200", load=20, backfill="none").queue_heads(199).columns
        ['job', 'row', 'begin', 'end']
        """
        row = self._row(job)
        rows, begin, end = queue_heads(self.world, self.played, row, wait_segments(self.world, self.played, row))
        number = self.world.frame["job"].gather(rows)
        numbers = pl.select(pl.when(number >= 0).then(number)).to_series()
        return pl.DataFrame({"job": numbers, "row": rows, "begin": begin, "end": end})

    def blockers(self, job: int) -> pl.DataFrame:
        """Return who ran where one job could have run while it waited; who held most of what it missed is first.

        Parameters
        ----------
        job
            Its number in the workload.

        Returns
        -------
        polars.DataFrame
            `seconds` are those of its wait that the run held what was missing: they sum to its wait less the column
            `nobody` of its `holders`. `gpu_seconds` are GPUs × s held during the wait on nodes that it may use.
            `holder` is one of the catalog. `job` is null, and `row` tells them apart, for jobs that are not measured.

        Raises
        ------
        WorkloadError
            If there is no such job, or it was left out.

        Examples
        --------
        >>> import fleetlab
        >>> "gpu_seconds" in fleetlab.simulate("builtin:200", load=20).blockers(199).columns
        True
        """
        row = self._row(job)
        blocking = blockers(self.world, self.played, row, wait_segments(self.world, self.played, row))
        number = self.world.frame["job"].gather(blocking.job)
        return pl.DataFrame(
            {
                "job": pl.select(pl.when(number >= 0).then(number)).to_series(),
                "row": blocking.job,
                "begin": blocking.begin,
                "end": pl.Series(np.where(np.isinf(blocking.end), np.nan, blocking.end), nan_to_null=True),
                "holder": pl.Series([HOLDERS.names[k] for k in blocking.kind], dtype=pl.String),
                "seconds": blocking.seconds,
                "gpu_seconds": blocking.gpu_seconds,
            }
        ).sort("seconds", "gpu_seconds", "begin", descending=[True, True, False], maintain_order=True)

    def runs(self, job: int | None = None, *, within: tuple[float, float] = (-math.inf, math.inf)) -> pl.DataFrame:
        """Return where and when jobs ran without a break, one row an instance.

        Parameters
        ----------
        job
            One job by its number (default: all).
        within
            From when to when, in seconds (default: the whole run).

        Returns
        -------
        polars.DataFrame
            `end` is null where it still runs; `gpus` has a bit for each of the node's GPUs, as in `placements`.

        Raises
        ------
        WorkloadError
            If there is no such job, or it was left out.

        Examples
        --------
        >>> import fleetlab
        >>> run = fleetlab.simulate("builtin:200")
        >>> run.runs(0).height == run.jobs["instances"][0]
        True
        """
        runs = self.played.runs(self.world.first)
        mine = (runs.begin < within[1]) & (runs.end > within[0])
        picked = np.flatnonzero(mine if job is None else mine & (runs.job == self._row(job)))
        count = runs.instances(self.world.instances)[picked]
        of = np.repeat(picked, count)
        place = runs.first[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
        return pl.DataFrame(
            {
                "job": self.world.frame["job"].gather(runs.job[of]),
                "row": runs.job[of],
                "begin": runs.begin[of],
                "end": pl.Series(np.where(np.isinf(runs.end[of]), np.nan, runs.end[of]), nan_to_null=True),
                "node": self.cluster.frame["node"].gather(runs.where[place]),
                "gpus": runs.got[place],
            }
        )

    def _row(self, job: int) -> int:
        """Return the row of the world that a job is."""
        rows = np.flatnonzero(self.world.frame["job"].to_numpy() == job)
        if job < 0 or not len(rows):
            why = self.refused.filter(pl.col("job") == job)
            msg = f"job {job} is not simulated" + (f": {why['reason'][0]}" if why.height else "")
            raise WorkloadError(msg, hint="`jobs` has those that are, `refused` why others are not")
        return int(rows[0])

    @cached_property
    def held_by_user(self) -> pl.DataFrame:
        """The seconds that jobs waited for what jobs of each user held, the most first."""
        seconds = pl.DataFrame({"user": self.world.users, "seconds": self._holders.by_user[: len(self.world.users)]})
        return seconds.sort("seconds", descending=True, maintain_order=True)

    @property
    def placements(self) -> pl.DataFrame:
        """Where each instance ran (at last): `gpus` has a bit for each of the node's GPUs, 1 for its first.

        It is made anew whenever asked for: at millions of rows it is not worth keeping.
        """
        played, count = self.played, self.world.instances
        job = np.repeat(np.arange(len(count)), count)
        instance = np.arange(len(job)) - np.repeat(self.world.first[:-1], count)
        ran = (played.where >= 0) & (self.world.frame["job"].to_numpy() >= 0)[job]
        job, instance, where, got = (x if ran.all() else x[ran] for x in (job, instance, played.where, played.got))
        return pl.DataFrame(
            {
                "job": self.world.frame["job"].gather(job),
                "instance": pl.Series(instance, dtype=pl.Int64).cast(pl.Int32),
                "node": self.cluster.frame["node"].gather(where),
                "gpus": got,
            }
        )

    @property
    def refused(self) -> pl.DataFrame:
        """The jobs that could never run on this cluster, with the reason."""
        return self.world.refused

    @property
    def unfinished(self) -> str:
        """How many jobs were running, pending or not yet submitted when the simulation stopped; empty if none."""
        return unfinished(self.world, self.played)

    def schedule(self) -> pl.DataFrame:
        """Return one row a job of the workload: `jobs`, its waiting by reason, where it ran, or why it was left out.

        Returns
        -------
        polars.DataFrame
            `job` is its number in the trace as it was read, of a job that ran several times that of its last run;
            `name` is the log's own id of the job, where the trace has them; `wait_gpu` and the like are seconds by
            reason; `nodes` and `gpus` have an entry an instance, as `placements` tells them. Of a job that was left out
            there is only its number, its name and the reason.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.simulate("builtin:200").schedule().height
        200
        """
        waits = self.ledger.rename({reason: f"wait_{reason}" for reason in REASONS})
        where = self.placements.group_by("job").agg(pl.col("node", "gpus").sort_by("instance"))
        ran = self.jobs.with_columns(pl.col("status").cast(pl.String))
        ran = ran.join(waits, on="job", how="left").join(where.rename({"node": "nodes"}), on="job", how="left")
        refused = self.refused.select("job", status=pl.lit("left out"), left_out="reason")
        every = pl.concat([ran, refused], how="diagonal").sort("job")
        if self.scenario is None:
            return every
        trace, by_job = self.scenario.trace, self.scenario.by_job
        if trace.names is not None:
            own = by_job(trace.names).select("job", pl.col("name").cast(pl.String)).collect()
            named = every.join(own, on="job", how="left", maintain_order="left")
            every = named.select("job", "name", pl.exclude("job", "name"))
        if (logged := trace.series.get(LOGGED_JOB)) is not None:
            every = every.join(by_job(logged).collect(), on="job", how="left", maintain_order="left")
            every = every.with_columns(job=pl.coalesce("logged", "job")).drop("logged").sort("job")
        return every

    def write_perfetto(self, path: Path | str, progress: Progress | None = None) -> None:
        """Write the run as a trace that Perfetto opens: nodes are processes, GPUs threads, jobs slices.

        Preemptions and jobs that pass others in the queue are flows; waiting jobs by reason and GPUs are counters.

        Parameters
        ----------
        path
            The file, such as run.perfetto-trace.
        progress
            Called as it is written.

        Raises
        ------
        FleetlabError
            If it cannot be written.

        Examples
        --------
        >>> import fleetlab
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     fleetlab.simulate("builtin:200").write_perfetto(f"{folder}/run.perfetto-trace")
        """
        from fleetlab.sim.perfetto.trace_file import write

        write(self, Path(path), progress)

    # -- over time ---------------------------------------------------------------------------------------------------

    def timeline(self, *, every: float | None = None) -> pl.DataFrame:
        """Return the cluster and the queue over time, by GPU type.

        The schedule is audited on the way: an AssertionError says that something is held twice.

        Parameters
        ----------
        every
            Seconds between two instants (default: 500 instants in all).

        Returns
        -------
        polars.DataFrame
            `up`: GPUs that are switched on; `allocated`: what jobs hold of them; `used`: GPUs that anyone holds some
            of; `fragmented`: what is free but of no use to the usual jobs (FGD's measure): all in GPUs. The rows for
            all types also have the jobs, instances and GPUs that wait.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.simulate("builtin:200").timeline(every=86_400.0).columns[:3]
        ['time', 'gpu_type', 'gpus']
        """
        stopped = self.played.stopped
        if every is not None and not 0 < every < float("inf"):
            msg = f"a timeline needs a number of seconds above 0 between its points: {every}"
            raise WorkloadError(msg)
        if every is not None and stopped / every > MOST_POINTS:
            msg = f"a timeline has at most {MOST_POINTS:,} points, not: {stopped / every:,.0f}"
            raise WorkloadError(msg, hint=f"the run took {stopped:,.0f} s: take longer steps")
        times = np.linspace(0.0, stopped, POINTS + 1) if every is None else np.arange(0.0, stopped + every, every)
        return timeline(self.world, self.played, self.cluster, times if stopped else np.zeros(1))

    def waiting_over_time(self, edges: Floats) -> Floats:
        """Return the seconds that jobs waited from each edge of time to the next, by reason.

        Divided by the length of the interval that is the mean number of jobs that wait; over the whole run, the ledger.

        Parameters
        ----------
        edges
            Seconds, in ascending order.

        Returns
        -------
        numpy.ndarray
            Seconds by interval and reason.

        Examples
        --------
        >>> import fleetlab
        >>> fleetlab.simulate("builtin:200").waiting_over_time(np.array([0.0, 60.0, 120.0])).shape[0]
        2
        """
        world, mine = self.world, self.world.measured
        start, submitted = self.played.start[mine], world.submitted[mine]
        out = ledger_over_time(world, self.played, edges)
        ran = ~np.isnan(start)
        out[:, BY_START_UP] += seconds_between(start[ran], (start + world.latency[mine])[ran], edges)
        out[:, BY_ELIGIBLE] += seconds_between(submitted, submitted + self._not_eligible[mine], edges)
        return out

    @property
    def holdings(self) -> Holdings:
        """What runs held when, as tables that can be stored: usage between any edges of time follows from them."""
        return Holdings.of(self.world, self.played, self.cluster)

    def usage_over_time(self, edges: Floats) -> ClusterUsage:
        """Return what was up and what was allocated from each edge of time to the next, by GPU type.

        Parameters
        ----------
        edges
            Seconds, in ascending order.

        Returns
        -------
        ClusterUsage
            GPU-seconds by interval and type.

        Examples
        --------
        >>> import fleetlab
        >>> sorted(fleetlab.simulate("builtin:200").usage_over_time(np.array([0.0, 60.0])).types)[:2]
        ['MISC', 'P100']
        """
        return usage(self.world, self.played, self.cluster, edges)

    def cluster_timeline(self, most: int) -> TimelineFigure | None:
        """Return GPUs × time and the queue below it, as a picture of at most so many bytes; None without a GPU."""
        from fleetlab.sim.tiles.figure import Clock, figure, panels
        from fleetlab.sim.tiles.rows import main_reasons
        from fleetlab.sim.tiles.timeline import ClusterTimeline

        if not self.cluster.gpus or not self.played.stopped:
            return None
        timeline = ClusterTimeline.of(self.world, self.played, self.cluster, self.scenario)
        timeline.coloring["reason"] = main_reasons(self.world, self.ledger)
        return figure(timeline, self._policy, Clock.of(self.scenario), panels(self.world, self.played), most)

    @cached_property
    def _usage(self) -> ClusterUsage:
        """What was held, in blocks while jobs arrive, and in one piece after."""
        stopped = self.played.stopped
        arriving = min(float(self.world.submitted.max(initial=0.0)), stopped) or stopped
        edges = np.linspace(0.0, arriving, BLOCKS + 1)
        return self.usage_over_time(np.append(edges, stopped) if stopped > arriving else edges)

    # -- in short ----------------------------------------------------------------------------------------------------

    @cached_property
    def completed(self) -> pl.DataFrame:
        """The rows of `jobs` that completed, without those that were there when the log began: it tells no wait."""
        return self.jobs.filter((pl.col("status") == "done") & ~pl.col("initial"))

    @cached_property
    def recorded(self) -> pl.DataFrame:
        """Recorded and simulated waits of the jobs that have both, one row a job."""
        done = self.completed.select("job", simulated="wait")
        if self.scenario is None:
            return done.clear().with_columns(recorded=pl.lit(None, dtype=pl.Float64))
        waits = self.scenario.workload.frame.select("job", recorded=pl.col("start") - pl.col("submit"))
        return done.join(waits.filter(pl.col("recorded") >= 0), on="job", maintain_order="left")

    def blocks(self, jobs: pl.DataFrame) -> BlockBootstrap:
        """Return the blocks of time in which some of the jobs were submitted; the same for every run of this workload.

        Parameters
        ----------
        jobs
            Rows of `jobs`.

        Returns
        -------
        BlockBootstrap
            What intervals of their means are resampled by.

        Examples
        --------
        >>> import fleetlab
        >>> run = fleetlab.simulate("builtin:200")
        >>> type(run.blocks(run.jobs)).__name__
        'BlockBootstrap'
        """
        return blocks_of(jobs, 0.0, self._span)

    @cached_property
    def _span(self) -> float:
        """When the last job is submitted; one that is refused by some clusters counts, so that blocks are the same."""
        if self.scenario is None:
            return float(self.world.submitted.max(initial=0.0))
        return float(self.scenario.workload.frame["submit"].max() or 0.0)  # type: ignore[arg-type]

    @cached_property
    def _measures(self) -> Measures:
        """What is estimated of all jobs that completed."""
        return Measures(self.completed, self._usage, 0.0, self._span)

    @property
    def replicates(self) -> dict[str, Replicates]:
        """What the intervals of the summary come from; `paired_difference` compares two runs of the same jobs."""
        return self._measures.replicates

    @cached_property
    def _estimates(self) -> list[Estimate]:
        return [*self._measures.estimates(), *self._allocation(), *self._accounts()]

    def summary(self) -> list[Estimate]:
        """How jobs fared, how full the GPUs were, how fair, and what it cost; intervals are from blocks of time.

        Fairness is Jain's index over users of their mean bounded slowdown, its interval a bootstrap over users. Energy
        and cost are exact for the model of `Prices`.
        """
        return list(self._estimates)

    def _allocation(self) -> list[Estimate]:
        """Of the GPUs that are switched on, over the whole run, and how long that takes; both exactly."""
        there, allocated = (float(x.sum()) for x in self._usage.both)
        name = f"GPU allocation until {'the simulation stops' if self.unfinished else 'the last job ends'}"
        last = Estimate.exact("makespan (first submission to last end)", self.played.stopped, "s")
        share = [Estimate.exact(name, 100 * allocated / there, "%")] if there else []
        return share if self.unfinished else [*share, last]

    def allocation_by_type(self) -> dict[str, Interval]:
        """Return the share of each type's GPUs that is allocated while jobs arrive.

        Returns
        -------
        dict of Interval
            By GPU type; the interval is that of the summary.

        Examples
        --------
        >>> import fleetlab
        >>> sorted(fleetlab.simulate("builtin:200").allocation_by_type())[:2]
        ['MISC', 'P100']
        """
        there, allocated = (x[:BLOCKS].T for x in self._usage.both)
        blocks = BlockBootstrap.of_series(BLOCKS)
        both = zip(self._usage.types, allocated, there, strict=True)
        return {
            name: blocks.ratio(allocated_here, up, SHARE).interval() for name, allocated_here, up in both if up.any()
        }

    def _accounts(self) -> list[Estimate]:
        gpus = self.jobs["gpu_milli"].cast(pl.Int64) * self.jobs["instances"] / WHOLE
        wasted = float((self.jobs["lost"] * gpus).sum()) / HOUR
        completed, preempted = int((self.jobs["status"] == "done").sum()), int(self.jobs["preemptions"].sum())
        preempts = preempted or (self.scenario is not None and self.scenario.policy.preempts)
        return [
            *([Estimate.exact("preemptions", preempted)] if preempts else []),
            Estimate.exact("wasted GPU time", wasted, "GPU-h"),
            self.energy_kwh,
            self.cost,
            Estimate.exact("jobs completed", completed),
            *(
                [Estimate.exact("jobs not completed", uncompleted)]
                if (uncompleted := self.jobs.height - completed)
                else []
            ),
        ]

    @property
    def energy_kwh(self) -> Estimate:
        """What the site drew from the first submission to the end, by the model of `Prices`."""
        return Estimate.exact("energy", accounts.energy_kwh(self._usage.held(), self.prices), "kWh")

    @property
    def cost(self) -> Estimate:
        """What that cost, by the same model; in GPU-hours, where no price is given."""
        name = "GPU-hours of nodes that are up, cost at 1 per GPU-hour" if self.prices.unit == "GPU-h" else "cost"
        return Estimate.exact(name, accounts.cost(self._usage.held(), self.prices), self.prices.unit)

    def per_day(self) -> list[Estimate]:
        """Return GPU-hours, energy and cost per day while jobs arrive: what runs of different span can be compared by.

        Returns
        -------
        list of Estimate
            Exact by the model of `Prices`.

        Examples
        --------
        >>> import fleetlab
        >>> len(fleetlab.simulate("builtin:200").per_day()) > 0
        True
        """
        return per_day(self.usage_over_time(np.array([0.0, self._usage.edges[BLOCKS]])), self.prices)

    def _whole_tables(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        return {"jobs": lambda: self.jobs, "ledger": lambda: self.ledger, "holders": lambda: self.holders}

    def tables(self) -> dict[str, pl.DataFrame]:
        """Jobs by class, what they waited for, how full each GPU type was over time, and who was refused."""
        return {
            **job_classes.by_class(self.completed, self.blocks(self.completed)),
            "waiting": job_classes.waiting(self.ledger),
            f"waiting by {GPU_REQUEST}": job_classes.waiting_by_request(self.jobs, self.ledger),
            "allocation": self._by_type(),
            "timeline": self._coarse,
            "left out": job_classes.refusals(self.refused),
        }

    def figures(self) -> dict[str, Figure]:
        """How waits are spread, how full the GPUs were, how many waited when, and for what; what is nothing is not."""
        blocks, waiting = self.blocks(self.completed), job_classes.waiting(self.ledger)
        by_request = job_classes.by_class(self.completed, blocks)[f"by {GPU_REQUEST}"]
        return figures.figures(self.completed["wait"].to_numpy(), blocks, by_request, self._coarse, waiting)

    def _by_type(self) -> pl.DataFrame:
        """GPU-hours there and allocated over the whole run, and the share of them while jobs arrive, by GPU type."""
        there, allocated = self._usage.both
        return pl.DataFrame(
            {
                "GPU type": self._usage.types,
                "GPU-hours": there.sum(axis=0) / HOUR,
                "allocated": allocated.sum(axis=0) / HOUR,
                "share": _share(allocated.sum(axis=0), there.sum(axis=0)),
                "while jobs arrive": _share(allocated[:BLOCKS].sum(axis=0), there[:BLOCKS].sum(axis=0)),
            },
            schema_overrides={"GPU type": pl.String},
        )

    @cached_property
    def _coarse(self) -> pl.DataFrame:
        stopped = self.played.stopped
        times = np.linspace(0.0, stopped, FEW + 1) if stopped else np.zeros(1)
        return timeline(self.world, self.played, self.cluster, times).filter(pl.col("gpu_type") == ALL).drop("gpu_type")


def _share(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0))
