"""The cells of a suite as they were written: read, named, and put into groups."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import DeviceError

Cell = dict[str, Any]
Schema = dict[str, Any]
ASKED = ("cell", "stage", "mode", "block", "status")
TOLD = ("tenants", "gpu")  # of a cell that was measured


def text(path: Path) -> str:
    """A file as it was written, or packed by gzip, as one keeps it."""
    packed = path.with_name(path.name + ".gz")
    return (
        path.read_text("utf-8")
        if path.exists() or not packed.exists()
        else gzip.decompress(packed.read_bytes()).decode()
    )


def read(folder: Path) -> tuple[dict[str, Any], list[Cell], bool]:
    """What the suite was, every try at a cell, and whether the last line was cut off."""
    try:
        about = json.loads((folder / "manifest.json").read_text("utf-8"))
        lines, cut = whole_lines(text(folder / "cells.jsonl"))
        tries = [_checked(json.loads(line)) for line in lines]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as e:
        msg = f"{folder}: holds no measured suite: {e}"
        raise DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one") from None
    return about, tries, cut


def whole_lines(written: str) -> tuple[list[str], bool]:
    """Lines; one that a killed run left half written is no line."""
    lines = written.splitlines()
    if not lines or written.endswith("\n"):
        return lines, False
    try:
        json.loads(lines[-1])
    except ValueError:
        return lines[:-1], True
    return lines, False


def _checked(cell: Cell) -> Cell:
    asked = ASKED + (TOLD if cell["status"] == "ok" else ())
    if missing := [key for key in asked if key not in cell]:
        msg = f"a cell without {', '.join(missing)}"
        raise ValueError(msg)
    return cell


def last(tries: Iterable[Cell]) -> list[Cell]:
    """Of a cell that was measured again, the last try."""
    return list({c["cell"]: c for c in tries}.values())


# --- names -----------------------------------------------------------------------------------------------------------


def timed(one: Cell) -> bool:
    """Was this tenant fed by a timetable? Then its rate is what was asked of it, not what it can do."""
    return "lag" in one or "offered" in one


def part(tenants: Sequence[Cell]) -> bool:
    """Has one of them less than the whole card?"""
    return any("@" in t["seat"] and not t["seat"].endswith("@100") for t in tenants)


def listed(seats: list[str]) -> str:
    """Names in order, the same ones counted: `3 launch + gemm`."""
    return " + ".join(f"{n} {name}" if (n := seats.count(name)) > 1 else name for name in dict.fromkeys(sorted(seats)))


def mix(cell: Cell) -> str:
    """Who was in a cell; of one that failed, who was to be in it."""
    if cell["status"] == "ok":
        return listed([t["seat"] for t in cell["tenants"]]) or "idle"
    label = str(cell["cell"]).split("/", 2)[-1]
    count, times, name = label.partition("x")
    if times and count.isdigit():
        return listed([name] * int(count))
    return listed(label.split("+"))


def beside(seats: Sequence[str], seat: str) -> str:
    """The others, by name."""
    others = list(seats)
    others.remove(seat)
    return listed(others)


# --- groups and frames -----------------------------------------------------------------------------------------------


def grouped(keyed: Iterable[tuple[str, str, Cell]]) -> dict[tuple[str, str], list[Cell]]:
    """Cells of one stage and name."""
    by: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for stage, name, cell in keyed:
        by[stage, name].append(cell)
    return by


def frame(rows: Iterable[dict[str, Any]], schema: Schema | None = None) -> pl.DataFrame:
    """A table; of no rows, with the columns that others ask for."""
    made = list(rows)
    return pl.DataFrame(made, infer_schema_length=None) if made else pl.DataFrame(schema=schema or {})


def mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    many = list(values)
    return sum(many) / len(many) if many else None
