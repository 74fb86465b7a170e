"""Write files so that a reader sees the old content or the new one; and folders in which nobody else may put one.

Compiled code is kept as pickles, and a pickle can run anything. A folder with a name that others can guess may be
theirs, or a link of theirs; so it is used only if it belongs to this user, is a real folder, and nobody else can write
into it or put another in its place.
"""

from __future__ import annotations

import atexit
import os
import re
import stat
import tarfile
import uuid
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from shutil import copyfileobj, rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from fleetlab.core.errors import FleetlabError, TraceError

if TYPE_CHECKING:
    import polars as pl

TAR = (".tar.gz", ".tgz", ".tar")


CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # terminals and spreadsheets obey them
FORMULA = r"^[=+\-@]"  # a spreadsheet takes what begins so for a formula


def plain(text: str) -> str:
    r"""Return a text without characters that a terminal obeys, or that turn the direction of what is read.

    >>> plain("job\x1b[2J\u202etxt")
    'job?[2J?txt'
    """
    return re.sub(f"[{CONTROLS}]", "?", text)


def csv_text(frame: pl.DataFrame) -> str:
    """Return a table as CSV whose texts no spreadsheet takes for formulas: such a text has an apostrophe before it.

    >>> import polars as pl
    >>> print(csv_text(pl.DataFrame({"job": [1], "name": ["=1+2"]})), end="")
    job,name
    1,'=1+2
    """
    import polars as pl

    texts = pl.col(pl.String, pl.Categorical).cast(pl.String).str.replace_all(f"[{CONTROLS}]", "?")
    return frame.with_columns(texts).with_columns(pl.col(pl.String).str.replace(f"({FORMULA})", "'$1")).write_csv()


def may_write(path: Path | None) -> None:
    """Raise if no file can be written to `path`, where there is one; call it before a long computation."""
    if path is None:
        return
    if path.exists() and not path.is_file():
        raise FleetlabError(f"not a file: {path}", hint="name a file to write")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        why = "permission denied in that folder" if path.parent.is_dir() else "no such folder"
        msg = f"cannot write {path}: {why}"
        raise FleetlabError(msg, hint="name a file in a folder that exists and that you may write to")


def may_create(path: Path | None, *, folder: bool = False) -> None:
    """Raise if no file, or folder, can be made there, with the folders that it is in; call it before the work."""
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        what = "not a folder" if folder else "not a file"
        raise FleetlabError(f"{what}: {path}", hint=f"name a {'folder' if folder else 'file'} to write")
    above = next(one for one in (path, *path.absolute().parents) if one.exists() and (folder or one != path))
    if not above.is_dir() or not os.access(above, os.W_OK):
        why = f"permission denied in {above}" if above.is_dir() else f"{above} is not a folder"
        raise FleetlabError(f"cannot write {path}: {why}", hint="name a place that you may write to")


def atomic_write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write text, bytes, or what a function writes to the path it is given; sync to disk, then rename to `path`."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        with temporary.open("rb") as f:
            os.fsync(f.fileno())
        temporary.replace(path)
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from None  # name the target, not the temporary file
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def folder_at(path: Path) -> Path:
    """Return a folder to read; an archive, `runs.tar.gz`, or a folder in one, `runs.tar.gz/first`, is unpacked first.

    It is unpacked once, into a temporary folder that goes with the process.
    """
    for archive in (path, *path.parents):
        if is_archive(archive):
            status = archive.stat()
            return _unpacked(archive.absolute(), status.st_mtime_ns, status.st_size) / path.relative_to(archive)
    return path


def is_archive(path: Path) -> bool:
    """Whether it is a file with the name of a tar archive."""
    return path.name.lower().endswith(TAR) and path.is_file()


@cache
def _unpacked(archive: Path, changed: int, size: int) -> Path:
    scratch = mkdtemp(prefix="fleetlab-archive-")
    atexit.register(rmtree, scratch, ignore_errors=True)
    return unpack(archive, Path(scratch))


