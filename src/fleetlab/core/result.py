"""Numbers that know how sure they are, and results that know how they came to be."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import polars as pl

from fleetlab.core.figure import figures_of


class Estimate(NamedTuple):
    """A number that knows how sure it is; an exact count has `low == value == high`."""

    metric: str
    value: float
    low: float
    high: float
    unit: str

    @classmethod
    def exact(cls, metric: str, value: float, unit: str = "") -> Estimate:
        """A number that was counted, not estimated.

        >>> Estimate.exact("jobs", 3)
        Estimate(metric='jobs', value=3, low=3, high=3, unit='')
        """
        return cls(metric, value, value, value, unit)


def say(e: Estimate) -> str:
    """Give the number with as many digits as its interval has earned.

    >>> say(Estimate("mean wait", 0.8321, 0.6912, 0.9730, "s"))
    'mean wait 0.83 s (0.69 to 0.97)'
    >>> say(Estimate.exact("jobs", 1260920))
    'jobs 1,260,920'
    >>> say(Estimate("mean wait", 2.0, 0.0, math.inf, "s"))  # nothing is known of how long it may be
    'mean wait 2 s (0 to inf)'
    """
    unit = f" {e.unit}" if e.unit else ""
    if math.isnan(e.high - e.low) or e.high == e.low:
        return f"{e.metric} {_plain(e.value)}{unit}"
    if math.isinf(e.high - e.low):
        return f"{e.metric} {_plain(e.value)}{unit} ({_plain(e.low)} to {_plain(e.high)})"
    # Two digits of the interval's half width, and no more, mean something.
    digits = 1 - math.floor(math.log10(e.high - e.low) - math.log10(2))
    value, low, high = (f"{round(x, digits):,.{max(0, digits)}f}" for x in (e.value, e.low, e.high))
    return f"{e.metric} {value}{unit} ({low} to {high})"


def _plain(value: float) -> str:
    whole = math.isfinite(value) and float(value).is_integer()
    if whole:
        return f"{int(value):,}"
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4g}"


@cache
def _version() -> str:
    return version("fleetlab")  # looks for a file each time, as long as a small simulation takes


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a result came to be: enough to run it again."""

    verb: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = field(default_factory=_version)

    def to_json(self) -> dict[str, Any]:
        """As plain values, ready for `json.dumps`."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"settings": dict(self.settings)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Provenance:
        """Undo `to_json`."""
        return cls(**values)


class Result(Protocol):
    """All that `report` and the command line know of a room.

    A result may also have `sentences` to say first, `notes` to say last, and `figures()`, a `Figure` by name.
    """

    @property
    def provenance(self) -> Provenance:
        """How it came to be."""

    def summary(self) -> list[Estimate]:
        """The few numbers to say first."""

    def tables(self) -> dict[str, pl.DataFrame]:
        """The rest, by name."""


def as_json(result: Result) -> str:
    """One object with `provenance`, `summary` and `tables`, for machines.

    What is not a number becomes null, and what has no end, such as a wait where more comes than can be served, "inf".
    Notes, where a result has some, are a table too; sentences and figures, where it has some, come as `sentences` and
    `figures`.
    """
    tables = {name: list(frame.iter_rows(named=True)) for name, frame in result.tables().items()}
    if notes := getattr(result, "notes", ()):
        tables["notes"] = [{"note": note} for note in notes]
    found: dict[str, Any] = {
        "provenance": result.provenance.to_json(),
        "summary": [e._asdict() for e in result.summary()],
        "tables": tables,
    }
    if said := getattr(result, "sentences", ()):
        found["sentences"] = [str(line) for line in said]
    if drawn := figures_of(result):
        found["figures"] = _finite({name: figure.to_json() for name, figure in drawn.items()}, endless=False)
    return json.dumps(_finite(found), ensure_ascii=False, default=str)


def _finite(value: object, *, endless: bool = True) -> object:
    # JSON has neither NaN nor infinity: a reader in another language would stumble over them. Nothing endless is drawn.
    if isinstance(value, Mapping):
        return {str(k): _finite(v, endless=endless) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v, endless=endless) for v in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return str(value) if endless and math.isinf(value) else None
