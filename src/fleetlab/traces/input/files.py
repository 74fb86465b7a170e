"""Files as streams of bytes: plain, gzipped, or one member of a tar; nothing is unpacked to disk.

Archives are untrusted. A member with a path outside the archive, a link or a device is refused, not skipped.
"""

from __future__ import annotations

import gzip
import stat
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from queue import Queue
from threading import Thread
from typing import IO, Any, Literal, cast
from zlib import error as zlib_error

from isal import igzip, isal_zlib

from fleetlab.core import TraceError
from fleetlab.core.files import TAR, reject_unsafe_member

BROKEN: Any = (EOFError, gzip.BadGzipFile, isal_zlib.error, zlib_error, tarfile.TarError)


@dataclass(frozen=True)
class SourceFile:
    """One foreign file: where it lies, and how its bytes are had."""

    path: Path

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return self.path.name

    @property
    def stem(self) -> str:
        """Its name without the endings that say how it is packed: `pai_task_table` of `pai_task_table.tar.gz`."""
        name = self.path.name.lower()
        for ending in (*TAR, ".gz"):
            name = name.removesuffix(ending)
        return PurePosixPath(name).stem

    @property
    def size(self) -> int:
        """Bytes on disk, packed as they are: what progress is measured against."""
        return self.path.stat().st_size

    @contextmanager
    def open(self) -> Iterator[Stream]:
        """Its bytes, unpacked on the way; a broken archive or file becomes a TraceError."""
        try:
            _require_regular_file(self.path)
            with self.path.open("rb") as raw:
                yield Stream(_unpacked(raw, self.path.name), raw)
        except BROKEN as e:
            msg = f"{self.name}: the archive is truncated or damaged: {e}"
            raise TraceError(
                msg, hint="download it again; `fleetlab fetch` verifies checksums where they are published"
            ) from None
        except IsADirectoryError:
            msg = f"a folder, but a file was expected: {self.path}"
            raise TraceError(msg, hint="`fleetlab traces` lists what each format expects") from None
        except OSError as e:
            msg = f"cannot read {self.path}: {e.strerror or e}"
            raise TraceError(msg, hint="check the path and its permissions") from None


@dataclass
class Stream:
    """Unpacked bytes, and how far into the packed file they reach."""

    unpacked: IO[bytes]
    raw: IO[bytes]

    def read(self, size: int) -> bytes:
        """Up to `size` unpacked bytes; empty at the end."""
        return self.unpacked.read(size)

    def position(self) -> int:
        """Bytes of the packed file used up so far."""
        return self.raw.tell()


def _unpacked(raw: IO[bytes], name: str) -> IO[bytes]:
    lower = name.lower()
    # By content and not by name: a browser may have unpacked it and kept the name.
    zipped = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    plain = cast("IO[bytes]", igzip.open(raw, "rb")) if zipped else raw
    if lower.endswith(TAR) and _looks_like_tar(plain):
        plain.seek(0)
        return cast("IO[bytes]", _Member(plain, name))
    plain.seek(0)
    return plain


def _looks_like_tar(plain: IO[bytes]) -> bool:
    first = plain.read(512)
    return first[257:262] == b"ustar" or first == bytes(512)  # the latter is the end of an archive of nothing


class _Member:
    """The one table in a tar, read as a stream; whatever else the tar holds must be harmless."""

    def __init__(self, plain: IO[bytes], archive: str) -> None:
        self._plain = plain
        self._archive = archive
        with _numbers_checked():
            self._tar = tarfile.open(fileobj=plain, mode="r|", bufsize=1 << 20)  # noqa: SIM115  closed with `plain`
        table = self._next()
        if table is None:
            raise TraceError(f"{archive}: no table in the archive", hint="it should contain one .csv or .json file")
        self._file = table

    def _next(self) -> IO[bytes] | None:
        while (member := self._header()) is not None:
            reject_unsafe_member(member, self._archive)
            # macOS adds a `._name` beside each file, for its own attributes.
            if member.isreg() and not PurePosixPath(member.name).name.startswith("."):
                return self._tar.extractfile(member)
        return None

    def _header(self) -> tarfile.TarInfo | None:
        with _numbers_checked():
            return self._tar.next()

    def read(self, size: int) -> bytes:
        if block := self._file.read(size):
            return block
        if self._next() is not None:
            msg = f"{self._archive}: more than one table in the archive"
            raise TraceError(msg, hint="unpack it into a folder and read that")
        while self._plain.read(1 << 20):
            pass  # a tar ends before its file does, and the checksum of a gzip stands at the very end
        return b""


