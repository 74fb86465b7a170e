"""The jobs and nodes of a scenario, opened when they are needed."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleetlab.core.errors import TraceError
from fleetlab.core.events import Event
from fleetlab.core.plugins import registered
from fleetlab.core.progress import Progress, silent
from fleetlab.core.provenance import digest
from fleetlab.core.schedulers import scheduler_values
from fleetlab.core.word_spellings import fingerprint
from fleetlab.core.words import SHIPPED

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.censoring import RunTimes
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.trace import Trace
    from fleetlab.core.warm_up import Before
    from fleetlab.core.workload import Workload


def open_trace(name: str, progress: Progress = silent) -> Trace:
    """Open a trace that comes with the package, such as `sample` or `pai:2000`, the folder of a saved one, or a log."""
    from fleetlab.core.scenario import FILE, Scenario
    from fleetlab.core.trace import Trace

    if name.endswith(FILE):
        return Scenario.from_toml(name).open(progress).trace
    if name.split(":")[0] not in SHIPPED:
        if not Path(name).exists() or (Path(name) / "trace.json").exists():
            return Trace.load(name)
        (open_raw,) = registered("logs that are not saved as traces")
        return cast("Trace", open_raw(name, progress))
    (open_shipped,) = registered("shipped traces")
    return cast("Trace", open_shipped(name, progress))


class Data:
    """The jobs and nodes of a scenario, opened on first use and shared by its variations.

    It never changes: what is opened or computed on first use stays the same. `replace` returns another one.
    """

    def __init__(
        self,
        trace: Trace | Workload | str,
        cluster: Cluster | str | None = None,
        name: str | None = None,
        *,
        cluster_name: str | None = None,
        before: Before | None = None,
        node_events: tuple[Event, ...] | None = None,
        moved: bool = False,
    ) -> None:
        self.moved = moved  # its times are those of a replica already
        self._name = name or _name_of(trace)
        self._is_log = not hasattr(trace, "frame")
        self._cluster_name = cluster if isinstance(cluster, str) else cluster_name
        self._trace, self._cluster = trace, cluster
        self._before, self._node_events = before, node_events
        self._prepared = False
        self._predicted: pl.Series | None = None
        self._run_times: dict[tuple[str, int], RunTimes] = {}

    @property
    def name(self) -> str | None:
        """What opens the trace; None: it is in this process alone."""
        return self._name

    @property
    def is_log(self) -> bool:
        """Whether it is a trace, and not a workload made by hand."""
        return self._is_log

    @property
    def cluster_name(self) -> str | None:
        """The file of the cluster in place of that of the trace."""
        return self._cluster_name

    @property
    def before(self) -> Before | None:
        """What runs before the jobs, where the trace does not tell it."""
        return self._before

    def replace(self, *, before: Before | None, node_events: tuple[Event, ...] | None = None) -> Data:
        """Return the same jobs and nodes after other jobs, and with other events of nodes where they are given."""
        self.open()
        other = copy(self)
        for name in ("digests", "content"):
            other.__dict__.pop(name, None)
        other._before = before
        if node_events is not None:
            other._node_events = node_events
        return other

    def open(self, progress: Progress = silent) -> Trace:
        """Return the trace; a workload alone is one with nothing else in it."""
        from fleetlab.core.result import Provenance
        from fleetlab.core.trace import Trace
        from fleetlab.core.workload import Workload

        if isinstance(self._trace, str):
            self._trace = open_trace(self._trace, progress)
        elif isinstance(self._trace, Workload):
            self._trace = Trace(self._trace, Provenance("of", self._trace.source))
        if self._trace.scheduler is not None and not self._prepared:
            self._trace = self._trace.scheduler.prepare(self._trace)
        self._prepared = True
        return self._trace

    @property
    def is_open(self) -> bool:
        """Whether the trace is at hand."""
        return not isinstance(self._trace, str)

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster of the trace, or the one in its place."""
        from fleetlab.core.cluster import Cluster

        if isinstance(self._cluster, str):
            return Cluster.from_toml(self._cluster)
        cluster = self._cluster or self.open().cluster
        if cluster is None:
            msg = f"the trace has no cluster: {self.name or self.open().workload.source}"
            raise TraceError(msg, hint="cluster=FILE.toml gives it one: a TOML file of [[node]] entries")
        return cluster

    @property
    def node_events(self) -> tuple[Event, ...]:
        """What happened to nodes: as it was given, or where the log of a site tells it."""
        return self._logged_node_events if self._node_events is None else self._node_events

    @cached_property
    def _logged_node_events(self) -> tuple[Event, ...]:
        site = self.open().scheduler
        return () if site is None else site.node_events(self.open())

    def run_times(self, censored: str, seed: int) -> RunTimes:
        """The jobs of the whole log with the run times that it does not tell, which scenarios share."""
        from fleetlab.core.censoring import run_times

        if (censored, seed) not in self._run_times:
            self._run_times = {(censored, seed): run_times(self.open().workload, censored, seed)}
        return self._run_times[censored, seed]

    def as_logged(self, workload: Workload) -> Workload:
        """Return jobs of the log eligible when it saw their dependencies met, for who does not simulate those."""
        import polars as pl

        logged = self.open().series.get("eligible_logged")
        if logged is None:
            return workload
        eligible = logged.select("job", seen="eligible").collect()
        frame = workload.frame.join(eligible, on="job", how="left", maintain_order="left")
        return replace(workload, frame=frame.with_columns(eligible=pl.coalesce("seen", "eligible")).drop("seen"))

    @property
    def boosted(self) -> pl.Series:
        """Run times that trees predict from what the log had seen when each job was submitted."""
        return self.predict_run_times()

    def predict_run_times(self, progress: Progress = silent) -> pl.Series:
        """Fit those trees, which takes seconds, the first time."""
        if self._predicted is None:
            (fit,) = registered("predicted run times")
            self._predicted = cast("pl.Series", fit(self.open().workload, progress))
        return self._predicted

    @property
    def own_cluster(self) -> bool:
        """Whether the name of the trace does not tell the cluster."""
        return self.name is None or self._cluster is not None

    def with_cluster(self, cluster: Cluster | str | None) -> Data:
        """Return the same jobs on another cluster, after the same jobs before where those were given."""
        return Data(
            self._trace, cluster, self.name, before=self._before, node_events=self._node_events, moved=self.moved
        )

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells data without a name from others: digests of its content."""
        return self._digests(trace=self.name is None, cluster=self.cluster_name is None and self.own_cluster)

    @cached_property
    def content(self) -> dict[str, str]:
        """Digests of all content, also of what a name tells: files can change."""
        return self._digests(trace=True, cluster=self._cluster is not None or self.open().cluster is not None)

    def _digests(self, *, trace: bool, cluster: bool) -> dict[str, str]:
        digests = {}
        if trace:
            digests["trace"] = digest(self.open().workload.frame)
            if (site := self.open().scheduler) is not None:
                values = json.dumps(scheduler_values(site), sort_keys=True)
                code = fingerprint(site) if hasattr(site, "decides") else ""  # an object of the user
                digests["site"] = sha256((values + code).encode()).hexdigest()[:32]
        if cluster:
            digests["cluster"] = digest(self.cluster.frame)
        if self.before is not None:
            digests["before"] = digest(self.before.frame)
        if self._node_events:
            digests["node events"] = sha256(repr(self._node_events).encode()).hexdigest()[:32]
        return digests


def _name_of(trace: Trace | Workload | str) -> str | None:
    if isinstance(trace, str):
        return trace
    tables = getattr(trace, "scratch", None)  # a saved trace reads its large tables from its folder
    return str(tables.parent) if isinstance(tables, Path) else None
