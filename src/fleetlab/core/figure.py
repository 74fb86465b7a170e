"""A figure before it is drawn: what lies on which axis, and what it says to one who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import polars as pl

from fleetlab.core.cells import Framed, cell
from fleetlab.core.errors import WorkloadError

Kind = Literal["line", "step", "bar", "dots", "heat", "span"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Figure(Framed):
    """One figure: a long frame with `x`, `y`, and where there are several curves `series`.

    `low` and `high`, where the frame has them, are the interval of `y`. A `heat` has `x`, `y` (both names) and `value`.
    `x` may be numbers or names; names stay in the order in which they come. A `step` holds its value until the next.
    A `span` has bars from `low` to `high` in the row of the name `x`; `y` is how long those of a row are in all.
    """

    title: str
    kind: Kind
    frame: pl.DataFrame
    x: str  # what the axis shows, with its unit
    y: str
    alt: str  # what it shows, in a sentence
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        needs = {"x", "y"} | {"heat": {"value"}, "span": {"low", "high"}}.get(self.kind, set())
        if self.kind not in KINDS or not needs <= set(self.frame.columns):
            msg = f"not a figure: {self.title}: {self.kind} of {self.frame.columns}"
            raise WorkloadError(msg, hint=f"kinds are {', '.join(KINDS)}; columns x, y, series, low, high, or value")

    def _repr_html_(self) -> str:
        return cell(self)

    def to_json(self) -> dict[str, Any]:
        """As plain values; undone by `from_json`."""
        told = {name: getattr(self, name) for name in ("title", "kind", "x", "y", "alt", "log_x", "log_y")}
        return told | {"columns": {name: self.frame[name].to_list() for name in self.frame.columns}}

    @classmethod
    def from_json(cls, about: Mapping[str, Any]) -> Figure:
        """What `to_json` wrote."""
        values = {name: about[name] for name in ("title", "kind", "x", "y", "alt", "log_x", "log_y")}
        return cls(frame=pl.DataFrame(about["columns"], strict=False), **values)
