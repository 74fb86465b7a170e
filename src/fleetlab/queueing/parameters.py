"""Parameters of the formulas: meaning, range, and validation."""

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
    "lam": Range("arrival rate, jobs/s"),
    "mu": Range("service rate of one server, jobs/s"),
    "c": Range("servers", 1, 1_000_000, at_low=True, at_high=True),
    "a": Range("offered load: arrival rate times mean service time", at_low=True),
    "b": Range("servers per job, by class", 1, 1_000_000, at_low=True, at_high=True),
    "n": Range("servers per job, by class", 1, 1_000_000, at_low=True, at_high=True),
    "p": Range("probability of each class", 0, 1, at_high=True),
    "ca2": Range("CV² of inter-arrival times", at_low=True),
    "cs2": Range("CV² of service times", at_low=True),
    "chance": Range("allowed probability of waiting", 0, 1),
    "period": Range("period of the rates, s"),
    "speed": Range("throughput of a GPU with 1, 2, … jobs on it, relative to one job alone"),
    "service": Range(f"service time distribution: {KNOWN}"),
}


def read_parameters(formula: Callable[..., Any], given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Every parameter of the formula, each what it must be."""
    takes = inspect.signature(formula, eval_str=True).parameters
    takes_text = f"{name} takes {', '.join(takes)}"
    if unknown := [word for word in given if word not in takes]:
        msg = f"{name} has no parameter: `{unknown[0]}`"
        raise WorkloadError(msg, hint=takes_text)
    if missing := [word for word in takes if given.get(word) is None]:
        msg = f"{name} needs: `{missing[0]}`, {PARAMETERS[missing[0]].meaning}"
        raise WorkloadError(msg, hint=takes_text)
    return {word: _read(word, given[word], takes[word].annotation) for word in takes}


def _read(word: str, given: object, kind: object) -> object:
    if kind in _ONE:
        return _ONE[kind](word, given)
    one = _ONE[get_args(kind)[0]]
    several = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
    values = tuple(one(word, value) for value in several)
    if not values:
        msg = f"`{word}` needs at least one value: {PARAMETERS[word].meaning}"
        raise WorkloadError(msg, hint="one per class, comma-separated")
    return values


def _number(word: str, given: object) -> float:
    meaning, low, high, at_low, at_high = PARAMETERS[word]
    try:
        value = math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if low < value < high or (at_low and value == low) or (at_high and value == high):
        return value
    ends = f"{low:g} or more" if at_low else f"above {low:g}"
    ends += "" if high == math.inf else f", {high:g} at most" if at_high else f", below {high:g}"
    msg = f"`{word}` is a number, {ends}, not: {given}"
    raise WorkloadError(msg, hint=f"{word}: {meaning}")


def _whole(word: str, given: object) -> int:
    value = _number(word, given)
    if value != int(value):
        msg = f"`{word}` is a whole number, not: {given}"
        raise WorkloadError(msg, hint=f"{word}: {PARAMETERS[word].meaning}")
    return int(value)


def _law(_word: str, given: object) -> Service:
    return law(given)


_ONE: dict[object, Callable[[str, object], object]] = {float: _number, int: _whole, Service: _law}
