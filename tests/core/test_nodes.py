"""Clusters of other sizes: edits in words, scaling, removal, and TOML."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab.core import Cluster, WorkloadError
from fleetlab.core.nodes import parse

MIXED = Cluster.of(
    pl.DataFrame(
        {
            "node": [f"n{k}" for k in range(10)],
            "pool": ["a"] * 6 + ["b"] * 4,
            "gpu_type": ["T4"] * 3 + ["V100"] * 5 + [None] * 2,
            "gpus": [2] * 3 + [8] * 5 + [0] * 2,
        }
    ),
    source="mixed",
)


def counts(cluster: Cluster) -> dict[str, int]:
    return dict(cluster.frame["gpu_type"].fill_null("").value_counts().iter_rows())


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ("", {"T4": 3, "V100": 5, "": 2}),
        ("T4 +2", {"T4": 5, "V100": 5, "": 2}),
        ("T4+2", {"T4": 5, "V100": 5, "": 2}),
        ("T4 7", {"T4": 7, "V100": 5, "": 2}),
        ("T4:7", {"T4": 7, "V100": 5, "": 2}),
        ("T4 0", {"V100": 5, "": 2}),
        ("V100 -40%, T4 +100%", {"T4": 6, "V100": 3, "": 2}),
        ("+100%", {"T4": 6, "V100": 10, "": 4}),
        ("a 12", {"T4": 6, "V100": 8, "": 2}),
    ],
)
def test_edits_change_the_number_of_nodes(edits, expected):
    assert counts(MIXED.with_nodes(edits)) == expected


def test_a_relative_edit_and_the_number_it_leads_to_give_the_same_nodes():
    assert MIXED.with_nodes("V100 +7").frame.equals(MIXED.with_nodes("V100", 12).frame)


def test_no_edit_is_the_cluster_itself():
    assert MIXED.with_nodes("") is MIXED


@pytest.mark.parametrize("edits", ["T4", "T4 1.5", "T4 40%", "40", "T5 +1", "T4 -4", "-100%", "T4 +1,", "+", "T4 +9e3"])
def test_other_edits_are_refused(edits):
    with pytest.raises(WorkloadError):
        MIXED.with_nodes(edits)


@given(st.lists(st.sampled_from(["T4 +2", "T4 4", "V100 +60%", "a 9", "+3", "b +1"]), min_size=1, max_size=4))
def test_edits_leave_a_valid_cluster_and_round_trip(edits):
    text = ", ".join(edits)
    assert ", ".join(map(str, parse(text))) == text
    cluster = MIXED.with_nodes(text)
    assert cluster.frame["node"].n_unique() == len(cluster)


def test_scaling_keeps_every_kind_of_node():
    assert counts(MIXED.scaled(0.01)) == {"T4": 1, "V100": 2, "": 1}  # V100 in both pools
    assert counts(MIXED.scaled(Fraction(4, 3), "T4")) == {"T4": 4, "V100": 5, "": 2}


@pytest.mark.parametrize("edits", ["T4 +2", "T4 2", "V100 +60%", "a 12", "+100%"])
def test_edited_nodes_keep_their_place(edits):
    """Of equally good nodes the first is taken, so a pool that moved would change waits by itself."""
    stay = [name for name in MIXED.with_nodes(edits).frame["node"] if "#" not in name]
    assert stay == [name for name in MIXED.frame["node"] if name in stay]


def test_added_nodes_follow_the_last_of_their_kind():
    assert MIXED.with_nodes("T4 +1").frame["node"].to_list()[:5] == ["n0", "n1", "n2", "n0#1", "n3"]


def test_a_node_that_is_added_for_a_partition_is_in_that_one_alone():
    both = Cluster.uniform(2, 4, gpu_type="T4").frame.with_columns(partitions=pl.lit(["batch", "large"]))
    cluster = Cluster.of(both, source="both")
    for edits in ("batch +1", "large +1"):
        added = cluster.with_nodes(edits).frame["partitions"].to_list()
        assert added == [["batch", "large"], ["batch", "large"], [edits.split()[0]]]
    assert cluster.with_nodes("T4 +1").frame["partitions"].to_list() == [["batch", "large"]] * 3


def test_scaling_a_pool_by_one_changes_nothing_but_names():
    kinds = pl.exclude("node")
    assert MIXED.scaled(1, "T4").frame.select(kinds).equals(MIXED.frame.select(kinds))


def test_nodes_pools_and_types_are_removed_by_name():
    assert counts(MIXED.without("b", "n0")) == {"T4": 2, "V100": 3}
    with pytest.raises(WorkloadError, match="did you mean V100"):
        MIXED.without("V10")


def test_a_cluster_in_toml_has_the_same_nodes(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(MIXED.to_toml(), "utf-8")
    kinds = pl.exclude("node")
    assert Cluster.from_toml(path).frame.select(kinds).equals(MIXED.frame.select(kinds))
