"""A scenario: a workload on a cluster under a policy. Every verb takes one.

The command line, a study file, the address of a page and the settings of a saved result are spellings of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from urllib.parse import urlencode

from fleetlab.core import events, toml
from fleetlab.core.addresses import beside, query_words
from fleetlab.core.catalog import ESTIMATES, SPEEDS
from fleetlab.core.cells import noun_cell, words_table
from fleetlab.core.data import Data
from fleetlab.core.errors import PolicyError, TraceError, WorkloadError
from fleetlab.core.events import Event
from fleetlab.core.names import clip, lookup
from fleetlab.core.policy import Policy, title
from fleetlab.core.prices import Prices
from fleetlab.core.progress import Progress, silent
from fleetlab.core.provenance import Provenance, digest
from fleetlab.core.schedulers import Feature, Scheduler
from fleetlab.core.site_change import SiteChange
from fleetlab.core.words import (
    BOOSTED,
    MIN_COVERAGE,
    POLICY,
    SITE,
    WORDS,
    Opaque,
    Words,
    check,
    exact,
    fingerprint,
    plain,
    policy_code,
    text,
)

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from fleetlab.core.censoring import RunTimes
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.coverage import Coverage
    from fleetlab.core.speed import Speed
    from fleetlab.core.trace import Trace
    from fleetlab.core.warm_up import Before
    from fleetlab.core.workload import Workload

FILE = ".toml"  # how the file of a scenario ends
OWN = (
    "nodes", "load", "latency", "events", "prices", "seed", "until", "window", "warm_up", "censored",
    "min_coverage",
)  # fmt: skip  # the words of a scenario itself
OF_JOBS = ("window", "warm_up", "min_coverage")
ALWAYS = ("order", "backfill", "placement", "estimate", "sharing")  # in `words`, whatever their value


@dataclass(frozen=True, eq=False, repr=False)
class Scenario:
    """A workload on a cluster under a policy; build one with `Scenario.of`.

    Parameters
    ----------
    data
        The jobs and nodes.
    policy
        How they are scheduled.
    nodes
        Nodes to add or remove: "T4 +20".
    load
        Arrival rate relative to the trace.
    latency
        Seconds that a job holds its GPUs before it runs; or by class several that are equally likely.
    events
        What happens to nodes: faults, outages, drains, spot reclaims, autoscaling.
    prices
        Power and cost.
    seed
        Random seed.
    until
        When the simulation stops, in seconds; None: after all jobs.
    window
        The jobs that are measured, by submission: "2d..5d".
    warm_up
        What runs before them.
    censored
        How long jobs of unknown runtime run.
    min_coverage
        The share of the GPU-hours without which there is no answer.
    replica
        Which nudge of the log it is; 0: the log as it is.

    Notes
    -----
    Each but `replica` is a word, with the values and the default that `fleetlab simulate --help` lists and
    `fleetlab.core.words.WORDS[name].help` returns.

    Examples
    --------
    >>> base = Scenario.of("builtin:2000", backfill="easy")
    >>> base.vary(order=["fifo", "sjf"], load=[1.0, 1.2])[-1]
    <Scenario builtin:2000: sjf/easy, load 1.2>
    """

    data: Data
    policy: Policy = field(default_factory=Policy)
    nodes: str = ""
    load: float = 1.0
    latency: float | Mapping[str, list[float]] = 0.0  # s, or by class several that are equally likely
    events: tuple[Event, ...] = ()
    prices: Prices | None = None
    seed: int = 0
    until: float | None = None
    window: str = ""
    warm_up: str = "auto"
    censored: str = "hold"
    min_coverage: float = MIN_COVERAGE
    replica: int = 0  # which nudge of the log: see `core.replicas`; 0: the log as it is

    @classmethod
    def of(cls, source: ScenarioLike, cluster: Cluster | str | Path | None = None, **words: Unpack[Words]) -> Scenario:
        """Build a scenario from a trace, a workload, or the name of a trace; or change one.

        Parameters
        ----------
        source
            A `Trace`, a `Workload`, the folder of a saved trace, `builtin[:JOBS[:SEED]]`, a `Scenario`, or the TOML
            file of one.
        cluster
            A `Cluster` or a TOML file in place of the cluster of the trace.
        **words
            The other words, as `fleetlab simulate --help` lists them: order, backfill, load and so on.

        Returns
        -------
        Scenario
            Its trace is opened when it is needed.

        Raises
        ------
        WorkloadError
            If the source is none of these, or a word is unknown.
        PolicyError
            If the value of a word of a policy is not understood.

        Examples
        --------
        >>> Scenario.of("builtin:2000", order="sjf", load=1.2)
        <Scenario builtin:2000: sjf/greedy, load 1.2>
        """
        changes: dict[str, Any] = dict(words)
        if cluster is not None:
            changes["cluster"] = cluster
        if isinstance(source, str | Path) and str(source).endswith(FILE):
            source = cls.from_toml(source)
        if isinstance(source, Scenario):
            return source.replace(**changes)
        if not isinstance(source, str | Path) and not hasattr(source, "frame") and not hasattr(source, "workload"):
            msg = f"not a scenario, a trace, a workload or the name of a trace: {clip(repr(source))}"
            raise WorkloadError(msg, hint="Trace.load(FOLDER), a folder, `builtin`, or a Workload and a Cluster")
        return cls(Data(str(source) if isinstance(source, Path) else source)).replace(**changes)

    def replace(self, **words: Any) -> Scenario:  # noqa: ANN401
        """Return the scenario with other values for some words, its policy's too; or with another `policy`.

        Parameters
        ----------
        **words
            The words to change.

        Returns
        -------
        Scenario
            The other scenario, of the same data; this one stays as it is.

        Raises
        ------
        WorkloadError
            If there is no such word, or its value is not understood.

        Examples
        --------
        >>> Scenario.of("builtin:2000").replace(order="sjf")
        <Scenario builtin:2000: sjf/greedy>
        """
        check(words, (*WORDS, "policy"))
        if isinstance(words.get("events"), str | Path) and not str(words["events"]).lstrip().startswith("["):
            words["events"], recovery = events.from_toml(words["events"])  # the file may have checkpoints too
            words = ({"recovery": recovery} if recovery else {}) | words
        changes: dict[str, Any] = {name: WORDS[name].read(words[name]) for name in OWN if name in words}
        if "trace" in words:
            source, cluster = WORDS["trace"].read(words["trace"]), self.data.cluster_name
            changes["data"] = Data(source, cluster)
        if "cluster" in words:
            changes["data"] = changes.get("data", self.data).with_cluster(WORDS["cluster"].read(words["cluster"]))
        policy = Policy.of(words.get("policy", self.policy), **{k: v for k, v in words.items() if k in POLICY})
        scenario = replace(self, policy=policy, **changes)
        if isinstance(policy.estimate, str) and policy.estimate not in (*ESTIMATES.names, BOOSTED):
            _ = scenario.estimate  # a series of the trace, or a mistake
        return scenario

    def vary(self, **axes: Iterable[Any]) -> tuple[Scenario, ...]:
        """Return every combination of the values of some words; the first has the first values.

        Parameters
        ----------
        **axes
            A list of values for each word.

        Returns
        -------
        tuple of Scenario
            Scenarios of the same data, ready for `compare` and `sweep`.

        Examples
        --------
        >>> [scenario.title for scenario in Scenario.of("builtin:2000").vary(order=["fifo", "sjf"])]
        ['fifo/greedy', 'sjf/greedy']
        """
        lists = [[values] if isinstance(values, str) else list(values) for values in axes.values()]
        return tuple(self.replace(**dict(zip(axes, values, strict=True))) for values in product(*lists))

    def on(self, workload: Workload, rows: NDArray[np.int64] | None = None) -> Scenario:
        """Return the scenario with other jobs, at load 1 and without a window.

        Parameters
        ----------
        workload
            The other jobs.
        rows
            Which rows of this scenario's jobs they are, where its estimate is a column.

        Returns
        -------
        Scenario
            The same cluster and policy.

        Examples
        --------
        >>> base = Scenario.of("builtin:200")
        >>> len(base.on(base.workload.head(10)).workload)
        10
        """
        estimate = self.estimate
        if not isinstance(estimate, str):
            measured = estimate.slice(self.first_row, len(self.workload))
            estimate = measured if rows is None else measured.gather(rows)
        stays = rows is None and self.before is not None and self.before.of_window
        before = self.before_with_estimate if stays else None  # what comes before the window
        # Run times are filled in: what is left without one stays so.
        policy = self.policy.replace(estimate=estimate, scheduler=self.scheduler or self.policy.scheduler)
        data = Data(
            workload, self.data.cluster, before=before, node_events=self.data.node_events if rows is None else (),
            moved=self.replica > 0,
        )  # fmt: skip
        return replace(self, data=data, policy=policy, load=1.0, window="", censored="drop")

    @property
    def before_with_estimate(self) -> Before | None:
        """What runs before the jobs, with its column of estimates where the scenario has one."""
        if self.before is None or self.before.estimate is not None or isinstance(self.estimate, str):
            return self.before
        return replace(self.before, estimate=self.estimate.gather(self.before.rows))

    def after(self, other: Scenario, *, node_events: tuple[Event, ...] | None = None) -> Scenario:
        """Return the scenario with what runs before another one of the same jobs.

        Parameters
        ----------
        other
            The other scenario.
        node_events
            What happened to nodes (default: what the log of this scenario tells).

        Returns
        -------
        Scenario
            The same jobs; this scenario stays as it is.

        Examples
        --------
        >>> base = Scenario.of("builtin:200", warm_up="none")
        >>> base.replace(order="sjf").after(base)
        <Scenario builtin:200: sjf/greedy>
        """
        return self.with_before(other.before_with_estimate, node_events=node_events)

    def with_before(self, before: Before | None, *, node_events: tuple[Event, ...] | None = None) -> Scenario:
        """Return the scenario with what runs before its jobs.

        Parameters
        ----------
        before
            Those jobs.
        node_events
            What happened to nodes (default: what the log of this scenario tells).

        Returns
        -------
        Scenario
            The same jobs; this scenario stays as it is.

        Examples
        --------
        >>> base = Scenario.of("builtin:200")
        >>> base.with_before(base.before).before is base.before
        True
        """
        return replace(self, data=self.data.replace(before=before, node_events=node_events))

    def bind(self, trace: Trace, cluster: Cluster | None = None) -> Scenario:
        """Return the same scenario, under the same names, with its data at hand.

        Parameters
        ----------
        trace
            The trace that its name stands for.
        cluster
            The cluster that its name stands for.

        Returns
        -------
        Scenario
            Nothing more is opened for it.

        Examples
        --------
        >>> base = Scenario.of("builtin:200")
        >>> base.bind(base.trace).data.is_open
        True
        """
        own = self.data
        data = Data(trace, cluster or own.cluster_name, own.name, cluster_name=own.cluster_name)
        return replace(self, data=data)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields: what was computed from them is computed again in another process."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    # -- what verbs take ---------------------------------------------------------------------------------------------

    def open(self, progress: Progress = silent) -> Scenario:
        """Open the trace now, reporting progress.

        Parameters
        ----------
        progress
            Called as the trace is read or made.

        Returns
        -------
        Scenario
            This scenario itself.

        Raises
        ------
        TraceError
            If the trace cannot be opened.

        Examples
        --------
        >>> Scenario.of("builtin:200").open().data.is_open
        True
        """
        self.data.open(progress)
        if isinstance(self.policy.estimate, str) and self.policy.estimate == BOOSTED:
            self.data.predict_run_times(progress)
        return self

    @property
    def trace(self) -> Trace:
        """The trace that the jobs are from."""
        return self.data.open()

    @cached_property
    def workload(self) -> Workload:
        """The jobs that are measured, at the load of the scenario, with the run times that the log does not tell."""
        return self.run_times.workload

    @cached_property
    def run_times(self) -> RunTimes:
        """The jobs that are measured, and where their run times are from."""
        from fleetlab.core.censoring import RunTimes

        log = self.data.run_times(self.censored, self.seed)
        if not self.honors(Feature.DEPENDENCIES):
            log = replace(log, workload=self.data.as_logged(log.workload))
        if self.window:
            jobs = log.workload.window(*self._window).at_load(self.load)
            part = slice(self.first_row, self.first_row + len(jobs))
            log = RunTimes(jobs, log.origin[part], log.log[part], "window")
        else:
            log = RunTimes(log.workload.at_load(self.load), log.origin, log.log)
        if self.replica and not self.data.moved:
            log = replace(log, workload=replace(log.workload, frame=self._moved(log.workload.frame)))
        if self.split_instances is None:
            return log
        rows = log.workload.instance_rows
        return RunTimes(log.workload.split_instances(), log.origin.gather(rows), log.log.gather(rows), log.of)

    def _moved(self, frame: pl.DataFrame) -> pl.DataFrame:
        from fleetlab.core import replicas

        return replicas.moved(frame, replicas.reach(self.trace.workload.frame) / self.load, self.seed)

    @cached_property
    def split_instances(self) -> NDArray[np.int64] | None:
        """The job of the log that each is of, where instances start on their own; None: none do."""
        if self.scheduler is None or Feature.GANGS in self.scheduler.honors:
            return None
        jobs = self.trace.workload
        if self.window:
            jobs = jobs.window(*self._window)
        return jobs.instance_rows if jobs.instances > len(jobs) else None

    @property
    def coverage(self) -> Coverage:
        """Which jobs and GPU-hours of the log have a run time."""
        from fleetlab.core.coverage import Coverage

        return Coverage.of(self.run_times)

    @cached_property
    def first_row(self) -> int:
        """The row of the trace's workload that is the first of this one."""
        begin, _ = self._window
        frame = self.trace.workload.frame
        return int(((frame["submit"] < begin) | frame["initial"]).sum()) if begin else 0

    @cached_property
    def scheduler(self) -> Scheduler | None:
        """The scheduler with rules of its own: the one given, or the trace's; None: the rules of the policy do."""
        option, own = self.policy.scheduler, self.trace.scheduler
        of_site = option == SITE or isinstance(option, SiteChange)
        if isinstance(option, Scheduler) and not of_site:
            return option if own is None else option.at(own)
        if of_site and own is None:
            msg = f"the trace does not tell how its cluster is configured: {self.trace.workload.source}"
            hint = "`fleetlab read` takes slurm.conf or a KubeSchedulerConfiguration beside the log; or scheduler=FILE"
            raise TraceError(msg, hint=hint)
        saves = own is not None and Feature.CHECKPOINTS in own.honors
        rules = replace(self.policy, recovery=None) if saves else self.policy  # what would replace its own
        if own is not None and of_site and rules != Policy(scheduler=option):
            others = ", ".join(name for name in rules.words() if name != "scheduler")
            msg = f"{own.title} as the site is configured takes no other words of a policy: {others}"
            raise PolicyError(msg, hint=f"leave them out; or leave scheduler=site out, and they replace {own.title}")
        if own is not None and isinstance(option, SiteChange):
            return option.change(own, self.data.cluster).scheduler
        as_configured = option == SITE or rules == Policy()
        return own if as_configured else None

    def honors(self, feature: Feature) -> bool:
        """Tell whether a scheduler with rules of its own schedules the jobs, and honors this.

        Parameters
        ----------
        feature
            What it may honor.

        Returns
        -------
        bool
            False also where the rules of a policy schedule.

        Examples
        --------
        >>> Scenario.of("builtin:200", scheduler="kai").honors(Feature.GANGS)
        True
        """
        return self.scheduler is not None and feature in self.scheduler.honors

    @property
    def node_events(self) -> tuple[Event, ...]:
        """The events of nodes: those given, or what the log tells of a site that is simulated as it is configured."""
        if self.events or not self.honors(Feature.NODE_EVENTS) or self.window or self.load != 1:
            return self.events
        there = set(self.cluster.frame["node"])
        return tuple(event for event in self.data.node_events if there.issuperset(getattr(event, "nodes", None) or ()))

    def by_job(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return a table of the trace with its jobs numbered as in the workload of the scenario.

        Parameters
        ----------
        table
            A table with a column `job`, such as `placements` of the trace.

        Returns
        -------
        polars.LazyFrame
            The rows of the scenario's jobs.

        Examples
        --------
        >>> import polars as pl
        >>> Scenario.of("builtin:200").by_job(pl.LazyFrame({"job": [3]})).collect().height
        1
        """
        import polars as pl

        job = pl.col("job") - self.first_row
        rows = self.split_instances
        last = len(self.workload) if rows is None else int(rows.max(initial=-1)) + 1
        own = table.with_columns(job=job).filter(pl.col("job").is_between(0, last - 1)) if self.window else table
        if rows is None:
            return own
        instances = pl.LazyFrame({"job": rows, "instance_job": range(len(rows))})
        return own.join(instances, on="job").with_columns(job="instance_job").drop("instance_job")

    @property
    def begin(self) -> float:
        """When the jobs that are measured begin, in seconds of the log at the load of the scenario."""
        return self._window[0] / self.load

    @property
    def _window(self) -> tuple[float, float]:
        begin, _, end = self.window.partition("..")
        return float(begin or 0), float(end or "inf")

    @cached_property
    def before(self) -> Before | None:
        """What runs before the jobs that are measured; None: nothing."""
        from fleetlab.core.durations import in_seconds
        from fleetlab.core.warm_up import jobs_before, repeated

        if self.data.before is not None:
            return self.data.before
        seconds = in_seconds(self.warm_up)
        if self.window and (self.warm_up == "auto" or seconds > 0):
            log = self.data.run_times(self.censored, self.seed).workload
            before = jobs_before(log, self._window[0], self.load, seconds if seconds > 0 else math.inf)
            return replace(before, frame=self._moved(before.frame)) if self.replica and before is not None else before
        if self.warm_up != "repeat" and not (self.warm_up == "auto" and self.trace.workload.synthetic):
            return None
        return repeated(self.workload, self.cluster, self.first_row, self.seed)

    @cached_property
    def cluster(self) -> Cluster:
        """The nodes, edits included."""
        from fleetlab.core.replicas import equal_nodes_reordered

        nodes = self.data.cluster.with_nodes(self.nodes)
        # Only events tell equal nodes apart; a scheduler with rules of its own has its own order of nodes.
        reorders = self.replica and self.events and self.scheduler is None
        return equal_nodes_reordered(nodes, self.seed) if reorders else nodes

    @cached_property
    def estimate(self) -> str | pl.Series:
        """The name of a built-in estimate, or a column of seconds, one per job."""
        name = self.policy.estimate
        if isinstance(name, str):
            return name if name in ESTIMATES else self._series(name)
        if len(name) != len(self.trace.workload):
            msg = f"an estimate has one value per job: {len(name):,} values for {len(self.trace.workload):,} jobs"
            raise PolicyError(msg, hint="null where nothing is known of a job: its true runtime is used")
        return name  # type: ignore[no-any-return]

    def _series(self, name: str) -> pl.Series:
        import polars as pl

        if name == BOOSTED:
            return self.data.boosted
        series = self.trace.series
        names = (*ESTIMATES.names, BOOSTED, *series)
        hint = f"choose from {', '.join(names)}; `requested` is in traces with walltime limits (read slurm, read swf)"
        lookup("estimate", name, names, hint=hint)
        table, job = series[name].collect(), self.trace.workload.frame.columns[0]
        if not {job, "seconds"} <= set(table.columns):
            msg = f"the series `{name}` has no seconds per job, but the columns: {table.columns}"
            raise TraceError(msg, hint=f"an estimate is a series with the columns {job} and seconds")
        jobs = self.trace.workload.frame.select(job)
        return jobs.join(table, on=job, how="left", maintain_order="left")["seconds"].cast(pl.Float64)

    @cached_property
    def speed(self) -> Speed | None:
        """The speed profile of the policy, where it names or has one."""
        from fleetlab.core.speed import Speed

        named = self.policy.speed
        if not isinstance(named, str):
            return named  # type: ignore[no-any-return]
        return Speed.named(named) if named in SPEEDS or not named.endswith(".json") else Speed.load(named)

    # -- names -------------------------------------------------------------------------------------------------------

    def changes(self) -> dict[str, Any]:
        """Return the words that differ from their defaults, without the trace and the cluster.

        Returns
        -------
        dict
            Plain values by word.

        Examples
        --------
        >>> Scenario.of("builtin:2000", load=1.2).changes()
        {'load': 1.2}
        """
        own = {name: v for name in OWN if (v := getattr(self, name)) != WORDS[name].default}
        return self.policy.words() | {name: plain(v) for name, v in own.items()}

    @property
    def title(self) -> str:
        """Its order and backfill, and what else differs from the defaults: for tables and legends.

        Which jobs are measured, and what comes before them, is said elsewhere.
        """
        cluster = {"cluster": self.data.cluster_name} if self.data.cluster_name else {}
        own = {name: value for name, value in self.changes().items() if name not in OF_JOBS}
        if self.data.is_open and self.scheduler is not None and own.get("scheduler", SITE) == SITE:
            own |= {"scheduler": self.scheduler.name}
        return title(own | cluster)

    def _repr_html_(self) -> str:
        words = {name: text(value) for name, value in self.words().items()}
        return noun_cell(repr(self).strip("<>"), {"words": words_table(words)})

    def __repr__(self) -> str:
        return f"<Scenario {self._source()}: {self.title}>"

    def _source(self) -> str:
        return self.data.name or self.trace.workload.source

    @cached_property
    def key(self) -> str:
        """A digest of everything that decides a result: the same for the same scenario, in every process."""
        words = self.changes() | {"trace": self.data.name, "cluster": self.data.cluster_name} | self.data.digests
        return self._digest_of(words | ({"replica": self.replica} if self.replica else {}))

    def _digest_of(self, words: dict[str, Any]) -> str:
        """Return a digest of words, and of all code of the user that they name."""
        for name, value in words.items():
            if isinstance(value, Opaque):
                value_of_policy = getattr(self.policy, name)
                words[name] = digest(value_of_policy.to_frame()) if name == "estimate" else fingerprint(value_of_policy)
            elif name in ("order", "placement", "scheduler") and (
                code := policy_code(name, getattr(self.policy, name))
            ):
                words[name] = [value, code]
        canonical = json.dumps(_numbers(words), sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode()).hexdigest()[:32]

    def provenance(self, verb: str, settings: Mapping[str, Any] | None = None) -> Provenance:
        """Return how a result of this scenario came to be.

        Parameters
        ----------
        verb
            What was called.
        settings
            What decided it (default: the words of the scenario).

        Returns
        -------
        Provenance
            With digests of the jobs, the nodes, and the policy with the code that it names.

        Examples
        --------
        >>> sorted(Scenario.of("builtin:200").provenance("simulate").digests)
        ['cluster', 'code', 'policy', 'trace']
        """
        settings = self.words() if settings is None else settings
        content = partial(_content, self.data, self._digest_of(self.policy.words()))
        return Provenance(verb, self.workload.source, settings, self.seed, content=content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    # -- spellings ---------------------------------------------------------------------------------------------------

    def words(self) -> dict[str, Any]:
        """Return the scenario as a flat table: the settings of a saved result.

        Returns
        -------
        dict
            Plain values by word; `of_words` reads them.

        Examples
        --------
        >>> Scenario.of("builtin:2000").words()["order"]
        'fifo'
        """
        data = self.data
        names = {"trace": data.name or Opaque(self.trace.workload.source)}
        if data.own_cluster:
            names["cluster"] = data.cluster_name or Opaque(data.cluster.source)
        usual = {name: plain(getattr(self.policy, name)) for name in ALWAYS}
        return names | usual | self.changes()

    def settings(self) -> dict[str, Any]:
        """Return the words that decided a run: where a scheduler has its own rules, those of the policy had no say.

        Returns
        -------
        dict
            Plain values by word.

        Examples
        --------
        >>> Scenario.of("builtin:200").settings()["backfill"]
        'greedy'
        """
        words = self.words()
        if self.scheduler is None:
            return words
        return {name: value for name, value in words.items() if name not in ALWAYS} | {
            "scheduler": words.get("scheduler", SITE)
        }

    @classmethod
    def of_words(cls, words: Mapping[str, Any]) -> Scenario:
        """Build a scenario from its words; undo `words`.

        Parameters
        ----------
        words
            Values by word, with the trace.

        Returns
        -------
        Scenario
            The scenario.

        Raises
        ------
        WorkloadError
            If there is no trace, or a word is unknown.

        Examples
        --------
        >>> Scenario.of_words({"trace": "builtin:2000", "order": "sjf"})
        <Scenario builtin:2000: sjf/greedy>
        """
        changes = dict(words)
        if not isinstance(trace := changes.pop("trace", None), str):
            msg = "a scenario needs a `trace`"
            raise WorkloadError(msg, hint="the folder of a saved trace, or builtin, builtin:JOBS, builtin:JOBS:SEED")
        return cls.of(trace, **changes)

    def to_toml(self) -> str:
        """Return the scenario as a TOML file.

        Returns
        -------
        str
            The words that differ from their defaults, one a line.

        Examples
        --------
        >>> print(Scenario.of("builtin:2000", order="sjf").to_toml().strip())
        trace = "builtin:2000"
        order = "sjf"
        """
        return toml.dumps(self._exact())

    @classmethod
    def from_toml(cls, path: Path | str) -> Scenario:
        """Read a TOML file of words; the files it names are looked for beside it.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Scenario
            The scenario.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or a word is unknown.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "mine.toml")
        ...     _ = file.write_text(Scenario.of("builtin:2000", order="sjf").to_toml())
        ...     Scenario.from_toml(file)
        <Scenario builtin:2000: sjf/greedy>
        """
        path = Path(path)
        words = toml.load(path, "the scenario", 'trace = "builtin:20000" on a line, then order = "sjf" and so on')
        return cls.of_words(beside(words, path.parent))

    def to_query(self) -> str:
        """Return the scenario as the query of an address.

        Returns
        -------
        str
            The words that differ from their defaults.

        Examples
        --------
        >>> Scenario.of("builtin:2000", order="sjf", load=1.2).to_query()
        'trace=builtin%3A2000&order=sjf&load=1.2'
        """
        return urlencode([(name, text(value)) for name, value in self._exact().items()])

    @classmethod
    def from_query(cls, query: str, *, trace: Trace | str | None = None, local: bool = True) -> Scenario:
        """Read the query of an address.

        Parameters
        ----------
        query
            What `to_query` wrote.
        trace
            The trace of a query that names none, or that may not open what it names.
        local
            False refuses what names files or code of this machine.

        Returns
        -------
        Scenario
            The scenario.

        Raises
        ------
        WorkloadError
            If a word is unknown, or names a file and may not.

        Examples
        --------
        >>> Scenario.from_query("trace=builtin%3A2000&order=sjf")
        <Scenario builtin:2000: sjf/greedy>
        """
        words = query_words(query, local=local, trace=trace is None)
        return cls.of_words(words) if trace is None else cls.of(trace, **words)

    def _exact(self) -> dict[str, Any]:
        words = self.words()
        return exact({k: v for k, v in words.items() if k not in ALWAYS or k in self.changes()})


ScenarioLike: TypeAlias = "Scenario | Trace | Workload | str | Path"


def _content(data: Data, policy: str) -> dict[str, str]:
    return data.content | {"policy": policy}


def _numbers(value: Any) -> Any:  # noqa: ANN401
    """Return plain values with every number as a float: 16 and 16.0 are the same."""
    if isinstance(value, Mapping):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    return float(value) if whole else value
