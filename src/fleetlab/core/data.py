"""The jobs and nodes of a scenario, opened when they are needed."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fleetlab.core.errors import TraceError
from fleetlab.core.events import Event
from fleetlab.core.progress import Progress, silent
from fleetlab.core.schedulers import scheduler_values
from fleetlab.core.words import BUILTIN

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.censoring import RunTimes
    from fleetlab.core.cluster import Cluster
    from fleetlab.core.trace import Trace
    from fleetlab.core.warm_up import Before
    from fleetlab.core.workload import Workload


def open_trace(name: str, progress: Progress = silent) -> Trace:
    """Open `builtin`, `builtin:JOBS`, `builtin:JOBS:SEED`, or the folder of a saved trace."""
    from fleetlab.core.scenario import FILE, Scenario
    from fleetlab.core.trace import Trace

    if name.endswith(FILE):
        return Scenario.from_toml(name).open(progress).trace
    if name.split(":")[0] != BUILTIN:
        return Trace.load(name)
    # The synthesizer is in another room, which this one may not import: it is called by name.
    made: Trace = import_module("fleetlab.traces.builtin").open_trace(name, progress)
    return made


class Data:
    """The jobs and nodes of a scenario, opened on first use and shared by its variations."""

    def __init__(
        self, trace: Trace | Workload | str, cluster: Cluster | str | None = None, name: str | None = None
    ) -> None:
        self.name = name or _name_of(trace)
        self.is_log = not hasattr(trace, "frame")  # and not a workload made by hand
        self.cluster_name = cluster if isinstance(cluster, str) else None
        self._trace, self._cluster = trace, cluster
        self._folded = False
        self._predicted: pl.Series | None = None
        self._run_times: dict[tuple[str, int], RunTimes] = {}
        self.before: Before | None = None  # what runs before the jobs, where the trace does not tell it

    def open(self, progress: Progress = silent) -> Trace:
        """Return the trace; a workload alone is one with nothing else in it."""
        from fleetlab.core.result import Provenance
        from fleetlab.core.trace import Trace
        from fleetlab.core.workload import Workload

        if isinstance(self._trace, str):
            self._trace = open_trace(self._trace, progress)
        elif isinstance(self._trace, Workload):
            self._trace = Trace(self._trace, Provenance("of", self._trace.source))
        if self._trace.slurm is not None and not self._folded:
            # The reader of Slurm's logs is in another room, which this one may not import: it is called by name.
            self._trace = cast("Trace", import_module("fleetlab.traces.slurm.attempts").folded(self._trace))
        self._folded = True
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
        found = self._cluster or self.open().cluster
        if found is None:
            msg = f"the trace has no cluster: {self.name or self.open().workload.source}"
            raise TraceError(msg, hint="cluster=FILE.toml gives it one: a TOML file of [[node]] entries")
        return found

    @cached_property
    def node_events(self) -> tuple[Event, ...]:
        """What happened to nodes, where the log of a site tells it."""
        if self.open().slurm is None:
            return ()
        events_of = import_module("fleetlab.traces.slurm.events").node_events
        return tuple(events_of(self.open()))

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
        seen = logged.select("job", seen="eligible").collect()
        frame = workload.frame.join(seen, on="job", how="left", maintain_order="left")
        return replace(workload, frame=frame.with_columns(eligible=pl.coalesce("seen", "eligible")).drop("seen"))

    @property
    def boosted(self) -> pl.Series:
        """Run times that trees predict from what the log had seen when each job was submitted."""
        return self.predict_run_times()

    def predict_run_times(self, progress: Progress = silent) -> pl.Series:
        """Fit those trees, which takes seconds, the first time."""
        if self._predicted is None:
            # In another room, which this one may not import: it is called by name.
            fit = import_module("fleetlab.sim.boosted_estimate").boosted_estimate
            self._predicted = cast("pl.Series", fit(self.open().workload, progress))
        return self._predicted

    @property
    def own_cluster(self) -> bool:
        """Whether the name of the trace does not tell the cluster."""
        return self.name is None or self._cluster is not None

    def with_cluster(self, cluster: Cluster | str | None) -> Data:
        """Return the same jobs on another cluster."""
        return Data(self._trace, cluster, self.name)

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells data without a name from others: digests of its content."""
        found = {}
        if self.name is None:
            found["trace"] = digest(self.open().workload.frame)
            if (site := self.open().scheduler) is not None:
                found["site"] = sha256(json.dumps(scheduler_values(site), sort_keys=True).encode()).hexdigest()[:32]
        if self.cluster_name is None and self.own_cluster:
            found["cluster"] = digest(self.cluster.frame)
        return found


def _name_of(trace: Trace | Workload | str) -> str | None:
    if isinstance(trace, str):
        return trace
    tables = getattr(trace, "scratch", None)  # a saved trace reads its large tables from its folder
    return str(tables.parent) if isinstance(tables, Path) else None


def digest(frame: pl.DataFrame) -> str:
    """Return what tells a table from others."""
    import polars as pl

    # The codes of categories depend on what was read before: text does not.
    plain_frame = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rechunk()
    buffer = BytesIO()
    plain_frame.write_ipc(buffer, compression="uncompressed")
    return sha256(buffer.getvalue()).hexdigest()[:32]
