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

Progress = Callable[[str, int, float], None]
LONG = ("gangs", "backfill")  # they take several times as long as the others
JOBS, HARDWARE = "jobs.arrow", "nodes.arrow"


@dataclass(frozen=True, slots=True, eq=False)
class Fared:
    """How jobs fared by one change: one wait for each that the run as it is had, nan where it could not run."""

    change: Change
    wait: Floats
    lacked: Mapping[str, float]  # waited seconds by what was scarce


def again(
    run: SimResult, case: Case, changes: Sequence[Change], *, seed: int, workers: int | None, progress: Progress
) -> list[Fared]:  # fmt: skip
    """Play every change: the jobs are those that ran, their arrivals the same."""
    ran = pl.col("job").is_in(run.ledger["job"].to_list()) if run.refused.height else pl.lit(value=True)
    # What was refused must not come in by a change: without a run time it is refused again.
    jobs = case.jobs.with_columns(runtime=pl.when(ran).then("runtime"))
    with TemporaryDirectory(prefix="fleetlab-") as name:
        folder = Path(name)
        jobs.write_ipc(folder / JOBS, compression="uncompressed")
        run.cluster.frame.write_ipc(folder / HARDWARE, compression="uncompressed")
        changes = sorted(changes, key=lambda c: c.name not in LONG)  # else one core waits for the other at the end
        calls = [{"folder": name, "name": c.name, "rules": dict(case.rules), "seed": seed} for c in changes]
        ended: list[int] = []

        def done(k: int) -> None:
            ended.append(k)
            progress("changes", len(ended), len(ended) / len(calls))

        count = crew(int(jobs["instances"].cast(pl.Int64).sum()), workers)
        found = play(f"{__name__}:one", calls, folder, workers=count, done=done)
    kept = run.ledger["job"].to_numpy()
    return [
        Fared(c, f["wait"][kept], dict(zip(f["reasons"].tolist(), f["lacked"].tolist(), strict=True)))
        for c, f in zip(changes, found, strict=True)
    ]


def one(folder: str, name: str, rules: Mapping[str, str], seed: int) -> dict[str, Any]:
    """Play one change: the wait of each job, nan where it could not run, and what was scarce."""
    jobs, nodes = (pl.read_ipc(Path(folder) / f) for f in (JOBS, HARDWARE))
    case = change(name, nodes, rules).make(Case(jobs, nodes, rules))
    asked, told = apart(case.jobs, case.rules)
    run = simulate(Workload.of(asked, source=name), Cluster.of(case.nodes, source=name), **told, seed=seed)
    ledger, at = run.ledger.drop("job"), run.ledger["job"].to_numpy()
    wait, rows = np.full(case.jobs.height, np.nan), np.arange(jobs.height)
    wait[at] = ledger.select(pl.sum_horizontal(pl.all())).to_series().to_numpy()
    if case.jobs.height != jobs.height:  # split: a job has waited until its last instance runs
        many = jobs["instances"].to_numpy()
        wait, rows = np.maximum.reduceat(wait, np.append(0, np.cumsum(many)[:-1])), np.repeat(rows, many)
    # By the kinds that jobs are of as it is: a change may make them alike.
    lacked = shortages(ledger, jobs.select("gpu_types", "gpu_milli")[rows[at]])
    return {"wait": wait, "reasons": np.array(list(lacked)), "lacked": np.array(list(lacked.values()))}
