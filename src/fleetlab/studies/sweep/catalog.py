"""An index of the run store in SQLite, so that a million cells can be listed without opening a million files.

It is brought up to date from the files whenever it is opened; lost or damaged, it is built again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from fleetlab.core import FleetlabError
from fleetlab.studies.sweep.store import Record, RunStore, parse

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
