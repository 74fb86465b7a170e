"""A trace on disk: it comes back as it went, and what is damaged is said to be."""

import json
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import Cluster, FleetlabError, Provenance, Trace, TraceError, Workload
from fleetlab.core.trace import COUNTS, PLACEMENTS, REJECTS

NAME = st.none() | st.text(max_size=3)


def made(users: list[str | None] = ["u"], *, full: bool = True, source: str = "by hand") -> Trace:  # noqa: B006
    n = len(users)
    frame = pl.DataFrame({"submit": [float(k) for k in range(n)], "user": users}, schema_overrides={"user": pl.String})
    workload = Workload.of(frame, source=source, epoch=1.5e9, zone="Asia/Shanghai", notes=("a note",))
    if not full:
        return Trace(workload, Provenance("read", source))
    jobs = {"job": list(range(n)), "node": users, "worker": list(range(n))}
    return Trace(
        workload,
        Provenance("read", source, {"zero": 1.5}, seed=3),
        cluster=Cluster.uniform(2, 8),
        usage=pl.LazyFrame(jobs | {"gpu": [0.5] * n}),
        placements=pl.LazyFrame(jobs | {"status": users, "start": [None] * n, "end": [1.0] * n}, strict=False)
        .select(list(PLACEMENTS))
        .cast(PLACEMENTS),
        names=pl.LazyFrame({"job": list(range(n)), "name": users}),
        series={"duty": pl.LazyFrame({"time": [0.0, 1.0], "value": [1, 2]})},
        rejects=pl.DataFrame([("t", "f", 3, "why: 5")], schema=REJECTS, orient="row"),
        counts=pl.DataFrame([("t", n + 1, n, 1)], schema=COUNTS, orient="row"),
        notes=("one", "zwei é"),
    )


def contents(trace: Trace) -> list[object]:
    """All that a trace says, as plain values."""
    frames = [trace.workload.frame, trace.rejects, trace.counts]
    frames += [trace.cluster.frame] if trace.cluster else []
    lazy = [trace.usage, trace.placements, trace.names, *[trace.series[k] for k in sorted(trace.series)]]
    frames += [f.collect() for f in lazy if f is not None]
    w = trace.workload
    about = [w.source, w.epoch, w.zone, w.notes, trace.provenance, trace.notes, sorted(trace.series)]
    return [*about, *[(dict(f.schema), f.rows()) for f in frames]]


# -- there and back ----------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(users=st.lists(NAME, max_size=4), full=st.booleans())
def test_a_trace_comes_back_as_it_went(users, full, tmp_path):
    went = made(users, full=full)
    assert contents(Trace.load(went.save(tmp_path / "trace"))) == contents(went)


@pytest.mark.parametrize("name", ["run[1]", "a*b?", "x=1", "é ü", "~", "{a,b}", "%20"])
def test_a_folder_may_have_any_name(name, tmp_path):
    went = made()
    assert contents(Trace.load(went.save(tmp_path / name / name))) == contents(went)


def test_a_trace_may_be_saved_over_itself(tmp_path):
    went = made()
    folder = went.save(tmp_path / "trace")
    Trace.load(folder).save(folder)
    assert contents(Trace.load(folder)) == contents(went)


def test_a_trace_saved_over_where_it_came_from_can_still_be_read(tmp_path):
    folder = made().save(tmp_path / "trace")
    trace = Trace.load(folder)
    before = contents(trace)
    trace.save(folder)
    trace.save(folder)
    assert contents(trace) == before


def test_a_trace_that_is_replaced_leaves_nothing_behind(tmp_path):
    folder = made(["old"]).save(tmp_path / "trace")
    made(["new"]).save(folder)
    assert sorted(p.name[:7] for p in folder.iterdir()) == ["tables-", "trace.j"]


def test_reasons_are_counted_by_what_stands_before_the_value():
    rejects = [("t", "f", 1, "bad: 1"), ("t", "f", 2, "bad: 2: x"), ("t", "f", 3, "worse")]
    trace = Trace(
        made(full=False).workload,
        Provenance("read", "s"),
        rejects=pl.DataFrame(rejects, schema=REJECTS, orient="row"),
        counts=pl.DataFrame([("t", 3, 0, 3)], schema=COUNTS, orient="row"),
    )
    assert trace.tables()["rejects"].rows() == [("t", "bad", 2, "f:1"), ("t", "worse", 1, "f:3")]


def test_a_summary_can_be_had_of_nothing():
    assert {e.value for e in made([], full=False).summary()} == {0}


def test_its_tables_count_jobs_by_status_and_nodes_by_type():
    tables = made(["a", "b"]).tables()
    assert (tables["status"].rows(), tables["nodes"].row(0)[:3]) == ([("completed", 2, 2)], ("GPU", 2, 16))


# -- what is not ours --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["notes.txt", "trace.json", "tables-2020", "tables-2020/x", ".hidden", "tables-0123456789ab.csv"]
)
def test_a_folder_of_somebody_else_is_not_written_into(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"traceEvents": []}')
    with pytest.raises(FleetlabError, match="not empty, and not a saved trace"):
        made().save(tmp_path)
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == [name]


