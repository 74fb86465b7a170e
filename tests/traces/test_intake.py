"""The door's counter against a plain loop that reads one line after another."""

import csv
import gzip
import io
import tarfile
import threading
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.core.result import Provenance
from fleetlab.traces.input import files as input_files
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake, TableSchema

COLUMNS = {"a": pl.String, "b": pl.Int64, "c": pl.Float64}
HEADERLESS = TableSchema("t", COLUMNS, header=False)


# -- an oracle ---------------------------------------------------------------------------------------------------


def plain(data: bytes, longest: int) -> tuple[list[tuple[object, ...]], list[int]]:
    """Rows with their line numbers, and the numbers of bad lines, in the slowest and plainest way."""
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows, bad, k = [], [], 0
    while k < len(lines):
        end = closing(lines, k, longest)
        record = b"\n".join(lines[k:end])
        if len(lines[k]) > longest or end == k:
            bad.append(k + 1)
            k += 1
            continue
        fields = split(record)
        if fields is None:
            bad.append(k + 1)
            k += 1
            continue
        if fields:
            row = values(fields)
            rows.append((*row, k + 1)) if row else bad.append(k + 1)
        k = end
    return rows, bad


def closing(lines: list[bytes], k: int, longest: int) -> int:
    """Behind the last line of the record that begins at `k`; `k` itself if its quote is never closed."""
    if lines[k].count(b'"') % 2 == 0:
        return k + 1
    for end in range(k + 2, len(lines) + 1):
        if len(b"\n".join(lines[k:end])) > longest:
            return k
        if b"\n".join(lines[k:end]).count(b'"') % 2 == 0:
            return end
    return k


def split(record: bytes) -> list[str] | None:
    try:
        text = record.decode().removesuffix("\r")
        if not text.strip():
            return []
        return next(csv.reader([text], strict=True)) if '"' in text else text.split(",")
    except (UnicodeDecodeError, csv.Error):
        return None


def values(fields: list[str]) -> tuple[object, ...] | None:
    if len(fields) != 3:
        return None
    a, b, c = fields
    try:
        whole = int(b) if b.strip() else None
        number = float(c) if c.strip() else None
    except ValueError:
        return None
    return (a or None, whole, number) if whole is None or -(2**63) <= whole < 2**63 else None


# -- lines of every kind -----------------------------------------------------------------------------------------

GOOD = st.sampled_from(
    [b"x,1,2.5", b"yy,-3,1e3", b",,", b"z,,", b" s ,7,.5", b"w,  ,2", "é,8,0".encode(), b"x\x01,1,2", b"n\x00,1,2"]
)
BAD = st.sampled_from(
    [b"x,1", b"x", b"x,1,2,3", b"x,one,2", b"x,1,two", b"x,1.5,2", b"\xff,1,2", b"x,1,2\xc3", b"x,1\x00,2"]
)
HUGE = st.sampled_from([b"x,9223372036854775808,1", b"x,9223372036854775807,1", b"x,1,1e308", b"x" * 70 + b",1,2"])
QUOTED = st.sampled_from(
    [b'"x",1,2', b'"x,y",1,2', b'"x""y",1,2', b'"x\ny",1,2', b'"x\n\n\ny\r\n",1,2', b'"x",1,"2\n"']
)
TORN = st.sampled_from(
    [b'"x,1,2', b'5" disk,1,2', b'x,1,2"', b'"x"y,1,2', b'x"y"z,1,2', b'"a\nb",1', b'"', b'""', b'"x\r",1,2']
)
BLANK = st.sampled_from([b"", b"", b"   ", b"\t", b"\r"])
LINE = st.one_of(GOOD, GOOD, GOOD, BAD, HUGE, QUOTED, TORN, BLANK)
CLEAN = st.one_of(GOOD, HUGE)
END = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    lines = draw(st.one_of(st.lists(LINE, min_size=1, max_size=12), st.lists(CLEAN, min_size=1, max_size=12)))
    data = b"".join(line + draw(END) for line in lines)
    if draw(st.booleans()):
        data = data.removesuffix(b"\n")
    return draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"])) + data


