"""Constraints: expressions of features."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.core import WorkloadError
from fleetlab.core.constraint import Constraint


@pytest.mark.parametrize(
    ("text", "features", "meets"),
    [
        ("a", {"a"}, True),
        ("a", {"b"}, False),
        ("a&b", {"a"}, False),
        ("a|b", {"b"}, True),
        ("a,b", {"a", "b"}, True),
        ("a|b&c", {"a"}, True),  # & binds more tightly
        ("(a|b)&c", {"a"}, False),
        ("!a", {"b"}, True),
        ("!(a&b)", {"a"}, True),
        ("[rack1|rack2]", {"rack2"}, True),
        ("a100*2&ib*1", {"a100", "ib"}, True),
        (" a & b ", {"a", "b"}, True),
        ("gpu.vendor/model=A100-80G&!zone=b", {"gpu.vendor/model=A100-80G", "zone=a"}, True),
    ],
)
def test_a_constraint_is_met_by_nodes_with_its_features(text, features, meets):
    assert Constraint.of(text).meets(features) == meets


@pytest.mark.parametrize("text", ["", "a&", "&a", "(a", "a)", "a b", "!", "a||b", "*2"])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(WorkloadError, match="cannot be read"):
        Constraint.of(text)


TREES = st.recursive(
    st.sampled_from("abc"),
    lambda inner: st.one_of(
        inner.map(lambda a: f"!({a})"),
        st.tuples(inner, st.sampled_from("&|"), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(text=TREES, features=st.sets(st.sampled_from("abc")))
def test_expressions_mean_what_they_mean_in_python(text, features):
    words = {name: name in features for name in "abc"}
    plain = text.replace("!", " not ").replace("&", " and ").replace("|", " or ")
    assert Constraint.of(text).meets(features) == eval(plain, {}, words)
