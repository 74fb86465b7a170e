"""Intervals over a few replicas cover the mean of many, and verdicts do not have the wrong sign."""

import numpy as np
import pytest

import fleetlab
from fleetlab.core import Scenario
from fleetlab.stats import BETTER, WORSE, over_replicas, verdict
from fleetlab.studies.compare import compare

from .coverage_worlds import PHILLY, WORLDS, gangs, judged, measured, of_words, small

REPLICAS = 200
ORDERS = of_words({}, {"order": "smallest"}, {"backfill": "easy"})


@pytest.fixture(scope="module")
def busy():
    base = gangs(0.9, jobs=500)
    return base, measured(base, ORDERS, range(1, 61))


@pytest.mark.parametrize("count", [5, 10, None])
def test_intervals_of_few_replicas_cover_the_mean_of_sixty(busy, count):
    for row in judged(busy[1], count=count):
        assert row["covered"] > 0.88
        assert row["wrong"] < 0.025


def test_what_compare_says_is_what_its_replicas_give(busy):
    base, waits = busy
    found = compare(base, policies=["fifo", "smallest", "fifo/easy"], replicas=5, workers=0)
    rows = found.tables()["policies"]
    assert rows["mean wait"].to_list() == pytest.approx(waits[:, :5].mean(axis=1).tolist())


@pytest.mark.validate
@pytest.mark.parametrize("name", WORLDS)
def test_nominal_95_percent_cover_90_to_98_and_wrong_signs_are_rare(name):
    if name.startswith("Philly") and not PHILLY.is_file():
        pytest.skip("needs the submissions of Philly")
    base, changes = WORLDS[name]()
    count = REPLICAS if len(base.trace.workload) <= 10_000 else 60
    rows = judged(measured(base, changes, range(1, count + 1)), draws=2000)
    two_outcomes = ["sharing"] if name == "the same, --warm-up none" else []  # five replicas may all have the same one
    for change, row in zip(changes, rows, strict=True):
        assert (0.8 if change in two_outcomes else 0.895) <= row["covered"] <= 0.99
        assert row["wrong"] < 0.025


def of_logs_like_it(logs, jobs, load=0.9):
    """Return the waits in five replicas of each of some logs, drawn again from it, and those of the log as it is."""
    bases = [gangs(load, jobs=jobs, seed=seed) for seed in range(logs)]
    drawn = [measured(base, ORDERS, range(1, 6), "like") for base in bases]
    return drawn, np.hstack([measured(base, ORDERS, range(1)) for base in bases])


def check_that_logs_are_covered(drawn, truth, least):
    for change in range(len(truth)):
        values = [x[change] - (x[0] if change else 0.0) for x in drawn]
        right = (truth[change] - (truth[0] if change else 0.0)).mean()
        within = (-np.inf if change else 0.0, np.inf)
        intervals = [over_replicas(x, within, resampled=True).interval() for x in values]
        assert np.mean([low <= right <= high for _, low, high in intervals]) >= least
        wrong = BETTER if right > 0 else WORSE
        verdicts = [verdict(x, level[0].mean(), resampled=True) for x, level in zip(values, drawn, strict=True)]
        assert not change or np.mean([said == wrong for said in verdicts]) < 0.025


def test_intervals_of_logs_like_it_cover_the_mean_of_other_logs():
    check_that_logs_are_covered(*of_logs_like_it(24, jobs=400, load=1.1), least=0.8)


@pytest.mark.validate
def test_intervals_of_logs_like_it_cover_the_mean_of_200_other_logs():
    check_that_logs_are_covered(*of_logs_like_it(200, jobs=2000), least=0.9)


@pytest.mark.validate
def test_the_example_of_the_guide_ranks_alike_for_20_seeds_or_decides_nothing():
    changes = ["types", "cpu", "memory", "fragmentation"]
    firsts = set()
    for seed in range(20):
        base = Scenario.of("builtin:2000", small(), seed=seed)
        table = fleetlab.diagnose(base, changes=changes, workers=0).tables()["changes"]
        firsts |= {row["change"] for row in table.iter_rows(named=True) if row["P(first)"] >= 0.975}
    assert len(firsts) <= 1
