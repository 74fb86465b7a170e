"""Seeds and nodes: a drawn log keeps hours and weekdays, edits add up, and packed tables come back as they were."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, WorkloadError
from fleetlab.studies.sweep._draw import redrawn
from fleetlab.studies.sweep._nodes import edited
from fleetlab.studies.sweep._packed import Packed

from .conftest import queue

DAY = 86_400.0
QUARTER = DAY / 4


def log(days, jobs=4000, seed=0):
    return np.sort(np.append(np.random.default_rng(seed).random(jobs - 2) * days * DAY, [0.0, days * DAY]))


@pytest.mark.parametrize("days", [3, 10.3, 30])
def test_a_drawn_job_comes_at_the_same_hour_of_a_day(days):
    submit = log(days)
    rows, at = redrawn(submit, seed=1)
    moved = (at - at[0] - (submit[rows] - submit[rows[0]])) / DAY
    assert np.abs(moved - np.round(moved)).max() < 1e-6
    assert (np.diff(at) >= 0).all()


def test_of_four_weeks_and_more_it_comes_on_the_same_weekday():
    submit = log(35)
    rows, at = redrawn(submit, seed=1)
    apart = np.round((at - at[0] - (submit[rows] - submit[rows[0]])) / DAY).astype(int)
    assert set(apart % 7) == {0}
    assert len(set(apart)) > 2


def test_what_is_drawn_are_whole_quarters_of_a_day():
    submit = log(8)
    rows, at = redrawn(submit, seed=4)
    at = at + submit[rows[0]] % QUARTER  # times count from the first submission again
    placement, source = (at // QUARTER).astype(int), (submit[rows] // QUARTER).astype(int)
    for quarter in range(31):
        (block,) = set(source[placement == quarter])
        assert (placement == quarter).sum() == (submit // QUARTER == block).sum()


def test_the_same_seed_draws_the_same_and_another_seed_another():
    submit = log(8)
    first, again, other = redrawn(submit, 1), redrawn(submit, 1), redrawn(submit, 2)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert len(first[0]) != len(other[0]) or (first[0] != other[0]).any()


def test_over_many_seeds_as_many_jobs_come_as_there_are():
    submit = log(10.5)
    counts = [len(redrawn(submit, seed)[0]) for seed in range(300)]
    assert np.mean(counts) == pytest.approx(len(submit), abs=4 * np.std(counts) / 300**0.5)
    assert np.std(counts) > 0


def test_a_log_of_one_instant_stays_as_it_is():
    rows, at = redrawn(np.zeros(3), seed=5)
    assert (rows.tolist(), at.tolist()) == ([0, 1, 2], [0.0, 0.0, 0.0])


# -- nodes -----------------------------------------------------------------------------------------------------------


def two_pools():
    frames = [Cluster.uniform(n, 8, gpu_type=t).frame.with_columns(node=pl.format("{}-{}", pl.lit(t), "node"))
              for t, n in (("V100", 6), ("T4", 3))]  # fmt: skip
    return Cluster.of(pl.concat(frames), source="two").frame


@pytest.mark.parametrize(
    ("words", "v100", "t4"),
    [
        ("as it is", 6, 3),
        ("T4 +2", 6, 5),
        ("V100 -50%", 3, 3),
        ("+3", 8, 4),
        ("-6", 2, 1),
        ("+10%", 7, 3),
        ("T4 +20, V100 -5", 1, 23),
        ("T4 +2, T4 +2", 6, 7),
        ("T4 +2, +50%", 9, 8),
    ],
)
def test_an_edit_adds_and_takes_away_as_it_says(words, v100, t4):
    found = edited(two_pools(), words)
    counts = dict(found.group_by("gpu_type").len().iter_rows())
    assert (counts["V100"], counts["T4"]) == (v100, t4)
    assert Cluster.of(found, source=words).gpus == 8 * (v100 + t4)


@pytest.mark.parametrize("words", ["", "T4", "T4 20", "+0.5", "P100 +1", "T4 -3", "+99999999999"])
def test_an_edit_that_cannot_be_is_refused(words):
    with pytest.raises(WorkloadError):
        edited(two_pools(), words)


# -- tables that workers share ---------------------------------------------------------------------------------------


def test_a_packed_workload_comes_back_as_it_was_and_is_mapped_not_copied(tmp_path):
    types = pl.Series([["V100"] if k % 3 else [] for k in range(50)], dtype=pl.List(pl.String))
    frame = queue(50).frame.with_columns(gpu_types=types, runtime=pl.when(pl.col("job") != 7).then("runtime"))
    packed = Packed.of(frame)
    packed.save(tmp_path / "t")
    again = Packed.mapped(tmp_path / "t")
    assert all(isinstance(values, np.memmap) for values in again.columns.values())
    assert again.frame().cast(dict(frame.schema)).equals(frame)
    assert again.frame(np.array([7, 3])).cast(dict(frame.schema)).equals(frame[[7, 3]])
    assert again.digest() == packed.digest() != Packed.of(frame.with_columns(pl.col("runtime") * 2)).digest()