def test_what_somebody_put_beside_a_trace_stays(tmp_path):
    folder = made(["old"]).save(tmp_path / "trace")
    (folder / "tables-of-mine").mkdir()
    (folder / "tables-of-mine" / "x").write_text("mine")
    _aged(folder / "tables-of-mine")
    made(["new"]).save(folder)
    assert (folder / "tables-of-mine" / "x").read_text() == "mine"


def test_what_a_writer_killed_long_ago_left_is_swept(tmp_path):
    folder = made(["old"]).save(tmp_path / "trace")
    for name in ("tables-0123456789ab", "tables-ba9876543210"):
        (folder / name).mkdir()
    (folder / ".trace.json.01234567").write_text("{")
    _aged(folder / "tables-0123456789ab")
    _aged(folder / ".trace.json.01234567")
    made(["new"]).save(folder)
    left = {p.name for p in folder.iterdir()}
    # The younger one may belong to a writer that is still at work.
    assert ("tables-0123456789ab" in left, ".trace.json.01234567" in left, "tables-ba9876543210" in left) == (
        False,
        False,
        True,
    )


def _aged(path: Path) -> None:
    os.utime(path, (1e9, 1e9))


def test_a_first_save_that_was_killed_can_be_done_again(tmp_path):
    (tmp_path / "tables-0123456789ab").mkdir()
    (tmp_path / ".trace.json.01234567").write_text("{")
    went = made()
    assert contents(Trace.load(went.save(tmp_path))) == contents(went)


@pytest.mark.parametrize("name", ["file", "file/trace"])
def test_a_place_that_cannot_be_a_folder_is_refused(name, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FleetlabError) as refused:
        made().save(tmp_path / name)
    assert refused.value.hint


# -- damage ------------------------------------------------------------------------------------------------------

DAMAGED = ["", "{", "null", "[]", "5", "{}", '{"layout": 1}', '{"layout": 1, "folder": 5}', "[" * 100_000]


@pytest.mark.parametrize("text", [*DAMAGED, '{"layout": 1, "folder": "../x"}', '{"layout": 99}'], ids=lambda x: x[:30])
def test_a_damaged_trace_json_is_said_to_be(text, tmp_path):
    folder = made().save(tmp_path / "trace")
    (folder / "trace.json").write_text(text)
    with pytest.raises(TraceError) as refused:
        Trace.load(folder)
    assert refused.value.hint


@pytest.mark.parametrize("key", ["layout", "provenance", "workload", "cluster", "notes", "tables", "folder"])
@pytest.mark.parametrize("value", [None, 5, "text", [], [1], {"a": 1}], ids=str)
def test_one_wrong_value_in_trace_json_never_surprises(key, value, tmp_path):
    folder = made().save(tmp_path / "trace")
    about = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps(about | {key: value}))
    with suppress(TraceError):
        Trace.load(folder)


TABLES = ["workload", "rejects", "counts", "cluster", "usage", "placements", "names", "series.duty"]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "noise"])
def test_a_damaged_table_is_found_when_the_trace_is_opened(table, harm, tmp_path):
    folder = made().save(tmp_path / "trace")
    [path] = folder.glob(f"*/{table}.parquet")
    data = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "noise": bytes(range(256))}[harm])
    with pytest.raises(TraceError, match="damaged"):
        Trace.load(folder)


@pytest.mark.parametrize("table", ["workload", "rejects", "counts", "cluster"])
def test_a_table_of_other_columns_is_found_when_the_trace_is_opened(table, tmp_path):
    folder = made().save(tmp_path / "trace")
    [path] = folder.glob(f"*/{table}.parquet")
    pl.DataFrame({"x": [1]}).write_parquet(path)
    with pytest.raises(TraceError, match="damaged"):
        Trace.load(folder)


def test_counts_that_break_the_law_are_damage(tmp_path):
    folder = made().save(tmp_path / "trace")
    [path] = folder.glob("*/counts.parquet")
    written = sha256(path.read_bytes()).hexdigest()
    pl.read_parquet(path).with_columns(kept=pl.lit(99, pl.Int64)).write_parquet(path)
    about = folder / "trace.json"
    about.write_text(about.read_text("utf-8").replace(written, sha256(path.read_bytes()).hexdigest()), "utf-8")
    with pytest.raises(TraceError, match="rows lost"):
        Trace.load(folder)


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_where_no_trace_is_none_is_found(name, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match="no saved trace"):
        Trace.load(tmp_path / name)


@pytest.mark.parametrize("name", ["pai2020", "swf"])
def test_a_trace_saved_by_version_0_1_has_the_columns_of_today(name, fixtures, tmp_path):
    old = fleetlab.Trace.load(fixtures / "saved-0.1" / name)
    new = fleetlab.read(fixtures / name / "good", name)
    later = ("runtime_at_least", "initial")  # which version 0.1 did not have
    assert old.workload.frame.drop(later).equals(new.workload.frame.drop(later))
    assert old.workload.frame.columns == new.workload.frame.columns
    lazy = {
        "placements": (old.placements, new.placements),
        "usage": (old.usage, new.usage),
        "names": (old.names, new.names),
    }
    lazy |= {key: (old.series[key], new.series[key]) for key in new.series if key != "parents"}  # nor this series
    for key, (before, now) in lazy.items():
        if now is not None:
            columns = now.drop("role", strict=False).collect().columns  # nor this column of names
            assert before.collect().columns == columns, key
    assert fleetlab.Trace.load(old.save(tmp_path / "again")).workload.frame.equals(old.workload.frame)
