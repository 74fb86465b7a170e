"""The run store: one small file a finished cell, named by what decides it; nothing in it is ever half there.

`cells/ab/abcd….json` holds a record, written beside and renamed. What a power cut might leave of it is known by its
digest, and played again, so nobody waits for the disk. `traces/` holds the tables that workers map, `claims/` who is at
work on what, `catalogue.sqlite` an index that can be thrown away.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.sweep._cases import address

LAYOUT = 1
MARK = "store.json"
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of finished cells."""

    folder: Path

    @classmethod
    def at(cls, folder: Path | str, *, make: bool = False) -> Store:
        """Open a store, or make one in a folder that is empty or not there."""
        folder = Path(folder)
        try:
            if make and not (folder / MARK).exists():
                _may_hold(folder)
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / MARK, json.dumps({"layout": LAYOUT}))
            about = json.loads((folder / MARK).read_text("utf-8"))
        except OSError as e:
            msg = f"no run store in {folder}: {e.strerror or e}"
            raise FleetlabError(msg, hint="`fleetlab sweep STUDY.toml --store DIR` makes one") from None
        except ValueError:
            about = None
        if not isinstance(about, dict) or about.get("layout") != LAYOUT:
            msg = f"{folder / MARK}: not of a store that this version reads"
            raise FleetlabError(msg, hint="name a new folder")
        return cls(folder)

    def path(self, key: str) -> Path:
        """Where the record of a cell lies; a folder of a million files would be slow, so there are 256."""
        return self.folder / "cells" / key[:2] / f"{key}.json"

    def get(self, key: str) -> Record | None:
        """The record of a cell, if it is there and whole."""
        try:
            return whole(self.path(key).read_text("utf-8"), key)
        except (OSError, ValueError):
            return None

    def put(self, record: Record) -> None:
        """Keep the record of a cell, all of it or nothing."""
        path = self.path(record["key"])
        text = json.dumps(dict(record) | {"digest": address(_said(record))}, ensure_ascii=False, allow_nan=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text)
        except OSError as e:
            msg = f"cannot write into the run store: {self.folder}: {e.strerror or e}"
            raise FleetlabError(
                msg, hint="look at free space and permissions; finished cells are kept, and the same command goes on"
            ) from None

    def files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every record by its key, as a file that is there."""
        cells = self.folder / "cells"
        for shard in sorted(p for p in cells.iterdir() if p.is_dir()) if cells.is_dir() else []:
            with os.scandir(shard) as entries:
                for entry in entries:
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        yield entry.name.removesuffix(".json"), entry


def whole(text: str, key: str) -> Record | None:
    """A record, if the text is all of one and of this key."""
    record = json.loads(text)
    good = isinstance(record, dict) and record.get("key") == key and record.get("digest") == address(_said(record))
    return record if good else None


def _said(record: Record) -> dict[str, Any]:
    """What a cell's result is: not when, where and how fast it was made."""
    return {k: v for k, v in record.items() if k not in ("digest", "made")}


def _may_hold(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"not empty, and not a run store: {folder}"
        raise FleetlabError(msg, hint="name a new folder, so that nothing of yours is overwritten")


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        beside.write_text(text, "utf-8")
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
