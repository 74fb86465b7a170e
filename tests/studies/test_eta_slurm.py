"""When a job starts on a real Slurm: running jobs are where the log saw them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fleetlab
from fleetlab import Scenario
from fleetlab.schedulers.slurm import play
from fleetlab.sim.simulate import play_scenario
from fleetlab.studies.eta.replay import ReplayStage
from fleetlab.studies.eta.run_times import RunTimes
from fleetlab.studies.eta.snapshot import History, ReplaySetup, replay_scenario, running_jobs

RUN = Path(__file__).parents[2] / "measurements" / "slurm" / "defaults-1.tar.gz"
AT = 200.0


@pytest.fixture(scope="module")
def present():
    trace = fleetlab.read(RUN, "slurm")
    history = History.of_log(trace)
    snapshot = history.at(AT)
    return ReplaySetup(Scenario.of(trace), snapshot, RunTimes(history).at(snapshot), 1, 0)


def test_running_jobs_are_bound_to_the_nodes_of_the_log(present):
    stage = ReplayStage.of(present, running_jobs(present), 60.0, np.array([0]))
    names = stage.scenario.cluster.frame["node"].to_list()
    nodes = present.snapshot.history.nodes
    shapes = stage.world.shapes[stage.world.shape[stage.where[: stage.jobs.running]]]
    may = [[names[n] for n in np.flatnonzero(stage.world.nodes.node_class & mask)] for mask in shapes.types]
    assert may == [sorted(nodes[row]) for row in running_jobs(present).rows.tolist()]


def test_the_backfill_loop_goes_on_from_its_last_cycle(present):
    site = replay_scenario(present, present.snapshot.history.frame[:5], None).scheduler
    cycles = present.snapshot.history.cycles
    last = float(cycles[cycles <= AT][-1]) - AT
    assert (last - site.boot) % site.backfill.interval == pytest.approx(0.0, abs=1e-6)


def test_all_replays_up_to_a_horizon_share_the_tables_of_their_jobs(present, monkeypatch):
    several = replace(present, replays=3)
    stage = ReplayStage.of(several, running_jobs(several), 60.0, np.arange(3))
    made, tables = [], play.tables
    monkeypatch.setattr(play, "tables", lambda *given: made.append(given) or tables(*given))
    for k in range(3):
        stage.starts_in(k)
    assert len(made) == 1


@pytest.mark.parametrize("name", ["defaults-1", "fair-1", "everything-1"])
def test_a_replay_by_tables_that_are_shared_starts_jobs_as_one_by_tables_of_its_own(name):
    trace = fleetlab.read(RUN.with_name(f"{name}.tar.gz"), "slurm")
    history = History.of_log(trace)
    snapshot = history.at(AT)
    setup = ReplaySetup(Scenario.of(trace), snapshot, RunTimes(history).at(snapshot), 2, 0)
    stage = ReplayStage.of(setup, running_jobs(setup), 120.0, np.arange(2))
    for k in range(2):
        jobs, shared, _ = stage.schedule(k)
        alone = play_scenario(replace(stage.scenario, seed=stage.seed + k), replace(jobs, origin=None), draws=1)
        np.testing.assert_array_equal(shared.start, alone.start)
        np.testing.assert_array_equal(shared.where, alone.where)
