"""Saving under bad conditions: killed, on a full disk, by two at once. The old trace or the new one is there, whole."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from fleetlab.core import FleetlabError, Provenance, Trace, Workload
from fleetlab.core.files import atomic_write, may_write

SAVER = """
import itertools, sys
import polars as pl
from fleetlab.core import Provenance, Trace, Workload

folder, who, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for k in itertools.count(who) if len(sys.argv) < 5 else range(who, who + int(sys.argv[4])):
    frame = pl.DataFrame({"submit": [0.0] * rows, "priority": [k] * rows})
    usage = pl.LazyFrame({"k": [k] * rows})
    Trace(Workload.of(frame, source=str(k)), Provenance("read", str(k)), usage=usage).save(folder)
    print(k, flush=True)
"""


def saved(folder: Path, k: int, rows: int = 10) -> None:
    frame = pl.DataFrame({"submit": [0.0] * rows, "priority": [k] * rows})
    usage = pl.LazyFrame({"k": [k] * rows})
    Trace(Workload.of(frame, source=str(k)), Provenance("read", str(k)), usage=usage).save(folder)


def whole(folder: Path) -> int:
    """Which trace lies there; it must be one and the same through all its tables."""
    trace = Trace.load(folder)
    k = int(trace.workload.source)
    assert trace.workload.frame["priority"].unique().to_list() == [k]
    assert trace.usage.collect()["k"].unique().to_list() == [k]
    assert trace.provenance.source == str(k)
    return k


def saver(folder: Path, who: int, *more: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SAVER, str(folder), str(who), *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_save_killed_at_any_moment_leaves_the_old_trace_or_the_new_one(tmp_path):
    chance = random.Random(1)
    folders = [tmp_path / str(k) for k in range(4)]
    for folder in folders:
        saved(folder, 0)
    for _ in range(3):
        children = [saver(folder, 1, 20_000) for folder in folders]
        for child, folder in zip(children, folders, strict=True):
            first = child.stdout.readline()  # it is at work now: whatever moment comes is inside a save
            time.sleep(chance.uniform(0, 0.03))
            child.kill()
            with child:
                done = (first + child.stdout.read()).split()[-1]
            assert child.returncode == -signal.SIGKILL
            assert whole(folder) in (int(done), int(done) + 1)


def test_what_killed_saves_left_is_swept_a_day_later(tmp_path):
    folder = tmp_path / "trace"
    saved(folder, 0)
    for _ in range(3):
        child = saver(folder, 1, 200_000)
        time.sleep(1.0)
        child.kill()
        child.communicate()
    for path in folder.iterdir():
        os.utime(path, (1e9, 1e9))
    saved(folder, 99)
    saved(folder, 100)
    assert (whole(folder), len(list(folder.iterdir()))) == (100, 2)


LIMITED = """
import resource, signal, sys
import polars as pl
from fleetlab.core import FleetlabError, Provenance, Trace, Workload

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
frame = pl.DataFrame({"submit": [0.0] * 50_000}).with_columns(memory_mib=pl.int_range(pl.len()).hash() // 4)
try:
    Trace(Workload.of(frame, source="1"), Provenance("read", "1", {"long": "x" * 5000})).save(sys.argv[1])
except FleetlabError as e:
    print(e, e.hint)
"""


@pytest.mark.parametrize("limit", [0, 4_000, 100_000], ids=["nothing fits", "no table fits", "half a table fits"])
def test_a_full_disk_is_said_and_the_old_trace_stays(limit, tmp_path):
    folder = tmp_path / "trace"
    saved(folder, 7)
    before = sorted(p.name for p in folder.rglob("*"))
    run = [sys.executable, "-c", LIMITED, str(folder), str(limit)]
    child = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout.startswith("cannot save the trace in")) == (0, True), child.stderr
    assert (whole(folder), sorted(p.name for p in folder.rglob("*"))) == (7, before)


def test_two_who_save_at_once_leave_one_whole_trace(tmp_path):
    folder = tmp_path / "trace"
    pair = [saver(folder, who, 2_000, 20) for who in (1_000, 2_000)]
    said = [child.communicate(timeout=60) for child in pair]
    assert [child.returncode for child in pair] == [0, 0], said
    assert whole(folder) in (1_019, 2_019)


def test_who_opens_a_trace_that_is_being_replaced_gets_a_whole_one(tmp_path):
    folder = tmp_path / "trace"
    saved(folder, 0)
    child = saver(folder, 1, 100)
    try:
        child.stdout.readline()
        # The tables already in memory cannot be swept away; those still on disk may be.
        found = [Trace.load(folder).workload for _ in range(150)]
    finally:
        child.kill()
        child.communicate()
    assert all(w.frame["priority"].unique().to_list() == [int(w.source)] for w in found)


def test_trace_json_is_text_that_people_can_read(tmp_path):
    saved(tmp_path / "trace", 5)
    about = json.loads((tmp_path / "trace" / "trace.json").read_text("utf-8"))
    assert (about["layout"], about["provenance"]["source"]) == (4, "5")


@pytest.mark.parametrize("name", ["none/p.csv", "file/p.csv", "folder"])
def test_a_file_that_cannot_be_written_is_told_by_the_name_that_was_asked_for(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(FleetlabError, match=re.escape(str(tmp_path / name))):
        may_write(tmp_path / name)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as told:
        atomic_write(tmp_path / name, "text")
    assert told.value.filename == str(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("name", ["names", "workload", "counts", "rejects"])
def test_three_flipped_bytes_in_any_table_are_found(tmp_path, name):
    frame = pl.DataFrame({"submit": [0.0] * 50})
    names = pl.LazyFrame({"job": range(50), "name": [f"job-{k}" for k in range(50)]})
    folder = Trace(Workload.of(frame, source="x"), Provenance("read", "x"), names=names).save(tmp_path / "trace")
    table = next(folder.glob(f"tables-*/{name}.parquet"))
    data = bytearray(table.read_bytes())
    for at in (5, 9, 13):
        data[at] ^= 1
    table.write_bytes(data)
    with pytest.raises(FleetlabError, match=f"{name}.parquet is not the file that was written"):
        Trace.load(folder)
