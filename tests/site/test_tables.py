"""Records of tables: every column has a meaning, every meaning a column, and names that differ find theirs."""

import pytest
from docs.site.records import DERIVED, FILES, RESULTS, SHARED, Table, described, meanings

EVERY = [*RESULTS, *FILES]
ids = [one.name for one in EVERY]


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_every_column_has_a_meaning(one):
    columns = [(table.name, name) for table in one.tables for name, _ in table.names()]
    assert [pair for pair in columns if one.column(*pair, SHARED) is None] == []


@pytest.mark.parametrize("one", EVERY, ids=ids)
def test_no_table_is_described_twice_and_no_column_of_a_table(one):
    names = [table.name for table in one.tables]
    assert len(names) == len(set(names))
    for table in one.tables:
        columns = [name for name, _ in table.names()]
        assert len(columns) == len(set(columns)), table.name


def bases(name):
    """Yield a name, and what it is the interval, the change or the published value of."""
    yield name
    for suffix in DERIVED:
        if name.endswith(suffix):
            yield from bases(name.removesuffix(suffix))


def used(some):
    """Return every name, alone and with its table, by which a column of these results is looked up."""
    pairs = [(table.name, base) for one in some for table in one.tables for n, _ in table.names() for base in bases(n)]
    return {base for _, base in pairs} | {f"{table}: {base}" for table, base in pairs}


def test_every_meaning_is_of_a_column_of_some_table():
    own = [(one.name, name) for one in EVERY for name in one.columns if not name_is_shared_by_rooms(name)]
    by_name = {one.name: used([one]) for one in EVERY}
    assert [pair for pair in own if pair[1] not in by_name[pair[0]]] == []
    assert sorted(set(SHARED) - USED) == []


USED = used(EVERY)


def name_is_shared_by_rooms(name):
    """Columns that several results of a room describe in one place: one of them must use it."""
    return sum(name in one.columns for one in EVERY) > 1 and name in USED


def test_a_column_with_an_interval_is_three():
    table = Table("policies", "a policy", "policy | mean wait ± | stp ±_? | note?")
    assert dict(table.names()) == {
        "policy": True, "mean wait": True, "mean wait low": True, "mean wait high": True, "stp": False,
        "stp_low": False, "stp_high": False, "note": False,
    }  # fmt: skip


def test_a_table_may_say_what_a_column_means_there():
    one = described(
        "x",
        {name: {"row": name, "columns": "jobs"} for name in "ab"},
        meanings({"a: jobs": "of a", "jobs": "of others"}),
    )
    assert [one.column(table, "jobs", SHARED).meaning for table in "ab"] == ["of a", "of others"]


def test_what_a_change_and_its_interval_are_of_is_said():
    one = described("x", {"a": {"row": "a", "columns": "mean wait change ±"}}, {})
    assert (
        one.column("a", "mean wait change low", SHARED).meaning
        == "lower end of the 95 % interval of `mean wait change`"
    )
    assert one.column("a", "mean wait change low", SHARED).unit == "s"