@contextmanager
def _numbers_checked() -> Iterator[None]:
    # `tarfile` leaves some numbers of extended headers unchecked.
    try:
        yield
    except ValueError as e:
        raise tarfile.ReadError(str(e)) from None


def sources(path: Path) -> list[SourceFile]:
    """Every readable file at `path`: itself, or those right inside the folder, by name."""
    try:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            return [SourceFile(p) for p in inside]
        _require_regular_file(path)
    except FileNotFoundError:
        msg = f"no such file or folder: {path}"
        raise TraceError(msg, hint="`fleetlab traces` lists what each format expects") from None
    except (OSError, ValueError) as e:  # the latter for a name that no file can have
        msg = f"cannot read {str(path)!r}: {getattr(e, 'strerror', None) or e}"
        raise TraceError(msg, hint="check the path and its permissions") from None
    return [SourceFile(path)]


def _require_regular_file(path: Path) -> None:
    # A pipe or a device may never end, and cannot be read twice.
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TraceError(f"not a regular file or folder: {path}", hint="save it as a regular file first")


# -- blocks of lines -------------------------------------------------------------------------------------------------


BLOCK = 32 << 20  # bytes parsed at once: large enough to be quick, small enough to hold several
LONGEST = 1 << 20  # bytes of one line, or of one record; anything longer is no row of a trace


@dataclass
class Block:
    """Lines, and where in their file they stand."""

    data: bytes  # whole lines
    line: int  # of the first of them, from 1
    share: float  # of the packed file used up
    too_long: list[int] = field(default_factory=list)  # lines taken out: each left an empty one in its place

    def after(self, rest: Block | None) -> Block:
        """The same with what was left over of the block before it."""
        return Block(rest.data + self.data, rest.line, self.share, self.too_long) if rest else self


def blocks(source: SourceFile) -> Iterator[Block]:
    """All lines of a file, in order."""
    line = 1
    with source.open() as stream:
        size = max(1, source.size)
        pending = b""
        while True:
            more = stream.read(BLOCK)
            share = min(1.0, stream.position() / size)
            cut = more.rfind(b"\n") + 1
            if more and not cut:
                pending += more
                if len(pending) > LONGEST:
                    pending = pending[: LONGEST + 1]  # it will be rejected: no need to hold the rest of it
                continue
            data, pending = pending + more[:cut], more[cut:]
            if data:
                block = Block(data, line, share)
                line += data.count(b"\n") + (not data.endswith(b"\n"))
                yield _drop_long_lines(block)
            if not more:
                return


def _drop_long_lines(block: Block) -> Block:
    """Take out lines that are too long, leaving an empty line in place of each, so that numbers still fit."""
    data, at, begin = block.data, 0, 0
    pieces = []
    while at + LONGEST < len(data):
        # From one line's beginning, leap to the last that begins within reach; if none does, this line is too long.
        if leap := data.rfind(b"\n", at, at + LONGEST + 1) + 1:
            at = leap
            continue
        pieces.append(data[begin:at])
        block.too_long.append(block.line + data.count(b"\n", 0, at))
        end = data.find(b"\n", at)
        at = begin = end if end >= 0 else len(data)
    if pieces:
        block.data = b"".join([*pieces, data[begin:]])
    return block


def prefetch(blocks: Iterator[Block]) -> Generator[Block]:
    """Unpack the next block while this one is being parsed."""
    queue: Queue[Block | BaseException | None] = Queue(maxsize=1)
    stopped: list[Literal[True]] = []

    def work() -> None:
        try:
            for block in blocks:
                queue.put(block)
                if stopped:
                    return
            queue.put(None)
        except BaseException as e:  # handed over to whoever is reading
            queue.put(e)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.append(True)
        while thread.is_alive():
            if not queue.empty():
                queue.get()
            thread.join(0.01)
