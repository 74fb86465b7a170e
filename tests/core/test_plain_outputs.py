"""What a terminal or a spreadsheet reads has nothing that it would obey."""

import polars as pl
import pytest

from fleetlab._screen import Rows
from fleetlab.core import Provenance, as_json
from fleetlab.core.files import csv_text, plain
from fleetlab.core.result import SavedResult

HOSTILE = ["=1+2", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "a\x1b[2Jb", "c\u202etxt.exe", "d\x9b31m", "\t=1"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_cell_of_a_csv_is_a_formula_or_moves_the_cursor(name):
    frame = pl.DataFrame({"name": [name], "wait": [-1.5]}, schema_overrides={"name": pl.Categorical})
    cell, wait = csv_text(frame).splitlines()[1].rsplit(",", 1)
    assert wait == "-1.5"
    assert cell.strip('"')[0] not in "=+-@\t"
    assert plain(cell) == cell


@pytest.mark.parametrize("name", HOSTILE)
def test_json_escapes_what_a_terminal_obeys_and_reads_back_the_same(name):
    rows = Rows("jobs", pl.DataFrame({"name": [name]}), Provenance("read", "test"))
    text = as_json(rows)
    assert plain(text) == text
    import json

    assert SavedResult.from_json(json.loads(text)).frames["jobs"]["name"].to_list() == [name]
