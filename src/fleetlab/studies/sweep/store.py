"""The run store: one small file per finished cell, named by its key, never partly written.

`cells/ab/abcd….json` holds a record. It has a digest of its content, so a file that a power cut left damaged is
recognized and run again; therefore no write waits for the disk. `claims/` holds which sweep runs which cell, and the
tables that its workers read; `catalog.sqlite` is an index that can be deleted.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError

LAYOUT = 2
MARK = "store.json"
Record = Mapping[str, Any]


def digest(value: object) -> str:
    """Return a digest of plain values: the same for the same content.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}), digest({"a": 1}) == digest({"a": 1.5})
    (True, False)
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class RunStore:
    """A folder of finished cells."""

    folder: Path

    @classmethod
    def at(cls, folder: Path | str, *, create: bool = False) -> RunStore:
        """Open a store, or create one in a folder that is empty or does not exist."""
        folder = Path(folder)
        try:
            if create and not (folder / MARK).exists():
                _must_be_empty(folder)
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / MARK, json.dumps({"layout": LAYOUT}))
            about = json.loads((folder / MARK).read_text("utf-8"))
        except OSError as e:
            msg = f"no run store in {folder}: {e.strerror or e}"
            raise FleetlabError(msg, hint="`fleetlab sweep STUDY.toml --store DIR` makes one") from None
        except ValueError:
            about = None
        if not isinstance(about, dict) or about.get("layout") != LAYOUT:
            raise FleetlabError(f"{folder / MARK}: not a store that this version reads", hint="name a new folder")
        return cls(folder)

    def path(self, key: str) -> Path:
        """Return the path of a record; a folder of a million files would be slow, so there are 256."""
        return self.folder / "cells" / key[:2] / f"{key}.json"

    def get(self, key: str) -> Record | None:
        """Return the record of a cell, if it is there and not damaged."""
        try:
            return parse(self.path(key).read_text("utf-8"), key)
        except (OSError, ValueError):
            return None

    def put(self, record: Record) -> None:
        """Write the record of a cell atomically."""
        path = self.path(record["key"])
        text = json.dumps(dict(record) | {"digest": digest(_result(record))}, ensure_ascii=False, allow_nan=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, text)
        except OSError as e:
            msg = f"cannot write into the run store: {self.folder}: {e.strerror or e}"
            raise FleetlabError(
                msg, hint="look at free space and permissions; finished cells are kept, and the same command continues"
            ) from None

    def files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Return the file of every record by its key."""
        cells = self.folder / "cells"
        for shard in sorted(p for p in cells.iterdir() if p.is_dir()) if cells.is_dir() else []:
            with os.scandir(shard) as entries:
                for entry in entries:
                    if entry.name.endswith(".json") and not entry.name.startswith("."):
                        yield entry.name.removesuffix(".json"), entry


def parse(text: str, key: str) -> Record | None:
    """Return the record, if the text is a complete one of this key."""
    record = json.loads(text)
    good = isinstance(record, dict) and record.get("key") == key and record.get("digest") == digest(_result(record))
    return record if good else None


def _result(record: Record) -> dict[str, Any]:
    """Return what is the same wherever a cell was run: not when, where and how fast."""
    return {k: v for k, v in record.items() if k not in ("digest", "made")}


def _must_be_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"not empty, and not a run store: {folder}"
        raise FleetlabError(msg, hint="name a new folder, so that nothing of yours is overwritten")


def _write(path: Path, text: str) -> None:
    """Write and rename, without waiting for the disk: `atomic_write` would take longer than a small cell."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
