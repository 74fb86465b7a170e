"""The run store: one small file per finished cell, named by its key, never partly written.

`cells/ab/abcd….json` holds a record. It has a digest of its content, so a file that a power cut left damaged is
recognized and run again; therefore no write waits for the disk. `claims/` holds which sweep runs which cell, and the
tables that its workers read; `catalog.sqlite` is an index that can be deleted.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
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


# -- an index of the cells in SQLite: listed without opening a file each; brought up to date, or built again ----------

NAME = "catalog.sqlite"
PATIENCE = 60.0  # seconds to wait for another process that writes
CHUNK = 500
TABLE = (
    "CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, size INTEGER, changed INTEGER, words TEXT, record TEXT)"
)


def records(store: RunStore, keys: Iterable[str]) -> Iterator[Record]:
    """Return the records of these cells, one after the other."""
    keys = list(keys)
    with _connect(store) as db:
        for k in range(0, len(keys), CHUNK):
            some = keys[k : k + CHUNK]
            marks = ",".join("?" * len(some))
            for (text,) in db.execute(f"SELECT record FROM cells WHERE key IN ({marks})", some):
                yield json.loads(text)


def search(store: RunStore, where: Mapping[str, str]) -> list[Record]:
    """Return all cells that have these words, sorted by seed."""
    # A load of 1 is one of 1.0 too: numbers are compared as numbers, everything else as text.
    tests = [
        f"(CAST({x} AS TEXT) = {y} OR (typeof({x}) IN ('integer', 'real') AND {x} = CAST({y} AS REAL)))"
        for k in range(len(where))
        for x, y in [(f"json_extract(words, '$.' || ?{2 * k + 1})", f"?{2 * k + 2}")]
    ]
    values = [part for pair in where.items() for part in pair]
    query = "SELECT record FROM cells" + (" WHERE " + " AND ".join(tests) if tests else "")
    with _connect(store) as db:
        rows = [json.loads(record) for (record,) in db.execute(query, values)]
    return sorted(rows, key=lambda r: (r["cell"]["seed"], r["key"]))


@contextmanager
def _connect(store: RunStore) -> Iterator[sqlite3.Connection]:
    path = store.folder / NAME
    try:
        db = _update(store, path)
    except sqlite3.OperationalError as e:
        msg = f"cannot read the catalog: {path}: {e}"
        raise FleetlabError(
            msg, hint="look at free space and permissions; it may be deleted, and is built again"
        ) from None
    except sqlite3.DatabaseError:  # not a database, or a damaged one
        for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
            (store.folder / name).unlink(missing_ok=True)
        db = _update(store, path)
    with closing(db):
        yield db


def _update(store: RunStore, path: Path) -> sqlite3.Connection:
    """Open the catalog and bring it up to date with the files."""
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=OFF")  # it can be built again
        db.execute(TABLE)
        catalogued = {key: (size, changed) for key, size, changed in db.execute("SELECT key, size, changed FROM cells")}
        rows = _changes(store, catalogued)
        removed = [(key,) for key in catalogued]  # what `_changes` has not met
        if rows or removed:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM cells WHERE key = ?", removed)
            db.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _changes(store: RunStore, catalogued: dict[str, tuple[int, int]]) -> list[tuple[str, int, int, str, str]]:
    """Return a row for each file that is new or has changed; those that have not are removed from `catalogued`."""
    rows = []
    for key, entry in store.files():
        about = entry.stat()
        before = catalogued.pop(key, None)
        if before == (about.st_size, about.st_mtime_ns):
            continue
        try:
            text = Path(entry.path).read_text("utf-8")
            record = parse(text, key)
        except (OSError, ValueError):
            record = None
        if record is None:
            if before is not None:
                catalogued[key] = before  # damaged since
            continue
        rows.append((key, about.st_size, about.st_mtime_ns, json.dumps(words_of(record)), text))
    return rows


def words_of(record: Record) -> dict[str, str | float]:
    """Return all words of a record that can be searched for."""
    cell = record["cell"]
    # Digests of files: one of the same name may have changed since.
    files = " ".join(f"{name}={digest}" for name, digest in cell["files"].items())
    about = {name: cell[name] for name in ("seed", "resample", "source", "version", "code")}
    return {**cell["words"], **about, "files": files, "engine": record["made"]["engine"]}
