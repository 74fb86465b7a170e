"""Finished trials on disk, a line each; what a killed search left of its last line is passed over.

A line names its search, so one file serves many, and its number, so two processes at work on one search, which find
the same, do no harm.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.tune._terms import Params

FILE = "trials.jsonl"
FIELDS = {"search": str, "trial": int, "params": dict, "value": float}


@dataclass(frozen=True, slots=True)
class Journal:
    """The trials of one search; without a folder they are forgotten."""

    search: str
    folder: Path | None = None

    def read(self) -> list[tuple[Params, float]]:
        """What is known, from the first trial on without a gap."""
        if self.folder is None:
            return []
        known: dict[int, tuple[Params, float]] = {}
        for row in _rows(opened(self.folder)):
            if row["search"] == self.search:
                known.setdefault(row["trial"], (row["params"], row["value"]))
        return [known[k] for k in takewhile(known.__contains__, count())]

    def add(self, trial: int, params: Params, value: float) -> None:
        """Keep a finished trial: in one write, and on disk before it returns."""
        if self.folder is None:
            return
        line = json.dumps({"search": self.search, "trial": trial, "params": dict(params), "value": value})
        path = self.folder / FILE
        try:
            with path.open("ab+") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - 1))
                torn = f.read(1) not in (b"", b"\n")
                f.write(("\n" if torn else "").encode() + line.encode() + b"\n")
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise _refused(self.folder, e) from None


def opened(folder: Path) -> bytes:
    """All lines that are there; refused where none could be added."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("ab+") as f:
            f.seek(0)
            return f.read()
    except OSError as e:
        raise _refused(folder, e) from None


def _rows(text: bytes) -> list[dict[str, Any]]:
    """Lines that are whole; a line that a kill cut off is none."""
    found = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {key: type(value) for key, value in row.items()} == FIELDS:
            found.append(row)
    return found


def _refused(folder: Path, e: OSError) -> FleetlabError:
    return FleetlabError(f"cannot keep trials in {folder}: {e.strerror or e}", hint="name a folder with room to write")
