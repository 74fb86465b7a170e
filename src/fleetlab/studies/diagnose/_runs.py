"""The run as it is, and each change played again with the same arrivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.sim import SimResult, simulate
from fleetlab.studies._blocks import Floats
from fleetlab.studies._crew import crew, play
from fleetlab.studies.believed import apart
from fleetlab.studies.diagnose._changes import Case, Change, change
from fleetlab.studies.diagnose._ledger import shortages

Tell = Callable[[str, int, float], None]
LONG = ("gangs", "backfill")  # they take several times as long as the others
TASKS, HARDWARE = "tasks.arrow", "nodes.arrow"


@dataclass(frozen=True, slots=True, eq=False)
class Fared:
    """How tasks fared by one change: one wait for each that the run as it is had, nan where it could not run."""

    change: Change
    wait: Floats
    lacked: Mapping[str, float]  # waited seconds by what was scarce


def again(
    run: SimResult, case: Case, changes: Sequence[Change], *, seed: int, workers: int | None, tell: Tell
) -> list[Fared]:  # fmt: skip
    """Play every change: the tasks are those that ran, their arrivals the same."""
    ran = pl.col("task").is_in(run.ledger["task"].to_list()) if run.refused.height else pl.lit(value=True)
    # What was refused must not come in by a change: without a run time it is refused again.
    tasks = case.tasks.with_columns(service=pl.when(ran).then("service"))
    with TemporaryDirectory(prefix="fleetlab-") as name:
        folder = Path(name)
        tasks.write_ipc(folder / TASKS, compression="uncompressed")
        run.cluster.frame.write_ipc(folder / HARDWARE, compression="uncompressed")
        changes = sorted(changes, key=lambda c: c.name not in LONG)  # else one core waits for the other at the end
        jobs = [{"folder": name, "name": c.name, "rules": dict(case.rules), "seed": seed} for c in changes]
        ended: list[int] = []

        def done(k: int) -> None:
            ended.append(k)
            tell("changes", len(ended), len(ended) / len(jobs))

        count = crew(int(tasks["instances"].cast(pl.Int64).sum()), workers)
        found = play(f"{__name__}:one", jobs, folder, workers=count, done=done)
    kept = run.ledger["task"].to_numpy()
    return [
        Fared(c, f["wait"][kept], dict(zip(f["reasons"].tolist(), f["lacked"].tolist(), strict=True)))
        for c, f in zip(changes, found, strict=True)
    ]


def one(folder: str, name: str, rules: Mapping[str, str], seed: int) -> dict[str, Any]:
    """Play one change: the wait of each task, nan where it could not run, and what was scarce."""
    tasks, nodes = (pl.read_ipc(Path(folder) / f) for f in (TASKS, HARDWARE))
    case = change(name, nodes, rules).make(Case(tasks, nodes, rules))
    asked, told = apart(case.tasks, case.rules)
    run = simulate(Workload.of(asked, source=name), Cluster.of(case.nodes, source=name), **told, seed=seed)
    ledger, at = run.ledger.drop("task"), run.ledger["task"].to_numpy()
    wait, rows = np.full(case.tasks.height, np.nan), np.arange(tasks.height)
    wait[at] = ledger.select(pl.sum_horizontal(pl.all())).to_series().to_numpy()
    if case.tasks.height != tasks.height:  # split: a task has waited until its last instance runs
        many = tasks["instances"].to_numpy()
        wait, rows = np.maximum.reduceat(wait, np.append(0, np.cumsum(many)[:-1])), np.repeat(rows, many)
    # By the kinds that tasks are of as it is: a change may make them alike.
    lacked = shortages(ledger, tasks.select("gpu_types", "gpu_milli")[rows[at]])
    return {"wait": wait, "reasons": np.array(list(lacked)), "lacked": np.array(list(lacked.values()))}
