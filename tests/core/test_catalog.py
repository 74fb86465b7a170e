"""The catalogs: numbers that compiled code relies on, names without doubles, help for every entry."""

import subprocess
import sys

import pytest

from fleetlab._screen import WIDEST
from fleetlab.core import PolicyError
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, METRICS, ORDERS, PLACEMENTS, REASONS, RESOURCES, SHARINGS

ALL = (BACKFILLS, ESTIMATES, METRICS, ORDERS, PLACEMENTS, REASONS, RESOURCES, SHARINGS)


@pytest.mark.parametrize("catalog", ALL, ids=lambda c: c.kind)
def test_every_entry_has_one_name_and_one_line_of_help(catalog):
    assert len(set(catalog.names)) == len(catalog)
    assert all(entry.meaning and "\n" not in entry.meaning for entry in catalog)


@pytest.mark.parametrize("catalog", ALL, ids=lambda c: c.kind)
def test_an_index_is_a_position(catalog):
    assert [catalog.index(name) for name in catalog.names] == list(range(len(catalog)))


def test_the_meaning_of_a_reason_fits_a_cell_of_a_table():
    assert max(len(reason.meaning) for reason in REASONS) <= WIDEST


def test_an_unknown_name_is_refused_with_the_closest():
    with pytest.raises(PolicyError, match="no placement by that name: `bestfit`; did you mean best_fit"):
        PLACEMENTS["bestfit"]


def test_catalogs_and_words_need_no_data_frames():
    ask = "import sys, fleetlab.core.scenario; print(sorted({'numpy', 'polars', 'numba'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert answer.strip() == "[]"
