"""A first look at a log: what it is taken for, and which column would become which."""

import pytest

from fleetlab.traces import read, readers
from fleetlab.traces.table.reader import preview


@pytest.mark.parametrize("name", sorted(readers()))
def test_every_format_is_recognized_by_its_beginning(fixtures, name):
    folder = fixtures / name / "good"
    files = list(folder.iterdir())
    assert preview(files[0] if len(files) == 1 else folder).formats == (name,)


def test_columns_are_mapped_as_reading_would_map_them(tmp_path):
    log = tmp_path / "jobs.csv"
    log.write_text("created at,GPU Count,duration_min,owner,x\n" + "2024-05-01 10:00:00,2,3,ada,7\n" * 8)
    look = preview(log)
    assert look.formats == ("csv",)
    assert look.header == ("created at", "GPU Count", "duration_min", "owner", "x")
    assert look.rows == (("2024-05-01 10:00:00", "2", "3", "ada", "7"),) * 5
    assert look.map == {
        "submit": "`created at`",
        "gpu_milli": "`GPU Count`*1000",
        "runtime": "duration_min*60",
        "user": "owner",
    }
    assert read(log, "csv").workload.frame.equals(read(log, "csv", map=look.map).workload.frame)


def test_where_two_columns_could_be_meant_it_says_so_and_guesses_nothing(tmp_path):
    log = tmp_path / "jobs.csv"
    log.write_text("submit,start_time,started\n" + "1,2,3\n" * 6)
    look = preview(log)
    assert look.map == {"submit": "submit"}
    assert "`start` is ambiguous" in look.note


def test_what_is_no_table_is_shown_as_lines(tmp_path):
    log = tmp_path / "page.html"
    log.write_text("<html>\n<body>\n")
    look = preview(log)
    assert (look.formats, look.rows, look.targets) == ((), (("<html>",), ("<body>",)), ())
    assert "JSON or HTML" in look.note
