"""Slurm's shorthand for many nodes: `gpu[001-003,007],login1`.

A list comes from a stranger, and nine characters can name a billion nodes: they are counted before any is written out.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod

MOST = 100_000  # nodes in one list; the largest machine there is has a tenth of it
LONGEST = 253  # characters of a name, as in DNS
NO_NODES = frozenset({"", "none assigned", "none", "(null)", "n/a", "unknown"})

# What is plain in a name, what is in brackets, and what stands between two names.
_PIECE = re.compile(r"([^\s\[\],|]+)|\[([^\[\]]*)\]|(,)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")

Span = tuple[int, int, int]  # first, last, digits to pad to
Name = list[list[Span] | str]  # its pieces: plain, or ranges of numbers


def expand(text: str) -> list[str]:
    """Every node that a list names, in its order; ValueError for what is not one, or names too many.

    >>> expand("gpu[08-10],login1")
    ['gpu08', 'gpu09', 'gpu10', 'login1']
    """
    if text.strip().lower() in NO_NODES:
        return []
    names = _names(text.strip())
    if sum(_size(name) for name in names) > MOST:
        msg = f"more than {MOST:,} nodes in a list"
        raise ValueError(msg)
    return ["".join(spelt) for name in names for spelt in product(*(_spellings(piece) for piece in name))]


def _names(text: str) -> list[Name]:
    names: list[Name] = [[]]
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if not match:
            raise ValueError(_NOT_A_LIST)
        at = match.end()
        plain, ranges, comma = match.groups()
        if comma:
            names.append([])
        else:
            names[-1].append(_spans(ranges) if plain is None else plain)
    if any(not name or _length(name) > LONGEST for name in names):
        raise ValueError(_NOT_A_LIST)
    return names


def _length(name: Name) -> int:
    return sum(len(p) if isinstance(p, str) else max(len(str(last)) for _, last, _ in p) for p in name)


def _spans(ranges: str) -> list[Span]:
    spans = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(first) > int(last):
            raise ValueError(_NOT_A_LIST)
        spans.append((int(first), int(last), len(first)))
    return spans


def _size(name: Name) -> int:
    return prod(sum(last - first + 1 for first, last, _ in p) for p in name if not isinstance(p, str))


def _spellings(piece: list[Span] | str) -> list[str]:
    if isinstance(piece, str):
        return [piece]
    return [f"{n:0{width}d}" for first, last, width in piece for n in range(first, last + 1)]


_NOT_A_LIST = "not a list of nodes"
