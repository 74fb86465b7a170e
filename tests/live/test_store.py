"""A store survives any kill, and holds each job once."""

import gzip
import os
import random
import signal
import time

import pytest

from fleetlab.core.errors import FleetlabError, TraceError
from fleetlab.core.sources import ENDED, PRESENT, RECORDED, Row, mark_of
from fleetlab.live.journal import Cursor, stored_rows
from fleetlab.live.store import MOST_SEGMENTS, Store


@pytest.fixture
def open_store(tmp_path):
    """Open the store of a folder, as often as a test does."""
    opened = []

    def again():
        opened.append(Store(tmp_path))
        return opened[-1]

    yield again
    for store in opened:
        store.close()


def row(key, rank=PRESENT, **data):
    return Row(str(key), rank, data or {"n": key}, mark_of(data or key))


def write(store, rows, at=None, missed=None):
    polls = store.cursor.polls + 1
    return store.write(
        rows, missed or {}, Cursor(begun=0.0, polled=polls if at is None else at, polls=polls, rows=store.cursor.rows)
    )


def kept(folder):
    return {stored.key: (stored.rank, stored.data) for stored in stored_rows(folder)[1]}


def test_what_was_written_is_there_after_opening_again(open_store, tmp_path):
    store = open_store()
    write(store, [row(1), row(2)])
    store.close()
    again = open_store()
    assert set(again.present()) == {"1", "2"}
    assert again.cursor.polls == 1


def test_a_row_that_has_not_changed_is_not_written_again(open_store, tmp_path):
    store = open_store()
    write(store, [row(1)])
    store.close()
    again = open_store()
    assert write(again, [row(1)]) == []
    assert [r.data for r in write(again, [row(1, state="other")])] == [{"state": "other"}]


def test_a_torn_last_line_is_dropped_and_written_again(open_store, tmp_path):
    store = open_store()
    write(store, [row(1)])
    write(store, [row(2)])
    store.close()
    journal = store.journal
    journal.write_bytes(journal.read_bytes()[:-40])  # within the row of job 2, or its end of poll
    again = open_store()
    write(again, [row(1), row(2)])
    assert set(kept(tmp_path)) == {"1", "2"}
    assert journal.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("cut", range(1, 140, 7))
def test_a_journal_cut_anywhere_opens(open_store, tmp_path, cut):
    store = open_store()
    write(store, [row(1)])
    write(store, [row(2), row(3)])
    store.close()
    journal = store.journal
    journal.write_bytes(journal.read_bytes()[:-cut])
    again = open_store()
    write(again, [row(1), row(2), row(3)])
    assert set(kept(tmp_path)) == {"1", "2", "3"}


def test_a_row_that_knows_more_replaces_one_that_knows_less_and_not_the_other_way(open_store, tmp_path):
    store = open_store()
    write(store, [row(1, RECORDED, end=5)])
    store.fold()
    write(store, [row(1, ENDED, end=4)])
    assert kept(tmp_path) == {"1": (RECORDED, {"end": 5})}


def test_a_row_that_accounting_fills_in_later_replaces_the_first(open_store, tmp_path):
    store = open_store()
    write(store, [row(1, RECORDED, end=5)])
    store.fold()
    store.close()
    again = open_store()
    assert write(again, [row(1, RECORDED, end=5)]) == []
    write(again, [row(1, RECORDED, end=5, gpus=8)])
    assert kept(tmp_path) == {"1": (RECORDED, {"end": 5, "gpus": 8})}


def test_a_job_that_is_written_again_long_after_is_still_one_job(open_store, tmp_path):
    store = open_store()
    write(store, [row(1, ENDED, end=4)], at=10.0)
    store.fold()
    write(store, [], at=1e6)
    store.fold()  # its key is forgotten
    assert [r.key for r in write(store, [row(1, RECORDED, end=5)], at=1e6 + 1)] == ["1"]
    store.fold()
    assert kept(tmp_path) == {"1": (RECORDED, {"end": 5})}


def test_two_watchers_on_one_folder_are_refused(open_store, tmp_path):
    store = open_store()
    with pytest.raises(FleetlabError, match=f"another watcher writes into .*: process {os.getpid()}"):
        open_store()
    store.close()
    open_store()


def test_files_stay_few_over_many_folds(open_store, tmp_path):
    store = open_store()
    for number in range(3 * MOST_SEGMENTS):
        write(store, [row(number, ENDED)])
        store.fold()
    assert len(list(tmp_path.glob("ended-*"))) <= MOST_SEGMENTS + 1
    assert len(kept(tmp_path)) == 3 * MOST_SEGMENTS


