"""Laws that hold for every format at the door."""

from itertools import permutations

import polars as pl
import pytest

import fleetlab
from fleetlab.core import FleetlabError, Trace, TraceError
from fleetlab.core.workload import SCHEMA
from fleetlab.traces import readers

# A table of one's own says nothing by itself: what its columns mean comes with it.
OPTIONS = {
    ("csv", "good"): {"map": {"submit": "`created at`", "start": "began", "end": "finished", "gpu_milli": "gpus*1000"}},
    ("csv", "bad"): {"map": {"gpu_milli": "gpus*1000"}},
}
FORMATS = sorted(readers())
KNOWN = sorted(set(readers()) - {"csv"})  # of which one can tell by a look


def read(path, format: str) -> Trace:
    return fleetlab.read(path, format, **OPTIONS.get((format, path.name), {}))


def contents(trace: Trace) -> list[object]:
    """All that a trace says, as plain values; where no order is promised, in one of ours."""
    w = trace.workload
    lazy = {"usage": trace.usage, "placements": trace.placements, "names": trace.names, **trace.series}
    frames = {name: frame.collect() for name, frame in lazy.items() if frame is not None}
    frames |= {"workload": w.frame, "rejects": trace.rejects, "counts": trace.counts}
    frames |= {"cluster": trace.cluster.frame} if trace.cluster else {}
    about = [w.source, w.epoch, w.zone, w.notes, trace.provenance, trace.notes]
    return [*about, *[(name, dict(f.schema), f.rows()) for name, f in sorted(frames.items())]]


def lawful(trace: Trace) -> None:
    """Rows in are rows out; every reject says where and why; the nouns are whole."""
    counts = {name: (rows, kept, rejected) for name, rows, kept, rejected in trace.counts.iter_rows()}
    assert all(rows == kept + rejected for rows, kept, rejected in counts.values())
    turned_away = dict(trace.rejects.group_by("table").len().iter_rows())
    assert turned_away == {name: rejected for name, (_, _, rejected) in counts.items() if rejected}
    assert trace.rejects.null_count().sum_horizontal().item() == 0
    assert trace.rejects.filter((pl.col("line") < 1) | (pl.col("reason") == "")).is_empty()
    assert dict(trace.workload.frame.schema) == SCHEMA
    running = trace.workload.frame.filter(pl.col("status").cast(pl.String).is_in(["running", "waiting"]))
    assert running["end"].null_count() == running.height
    assert trace.tables().keys() >= {"rows", "rejects", "status"}


@pytest.mark.parametrize("format", FORMATS)
def test_good_lines_are_all_kept(format, fixtures):
    trace = read(fixtures / format / "good", format)
    assert trace.rejects.is_empty()
    assert trace.counts["kept"].sum() > 0


@pytest.mark.parametrize("format", FORMATS)
def test_bad_lines_are_turned_away_and_the_others_kept(format, fixtures):
    assert read(fixtures / format / "bad", format).rejects.height > 0


@pytest.mark.parametrize("kind", ["good", "bad"])
@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_lost_at_the_door(format, kind, fixtures):
    lawful(read(fixtures / format / kind, format))


@pytest.mark.parametrize("kind", ["good", "bad"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_same_file_is_the_same_trace(format, kind, fixtures):
    path = fixtures / format / kind
    assert contents(read(path, format)) == contents(read(path, format))


@pytest.mark.parametrize("kind", ["good", "bad"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_trace_comes_back_from_disk_as_it_was_read(format, kind, fixtures, tmp_path):
    trace = read(fixtures / format / kind, format)
    assert contents(Trace.load(trace.save(tmp_path / "saved"))) == contents(trace)


@pytest.mark.parametrize("format", KNOWN)
def test_a_file_is_recognised_as_its_own_format(format, fixtures):
    fitting = [name for name, f in readers().items() if f.fits(fleetlab.traces.Peek(fixtures / format / "good"))]
    assert fitting == [format]


@pytest.mark.parametrize(("format", "asked"), list(permutations(KNOWN, 2)))
def test_a_file_read_as_another_format_is_refused_by_the_right_name(format, asked, fixtures):
    with pytest.raises(TraceError, match=format):
        read(fixtures / format / "good", asked)


NO_LOGS = [b"", b"\n", b"x", b"a,b\n1,2\n", b"\xff\xfe\x00", b"{}", b"[]", b"\x1f\x8b", b"\0" * 999]


@pytest.mark.parametrize("asked", FORMATS)
@pytest.mark.parametrize("text", NO_LOGS, ids=range(len(NO_LOGS)))
def test_a_file_that_is_no_log_at_all_makes_no_job(text, asked, tmp_path):
    (tmp_path / "file.csv").write_bytes(text)
    try:
        trace = read(tmp_path / "file.csv", asked)
    except FleetlabError:
        return
    # A format without a header cannot tell a wrong file from wrong lines: all of them are turned away.
    lawful(trace)
    assert len(trace.workload) == 0


@pytest.mark.parametrize("asked", FORMATS)
def test_an_empty_folder_and_a_missing_one_are_refused(asked, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(TraceError) as refused:
            read(path, asked)
        assert refused.value.hint


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_says_what_it_is(format):
    about = readers()[format]
    assert all([about.title, about.expects, about.licence, about.origin])


def test_a_format_that_is_not_there_is_refused_with_a_guess():
    with pytest.raises(TraceError, match="did you mean openb2023"):
        fleetlab.read(".", "openb2032")


@pytest.mark.parametrize("format", [name for name in FORMATS if "map" not in readers()[name].options])
def test_an_option_that_a_format_does_not_take_is_refused(format, fixtures):
    with pytest.raises(TraceError, match="has no option: map"):
        fleetlab.read(fixtures / format / "good", format, map={"submit": "x"})
