"""What a study asks for: cases (a trace, a load, nodes, rules), and cells: a case with a seed, and an address."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any

# The words of `simulate` that a study may vary, each with what it means if it is left out.
RULES: dict[str, Any] = {
    "order": "fifo",
    "backfill": "greedy",
    "placement": "best_fit",
    "estimate": "oracle",
    "sharing": "fractional",
    "speed": None,
    "preemption": False,
    "events": None,
    "quota": None,
    "until": None,
}
AXES = ("trace", "load", "nodes", *RULES)
AS_IT_IS = "as it is"
Words = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that decides a run but the seed."""

    trace: str
    load: float
    nodes: str
    rules: tuple[tuple[str, Any], ...]  # those of RULES, all of them, in that order

    @property
    def words(self) -> dict[str, Any]:
        """Its value on each axis."""
        return {"trace": self.trace, "load": self.load, "nodes": self.nodes, **dict(self.rules)}

    def with_words(self, other: Words) -> Case:
        """The same but for some words."""
        words = self.words | dict(other)
        return Case(words["trace"], words["load"], words["nodes"], tuple((k, words[k]) for k in RULES))


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a case, a seed, and the address under which its result is kept."""

    case: Case
    seed: int
    key: str


def combined(rules: Iterable[Mapping[str, list[Any]]]) -> list[tuple[tuple[str, Any], ...]]:
    """Every combination of the words in each table, none twice.

    >>> [dict(r)["order"] for r in combined([{"order": ["fifo", "sjf"]}])]
    ['fifo', 'sjf']
    """
    found: dict[tuple[tuple[str, Any], ...], None] = {}
    for table in rules:
        lists = [table.get(word, [usual]) for word, usual in RULES.items()]
        found |= dict.fromkeys(tuple(zip(RULES, values, strict=True)) for values in product(*lists))
    return list(found)


def address(about: Mapping[str, Any]) -> str:
    """A name for everything that decides a result: the same words give the same name, any other word another.

    >>> address({"a": 1, "b": 2}) == address({"b": 2, "a": 1}), address({"a": 1}) == address({"a": 1.5})
    (True, False)
    """
    text = json.dumps(about, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:32]
