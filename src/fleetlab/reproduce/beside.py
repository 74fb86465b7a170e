"""Items of what `describe` already puts beside a trace: published curves, numbers and values by hour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from fleetlab.describe.published import PAI, known
from fleetlab.reproduce.item import SYNTHETIC, Cell, Item

TABLE = "published"  # of `describe`: a row for each curve, with the number of points that are within what is known
WHOLE = ("jobs per user", "runs of a group")  # how many jobs a user has depends on how long one looks


WORK = re.compile(r"(.*?(?:\)|v20\d\d)), (.*)")  # of a source: the work, and the place in it


class Place(NamedTuple):
    """Where `describe` has our value of a published number: the column `key` of a table has its name."""

    table: str
    key: str
    column: str
    rule: str = "figure"
    row: Mapping[str, object] = {}
    names: Mapping[str, str] = {}  # where a value is called otherwise in the table
    unit: str = "%"
    scale: float = 1.0
    why: Mapping[str, str] = {}  # by name, or "" for all
    fitted: bool = True


def curve_items(trace: str, *, missing: Mapping[str, str] | None = None) -> Iterator[Item]:
    """Yield an item for each curve that was published of a trace; `missing` says by figure why it is not possible."""
    for figure, curves in known()["curves"].items():
        for series, curve in curves.items():
            if curve.get("trace", PAI) == trace:
                yield _curve(figure, series, curve, (missing or {}).get(figure, ""))


def _curve(figure: str, series: str, curve: Mapping[str, Any], not_possible: str) -> Item:
    work, _, place = curve["source"].rpartition(", ")
    printed = curve["read"] == "printed"
    said = ", ".join(f"P{y:g} {x:g}" for x, y in curve["points"]) if printed else f"{len(curve['points'])} points"
    cell = Cell(TABLE, {"figure": figure, "series": series}, "outside")
    return Item(
        place, f"{figure}: {series}", said, work, "curve", ours=cell, not_possible=not_possible, fitted=not printed,
        whole=figure in WHOLE,
    )  # fmt: skip


def outside(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table of `describe` with the number of points that are farther off than can be told."""
    gap = pl.col("KS distance, points").round(2).cast(pl.String)
    return frame.with_columns(
        (pl.col("points") - pl.col("within")).alias("outside"),
        pl.format("{} of {} met, within {} points of level", "within", "points", gap).alias("outside, text"),
    )


def number_items(trace: str, places: Mapping[str, Place]) -> Iterator[Item]:
    """Yield an item for each number that was published of a trace; all of them must have a place."""
    for name, group in known()["numbers"].items():
        if group.get("trace", PAI) == trace:
            yield from (
                _number(name, key, value, group["source"], places[name]) for key, value in group["values"].items()
            )


def _number(name: str, key: str, value: float, source: str, place: Place) -> Item:
    work, where = parts.groups() if (parts := WORK.fullmatch(source)) else (source, "text")
    cell = Cell(place.table, {place.key: place.names.get(key, key), **place.row}, place.column, place.scale)
    published = f"{value * place.scale:.10g}" if place.scale != 1 else f"{value:g}"
    return Item(
        where, f"{name}: {key}", published, work, place.rule, place.unit, cell,
        why=place.why.get(key, place.why.get("", "")), fitted=place.fitted,
        why_on=SYNTHETIC, whole=place.rule in ("printed", "allocated"),
    )  # fmt: skip
