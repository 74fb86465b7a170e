"""The little language of `--map`: columns, numbers, quoted words, + - * /, parentheses and four functions.

    gpus * 1000      `GPU count` * 1000      (end - start) / 60      min(gpus, 8)      ceil(gpus / 8)      'A100'

A bare word is a column of the file; a name with spaces or other odd characters stands in backquotes.
Nothing is ever executed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

LONGEST = 500  # characters of an expression
DEEPEST = 50  # parentheses and signs inside one another
FUNCTIONS = {"floor": 1, "ceil": 1, "min": 2, "max": 2}  # and how many numbers each takes at least

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
class Negation:
    """The negative of a number."""

    of: Node


@dataclass(frozen=True)
class BinaryOperation:
    """Two numbers joined by + - * or /."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class FunctionCall:
    """One of the functions, of one number or several."""

    name: str
    of: tuple[Node, ...]


Node = NumberLiteral | TextLiteral | ColumnRef | Negation | BinaryOperation | FunctionCall


@dataclass(frozen=True)
class _Token:
    kind: str  # number, word, text, sign or end
    value: str
    at: int


def parse(text: str) -> Node:
    """Read an expression, or say at which character it stops making sense.

    >>> parse("gpus * 1000")
    BinaryOperation(sign='*', left=ColumnRef(name='gpus'), right=NumberLiteral(value=1000.0))
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
    if isinstance(node, Negation):
        return columns(node.of)
    if isinstance(node, BinaryOperation):
        return list(dict.fromkeys([*columns(node.left), *columns(node.right)]))
    if isinstance(node, FunctionCall):
        return list(dict.fromkeys(name for part in node.of for name in columns(part)))
    return []


def evaluate(node: Node, number: Callable[[str], pl.Series], rows: int) -> pl.Series:
    """The number that a numeric expression has in each row; `number` gives those of a column.

    What is missing stays missing; a division by zero gives an infinity or NaN, as floats do.
    """
    if isinstance(node, ColumnRef):
        return number(node.name)
    if isinstance(node, Negation):
        return -evaluate(node.of, number, rows)
    if isinstance(node, BinaryOperation):
        left, right = evaluate(node.left, number, rows), evaluate(node.right, number, rows)
        return _joined(node.sign, left, right)
    if isinstance(node, FunctionCall):
        return _called(node.name, [evaluate(part, number, rows) for part in node.of])
    assert isinstance(node, NumberLiteral)  # a text among numbers was refused when the expression was read
    return pl.repeat(node.value, rows, dtype=pl.Float64, eager=True)


def _joined(sign: str, left: pl.Series, right: pl.Series) -> pl.Series:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    return left * right if sign == "*" else left / right


def _called(name: str, numbers: list[pl.Series]) -> pl.Series:
    if name in ("floor", "ceil"):
        return numbers[0].floor() if name == "floor" else numbers[0].ceil()
    every = pl.all()
    chosen = pl.min_horizontal(every) if name == "min" else pl.max_horizontal(every)
    # The library passes over what is missing or not a number: here neither may vanish.
    number = pl.when(pl.any_horizontal(every.is_nan())).then(float("nan")).otherwise(chosen)
    missing = pl.any_horizontal(every.is_null())
    frame = pl.DataFrame({str(k): series for k, series in enumerate(numbers)})
    return frame.select(pl.when(~missing).then(number).alias("number"))["number"]


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
            node = BinaryOperation(sign.value, node, right)
        return node

    def _factor(self) -> Node:
        token = self._take()
        if token.kind == "number":
            return _number(token)
        if token.kind == "word":
            return self._called(token) if self._next.value == "(" else ColumnRef(token.value)
        if token.kind == "text":
            return TextLiteral(token.value)
        if token.value in ("-", "+", "("):
            return self._deeper(token)
        raise ExpressionError(
            "it ends too early" if token.kind == "end" else "a column or a number is missing", token.at
        )

    def _called(self, function: _Token) -> Node:
        least = FUNCTIONS.get(function.value)
        if least is None:
            what = f"no such function: {function.value}; there are {', '.join(FUNCTIONS)}"
            raise ExpressionError(what, function.at)
        inside: list[Node] = []
        token = self._take()
        while token.value != ")":
            at = self._next.at
            inside.append(self._inside(token))
            _must_be_number(inside[-1], at)
            token = self._take()
            if token.value not in (",", ")"):
                what = f"the parenthesis of {function.value} is not closed"
                raise ExpressionError(what, token.at)
        if len(inside) < least or (least == 1 and len(inside) > 1):
            what = f"{function.value} takes one number" if least == 1 else f"{function.value} takes two numbers or more"
            raise ExpressionError(what, function.at)
        return FunctionCall(function.value, tuple(inside))

    def _inside(self, token: _Token) -> Node:
        """What follows a parenthesis, a comma or a sign: counted, so that no text makes the reader descend forever."""
        self._depth += 1
        if self._depth > DEEPEST:
            what = f"more than {DEEPEST} parentheses or signs inside one another"
            raise ExpressionError(what, token.at)
        node = self._factor() if token.value in ("-", "+") else self._sum()
        self._depth -= 1
        return node

    def _deeper(self, token: _Token) -> Node:
        at = self._next.at
        node = self._inside(token)
        if token.value == "(":
            if self._take().value != ")":
                what = "a parenthesis is opened here and not closed"
                raise ExpressionError(what, token.at)
            return node
        _must_be_number(node, at)
        return Negation(node) if token.value == "-" else node


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
