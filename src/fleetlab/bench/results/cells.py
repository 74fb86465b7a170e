"""Read the cells of a suite from disk, name and group them."""

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
REQUIRED_KEYS = ("cell", "stage", "mode", "block", "status")
MEASURED_KEYS = ("tenants", "gpu")  # of a successful cell


def read_text(path: Path) -> str:
    """Read a file, or its gzip-compressed copy."""
    packed = path.with_name(path.name + ".gz")
    return (
        path.read_text("utf-8")
        if path.exists() or not packed.exists()
        else gzip.decompress(packed.read_bytes()).decode()
    )


def read_cells(folder: Path) -> tuple[dict[str, Any], list[Cell], bool]:
    """Read manifest and cells (every try); and whether the last line was truncated."""
    try:
        about = json.loads((folder / "manifest.json").read_text("utf-8"))
        lines, cut = whole_lines(read_text(folder / "cells.jsonl"))
        tries = [_checked(json.loads(line)) for line in lines]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as e:
        why = f"{Path(e.filename or folder).name}: {e.strerror}" if isinstance(e, OSError) else e
        msg = f"{folder}: not the results of a suite: {why}"
        raise _several(folder) or DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one") from None
    return about, tries, cut


def _several(folder: Path) -> DeviceError | None:
    """The error of a folder of suites that is not one; None if it has none."""
    below = sorted({str(path.parent.relative_to(folder)) for path in folder.glob("**/cells.jsonl*")} - {"."})
    if not below:
        return None
    some = ", ".join(below[:3]) + (", …" if len(below) > 3 else "")
    msg = f"{folder}: {len(below)} suites, not one: {some}"
    return DeviceError(msg, hint=f"show one of them, or all with `fleetlab bench analyze {folder}`")


def whole_lines(written: str) -> tuple[list[str], bool]:
    """Split into lines; a truncated last line is dropped."""
    lines = written.splitlines()
    if not lines or written.endswith("\n"):
        return lines, False
    try:
        json.loads(lines[-1])
    except ValueError:
        return lines[:-1], True
    return lines, False


def _checked(cell: Cell) -> Cell:
    required = REQUIRED_KEYS + (MEASURED_KEYS if cell["status"] == "ok" else ())
    if missing := [key for key in required if key not in cell]:
        msg = f"a cell without {', '.join(missing)}"
        raise ValueError(msg)
    return cell


def last_tries(tries: Iterable[Cell]) -> list[Cell]:
    """The last try of each cell."""
    return list({c["cell"]: c for c in tries}.values())


# --- names -----------------------------------------------------------------------------------------------------------


def is_open_loop(one: Cell) -> bool:
    """Whether the tenant was in an open loop; its rate is then the offered one, not its capacity."""
    return "lag" in one or "offered" in one


def has_part(tenants: Sequence[Cell]) -> bool:
    """Whether one of them is limited to a part of the GPU."""
    return any("@" in t["seat"] and not t["seat"].endswith("@100") for t in tenants)


def mix_name(seats: list[str]) -> str:
    """Name of a mix, with equal tenants counted: `3 launch + gemm`."""
    return " + ".join(f"{n} {name}" if (n := seats.count(name)) > 1 else name for name in dict.fromkeys(sorted(seats)))


def cell_mix(cell: Cell) -> str:
    """Name of the mix of a cell; also of a failed one."""
    if cell["status"] == "ok":
        return mix_name([t["seat"] for t in cell["tenants"]]) or "idle"
    label = str(cell["cell"]).split("/", 2)[-1]
    count, times, name = label.partition("x")
    if times and count.isdigit():
        return mix_name([name] * int(count))
    return mix_name(label.split("+"))


def neighbors(seats: Sequence[str], seat: str) -> str:
    """Name of the mix of the other tenants."""
    others = list(seats)
    others.remove(seat)
    return mix_name(others)


# --- groups and tables -----------------------------------------------------------------------------------------------


def group_cells(keyed: Iterable[tuple[str, str, Cell]]) -> dict[tuple[str, str], list[Cell]]:
    """Group cells by stage and name."""
    by: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for stage, name, cell in keyed:
        by[stage, name].append(cell)
    return by


def table(rows: Iterable[dict[str, Any]], schema: Schema | None = None) -> pl.DataFrame:
    """Make a table; `schema` gives the columns if there are no rows."""
    made = list(rows)
    return pl.DataFrame(made, infer_schema_length=None) if made else pl.DataFrame(schema=schema or {})


def mean(values: Iterable[float]) -> float | None:
    """Mean; None if empty."""
    many = list(values)
    return sum(many) / len(many) if many else None