def unpack(archive: Path, into: Path, only: Collection[str] = ()) -> Path:
    """Unpack a tar archive into an empty folder; return the folder in it, or one of its name where it has several.

    With `only`, files of other names (without their ending) stay in the archive.

    Raises
    ------
    TraceError
        The archive is damaged, or a member is not a plain file or folder inside of it.
    """
    ending = next(ending for ending in TAR if archive.name.lower().endswith(ending))
    folder = into / (archive.name[: -len(ending)] or "archive")
    folder.mkdir()
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                reject_unsafe_member(member, archive.name)
                if only and PurePosixPath(member.name).stem not in only:
                    continue
                target = folder / member.name
                (target if member.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
                if content := tar.extractfile(member):
                    with target.open("wb") as file:
                        copyfileobj(content, file)
            while tar.fileobj and tar.fileobj.read(1 << 20):
                pass  # a tar ends before its file does, and the checksum of a gzip stands at the very end
    except (EOFError, zlib.error, tarfile.TarError, ValueError, OSError) as e:
        msg = f"{archive.name}: the archive is truncated or damaged: {e}"
        raise TraceError(msg, hint="download or copy it again") from None
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def reject_unsafe_member(member: tarfile.TarInfo, archive: str) -> None:
    """Raise if a member of a tar is not a plain file or folder inside the archive's own folder."""
    parts = PurePosixPath(member.name)
    if parts.is_absolute() or ".." in parts.parts:
        msg = f"{archive}: a member points outside the archive: `{member.name}`"
    elif not (member.isreg() or member.isdir()):
        msg = f"{archive}: a member is a link or a device: `{member.name}`"
    elif member.issparse():
        # A few bytes that claim to be a terabyte of nothing.
        msg = f"{archive}: a member is a sparse file: `{member.name}`"
    else:
        return
    raise TraceError(msg, hint="nothing was written; do not use this archive")


_confined: list[Path] = []


def confine(folder: Path) -> None:
    """Let configurations of this process include only files of a folder: they are a stranger's."""
    _confined[:] = [folder.resolve()]


def may_include(path: Path) -> bool:
    """Whether a configuration may include a file."""
    return not _confined or path.resolve().is_relative_to(_confined[0])


ROOT_USER = 0
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_private(folder: Path) -> Path:
    """Make a folder that only this user can read and write, or check one that exists.

    Raises
    ------
    PermissionError
        It exists, and others could have put files there.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.parent.resolve() / folder.name  # a link above may lead elsewhere later
    folder.mkdir(mode=0o700, exist_ok=True)
    if why := distrust(folder) or _replaceable(folder):
        raise PermissionError(why)
    return folder


def distrust(folder: Path, *also: int) -> str:
    """Return why others could have put files into a folder, or nothing; it may belong to the users `also`, too.

    >>> distrust(Path("/no/such/folder"))
    '/no/such/folder: not a folder'
    """
    try:
        status = folder.lstat()
    except OSError:
        return f"{folder}: not a folder"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder}: not a folder" + (", but a link" if stat.S_ISLNK(status.st_mode) else "")
    if not hasattr(os, "geteuid"):  # on Windows the user's own folders are no one else's
        return ""
    if status.st_uid not in {os.geteuid(), *also}:
        return f"{folder}: belongs to another user"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"{folder}: others can write into it"
    return ""


def _replaceable(folder: Path) -> str:
    """Return whether another user could put another folder in the place of this one, or nothing.

    The owner of a folder above can, and so can all, if that one is open to all and has no sticky bit, as /tmp has it.
    """
    if not hasattr(os, "geteuid"):
        return ""
    for above in folder.parents:
        status = above.stat()
        open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in (os.geteuid(), ROOT_USER) or open_to_all:
            return f"{folder}: others can replace it, because {above} is not yours alone"
    return ""
