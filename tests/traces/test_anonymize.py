"""A trace that was anonymized has nothing left of its users, accounts and jobs, and schedules as it did."""

import json
from pathlib import Path

import polars as pl
import pytest

import fleetlab
from fleetlab.core import Trace
from fleetlab.core.schedulers import scheduler_values

PEOPLE = ["ann", "bob", "cyd", "dee", "eve", "fay", "gus", "hal"]
ACCOUNTS = ["vision", "lang", "ops", "train"]
SITES = Path(__file__).parents[3] / "shared" / "data" / "slurm-22.05"


def texts(folder):
    """Return all text of a saved trace: its JSON, and every cell of its tables."""
    found = [(folder / "trace.json").read_text()]
    for path in folder.rglob("*.parquet"):
        frame = pl.read_parquet(path)
        for name, kind in frame.schema.items():
            if kind == pl.List(pl.String):
                found += frame[name].explode().drop_nulls().to_list()
            elif not kind.is_numeric() and kind != pl.Boolean and not kind.is_nested():
                found += frame[name].cast(pl.String).drop_nulls().unique().to_list()
    return found


def left(folder, names):
    """Return the names that stand somewhere as a word of their own."""
    words = set()
    for text in texts(folder):
        words |= set("".join(c if c.isalnum() or c in "._" else " " for c in text).split())
    return sorted(words & set(names))


def test_nothing_is_left_of_users_accounts_and_names(tmp_path):
    trace = fleetlab.Scenario.of("sample").trace
    before = left(trace.save(tmp_path / "before"), [*PEOPLE, *ACCOUNTS, "lab"])
    assert before == sorted([*PEOPLE, *ACCOUNTS, "lab"])
    assert left(fleetlab.anonymize(trace).save(tmp_path / "after"), [*PEOPLE, *ACCOUNTS, "lab", "wrap"]) == []


@pytest.mark.data
def test_names_of_jobs_and_reservations_of_a_site_are_gone_too(tmp_path):
    trace = fleetlab.read(SITES / "site-B1", "slurm")
    named = [*PEOPLE, *ACCOUNTS[:3], "wrap", "course", "lab", "site"]
    assert left(fleetlab.anonymize(trace).save(tmp_path / "after"), named) == []


def test_all_that_schedules_is_as_it_was(tmp_path):
    trace = fleetlab.Scenario.of("sample").trace
    other = Trace.load(fleetlab.anonymize(trace).save(tmp_path / "after"))
    named = ["user", "queue", "app", "group", "reservation"]
    assert other.workload.frame.drop(named).equals(trace.workload.frame.drop(named))
    assert other.cluster.frame.equals(trace.cluster.frame)
    for name in named:  # who is the same is the same
        pairs = pl.DataFrame(
            {"a": trace.workload.frame[name].cast(pl.String), "b": other.workload.frame[name].cast(pl.String)}
        )
        assert pairs.n_unique() == pairs["a"].n_unique() == pairs["b"].n_unique()
    before, after = (json.dumps(scheduler_values(t.scheduler), default=str) for t in (trace, other))
    assert before.count("parent") == after.count("parent")
    queues, others = list(trace.scheduler.queues.values()), list(other.scheduler.queues.values())
    assert [q.shares for q in queues] == [q.shares for q in others]
    assert [q.user is None for q in queues] == [q.user is None for q in others]
    jobs = other.workload.frame.select(pl.col("queue", "user").cast(pl.String)).iter_rows()
    assert all(other.scheduler.queues.of(queue, user) is not None for queue, user in jobs)


def test_a_partition_called_as_an_account_is_renamed_with_it():
    jobs = pl.DataFrame({"submit": [0.0], "queue": ["physics"], "partitions": [["physics", "gpu"]]})
    trace = Trace(fleetlab.Workload.of(jobs, source="x"), fleetlab.core.Provenance("read", "/home/ann/x"))
    assert fleetlab.anonymize(trace).workload.frame["partitions"].to_list() == [["team-1", "gpu"]]
