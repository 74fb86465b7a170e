"""YAML: what we write any reader reads, and what strangers write does no harm."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.stacks.formats.format import amount, limit_mib, whole
from fleetlab.gpu.stacks.yaml import LARGEST, documents, dump

yaml = pytest.importorskip("yaml")

WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
LEAVES = WORDS | st.booleans() | st.integers(-(10**12), 10**12)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner.filter(lambda v: not isinstance(v, list)), max_size=3)
        | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_leaves=12,
)
BLOCKS = st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), min_size=2).map("\n".join)


@settings(deadline=None)
@given(st.dictionaries(WORDS, TREES, min_size=1, max_size=4))
def test_what_is_written_is_read_again(tree):
    assert yaml.safe_load(dump(tree)) == tree
    assert documents(dump(tree, about=["a line"]), "x") == [tree]


@settings(deadline=None)
@given(BLOCKS)
def test_a_block_of_text_is_read_again(text):
    assert yaml.safe_load(dump({"data": {"any": text + "\n"}})) == {"data": {"any": text + "\n"}}


@pytest.mark.parametrize(
    "word", ["on", "No", "y", "null", "~", "0x1", "1e3", "2026-01-01", "0:0", "1:30", ".5", "- a", ""]
)
def test_a_word_that_looks_like_something_else_stays_a_word(word):
    assert yaml.safe_load(dump({"a": word, word: "b"})) == {"a": word, word: "b"}


def bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (bomb(), "line 1: an anchor, &a0"),
        ("a: *b", "line 1: an alias, *b"),
        ("a: !!python/object/apply:os.system [id]", "a tag, tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !secret x", "a tag, !secret"),
        ("a: !!int 3", "a tag, tag:yaml.org,2002:int"),
        ("[" * 5000, "more than 40 levels"),
        ("a: 1\na: 2", "line 2: the key `a` twice"),
        ("? [a]\n: 1", "a key that is not a string"),
        ("a: [", "not YAML: line"),
        ("\ta: 1", "not YAML: line 1"),
        ("a: \x00", "not YAML"),
        ("- a", "not a mapping, but list"),
        ("", "empty"),
        ("---\n---\n", "empty"),
        ("---\na: 1\n" * 501, "more than 500 documents"),
        ("# " + "x" * LARGEST, "too large"),
    ],
    ids=lambda v: v[:12] if isinstance(v, str) else "",
)
def test_a_hostile_file_is_refused(text, says):
    with pytest.raises(BenchError) as caught:
        documents(text, "bad.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("bad.yaml: ")


def test_keys_are_words_and_dates_stay_words():
    assert documents("1: 2026-01-01\n<<: {a: 1}", "x") == [{"1": "2026-01-01", "<<": {"a": 1}}]


def test_amounts_are_those_of_kubernetes():
    found = {a: amount(a) for a in ("20Gi", "500M", "1.5Gi", "4", "1k", "x", "4GB", "", "-1")}
    assert found == {
        "20Gi": 21474836480,
        "500M": 500000000,
        "1.5Gi": 1610612736,
        "4": 4,
        "1k": 1000,
        "x": None,
        "4GB": None,
        "": None,
        "-1": None,
    }
    assert [amount(v) for v in (4, True, None, [1])] == [4, None, None, None]
    assert [whole(v) for v in (4, "4", "4k", True, 4.0, None)] == [4, 4, None, None, None, None]
    assert [limit_mib(v) for v in ("0=8G", "0=100M", "8G", None)] == [8192, 100, None, None]
