"""Uploaded logs, treated as hostile: limited while they arrive, stored apart, read by a process of its own.

A file keeps its own name without its folders if that is made of plain characters, else it has a number. Before any
reader sees it, its lines are counted, and a gzip file is decompressed once to check its size. Nothing is left
behind: a server that is killed has its uploads deleted by its processes, or else by the next server that starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fleetlab.core import TraceError
from fleetlab.core.names import clip
from fleetlab.web.messages import NotFound, TooLarge
from fleetlab.web.pool import READ_IT

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")  # under which a file is stored; any other has a number
REFUSED = {
    b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z",
    b"Rar!": "rar", b"\x7fELF": "a program",
}  # fmt: skip
UNPACKED = 8  # times the largest upload: a file that decompresses to more is refused
LINES = 6_000_000  # of a file, three for each job that the page takes
BLOCK = 1 << 20
PREFIX = "fleetlab-web-"
LOCK = "in-use"  # a file that a running server holds locked
FILES = 64  # of one log: `fleetlab collect` writes 18
MOST_LOGS = 8  # at once; the least recently used is deleted


@dataclass
class Upload:
    """The files of one log."""

    folder: Path
    name: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    files: list[Path] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the files, as the visitor has them
    bytes: int = 0
    title: str = "the upload"  # the name of its first file, kept when the file is gone
    used: float = field(default_factory=time.monotonic)

    @property
    def log(self) -> Path:
        """What a reader opens: the one file, or the folder of several."""
        return self.files[0] if len(self.files) == 1 else self.folder / "log"

    def with_own_names(self, message: str) -> str:
        """Return the message of a reader with the visitor's names of files in place of ours."""
        for path, name in zip(self.files, self.names, strict=True):
            message = message.replace(path.name, clip(name) or "the file")
        return message.replace(f"{self.folder}/log/", "").replace(str(self.folder), "the upload")

    def keep_trace_only(self) -> None:
        """Delete the files of the log."""
        for folder in (self.folder / "log", self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        self.files.clear()
        self.names.clear()

    @property
    def trace(self) -> Path:
        """Where its trace is saved."""
        return self.folder / "trace"

    @property
    def scratch(self) -> Path:
        """Where a reader writes temporary files."""
        return self.folder / "scratch"


class Uploads:
    """All uploads, in a folder that only its owner can read."""

    def __init__(self, most: int) -> None:
        self.most = most
        sweep(Path(tempfile.gettempdir()))
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = (self.root / "lock").open("x")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # until this process ends, however that is
        (self.root / "lock").rename(self.root / LOCK)  # whoever sweeps never sees it unlocked
        self._all: dict[str, Upload] = {}

    def close(self) -> None:
        """Delete them all."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._lock.close()

    def beside(self, name: str) -> Path:
        """Return a folder for something else that ends with the server."""
        return self.root / f".{name}"

    def get(self, name: str) -> Upload:
        """Return one of them."""
        if name not in self._all:
            msg = "no such upload"
            raise NotFound(msg, hint=f"uploads are kept until the server ends, and only the last {MOST_LOGS}")
        self._all[name].used = time.monotonic()
        return self._all[name]

    def remove(self, name: str) -> None:
        """Delete one, with its trace."""
        shutil.rmtree(self.get(name).folder, ignore_errors=True)
        del self._all[name]

    def new(self) -> Upload:
        """Return an empty one; delete the least recently used of many."""
        while len(self._all) >= MOST_LOGS:
            self.remove(min(self._all.values(), key=lambda upload: upload.used).name)
        upload = Upload(Path(tempfile.mkdtemp(dir=self.root)))
        (upload.folder / "log").mkdir()
        upload.scratch.mkdir()
        self._all[upload.name] = upload
        return upload

    async def store(self, body: AsyncIterator[bytes], name: str, upload: Upload) -> None:
        """Store a file as it arrives; delete it if it is too large, or of a kind that no reader takes."""
        if len(upload.files) >= FILES:
            raise TooLarge(f"a log has at most {FILES} files", hint=READ_IT)
        path = upload.folder / "log" / stored_name(name, len(upload.files), [p.name for p in upload.files])
        size = 0
        try:
            with path.open("xb") as f:
                async for part in body:
                    size += len(part)
                    self.refuse_large(upload.bytes + size)
                    f.write(part)
            await asyncio.to_thread(self._check, path, size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        upload.files.append(path)
        upload.names.append(name)
        if len(upload.names) == 1:
            upload.title = (
                clip("".join(c for c in name.replace("\\", "/").rpartition("/")[2] if c.isprintable())) or upload.title
            )
        upload.bytes += size

    def refuse_large(self, size: int) -> None:
        """Refuse more bytes than the page takes."""
        if size > self.most:
            msg = f"a log on this page has at most {self.most >> 20:,} MiB"
            raise TooLarge(msg, hint=f"start it with --upload-mib; or {READ_IT}")

    def _check(self, path: Path, size: int) -> None:
        if not size:
            raise TraceError("the file is empty", hint="`fleetlab traces` says what each format expects")
        with path.open("rb") as f:
            start = f.read(8)
            for mark, what in REFUSED.items():
                if start.startswith(mark):
                    msg = f"no reader takes a file of this kind: {what}"
                    raise TraceError(msg, hint="upload the files themselves, or a .tar.gz of their folder")
            f.seek(0)
            check_size(f, UNPACKED * self.most, packed=start.startswith(b"\x1f\x8b"))


def stored_name(name: str, number: int, others: list[str]) -> str:
    r"""Return the name under which a file is stored: readers know files by their names.

    >>> stored_name("../../etc/PAI_task_table.csv.gz", 0, [])
    'PAI_task_table.csv.gz'
    >>> stored_name("..\x00", 3, []), stored_name("our jobs, May.swf", 1, []), stored_name("a.conf", 2, ["a.conf"])
    ('file-3', 'file-1.swf', 'file-2.conf')
    """
    base = name.replace("\\", "/").rpartition("/")[2]
    if NAME.fullmatch(base) and base not in others:
        return base
    return f"file-{number}{''.join(e for e in Path(base).suffixes[-2:] if NAME.fullmatch(e[1:]))}"


def check_size(file: BinaryIO, most: int, *, packed: bool) -> None:
    """Read a file block by block, decompressed, and refuse it once it has more bytes or lines than allowed."""
    from isal import igzip

    size = lines = 0
    try:
        with igzip.open(file, "rb") if packed else contextlib.nullcontext(file) as f:
            while part := f.read(BLOCK):
                size, lines = size + len(part), lines + part.count(b"\n")
                if size > most:
                    raise TooLarge(f"the file decompresses to more than {most >> 20:,} MiB", hint=READ_IT)
                if lines > LINES:
                    raise TooLarge(f"a file on this page has at most {LINES:,} lines", hint=READ_IT)
    except (EOFError, OSError, ValueError) as e:
        raise TraceError(f"the archive is cut off or damaged: {e}", hint="upload it again") from None


def sweep(folder: Path) -> None:
    """Delete what servers of this user have left that were killed: nobody holds their lock."""
    for old in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = old.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            with (old / LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old, ignore_errors=True)
