"""An index of the store, so that a million cells can be listed without opening a million files.

It is made from the files and brought up to date from them whenever it is opened; lost or damaged, it is made anew.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.sweep._store import Record, Store, whole

NAME = "catalogue.sqlite"
PATIENCE = 60.0  # seconds to wait for another process that is at it
CHUNK = 500
TABLE = (
    "CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, size INTEGER, changed INTEGER, words TEXT, record TEXT)"
)


def records(store: Store, keys: Iterable[str]) -> Iterator[Record]:
    """What is known of these cells, one after the other."""
    wanted = list(keys)
    with _opened(store) as db:
        for k in range(0, len(wanted), CHUNK):
            some = wanted[k : k + CHUNK]
            marks = ",".join("?" * len(some))
            for (text,) in db.execute(f"SELECT record FROM cells WHERE key IN ({marks})", some):
                yield json.loads(text)


def search(store: Store, where: Mapping[str, str]) -> list[Record]:
    """All cells that have these words, in the order of their seeds."""
    # A load of 1 is one of 1.0 too: what is a number is compared as one, all else as text.
    tests = [
        f"(CAST({x} AS TEXT) = {y} OR (typeof({x}) IN ('integer', 'real') AND {x} = CAST({y} AS REAL))"
        f" OR ({x} IS NULL AND lower({y}) = 'none'))"
        for k in range(len(where))
        for x, y in [(f"json_extract(words, '$.' || ?{2 * k + 1})", f"?{2 * k + 2}")]
    ]
    asked = [part for pair in where.items() for part in pair]
    text = "SELECT record FROM cells" + (" WHERE " + " AND ".join(tests) if tests else "")
    with _opened(store) as db:
        found = [json.loads(record) for (record,) in db.execute(text, asked)]
    return sorted(found, key=lambda r: (r["cell"]["seed"], r["key"]))


@contextmanager
def _opened(store: Store) -> Iterator[sqlite3.Connection]:
    path = store.folder / NAME
    try:
        db = _fresh(store, path)
    except sqlite3.OperationalError as e:
        msg = f"cannot read the catalogue: {path}: {e}"
        raise FleetlabError(
            msg, hint="look at free space and permissions; it may be deleted, and is made anew"
        ) from None
    except sqlite3.DatabaseError:  # not a database, or one that is damaged
        for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
            (store.folder / name).unlink(missing_ok=True)
        db = _fresh(store, path)
    with closing(db):
        yield db


def _fresh(store: Store, path: Path) -> sqlite3.Connection:
    """Open the catalogue and make it say what the files say."""
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=OFF")  # it can be made again
        db.execute(TABLE)
        known = {key: (size, changed) for key, size, changed in db.execute("SELECT key, size, changed FROM cells")}
        rows = _changed(store, known)
        gone = [(key,) for key in known]  # what `_changed` has not met
        if rows or gone:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("DELETE FROM cells WHERE key = ?", gone)
            db.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _changed(store: Store, known: dict[str, tuple[int, int]]) -> list[tuple[str, int, int, str, str]]:
    """A row for each file that is new or has changed; those that have not are taken off `known`."""
    rows = []
    for key, entry in store.files():
        about = entry.stat()
        was = known.pop(key, None)
        if was == (about.st_size, about.st_mtime_ns):
            continue
        try:
            text = Path(entry.path).read_text("utf-8")
            record = whole(text, key)
        except (OSError, ValueError):
            record = None
        if record is None:
            if was is not None:
                known[key] = was  # damaged since: not known any more
            continue
        rows.append((key, about.st_size, about.st_mtime_ns, json.dumps(words(record)), text))
    return rows


def words(record: Record) -> dict[str, Any]:
    """All words of a record that one may ask for."""
    cell: Mapping[str, Any] = record["cell"]
    plain = {k: v for k, v in cell.items() if k not in ("rules", "texts", "fresh", "layout")}
    texts = cell["texts"]  # digests of files: one of the same name may have changed since
    files = " ".join(f"{k}={texts[v]}" for k, v in cell["rules"].items() if isinstance(v, str) and v in texts)
    return {**plain, **cell["rules"], "files": files, "engine": record["made"]["engine"]}
