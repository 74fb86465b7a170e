"""The run store: no partial records, an index that can be lost, and claims that end with their sweep."""

import json
import signal
import subprocess
import sys

import pytest

from fleetlab import FleetlabError, Scenario
from fleetlab.studies.sweep.cell_queue import claiming
from fleetlab.studies.sweep.plan import case_words
from fleetlab.studies.sweep.store import RunStore, search


def record(k, **words):
    words = dict(case_words(Scenario.of("builtin:500", **words)))
    cell = {"words": words, "source": "s", "resample": "none", "seed": k, "version": "0", "code": "c", "files": {}}
    return {"key": f"{k:032x}", "cell": cell, "metrics": {"mean wait": k / 3}, "units": {"mean wait": "s"},
            "schedule": "x", "made": {"engine": "local", "seconds": {"all": 0.1}}}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return RunStore.at(tmp_path / "store", create=True)


def test_what_was_put_comes_back_to_the_last_bit(store):
    store.put(record(1))
    assert store.get(record(1)["key"])["metrics"] == {"mean wait": 1 / 3}
    assert store.get(record(2)["key"]) is None


@pytest.mark.parametrize(
    "harm", [lambda text: "", lambda text: text[:-40], lambda text: text.replace("0.333", "0.334")]
)
def test_a_record_that_is_not_whole_is_not_there(store, harm):
    store.put(record(1))
    path = store.path(record(1)["key"])
    path.write_text(harm(path.read_text()))
    assert store.get(record(1)["key"]) is None
    assert search(store, {}) == []


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FleetlabError, match="not empty, and not a run store"):
        RunStore.at(tmp_path, create=True)
    with pytest.raises(FleetlabError, match="no run store"):
        RunStore.at(tmp_path)


def test_what_does_not_belong_into_a_store_is_passed_over(store):
    store.put(record(1))
    (store.folder / "cells" / "notes.txt").write_text("mine")
    assert len(search(store, {})) == 1


def test_a_store_that_takes_no_claims_is_refused(store):
    (store.folder / "claims").write_text("in the way")
    with pytest.raises(FleetlabError, match="cannot write into the run store"), claiming(store.folder):
        pass


@pytest.mark.parametrize("loss", ["gone", "garbage", "cut"])
def test_a_catalog_that_is_lost_is_made_from_the_files(store, loss):
    for k in range(20):
        store.put(record(k))
    before = search(store, {})
    path = store.folder / "catalog.sqlite"
    if loss == "gone":
        path.unlink()
    else:
        path.write_bytes(b"not a database" * 300 if loss == "garbage" else path.read_bytes()[:1500])
    assert search(store, {}) == before
    assert len(before) == 20


def test_the_catalog_says_what_the_files_say(store):
    store.put(record(1))
    store.put(record(2))
    assert len(search(store, {})) == 2
    store.path(record(1)["key"]).unlink()
    store.put(record(2) | {"failed": "killed"})
    (left,) = search(store, {})
    assert left["failed"] == "killed"


def test_cells_are_found_by_their_words(store):
    store.put(record(1, order="sjf"))
    store.put(record(2, order="fifo", preemption=True))
    filters = ({"order": "sjf"}, {"preemption": "true"}, {"load": "1"}, {"seed": "2"}, {"order": "no' OR 1=1"})
    seeds = [[r["cell"]["seed"] for r in search(store, where)] for where in filters]
    assert seeds == [[1], [2], [1, 2], [2], []]


def test_a_full_disk_leaves_what_was_there_and_nothing_half(store):
    store.put(record(1))
    # The system refuses files above a size, as it does on a disk that is full.
    code = """
import json, resource, sys
from fleetlab import FleetlabError, Scenario
from fleetlab.studies.sweep.store import RunStore
record = json.loads(sys.stdin.read())
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    RunStore.at(sys.argv[1]).put(record)
except FleetlabError as e:
    print(e, e.hint)
"""
    said = subprocess.run([sys.executable, "-c", code, store.folder], input=json.dumps(record(2)), text=True,
                          capture_output=True, check=True).stdout  # fmt: skip
    assert "cannot write into the run store" in said
    assert "finished cells are kept" in said
    assert [p.name for p in store.folder.rglob("cells/*/*")] == [f"{record(1)['key']}.json"]


# -- claims ----------------------------------------------------------------------------------------------------------


def test_of_two_sweeps_one_has_a_cell(store):
    with claiming(store.folder) as one, claiming(store.folder) as other:
        assert one.take("cell")
        assert not other.take("cell")
        one.drop("cell")
        assert other.take("cell")


def test_a_sweep_that_ends_leaves_nothing_behind(store):
    with claiming(store.folder) as one:
        one.take("cell")
    assert list((store.folder / "claims").iterdir()) == []


def test_the_claims_of_a_sweep_that_was_killed_do_not_count(store):
    code = """
import sys, time
from pathlib import Path
from fleetlab.studies.sweep.cell_queue import claiming
with claiming(Path(sys.argv[1])) as claims:
    print(claims.take("cell"), flush=True)
    time.sleep(600)
"""
    other = subprocess.Popen([sys.executable, "-c", code, store.folder], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    with claiming(store.folder) as mine:
        assert not mine.take("cell")
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
        assert mine.take("cell")
    with claiming(store.folder):
        left = {p.name for p in (store.folder / "claims").iterdir()}
    assert len(left - {"takeover.lock"}) == 1  # the lock of the one that lives: those of the dead are gone


def test_many_sweeps_at_once_share_cells_out_and_take_none_twice(store):
    code = """
import sys
from pathlib import Path
from fleetlab.studies.sweep.cell_queue import claiming
with claiming(Path(sys.argv[1])) as claims:
    sys.stdin.readline()
    print(" ".join(str(k) for k in range(300) if claims.take(str(k))), flush=True)
    sys.stdin.readline()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    sweeps = [subprocess.Popen([sys.executable, "-c", code, store.folder], **pipes) for _ in range(3)]
    for sweep in sweeps:
        sweep.stdin.write("go\n")
        sweep.stdin.flush()
    taken = [sweep.stdout.readline().split() for sweep in sweeps]
    for sweep in sweeps:
        sweep.communicate("end\n")
    assert sorted(int(k) for some in taken for k in some) == list(range(300))
