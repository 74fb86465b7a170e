"""Finished trials on disk, one line each; a line that a kill cut off is ignored.

A line names its search, so one file serves many, and its number, so two processes that run the same search, and get
the same results, do no harm.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.tune.terms import Params

FILE = "trials.jsonl"
FIELDS = {"search": str, "trial": int, "params": dict, "value": float}


@dataclass(frozen=True, slots=True)
class Journal:
    """The trials of one search; without a folder they are not kept."""

    search: str
    folder: Path | None = None

    def read(self) -> list[tuple[Params, float]]:
        """Return the known trials, from the first on without a gap."""
        if self.folder is None:
            return []
        known: dict[int, tuple[Params, float]] = {}
        for row in _rows(read_or_create(self.folder)):
            if row["search"] == self.search:
                known.setdefault(row["trial"], (row["params"], row["value"]))
        return [known[k] for k in takewhile(known.__contains__, count())]

    def add(self, trial: int, params: Params, value: float) -> None:
        """Append a finished trial: in one write, and on disk before it returns."""
        if self.folder is None:
            return
        line = json.dumps({"search": self.search, "trial": trial, "params": dict(params), "value": value})
        path = self.folder / FILE
        try:
            with path.open("ab+") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - 1))
                incomplete = f.read(1) not in (b"", b"\n")
                f.write(("\n" if incomplete else "").encode() + line.encode() + b"\n")
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise _write_error(self.folder, e) from None


def read_or_create(folder: Path) -> bytes:
    """Return all lines that are there; refuse a folder to which none could be added."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("ab+") as f:
            f.seek(0)
            return f.read()
    except OSError as e:
        raise _write_error(folder, e) from None


def _rows(text: bytes) -> list[dict[str, Any]]:
    """Return the complete lines."""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {key: type(value) for key, value in row.items()} == FIELDS:
            rows.append(row)
    return rows


def _write_error(folder: Path, e: OSError) -> FleetlabError:
    return FleetlabError(f"cannot keep trials in {folder}: {e.strerror or e}", hint="name a folder with room to write")