@pytest.fixture
def sizes(monkeypatch):
    """Set the sizes of a block and of the longest line, so small that every place is a border."""

    def put(block: int, longest: int = 64) -> None:
        monkeypatch.setattr(input_files, "BLOCK", block)
        monkeypatch.setattr(input_files, "LONGEST", longest)

    return put


def taken(path: Path, table: TableSchema = HEADERLESS) -> tuple[list[tuple[object, ...]], list[int], Intake]:
    intake = Intake()
    frame = intake.table(SourceFile(path), table)
    return frame.rows(), intake.rejects()["line"].to_list(), intake


def packed(data: bytes, folder: Path, ending: str) -> Path:
    path = folder / f"table.csv{ending}"
    if ending == ".gz":
        data = gzip.compress(data, 1)
    if ending == ".tar.gz":
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as tar:
            member = tarfile.TarInfo("folder/table.csv")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        data = whole.getvalue()
    path.write_bytes(data)
    return path


often = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@often
@given(data=files().filter(bool), block=st.integers(1, 200))
def test_every_line_is_a_row_or_a_reject_as_a_plain_loop_says(data, block, tmp_path, sizes):
    sizes(block)
    path = packed(data, tmp_path, "")
    rows, lines, _ = taken(path)
    assert (repr(rows), lines) == tuple(f(x) for f, x in zip((repr, list), plain(data, 64), strict=True))


@often
@given(data=files().filter(bool), block=st.integers(1, 60))
def test_it_does_not_matter_where_blocks_are_cut(data, block, tmp_path, sizes):
    path = packed(data, tmp_path, "")
    sizes(block)
    small = [repr(x) for x in taken(path)[:2]]
    sizes(1 << 20)
    assert small == [repr(x) for x in taken(path)[:2]]


@settings(often, max_examples=40)
@given(data=files().filter(bool), block=st.integers(1, 200), ending=st.sampled_from([".gz", ".tar.gz"]))
def test_it_does_not_matter_how_a_table_is_packed(data, block, ending, tmp_path, sizes):
    sizes(block)
    found = [repr(x) for x in taken(packed(data, tmp_path, ending))[:2]]
    assert found == [repr(x) for x in taken(packed(data, tmp_path, ""))[:2]]


@settings(often, max_examples=50)
@given(data=files().filter(bool), block=st.integers(1, 200))
def test_rows_read_are_rows_kept_and_rejected(data, block, tmp_path, sizes):
    sizes(block)
    rows, _, intake = taken(packed(data, tmp_path, ""))
    intake.keep("t", len(rows))
    [(_, read, kept, rejected)] = intake.counts().rows()
    assert read == kept + rejected


# -- what each kind of bad line is called ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x,1", "3 columns expected, got: 2"),
        (b"x,1,2,3", "3 columns expected, got: 4"),
        (b"x,many,2", "`b` is not a number: 'many'"),
        (b"x,9223372036854775808,2", "`b` is not a number: '9223372036854775808'"),
        (b"\xff\xfe,1,2", "not UTF-8"),
        (b'"x,1,2', "a quote is opened and not closed"),
        (b"x" * 100 + b",1,2", "the line is longer than 64 bytes"),
    ],
)
def test_a_bad_line_is_turned_away_for_its_reason(line, reason, tmp_path, sizes):
    sizes(1 << 20)
    _, _, intake = taken(packed(b"x,1,2\n" + line + b"\ny,1,2\n", tmp_path, ""))
    assert intake.rejects().rows() == [("t", "table.csv", 2, reason)]


def test_a_stray_quote_takes_no_other_line_with_it(tmp_path):
    data = b'5" disk,1,1\n' + b"x,1,1\n" * 50 + b'3" disk,1,1\n' + b"x,1,1\n" * 50
    rows, lines, _ = taken(packed(data, tmp_path, ""))
    assert (len(rows), lines) == (100, [1, 52])


def test_lines_too_short_and_too_long_do_not_make_up_for_each_other(tmp_path):
    rows, lines, _ = taken(packed(b"x,1,2\nx,1\nx,1,2,3\nx,1,2\n", tmp_path, ""))
    assert ([row[-1] for row in rows], lines) == ([1, 4], [2, 3])


