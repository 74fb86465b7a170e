"""Words and numbers as a formula takes them, or a word on which of them cannot be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, get_args

from fleetlab.core import WorkloadError
from fleetlab.queueing.distributions import KNOWN, Service, law


class Range(NamedTuple):
    """What a parameter means, and between which numbers it lies."""

    meaning: str
    low: float = 0.0
    high: float = math.inf
    at_low: bool = False  # may it be as low as that?
    at_high: bool = False


PARAMETERS = {
    "lam": Range("arrivals a second"),
    "mu": Range("jobs a second that one server does"),
    "c": Range("servers", 1, 1_000_000, at_low=True, at_high=True),
    "a": Range("offered load: arrivals a second times mean run time", at_low=True),
    "b": Range("servers that a job of each class holds", 1, 1_000_000, at_low=True, at_high=True),
    "n": Range("servers that a job of each class holds", 1, 1_000_000, at_low=True, at_high=True),
    "p": Range("the chance of each class", 0, 1, at_high=True),
    "ca2": Range("SCV of the gaps between arrivals", at_low=True),
    "cs2": Range("SCV of run times", at_low=True),
    "chance": Range("the chance to wait that is allowed", 0, 1),
    "period": Range("seconds after which the rates repeat"),
    "speed": Range("work a second that a GPU does with 1, 2, … jobs on it"),
    "service": Range(f"the law of run times: {KNOWN}"),
}


def read_parameters(formula: Callable[..., Any], told: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Every parameter of the formula, each what it must be."""
    takes = inspect.signature(formula, eval_str=True).parameters
    said = f"{name} takes {', '.join(takes)}"
    if unknown := [word for word in told if word not in takes]:
        msg = f"{name} has no parameter: `{unknown[0]}`"
        raise WorkloadError(msg, hint=said)
    if missing := [word for word in takes if told.get(word) is None]:
        msg = f"{name} needs: `{missing[0]}`, {PARAMETERS[missing[0]].meaning}"
        raise WorkloadError(msg, hint=said)
    return {word: _read(word, told[word], takes[word].annotation) for word in takes}


def _read(word: str, told: object, kind: object) -> object:
    if kind in _ONE:
        return _ONE[kind](word, told)
    one = _ONE[get_args(kind)[0]]
    several = told.split(",") if isinstance(told, str) else told if isinstance(told, Iterable) else [told]
    values = tuple(one(word, value) for value in several)
    if not values:
        msg = f"`{word}` needs a value at least: {PARAMETERS[word].meaning}"
        raise WorkloadError(msg, hint="one for each class, with commas between")
    return values


def _number(word: str, told: object) -> float:
    meaning, low, high, at_low, at_high = PARAMETERS[word]
    try:
        value = math.nan if isinstance(told, bool) else float(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if low < value < high or (at_low and value == low) or (at_high and value == high):
        return value
    ends = f"{low:g} or more" if at_low else f"above {low:g}"
    ends += "" if high == math.inf else f", {high:g} at most" if at_high else f", below {high:g}"
    msg = f"`{word}` is a number, {ends}, not: {told}"
    raise WorkloadError(msg, hint=f"{word}: {meaning}")


def _whole(word: str, told: object) -> int:
    value = _number(word, told)
    if value != int(value):
        msg = f"`{word}` is a whole number, not: {told}"
        raise WorkloadError(msg, hint=f"{word}: {PARAMETERS[word].meaning}")
    return int(value)


def _law(_word: str, told: object) -> Service:
    return law(told)


_ONE: dict[object, Callable[[str, object], object]] = {float: _number, int: _whole, Service: _law}
