"""The page of the H200 has the tables that its raw cells give, and these are what `advise` says."""

from pathlib import Path

import pytest
from benchmarks.sharing import __main__ as command

from fleetlab.bench.advise import advise

MEASURED = Path(__file__).parents[2] / "docs" / "measurements"


@pytest.fixture(scope="module")
def made():
    """The tables by name."""
    return dict(command.tables(MEASURED))


def test_the_page_has_the_tables_that_the_raw_cells_give(made):
    page = (MEASURED / "sharing.md").read_text()
    assert command.filled(page, made) == page


def test_a_table_without_a_place_in_the_page_is_an_error():
    with pytest.raises(ValueError, match="no place for the table `other`"):
        command.filled("a page", {"other": "text"})


@pytest.mark.parametrize(("table", "mode"), [("time slicing", "time-slicing"), ("MPS", "mps"), ("MPS 50/50", "mps@50")])
def test_the_page_and_advice_have_one_number_for_two_equal_tenants(made, table, mode):
    """They differed by 5 % for single images, whose rate alone differs between runs."""
    values = dict(
        advise(MEASURED / "h200", mix="2 resnet-infer").tables()["choice"].select("mode", "value").rows(),
    )
    assert f"resnet-infer {values[mode]:.2f}" in made[table]
