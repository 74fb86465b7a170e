"""What --map asks for: each column of a workload as an expression over the columns of a file.

gpus * 1000      `GPU count` * 1000      (end - start) / 60      ceil(gpus / 8)      min(gpus, 8)      'A100'

A bare word is a column of the file; a name with other characters stands in backquotes. Nothing is ever executed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import polars as pl

from fleetlab.core import TraceError
from fleetlab.core.catalog import REQUESTS
from fleetlab.core.names import lookup
from fleetlab.core.workload import SCHEMA

LONGEST = 500  # characters of an expression
DEEPEST = 50  # parentheses and signs inside one another

WORD = r"[^\W\d][\w.]*"  # a name that needs no backquotes
TOKEN = re.compile(
    rf"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>{WORD})
    | `(?P<quoted>[^`]+)`
    | '(?P<single>[^']*)'
    | "(?P<double>[^"]*)"
    | (?P<sign>[-+*/(),])
    )""",
    re.VERBOSE,
)


class ExpressionError(Exception):
    """An expression that cannot be read, and at which character it fails; who knows which map it is tells the user."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True)
class NumberLiteral:
    """A number as written."""

    value: float


@dataclass(frozen=True)
class TextLiteral:
    """A quoted word: the same for every row."""

    value: str


@dataclass(frozen=True)
class ColumnRef:
    """A column of the file, by name."""

    name: str


@dataclass(frozen=True)
class Operation:
    """Numbers joined by a sign, or given to a function."""

    name: str
    of: tuple[Node, ...]


Node = NumberLiteral | TextLiteral | ColumnRef | Operation


@dataclass(frozen=True)
class _Token:
    kind: str  # number, word, text, sign or end
    value: str
    at: int


def parse(text: str) -> Node:
    """Read an expression, or say at which character it stops making sense.

    >>> parse("gpus * 1000")
    Operation(name='*', of=(ColumnRef(name='gpus'), NumberLiteral(value=1000.0)))
    """
    if len(text) > LONGEST:
        what = f"longer than {LONGEST:,} characters"
        raise ExpressionError(what, LONGEST)
    return _Reader(list(_tokens(text))).all()


def named(column: str) -> str:
    """A column's name as an expression has it.

    >>> named("gpus"), named("GPU count")
    ('gpus', '`GPU count`')
    """
    return column if re.fullmatch(WORD, column) else f"`{column}`"


def columns(node: Node) -> list[str]:
    """The columns that an expression asks for, each once, in order."""
    if isinstance(node, ColumnRef):
        return [node.name]
    if isinstance(node, Operation):
        return list(dict.fromkeys(name for part in node.of for name in columns(part)))
    return []


def evaluate(node: Node, number: Callable[[str], pl.Series], rows: int) -> pl.Series:
    """The number that a numeric expression has in each row; `number` gives those of a column.

    What is missing stays missing; a division by zero gives an infinity or NaN, as floats do.
    """
    if isinstance(node, ColumnRef):
        return number(node.name)
    if isinstance(node, Operation):
        return OPERATIONS[node.name](*(evaluate(part, number, rows) for part in node.of))
    assert isinstance(node, NumberLiteral)  # a text among numbers was refused when the expression was read
    return pl.repeat(node.value, rows, dtype=pl.Float64, eager=True)


def _chosen(left: pl.Series, right: pl.Series, first: pl.Series) -> pl.Series:
    """One of two numbers; missing, or not a number, where either is."""
    both = left + right
    return left.zip_with(first.fill_null(value=False), right).zip_with(both.is_not_null() & both.is_not_nan(), both)


FUNCTIONS = {"floor": 1, "ceil": 1, "min": 2, "max": 2}  # and how many numbers each takes
OPERATIONS: dict[str, Callable[..., pl.Series]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "negative": operator.neg,
    "floor": pl.Series.floor,
    "ceil": pl.Series.ceil,
    "min": lambda left, right: _chosen(left, right, left <= right),
    "max": lambda left, right: _chosen(left, right, left >= right),
}


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        begin = at + len(text[at:]) - len(text[at:].lstrip())
        if match is None:
            raise ExpressionError(_unreadable(text[begin]), begin)
        kind = match.lastgroup or ""
        value = match[kind]
        kind = {"quoted": "word", "single": "text", "double": "text"}.get(kind, kind)
        yield _Token(kind, value, begin)
        at = match.end()
    yield _Token("end", "", len(text))


def _unreadable(character: str) -> str:
    if character in "`'\"":
        return "a quote is opened and not closed"
    return f"no such sign in an expression: {character}"


class _Reader:
    """Reads tokens by descent: a sum of products of factors."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._k = 0
        self._depth = 0

    def all(self) -> Node:
        node = self._sum()
        if self._next.kind != "end":
            what = "a sign + - * / is missing"
            raise ExpressionError(what, self._next.at)
        return node

    @property
    def _next(self) -> _Token:
        return self._tokens[self._k]

    def _take(self) -> _Token:
        token = self._next
        self._k += 1
        return token

    def _sum(self) -> Node:
        return self._chain("+-", self._product)

    def _product(self) -> Node:
        return self._chain("*/", self._factor)

    def _chain(self, signs: str, part: Callable[[], Node]) -> Node:
        at = self._next.at
        node = part()
        while self._next.kind == "sign" and self._next.value in signs:
            sign = self._take()
            right_at = self._next.at
            right = part()
            _must_be_number(node, at)
            _must_be_number(right, right_at)
            node = Operation(sign.value, (node, right))
        return node

    def _factor(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return _number(token)
        if token.kind == "word":
            return self._called(token) if self._next.value == "(" else ColumnRef(token.value)
        if token.kind == "text":
            return TextLiteral(token.value)
        if token.value == "(":
            return self._inside(token, 1)[0]
        if token.value in ("-", "+"):
            at = self._next.at
            node = self._deeper(token, self._factor)
            _must_be_number(node, at)
            return Operation("negative", (node,)) if token.value == "-" else node
        raise ExpressionError(
            "it ends too early" if token.kind == "end" else "a column or a number is missing", token.at
        )

    def _called(self, function: _Token) -> Node:
        if function.value not in FUNCTIONS:
            what = f"no such function: {function.value}; there are {', '.join(FUNCTIONS)}"
            raise ExpressionError(what, function.at)
        numbers = self._inside(self._take(), FUNCTIONS[function.value])
        for node in numbers:
            _must_be_number(node, function.at)
        return Operation(function.value, tuple(numbers))

    def _inside(self, opened: _Token, count: int) -> list[Node]:
        """Read what stands in parentheses, between commas."""
        nodes = [self._deeper(opened, self._sum)]
        while self._next.value == ",":
            nodes.append(self._deeper(self._take(), self._sum))
        if self._take().value != ")":
            what = "a parenthesis is opened here and not closed"
            raise ExpressionError(what, opened.at)
        if len(nodes) != count:
            what = f"{count} expected in these parentheses, got: {len(nodes)}"
            raise ExpressionError(what, opened.at)
        return nodes

    def _deeper(self, token: _Token, part: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEEPEST:
            what = f"more than {DEEPEST} parentheses or signs inside one another"
            raise ExpressionError(what, token.at)
        node = part()
        self._depth -= 1
        return node


def _must_be_number(node: Node, at: int) -> None:
    if isinstance(node, TextLiteral):
        what = "a quoted word cannot be reckoned with"
        raise ExpressionError(what, at)


def _number(token: _Token) -> NumberLiteral:
    value = float(token.value)
    if not math.isfinite(value):
        what = "a number beyond all bounds"
        raise ExpressionError(what, token.at)
    return NumberLiteral(value)


TIMES = ("submit", "eligible", "start", "end")
DERIVED = ("initial", "runtime_at_least")  # they follow from the times
# What tables rarely have, or not as a cell.
UNREAD = (
    "reservation", "distinct_nodes", "exclusive", "requeue", "nice", "depends_on", "dependency", "gang", "array",
    "array_limit",
)  # fmt: skip
SPLIT = "gpus_per_node"  # no column of a workload: a job of more GPUs is split into instances of at most so many
ESTIMATE = "estimate"  # nor is this: the estimated runtime of a job, which becomes a series of the trace
COUNTS = ("instances", "max_per_node", "priority", SPLIT)  # of things that have no parts
AMOUNTS = ("instances", *REQUESTS, "max_per_node", "priority", SPLIT)
NODES = "node_list"  # nor is this: the nodes that a job ran on, which become placements of the trace
TEXTS = (
    "job", "parent", "user", "group", "app", "gpu_types", "partitions", "constraint", "queue", "qos", "status", NODES,
)  # fmt: skip
TARGETS = (*(name for name in SCHEMA if name not in (*DERIVED, *UNREAD)), SPLIT, ESTIMATE, NODES)
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

    @property
    def kinds(self) -> dict[str, str]:
        """Which column of a workload a number is for: by it, `4h30m` and `16GB` are read."""
        return {name: target for target, node in self.nodes.items() if target not in TEXTS for name in columns(node)}

    def with_guesses(self, expressions: Mapping[str, str]) -> ColumnMap:
        """Return the map with columns that were guessed."""
        nodes = {**self.nodes, **{target: parse(text) for target, text in expressions.items()}}
        if SPLIT in nodes and "gpu_milli" not in nodes:
            msg = f"map of `{SPLIT}`: there are no GPUs to split"
            raise TraceError(msg, hint="map gpu_milli too: --map gpu_milli=gpus*1000")
        return replace(self, nodes={t: nodes[t] for t in TARGETS if t in nodes}, guessed=frozenset(expressions))


def column_map(expressions: Mapping[str, str], there: Sequence[str], zone: str) -> ColumnMap:
    """Read every expression; a column that nobody mapped is taken from the file's column of that name."""
    own = {name: ColumnRef(name) for name in TARGETS if name in there and name != SPLIT}
    nodes = own | {target: _node(target, text, there) for target, text in expressions.items()}
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