@pytest.mark.parametrize("beside", [b"", b'"x",1,2\n'], ids=["clean", "quoted"])
def test_a_number_of_spaces_alone_is_a_missing_one(beside, tmp_path):
    rows, lines, _ = taken(packed(beside + b"y,  ,2\n", tmp_path, ""))
    assert (rows[-1][:3], lines) == (("y", None, 2.0), [])


def test_a_record_of_many_lines_is_no_longer_than_one_line_may_be(tmp_path, sizes):
    sizes(1 << 20, longest=20)
    rows, lines, _ = taken(packed(b'"' + b"x\n" * 9 + b'",1,2\n"y\n",1,2\n', tmp_path, ""))
    assert (len(rows), lines) == (1, list(range(1, 11)))


def test_text_is_not_mended_behind_the_closing_quote(tmp_path):
    rows, lines, _ = taken(packed(b'"x"y,1,2\n', tmp_path, ""))
    assert (rows, lines) == ([], [1])


def test_a_carriage_return_between_quoted_fields_does_not_swallow_the_rest(tmp_path):
    rows, lines, _ = taken(packed(b'"x",1,2\r"y",3,4\n', tmp_path, ""))
    assert (rows, lines) == ([], [1])


def test_a_line_that_is_too_long_ends_a_quoted_record(tmp_path, sizes):
    sizes(1 << 20)
    rows, lines, _ = taken(packed(b'"x\n' + b"y" * 100 + b'\nz",1,2\nq,1,2\n', tmp_path, ""))
    assert (rows, lines) == ([("q", 1, 2.0, 4)], [1, 2, 3])


def test_a_file_of_windows_is_read_as_any_other(tmp_path):
    rows, lines, _ = taken(packed(b"x,1,2\r\ny,3,4\r\n", tmp_path, ""))
    assert (rows, lines) == ([("x", 1, 2.0, 1), ("y", 3, 4.0, 2)], [])


def test_a_block_that_looks_compressed_is_read_as_the_text_it_is(tmp_path):
    rows, _, _ = taken(packed(b"x\x01,1,2\nx\x01,3,4\n", tmp_path, ""))
    assert [row[1] for row in rows] == [1, 3]


@pytest.mark.parametrize("data", [b"x\n\ny\n", b"x\n \ny\n", b"x\n\ny"])
def test_a_blank_line_is_no_row_in_a_table_of_one_column(data, tmp_path):
    rows, lines, _ = taken(packed(data, tmp_path, ""), TableSchema("t", {"a": pl.String}, header=False))
    assert (rows, lines) == ([("x", 1), ("y", 3)], [])


def test_a_line_of_tabs_is_a_row_where_tabs_part_columns(tmp_path):
    table = TableSchema("t", COLUMNS, header=False, separator="\t")
    assert taken(packed(b"\t\t\n\t\n", tmp_path, ""), table)[:2] == ([(None, None, None, 1)], [2])


def test_quotes_are_letters_where_a_table_has_none(tmp_path):
    table = TableSchema("t", COLUMNS, header=False, quote=False)
    assert taken(packed(b'"x,1,2\n', tmp_path, ""), table)[0] == [('"x', 1, 2.0, 1)]


# -- headers -----------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_in_any_order_and_others_passed_over(tmp_path):
    path = packed(b'\xef\xbb\xbfc, line ,b,"a"\r\n2.5,x,1,y\r\n', tmp_path, "")
    assert taken(path, TableSchema("t", COLUMNS))[0] == [("y", 1, 2.5, 2)]


def test_a_foreign_column_called_line_does_not_shift_line_numbers(tmp_path):
    path = packed(b'a,b,c,line\nx,1,2,77\n"y",1,2,78\n', tmp_path, "")
    assert [row[-1] for row in taken(path, TableSchema("t", COLUMNS))[0]] == [2, 3]


