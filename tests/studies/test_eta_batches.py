"""Jobs of one batch run alike: what is drawn for them together, beside what theory says."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Trace, Workload
from fleetlab.studies.eta.batches import Survival, alike
from fleetlab.studies.eta.calibration import Asks, widened
from fleetlab.studies.eta.history import History
from fleetlab.studies.eta.run_times import RunTimes

SHARE, SPREAD, MEAN = 0.64, 1.0, 6.0  # of log run times
BATCHES, EACH = 150, 8
LATER = 60_000.0  # all old batches have ended


def history(*, newest=(), seed=3):
    """Old batches of one user, each a group of its own, then one of 20 jobs of which some have started long ago."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, np.sqrt(SHARE), BATCHES)[:, None]
    log = MEAN + SPREAD * (level + rng.normal(0, np.sqrt(1 - SHARE), (BATCHES, EACH)))
    old = np.arange(BATCHES * EACH, dtype=float)
    waiting = 20 - len(newest)
    submit = np.concatenate([old, np.full(20, LATER)])
    start = np.concatenate([old, np.full(len(newest), LATER), np.full(waiting, 1e9)])
    runtime = np.concatenate([np.exp(log).ravel(), newest, np.full(waiting, 1.0)])
    groups = [f"g{k // EACH}" for k in range(BATCHES * EACH)] + ["new"] * 20
    frame = pl.DataFrame({"submit": submit, "start": start, "runtime": runtime, "group": groups})
    frame = frame.with_columns(end=pl.col("start") + pl.col("runtime"), user=pl.lit("ada"), gpu_milli=pl.lit(1000))
    trace = Trace(Workload.of(frame, source="by hand"), fleetlab.Provenance("read", "by hand"), None)
    return History.of_log(trace), log


def drawn(past, at=LATER, draws=4000, rows=None):
    snapshot = past.at(at)
    rows = snapshot.waiting if rows is None else rows
    return np.log(RunTimes(past).known(snapshot).draw(rows, np.zeros(len(rows)), draws, np.random.default_rng(1)))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_the_share_between_batches_is_found(share):
    rng = np.random.default_rng(2)
    log = 5 + rng.normal(0, np.sqrt(share), 400)[:, None] + rng.normal(0, np.sqrt(1 - share), (400, 6))
    code, batch = np.repeat(np.arange(4), 600), np.repeat(np.arange(400), 6)
    shifted = log.ravel() + 3 * code  # classes differ, which is no difference between batches
    assert alike(np.exp(shifted), code, batch) == pytest.approx(share, abs=0.06)


def test_the_mean_of_a_new_batch_varies_as_its_share_says():
    past, log = history()
    found = drawn(past)
    spread = float(log.std())
    expected = spread**2 * (SHARE + (1 - SHARE) / 20)  # drawn one by one it would be 1/20
    assert found.mean(axis=0).var() == pytest.approx(expected, rel=0.25)
    assert found.std(axis=1) == pytest.approx(spread, rel=0.12)  # each job by itself is as its class
    assert found.mean() == pytest.approx(float(log.mean()), abs=0.12)


def test_jobs_of_a_batch_that_have_ended_tell_of_the_others():
    past, log = history(newest=np.exp(np.full(5, MEAN + 1.5)))
    found = drawn(past, at=LATER + 5000.0)
    weight = SHARE / (SHARE + (1 - SHARE) / 5)
    assert np.median(found) == pytest.approx(MEAN + weight * 1.5, abs=0.25)
    assert found.mean(axis=0).std() < 0.5 * float(log.std())


def test_jobs_of_a_batch_that_run_long_tell_of_the_others():
    past, log = history(newest=np.full(5, 1e6))
    found = drawn(past, at=LATER + float(np.exp(MEAN + 1.5)))
    assert np.median(found) > float(log.mean()) + 0.8


def test_what_a_job_is_drawn_to_run_does_not_depend_on_those_after_it():
    past, _ = history()
    waiting = past.at(LATER).waiting
    rows = np.append(waiting, np.arange(30))
    assert np.array_equal(drawn(past, rows=rows, draws=9)[:20], drawn(past, rows=waiting, draws=9))


def test_what_outlasts_all_that_ended_is_not_cut_at_the_longest():
    survival = Survival.of(np.array([10.0, 20.0, 40.0, 40.0]), np.array([True, True, False, False]))
    found = survival.runtime(np.array([[0.9, 0.6, 0.5, 0.25, 0.001]]), np.zeros(1))
    assert found.tolist() == [[10.0, 20.0, 20.0, 80.0, 800.0]]


@pytest.mark.parametrize("known", [25, 60])
def test_few_earlier_asks_are_enough_for_intervals_that_hold(known):
    rng, held = np.random.default_rng(7), np.zeros(2)
    for _ in range(1500):
        truth = 600 * np.exp(rng.normal(0.3, 0.8, known + 1))
        answer = 600 * np.exp(np.tile([-0.2, -0.1, 0.0, 0.1, 0.2], (known + 1, 1)))
        asks = Asks(np.arange(known) * 1e6, answer[:-1], truth[:-1])
        moved = widened(asks, 1e9, answer[-1])[0]
        held += [moved[low] <= truth[-1] <= moved[high] for low, high in ((1, 3), (0, 4))]
    assert held[0] / 1500 == pytest.approx(0.815, abs=0.035)
    assert held[1] / 1500 == pytest.approx(0.955, abs=0.025)
