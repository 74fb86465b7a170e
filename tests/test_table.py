"""Tables on a screen: never wider than it, and no number is broken."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab import _screen
from fleetlab._screen import prose, table
from fleetlab._table import Column, layout

WORDS = st.text("abc ", max_size=60)
NUMBERS = st.floats(-1e9, 1e9).map(lambda x: f"{x:,.4g}")


@st.composite
def columns(draw):
    rows = draw(st.integers(1, 4))
    made = []
    for k in range(draw(st.integers(1, 9))):
        numeric = draw(st.booleans())
        texts = draw(st.lists(NUMBERS if numeric else WORDS, min_size=rows, max_size=rows))
        made.append(Column(f"{draw(st.sampled_from(['jobs', 'mean wait', 'GPUs per instance']))} {k}", numeric, texts))
    return made


@given(columns(), st.integers(60, 200))
def test_no_line_is_wider_than_the_screen(made, width):
    assert max(map(len, layout(made, width, whole_rows=False))) <= width


@given(columns(), st.integers(60, 200))
def test_every_number_stands_whole_once_in_each_part_that_has_its_column(made, width):
    said = " ".join(layout(made, width, whole_rows=False)).split()
    numbers = [text for column in made if column.numeric for text in column.texts]
    assert all(said.count(number) >= numbers.count(number) for number in numbers)


@given(columns())
def test_what_goes_into_a_file_has_a_line_for_each_row(made):
    lines = layout(made, 80, whole_rows=True)
    rule = next(k for k, line in enumerate(lines) if set(line) <= {"-", " "} and "-" in line)
    assert len(lines) - rule - 1 == len(made[0].texts)


def test_a_text_is_broken_before_the_table_is():
    made = [Column("reason", False, ["cpu"]), Column("share", True, ["59 %"]), Column("meaning", False, ["free " * 8])]
    assert layout(made, 32, whole_rows=False) == [
        "reason  share  meaning",
        "------  -----  -----------------",
        "cpu      59 %  free free free",
        "               free free free",
        "               free free",
    ]


def test_a_table_that_is_too_wide_comes_in_parts_with_the_names_of_its_rows():
    interval = Column("95 % CI", True, ["1,000,000 to 2,000,000 s"], joined=True)
    made = [Column("pool", False, ["A100"]), Column("wait", True, ["1,234,567 s"]), interval]
    made.append(Column("jobs", True, ["12"]))
    assert layout(made, 44, whole_rows=False) == [
        "pool         wait                   95 % CI",
        "----  -----------  ------------------------",
        "A100  1,234,567 s  1,000,000 to 2,000,000 s",
        "",
        "pool  jobs",
        "----  ----",
        "A100    12",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_screen_is_as_wide_as_the_terminal_says(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    frame = pl.DataFrame({f"a rather long heading {k}": [1234.5] for k in range(12)} | {"why": ["so it is " * 7]})
    assert max(map(len, table(frame).splitlines())) <= width
    assert max(map(len, prose("a word " * 40, "  ").splitlines())) <= width


def test_prose_for_a_file_stays_one_line(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert prose("a word " * 40) == "a word " * 40


@pytest.mark.parametrize("verb", [("traces",), ("show", "builtin:200"), ("describe", "builtin:200")])
def test_commands_keep_to_80_columns(command, verb):
    done = command(*verb, COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_setting_stays_whole_where_other_texts_are_broken():
    names = ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "sharing.mps.resources[].replicas", "memory"]
    columns = [
        Column("setting", numeric=False, texts=names),
        Column("why", numeric=False, texts=["some words " * 9] * 3),
    ]
    shown = "\n".join(layout(columns, 60, whole_rows=False))
    assert all(name in shown for name in names)
    assert max(map(len, shown.splitlines())) <= 60


def test_progress_is_a_line_now_and_then_where_standard_error_is_a_file(capsys, monkeypatch):
    monkeypatch.setattr(_screen, "LINE_EVERY", 0.0)
    with _screen.progress("replays") as bar:
        bar("earlier forecasts", 30, 0.5)
    assert capsys.readouterr().err == "earlier forecasts: 30 done, 50%\n"