def test_an_optional_column_that_is_absent_comes_out_empty(tmp_path):
    table = TableSchema("t", COLUMNS, optional=frozenset({"b"}))
    assert taken(packed(b"a,c\nx,1\n", tmp_path, ""), table)[0] == [("x", None, 1.0, 2)]


def test_only_the_wanted_columns_come_out(tmp_path):
    table = TableSchema("t", COLUMNS, header=False, only=frozenset({"b"}))
    assert taken(packed(b"x,1,not a number\n", tmp_path, ""), table)[0] == [(1, 1)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"a,b\n", b"a,b,c,c\n", b"\xff\xfea,b,c\n", b"\x00" * 40, b'"a,b,c\n', b"A,B,C\nx,1,2\n"],
    ids=["empty", "blank", "short", "twice", "utf-16", "zeros", "quote", "capitals"],
)
def test_a_file_without_the_columns_is_refused_with_a_hint(data, tmp_path):
    with pytest.raises(TraceError) as refused:
        taken(packed(data, tmp_path, ""), TableSchema("t", COLUMNS))
    assert refused.value.hint


def test_a_first_line_that_names_nothing_is_refused_even_if_nothing_is_needed(tmp_path):
    with pytest.raises(TraceError, match="missing columns in its first line"):
        taken(packed(b"\nx\n", tmp_path, ""), TableSchema("t", COLUMNS, optional=frozenset(COLUMNS)))


def test_a_header_alone_is_a_table_of_no_rows(tmp_path):
    assert taken(packed(b"a,b,c\n", tmp_path, ""), TableSchema("t", COLUMNS))[:2] == ([], [])


# -- counting ----------------------------------------------------------------------------------------------------


def test_a_row_is_turned_away_for_the_first_rule_that_it_breaks():
    intake = Intake()
    frame = pl.DataFrame({"x": [1, -2, None, -40], "line": [1, 2, 3, 4]})
    rules = [("too low", pl.col("x") < -9, "x"), ("negative", pl.col("x") < 0), ("nothing", pl.col("x").is_null(), "x")]
    left = intake.validate(frame, "t", "f", rules)
    assert (left["line"].to_list(), intake.rejects()["reason"].to_list()) == (
        [1],
        ["negative", "nothing: nothing", "too low: -40"],
    )


def test_rejects_of_a_table_that_nobody_counted_break_the_law():
    intake = Intake()
    intake.reject("ghost", "f", [(1, "why")])
    assert intake.counts().rows() == [("ghost", 0, 0, 1)]


def test_a_reader_that_loses_a_row_cannot_make_a_trace():
    intake = Intake()
    intake.read("t", 2)
    intake.keep("t", 1)
    nothing = Workload.of(pl.DataFrame({"submit": []}), source="s")
    with pytest.raises(AssertionError, match="rows lost by the reader"):
        Trace(nothing, Provenance("read", "s"), counts=intake.counts())


def test_progress_ends_at_the_whole_file(tmp_path, sizes):
    sizes(16)
    told = []
    path = packed(b"x,1,2\n" * 50, tmp_path, ".gz")
    Intake(lambda *said: told.append(said)).table(SourceFile(path), HEADERLESS)
    assert told[-1] == ("t", 50, 1.0)


def test_a_staging_folder_goes_with_the_last_who_holds_it():
    scratch = Intake().scratch
    name = Path(scratch.name)
    (name / "part").write_text("x")
    there = name.is_dir()
    del scratch
    assert (there, name.exists()) == (True, False)


# -- the reading thread ------------------------------------------------------------------------------------------


def test_a_reader_that_stops_early_leaves_no_thread_behind(tmp_path, sizes):
    sizes(16)
    path = packed(b"x,1,2\n" * 10_000, tmp_path, ".gz")
    before = threading.active_count()

    def fails() -> None:
        for _ in Intake().batches(SourceFile(path), HEADERLESS):
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert threading.active_count() == before


def test_an_error_in_the_middle_of_an_archive_reaches_the_reader(tmp_path, sizes):
    sizes(1 << 10)
    path = packed(b"x,1,2\n" * 10_000, tmp_path, ".gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match="truncated or damaged"):
        taken(path)
