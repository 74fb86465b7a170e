"""Run all cells of a study that the run store does not have, on the cores of this machine or on a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from fleetlab.core import Cluster, Progress, Words, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import silent
from fleetlab.studies.runner import Backend, Dispatcher, InProcess, Processes, code_version
from fleetlab.studies.sweep.cell import CellService
from fleetlab.studies.sweep.cell_queue import CellQueue, Claims, claiming
from fleetlab.studies.sweep.plan import CELL, StudyCell, SweepPlan, case_words
from fleetlab.studies.sweep.result import Effort, Measurements, Rounds, Sweep
from fleetlab.studies.sweep.runs import runs
from fleetlab.studies.sweep.store import Record, RunStore, records
from fleetlab.studies.sweep.study import SeedsLike, Study, StudyLike

ENGINES = ("local", "ray")
STORE, TABLE = Path("runs"), "cells.parquet"
MOST = {"local": 1024, "ray": 100_000}  # workers


def sweep(
    source: StudyLike,
    cluster: Cluster | None = None,
    *,
    seeds: SeedsLike | None = None,
    resample: str | None = None,
    against: Mapping[str, Any] | None = None,
    metrics: Sequence[str] | None = None,
    confidence: float | None = None,
    store: Path | str = STORE,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Sweep:
    """Simulate scenarios for several seeds, keep every finished cell, and compare the scenarios with a baseline.

    A cell is a scenario with a seed. Finished cells are kept, however the sweep ends: the same call runs the rest.

    Parameters
    ----------
    source
        A study file (`.toml`), a `Study`, scenarios as `Scenario.vary` returns them, or what a scenario is built from.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    seeds
        How many, which, or a table with `least`, `most` and `within`.
    resample
        How a seed changes the jobs: synthesize, blocks, nudge (the same jobs, as replicas are) or none (default:
        synthesize for a built-in trace, else blocks).
    against
        The words of the baseline, such as `{"order": "fifo"}`.
    metrics
        The metrics to compare.
    confidence
        The probability with which all intervals of differences hold (default: 0.95).
    store
        The folder of finished cells: several studies, and several sweeps at once, may share one.
    engine
        `local`, or `ray`.
    address
        The address of a Ray cluster.
    workers
        How many cells are run at once (default: one per core).
    progress
        Called as cells are done.

    Returns
    -------
    Sweep
        Means by scenario with intervals over seeds, and paired differences from the baseline.

    Raises
    ------
    WorkloadError
        If the study is not understood, or a word of `against` is not in it.

    Examples
    --------
    >>> import fleetlab
    >>> from tempfile import TemporaryDirectory
    >>> scenarios = fleetlab.Scenario.of("builtin:200", load=20).vary(order=["fifo", "sjf"])
    >>> with TemporaryDirectory() as folder:
    ...     fleetlab.sweep(scenarios, seeds=2, workers=1, store=folder)
    <Sweep study: 4 cells, 0 failed>
    """
    lookup("engine", engine, ENGINES, error=WorkloadError, hint="engine local, or engine ray with an address")
    if address is not None and engine != "ray":
        raise WorkloadError(f"only the engine ray has an address: {address}", hint="--engine ray --address HOST:PORT")
    if workers is not None and (isinstance(workers, bool) or not 1 <= workers <= MOST[engine]):
        msg = f"a number of workers is from 1 to {MOST[engine]:,}: {workers}"
        raise WorkloadError(msg, hint="leave it out to take one per core")
    study = Study.of(
        source, cluster, seeds=seeds, resample=resample, against=against, metrics=metrics, confidence=confidence,
        **words,
    )  # fmt: skip
    plan = SweepPlan.of(study, progress)
    if plan.local_only and engine == "ray":
        msg = "a scenario has a function or object that exists only in this process: Ray cannot run it"
        raise WorkloadError(msg, hint="put own policies into a module, and name them MODULE:NAME")
    run_store = RunStore.at(store, create=True)
    with ExitStack() as stack:
        claims = stack.enter_context(claiming(run_store.folder))
        state = SweepState(plan, Rounds.of(study), run_store, progress)
        queue = CellQueue(run_store, claims, plan.question, state.done, "inline" if plan.local_only else engine)

        def dispatcher(cells: int) -> Dispatcher:
            backend = _backend(plan, claims, engine, address, workers)
            started = stack.enter_context(Dispatcher(backend, code_version(CELL)))
            started.start(cells)
            plan.rehearse()
            return started

        result = state.run(queue, dispatcher, engine)
        if queue.seconds:
            # One table for other tools. The cells themselves are files of their own: a table would have to be written
            # again for each.
            runs(run_store.folder).export(run_store.folder / TABLE)
        return result


def _backend(plan: SweepPlan, claims: Claims, engine: str, address: str | None, workers: int | None) -> Backend:
    traces = {source.digest: source.trace for source in plan.sources.values()}
    if plan.local_only:
        return InProcess(CellService(traces, {}), code_version(CELL))
    service = CellService(traces, plan.texts)
    # With one thread for frames: sums must not depend on how many cores a machine has.
    if engine == "local":
        count = workers or len(os.sched_getaffinity(0))
        return Processes(service, count, folder=claims.tables(), modules=(CELL,), threads=1)
    from fleetlab.studies.runner.ray_cluster import RayCluster

    return RayCluster(service, address=address, workers=workers, modules=(CELL,), threads=1)


@dataclass(slots=True)
class SweepState:
    """A sweep under way."""

    plan: SweepPlan
    rounds: Rounds
    store: RunStore
    progress: Progress
    measurements: Measurements = field(default_factory=Measurements)
    keys: set[str] = field(default_factory=set)  # keys of the cells of all rounds so far
    finished: set[str] = field(default_factory=set)

    def run(self, queue: CellQueue, dispatcher: Callable[[int], Dispatcher], engine: str) -> Sweep:
        """Run round after round, until all intervals are narrow enough or there are no more seeds."""
        begin, workers = time.perf_counter(), None
        for look in range(1, len(self.plan.study.seeds.looks()) + 1):
            if missing := self._missing(look):
                workers = workers or dispatcher(len(missing))
                queue.add(missing)
                workers.run(queue)
            self.rounds.settle(look, self.measurements.values)
            if not self.rounds.open:
                break
        ready = workers.worker_seconds if workers else 0.0
        effort = Effort(engine, len(queue.seconds), sum(queue.seconds), ready, time.perf_counter() - begin)
        return Sweep.of(self.plan, self.rounds, self.measurements, effort)

    def _missing(self, look: int) -> list[StudyCell]:
        """Return the cells of a look without a result, or during which only workers died so far."""
        cells = [self.plan.cell(scenario, seed) for scenario, seed in self.rounds.cells(look)]
        missing = {cell.key: cell for cell in cells if cell.key not in self.finished}
        self.keys |= set(missing)
        for record in records(self.store, missing):
            if not record.get("died"):
                self.done(missing.pop(record["key"]), record)
        return list(missing.values())

    def done(self, cell: StudyCell, record: Record) -> None:
        """Take the record of a finished cell."""
        self.finished.add(cell.key)
        self.measurements.add(case_words(cell.scenario), cell.seed, record, self.plan.study)
        self.progress("simulating cells of the study", len(self.finished), len(self.finished) / len(self.keys))
