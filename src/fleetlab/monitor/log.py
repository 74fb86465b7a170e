"""Samples on disk, one JSON object per line; a kill can truncate only the last line."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.sources import Row

SAMPLES = "samples.jsonl"


class SampleLog:
    """A file that is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _mend(path)
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            msg = f"{e.filename or path}: {e.strerror}"
            raise BenchError(msg, hint="--out needs a writable folder") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def write(self, rows: Iterable[Row]) -> None:
        """Append rows; they are handed to the operating system at once, so that a kill loses none."""
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        end = os.fstat(self._file.fileno()).st_size
        try:
            while text:
                text = text[self._file.write(text) :]
        except OSError as e:
            with contextlib.suppress(OSError):  # remove the truncated line
                os.ftruncate(self._file.fileno(), end)
            msg = f"{self._path}: cannot be written: {e.strerror}; earlier samples are kept"
            raise BenchError(msg, hint="free space, and run the command again with the same --out") from None


def _mend(path: Path) -> None:
    """Remove a truncated last line."""
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb+") as file:
        file.seek(0, os.SEEK_END)
        end = at = file.tell()
        tail = b""
        while at and b"\n" not in tail:
            back = min(at, 1 << 16)
            at -= back
            file.seek(at)
            tail = file.read(back) + tail
        whole = at + tail.rfind(b"\n") + 1
        if whole < end:
            file.truncate(whole)


def read_samples(path: Path) -> Iterator[Row]:
    """Read a log; a truncated last line is ignored."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                yield _row(line, number, path)
    except OSError as e:
        msg = f"{path}: {e.strerror}"
        raise BenchError(msg, hint="`fleetlab bench monitor --out FOLDER` writes FOLDER/samples.jsonl") from None


def _row(line: bytes, number: int, path: Path) -> Row:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if isinstance(row, dict) and "card" in row:
        row["gpu"] = row.pop("card")  # written by 0.1
    if not isinstance(row, dict) or not isinstance(row.get("gpu"), int) or not isinstance(row.get("at"), int | float):
        msg = f"{path}: line {number} is not a sample of a GPU"
        raise BenchError(msg, hint="`fleetlab bench monitor --out FOLDER` writes FOLDER/samples.jsonl")
    return row
