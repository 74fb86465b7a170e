"""What `map` asks for: each column of a workload as an expression over the columns of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from fleetlab.core import TraceError
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.names import lookup
from fleetlab.core.workload import SCHEMA
from fleetlab.traces.table.expression import (
    ColumnRef,
    ExpressionError,
    Node,
    NumberLiteral,
    Operation,
    TextLiteral,
    columns,
    named,
    parse,
)

TIMES = ("submit", "eligible", "start", "end")
DERIVED = ("initial", "runtime_at_least")  # they follow from the times
# What tables rarely have, or not as a cell.
UNREAD = (
    "reservation",
    "distinct_nodes",
    "exclusive",
    "requeue",
    "nice",
    "depends_on",
    "dependency",
    "gang",
    "array",
    "array_limit",
)
SPLIT = "gpus_per_node"  # no column of a workload: a job of more GPUs is split into instances of at most so many
ESTIMATE = "estimate"  # nor is this: the estimated runtime of a job, which becomes a series of the trace
COUNTS = ("instances", "max_per_node", "priority", SPLIT)  # of things that have no parts
AMOUNTS = ("instances", *REQUESTS, "max_per_node", "priority", SPLIT)
TEXTS = ("job", "parent", "user", "group", "app", "gpu_types", "partitions", "constraint", "queue", "qos", "status")
TARGETS = (*(name for name in SCHEMA if name not in (*DERIVED, *UNREAD)), SPLIT, ESTIMATE)
NONE = TextLiteral("")  # mapped to a column, it says that the file has none


@dataclass(frozen=True)
class ColumnMap:
    """Which expression gives which column of the workload, over the columns that the file has."""

    nodes: Mapping[str, Node]
    zone: str
    guessed: frozenset[str] = frozenset()  # columns of the workload that nobody mapped

    @property
    def columns(self) -> dict[str, str]:
        """The columns to read, and what each is called in here, so that none is taken for another thing."""
        used = dict.fromkeys(name for node in self.nodes.values() for name in columns(node))
        return {name: f"c{k}" for k, name in enumerate(used)}

    @property
    def clocks(self) -> set[str]:
        """Columns that are moments, since they are taken as such: they count in seconds wherever they stand."""
        return {node.name for target, node in self.nodes.items() if target in TIMES and isinstance(node, ColumnRef)}

    @property
    def numbers(self) -> list[str]:
        """Columns that are reckoned with, and so must be numbers or moments."""
        reckoned = [node for target, node in self.nodes.items() if target not in TEXTS or isinstance(node, Operation)]
        return list(dict.fromkeys(name for node in reckoned for name in columns(node)))

    def with_guesses(self, expressions: Mapping[str, str]) -> ColumnMap:
        """Return the map with columns that were guessed."""
        nodes = {**self.nodes, **{target: parse(text) for target, text in expressions.items()}}
        if SPLIT in nodes and "gpu_milli" not in nodes:
            msg = f"map of `{SPLIT}`: there are no GPUs to split"
            raise TraceError(msg, hint="map gpu_milli too: --map gpu_milli=gpus*1000")
        return replace(self, nodes={t: nodes[t] for t in TARGETS if t in nodes}, guessed=frozenset(expressions))


def column_map(given: Mapping[str, str], there: Sequence[str], zone: str) -> ColumnMap:
    """Read every expression; a column that nobody mapped is taken from the file's column of that name."""
    own = {name: ColumnRef(name) for name in TARGETS if name in there and name != SPLIT}
    nodes = own | {target: _node(target, text, there) for target, text in given.items()}
    return ColumnMap({target: nodes[target] for target in TARGETS if nodes.get(target, NONE) != NONE}, zone)


def _node(target: str, text: str, there: Sequence[str]) -> Node:
    lookup("column of a workload", target, TARGETS, error=TraceError)
    try:
        node = parse(str(text))
    except ExpressionError as e:
        raise _marked(target, str(text), str(e), e.at) from None
    for name in columns(node):
        _must_be_there(target, name, there)
    if target not in TEXTS and isinstance(node, TextLiteral) and node != NONE:
        raise _marked(target, str(text), f"`{target}` is a number, not a word", 0)
    if target in TEXTS and target not in ("job", "parent") and isinstance(node, NumberLiteral):
        raise _marked(target, str(text), f"`{target}` is a word: put it in quotes", 0)
    return node


def _marked(target: str, text: str, what: str, at: int) -> TraceError:
    printable = "".join(c if c.isprintable() else " " for c in text)
    # A long expression is shown around the place where it fails.
    begin = max(0, at - 60)
    msg = f"map of `{target}`: {what}\n  {printable[begin : begin + 80]}\n  {' ' * (at - begin)}^"
    return TraceError(
        msg, hint="columns, numbers, 'words', + - * / ( ), floor, ceil, min and max; odd names go in `backquotes`"
    )


def _must_be_there(target: str, name: str, there: Sequence[str]) -> None:
    lookup(f"column of the file for `{target}`", name, there, error=TraceError, hint=f"it has {listed(there)}")
    if name == "line":
        msg = "a column named `line` cannot be read: the name is reserved"
        raise TraceError(msg, hint="rename it in the first line of the file")


def map_option(target: str, column: str, then: str = "") -> str:
    """The option that maps a column of the file, as a shell takes it: --map submit=created_at."""
    plain = named(column) == column and column.isascii()
    return f"--map {target}={column}{then}" if plain else f"--map {quote(f'{target}={named(column)}{then}')}"


def listed(names: Sequence[str], most: int = 30) -> str:
    """Names for a message, but not a thousand of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
