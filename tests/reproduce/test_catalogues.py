"""What was published: every number known to the project is an item, with its source and where ours is found."""

import json
from importlib.resources import files

import pytest

from fleetlab.describe.published import published_values
from fleetlab.reproduce import dlrm2025, nsdi22
from fleetlab.reproduce.item import RULES, curve_items, items, number_items
from fleetlab.reproduce.nsdi22 import ITEMS
from fleetlab.reproduce.reproduce import STUDIES
from fleetlab.studies.validate import published


@pytest.mark.parametrize("name", STUDIES)
def test_an_item_is_compared_by_a_rule_or_says_why_it_is_not_possible(name):
    for one in items(name):
        assert one.rule in RULES
        assert one.source
        assert one.not_possible or (one.ours is not None and one.rule != "none"), one.what


@pytest.mark.parametrize("name", STUDIES)
def test_a_published_value_that_is_compared_is_a_number(name):
    for one in items(name):
        if not one.not_possible:
            assert one.number == one.number


@pytest.mark.parametrize("name", STUDIES)
def test_no_item_stands_twice(name):
    named = [(one.item, one.what, one.source) for one in items(name)]
    assert sorted(named) == sorted(set(named))


def test_every_curve_and_number_that_describe_knows_is_an_item():
    made = {one.what for trace in ("pai2020", "dlrm2025") for one in curve_items(trace)}
    assert made == {
        f"{figure}: {series}" for figure, curves in published_values()["curves"].items() for series in curves
    }
    numbers = [*number_items("pai2020", nsdi22.PLACES), *number_items("dlrm2025", dlrm2025.REQUESTS)]
    assert len(numbers) == sum(len(group["values"]) for group in published_values()["numbers"].values())


def test_every_result_on_policies_that_validate_knows_is_an_item_or_one_of_describe():
    assert {p.case for p in published.PUBLISHED.values()} == {*ITEMS, published.PREDICTED}


def test_the_packing_table_has_the_authors_five_lists_by_six_placements():
    table = [one for one in items("fgd-atc23") if one.item.startswith("packing table")]
    assert len(table) == 30
    assert (
        len(json.loads(files("fleetlab.reproduce").joinpath("published/fgd-atc23.json").read_text("utf-8"))["spread"])
        == 30
    )


@pytest.mark.data
def test_the_packing_table_is_the_mean_of_the_authors_ten_seeds(data):
    import polars as pl

    from fleetlab.reproduce.fgd_atc23 import POLICIES

    frame = pl.read_csv(data / "fgd-expected-results" / "allo.csv")
    means = frame.group_by("workload", "sc_policy").agg(left=100 - pl.col("100").mean())
    authors = {(w.removeprefix("openb_pod_list_"), POLICIES[p]): left for w, p, left in means.iter_rows()}
    table = [one for one in items("fgd-atc23") if one.item.startswith("packing table")]
    ours = {(one.ours.row["list"], one.ours.row["placement"]): one.number for one in table}
    assert ours == pytest.approx(authors, abs=0.005)
