"""Nothing is lost: kill -9 to the sweep or its workers, a full disk, two sweeps at once; the results are the same."""

import os
import random
import signal
import time

import pytest

import fleetlab

from .conftest import records, saved, started, written

STUDY = """
trace = "trace"
load = [1.0, 1.5]
seeds = 4
order = ["fifo", "sjf", "smallest"]
backfill = ["greedy", "easy"]
"""
CELLS = 2 * 4 * 3 * 2


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A study, and the results of a sweep that nobody disturbed."""
    folder = tmp_path_factory.mktemp("kills")
    saved(folder / "trace", 1000)
    path = written(folder, STUDY)
    fleetlab.sweep(path, store=folder / "runs", workers=2)
    found = records(folder / "runs")
    assert len(found) == CELLS
    return path, found


def until(store, count, process):
    """Wait for so many cells."""
    while sum(1 for _ in store.glob("cells/*/*.json")) < count and process.poll() is None:
        time.sleep(0.02)


def workers(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:  # noqa: PTH123
        return [int(word) for word in f.read().split()]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.validate)])
def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_results(undisturbed, tmp_path, kills):
    path, wanted = undisturbed
    rng, store = random.Random(3), tmp_path / "runs"
    for _ in range(kills):
        sweep = started("sweep", path, "--store", store, "--workers", 2)
        until(store, min(len(records(store)) + rng.randrange(1, 2 * CELLS // 5 // kills), CELLS - 2), sweep)
        time.sleep(rng.random() * 0.05)
        left = workers(sweep.pid)
        sweep.kill()
        sweep.communicate()
        while any(alive(pid) for pid in left):  # they go with their parent
            time.sleep(0.02)
    assert kills <= len(records(store)) < CELLS
    fleetlab.sweep(path, store=store, workers=2)
    assert records(store) == wanted


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:  # noqa: PTH123
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_workers_that_are_killed_lose_no_cell(undisturbed, tmp_path):
    path, wanted = undisturbed
    store = tmp_path / "runs"
    sweep = started("sweep", path, "--store", store, "--workers", 2)
    for count in (5, 20, 35):
        until(store, count, sweep)
        os.kill(workers(sweep.pid)[0], signal.SIGKILL)
    said, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0
    assert "cells failed 0" in said
    assert records(store) == wanted


@pytest.mark.slow
def test_two_sweeps_over_one_store_share_the_work(undisturbed, tmp_path):
    path, wanted = undisturbed
    both = [started("sweep", path, "--store", tmp_path / "runs", "--workers", 1, "--json") for _ in range(2)]
    told = [
        fleetlab.SavedResult.from_json(__import__("json").loads(sweep.communicate(timeout=120)[0])) for sweep in both
    ]
    played = [{e.metric: e.value for e in one.summary()}["cells run now"] for one in told]
    assert sum(played) == CELLS
    assert min(played) > 0
    assert records(tmp_path / "runs") == wanted
    assert told[0].tables()["scenarios"].equals(told[1].tables()["scenarios"])


def test_a_full_disk_ends_the_sweep_and_the_next_one_goes_on(undisturbed, tmp_path):
    path, wanted = undisturbed
    store = tmp_path / "runs"

    def small_files():  # in the child: the system refuses files above a size, as it does on a disk that is full
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    fleetlab.sweep(
        fleetlab.Study.of_words({"trace": "trace", "seeds": [0]}, folder=path.parent), store=store, workers=1
    )
    (store / "catalog.sqlite").unlink()
    kept = records(store)
    sweep = started("sweep", path, "--store", store, "--workers", 1, preexec_fn=small_files)
    _, said = sweep.communicate(timeout=60)
    assert sweep.returncode == 2, said
    assert "error: cannot" in said
    assert "hint: look at free space" in said
    assert records(store) == kept
    assert list(store.glob("cells/*/.*")) == []
    assert kept.items() <= wanted.items()
