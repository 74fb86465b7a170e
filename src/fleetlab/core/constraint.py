"""Which features a node must have: an expression of names with &, |, ! and parentheses, as Slurm's `--constraint`.

Kubernetes' node labels are features too, `key=value`: a node selector is a constraint of such names.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fleetlab.core.errors import WorkloadError

# A count (a*2) says how many nodes need a feature, and brackets ([a|b]) that all nodes need the same: neither is read.
_TOKEN = re.compile(r"\s*(?:([&|!()\[\],])|\*\d+|([^\s&|!()\[\],*]+))")
_OPEN, _CLOSE = {"[": "("}, {"]": ")"}
_HINT = "names of features with & (and), | (or), ! (not) and parentheses: a100&(nvlink|ib)"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A parsed expression.

    >>> Constraint.of("a100&(nvlink|!ib)").meets({"a100"})
    True
    >>> Constraint.of("a100&nvlink").names
    ('a100', 'nvlink')
    """

    text: str
    names: tuple[str, ...]
    tree: Any

    @classmethod
    def of(cls, text: str) -> Constraint:
        """Parse an expression; & binds more tightly than |, and a comma is an &."""
        tokens = _tokens(text)
        tree, rest = _either(tokens, text)
        if rest:
            raise _refusal(text, rest[0])
        return cls(text, tuple(sorted(set(_names(tree)))), tree)

    def meets(self, features: Collection[str]) -> bool:
        """Return whether a node with these features meets it."""
        return _holds(self.tree, features)


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    body = text.rstrip()
    while at < len(body):
        match = _TOKEN.match(body, at)
        if match is None:
            raise _refusal(text, body[at:])
        at = match.end()
        token = match[1] or match[2]
        if token:
            tokens.append({**_OPEN, **_CLOSE}.get(token, token))
    return tokens


def _either(tokens: list[str], text: str) -> tuple[Any, list[str]]:
    return _chain(tokens, text, ("|",), "|", _all)


def _all(tokens: list[str], text: str) -> tuple[Any, list[str]]:
    return _chain(tokens, text, ("&", ","), "&", _one)


def _chain(tokens: list[str], text: str, signs: tuple[str, ...], name: str, part: Any) -> tuple[Any, list[str]]:  # noqa: ANN401
    tree, tokens = part(tokens, text)
    parts = [tree]
    while tokens and tokens[0] in signs:
        tree, tokens = part(tokens[1:], text)
        parts.append(tree)
    return (parts[0] if len(parts) == 1 else (name, parts)), tokens


def _one(tokens: list[str], text: str) -> tuple[Any, list[str]]:
    if not tokens or tokens[0] in ("&", "|", ",", ")"):
        raise _refusal(text, tokens[0] if tokens else "its end")
    if tokens[0] == "!":
        tree, rest = _one(tokens[1:], text)
        return ("!", [tree]), rest
    if tokens[0] != "(":
        return tokens[0], tokens[1:]
    tree, rest = _either(tokens[1:], text)
    if not rest or rest[0] != ")":
        raise _refusal(text, rest[0] if rest else "its end")
    return tree, rest[1:]


def _names(tree: Any) -> list[str]:  # noqa: ANN401
    return [tree] if isinstance(tree, str) else [name for part in tree[1] for name in _names(part)]


def _holds(tree: Any, features: Collection[str]) -> bool:  # noqa: ANN401
    if isinstance(tree, str):
        return tree in features
    sign, parts = tree
    if sign == "!":
        return not _holds(parts[0], features)
    return (all if sign == "&" else any)(_holds(part, features) for part in parts)


def _refusal(text: str, at: str) -> WorkloadError:
    return WorkloadError(f"a constraint cannot be read: `{text}`, at: {at}", hint=_HINT)