def test_memory_holds_what_is_there_and_what_ended_of_late(open_store, tmp_path):
    store = open_store()
    for number in range(200):
        write(store, [row(number, ENDED), row("there")], at=number * 3600.0)
        store.fold()
    assert len(store.jobs) < 10
    assert len(kept(tmp_path)) == 201


def test_jobs_that_ended_long_ago_are_forgotten_if_asked_to(open_store, tmp_path):
    store = open_store()
    for number in range(10):
        write(store, [row(number, ENDED)], at=number * 86_400.0)
        store.fold(keep=3 * 86_400.0)
    assert set(kept(tmp_path)) == {"6", "7", "8", "9"}


def test_a_full_disk_loses_nothing_and_the_next_write_has_it(open_store, tmp_path, monkeypatch):
    store = open_store()
    write(store, [row(1)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            write(store, [row(2)])
    assert set(kept(tmp_path)) == {"1"}
    write(store, [row(2)])
    assert set(kept(tmp_path)) == {"1", "2"}


def churn(folder, out):
    """Write jobs that come and end, fold often, and say after each poll up to where all is written."""
    store = Store(folder)
    number = store.cursor.polls
    while True:
        rows = [row(number, ENDED, end=number), row(number + 1), row(number + 2)]
        write(store, rows, at=float(number))
        os.write(out, b"%d\n" % number)
        number += 1
        if number % 7 == 0:
            store.fold()


def test_killed_at_any_moment_every_row_that_was_acknowledged_is_there_once(tmp_path):
    draws, acknowledged = random.Random(5), -1
    for _ in range(25):
        ours, its = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                churn(tmp_path, its)
            finally:
                os._exit(1)
        os.close(its)
        time.sleep(draws.uniform(0.005, 0.08))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(ours, "rb") as said:
            lines = said.read().split()
        acknowledged = int(lines[-1]) if lines else acknowledged
    rows = list(stored_rows(tmp_path)[1])
    ended = sorted(int(r.key) for r in rows if r.rank == ENDED)
    assert acknowledged > 20
    assert len(rows) == len({r.key for r in rows})
    assert ended[: acknowledged + 1] == list(range(acknowledged + 1))


@pytest.mark.parametrize(
    "damage",
    [b"", gzip.compress(b""), gzip.compress(b"R\t2\t1.000\t1\tm\t{}\n" * 3)],
    ids=["nothing", "no rows", "three rows"],  # bytes of gzip have the time of day in them
)
def test_a_file_of_ended_jobs_that_is_not_the_one_written_is_an_error_and_no_shorter_list(open_store, tmp_path, damage):
    store = open_store()
    write(store, [row(number, RECORDED) for number in range(9)])
    store.fold()
    assert len(kept(tmp_path)) == 9
    (tmp_path / store.snapshot.segments[0].name).write_bytes(damage)
    with pytest.raises(TraceError, match="damaged: it is not the file of 9 rows"):
        kept(tmp_path)


def test_a_damaged_file_is_not_joined_with_others(open_store, tmp_path):
    store = open_store()
    for number in range(MOST_SEGMENTS):
        write(store, [row(number, RECORDED)])
        store.fold()
    (tmp_path / store.snapshot.segments[0].name).write_bytes(b"")
    for number in (1000, 1001):
        write(store, [row(number, RECORDED)])
        store.fold()
    assert len(store.snapshot.segments) == MOST_SEGMENTS + 2


def test_a_journal_that_is_damaged_before_its_end_is_not_cut_off_there(open_store, tmp_path):
    store = open_store()
    write(store, [row(1), row(2), row(3)])
    store.close()
    data = bytearray(store.journal.read_bytes())
    data[2] = 9  # a tab more
    store.journal.write_bytes(data)
    with pytest.raises(TraceError, match="damaged in line 1"):
        open_store()
    with pytest.raises(TraceError, match="damaged in line 1"):
        kept(tmp_path)
    assert store.journal.read_bytes() == data


def test_nobody_else_may_read_a_store(open_store, tmp_path):
    (tmp_path / "cluster").write_text("slurm:lab\n")
    store = open_store()
    write(store, [row(1, RECORDED)])
    store.fold()
    assert tmp_path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "cluster").stat().st_mode & 0o077 == 0
