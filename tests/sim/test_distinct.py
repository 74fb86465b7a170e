"""The distinct rows of a frame are those that a comparison of whole rows gives, in order of appearance."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.sim.distinct import distinct_rows

ROW = st.tuples(
    st.sampled_from([0, 1, -5, 1 << 40, -(1 << 62)]), st.sampled_from([0, 3, 1 << 61]),
    st.sampled_from([7, 7, 8, None]),
    st.sampled_from(["", "a", None]), st.booleans(),
)  # fmt: skip
SCHEMA = {"a": pl.Int64, "b": pl.Int64, "c": pl.Int32, "d": pl.String, "e": pl.Boolean}


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, max_size=12), st.sampled_from([None, ["a"], ["a", "b"], ["d", "c"], ["e", "b"]]))
def test_distinct_rows_are_those_that_a_comparison_of_rows_gives(rows, columns):
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    distinct, number = distinct_rows(frame, columns)
    chosen = frame if columns is None else frame.select(columns)
    assert distinct.rows() == list(dict.fromkeys(chosen.rows()))
    assert distinct[number].rows() == chosen.rows()
    assert distinct.schema == chosen.schema
