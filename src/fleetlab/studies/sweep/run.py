"""Play all cells of a study that the run store does not have, on this machine's cores or a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import WorkloadError
from fleetlab.studies.sweep import _catalogue
from fleetlab.studies.sweep._cases import Cell
from fleetlab.studies.sweep._claims import claiming
from fleetlab.studies.sweep._engine import Crew, Engine
from fleetlab.studies.sweep._local import Local
from fleetlab.studies.sweep._plan import Plan, folder_of
from fleetlab.studies.sweep._queue import Queue
from fleetlab.studies.sweep._rounds import Rounds, words_of
from fleetlab.studies.sweep._sources import share
from fleetlab.studies.sweep._store import Record, Store
from fleetlab.studies.sweep.listed import runs
from fleetlab.studies.sweep.result import Effort, Sweep, Told
from fleetlab.studies.sweep.study import Study

Progress = Callable[[str, int, float], None]
ENGINES = ("local", "ray")
STORE, TABLE = Path("runs"), "cells.parquet"
MOST = {"local": 1024, "ray": 100_000}  # workers


def sweep(
    study: Study | Path | str,
    *,
    store: Path | str = STORE,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Play every cell of a study that the store does not have, and say what all of them say together.

    `engine` is `local` or `ray`, `address` that of a Ray cluster, `workers` how many there are at once (one a core
    unless told). However it ends, finished cells are kept, and the same call goes on where it stopped.
    """
    told = study if isinstance(study, Study) else Study.read(study)
    if engine not in ENGINES or (address is not None and engine != "ray"):
        msg = f"no engine by that name: `{engine}`" if engine not in ENGINES else f"an address is Ray's: {address}"
        raise WorkloadError(msg, hint="--engine local, or --engine ray --address HOST:PORT")
    if workers is not None and (isinstance(workers, bool) or not 1 <= workers <= MOST[engine]):
        msg = f"a number of workers is from 1 to {MOST[engine]:,}: {workers}"
        raise WorkloadError(msg, hint="leave it out to take one for each core")
    speak: Progress = progress or (lambda *_: None)
    plan, kept = Plan.of(told, speak), Store.at(store, make=True)
    with ExitStack() as stack:
        claims = stack.enter_context(claiming(kept.folder))
        state = _State(plan, Rounds.of(told), kept, speak)
        queue = Queue(kept, claims, state.done)

        def hired(cells: int) -> Engine:
            made = stack.enter_context(Engine(_crew(plan, kept, engine, address, workers), plan.ask))
            made.begin(cells)
            plan.rehearse()
            return made

        found = state.played(queue, hired, engine)
        if queue.played:
            # One table for whoever reads stores with other tools. The cells themselves are files of their own, each
            # written whole: a table would have to be written anew for each.
            runs(kept.folder).export(kept.folder / TABLE)
        return found


def _crew(plan: Plan, store: Store, engine: str, address: str | None, workers: int | None) -> Crew:
    prepared = list(plan.prepared.values())
    if engine == "local":
        share(prepared, folder_of(store.folder))
        return Local(folder_of(store.folder), plan.texts, workers=workers)
    from fleetlab.studies.sweep._ray import Ray

    return Ray(prepared, plan.texts, address=address, workers=workers)


@dataclass(slots=True)
class _State:
    """A sweep under way: what is known by now, and no more of it than the result will say."""

    plan: Plan
    rounds: Rounds
    store: Store
    progress: Progress
    told: Told = field(default_factory=Told)
    wanted: set[str] = field(default_factory=set)  # cells that were asked for
    there: set[str] = field(default_factory=set)  # those whose record is there

    def played(self, queue: Queue, hired: Callable[[int], Engine], name: str) -> Sweep:
        """Play round after round, until everything is settled."""
        began, engine = time.perf_counter(), None
        for look in range(1, len(self.plan.study.seeds.looks()) + 1):
            if missing := self._missing(look):
                engine = engine or hired(len(missing))
                queue.add(missing)
                engine.run(queue)
            self.rounds.settle(look, self.told.found)
            if not self.rounds.open:
                break
        held = engine.held_now() if engine else 0.0
        effort = Effort(name, len(queue.played), sum(queue.played), held, time.perf_counter() - began)
        return Sweep.of(self.plan, self.rounds, self.told, effort)

    def _missing(self, look: int) -> list[Cell]:
        """The cells of a look that nobody has played yet, or that only killed workers so far."""
        cells = [self.plan.cell(case, seed) for case, seed in self.rounds.wanted(look)]
        fresh = {cell.key: cell for cell in cells if cell.key not in self.there}
        self.wanted |= set(fresh)
        for record in _catalogue.records(self.store, fresh):
            if not record.get("died"):
                self.done(fresh.pop(record["key"]), record)
        return list(fresh.values())

    def done(self, cell: Cell, record: Record) -> None:
        """A cell's record is there."""
        self.there.add(cell.key)
        self.told.add(words_of(cell.case), cell.seed, record, self.plan.study)
        self.progress("cells", len(self.there), len(self.there) / len(self.wanted))
