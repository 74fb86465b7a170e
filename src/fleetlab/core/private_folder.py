"""Folders for files that are executed when they are loaded: nobody else may be able to put one there.

Compiled code is kept as pickles, and a pickle can run anything. A folder with a name that others can guess may be
theirs, or a link of theirs; so it is used only if it belongs to this user, is a real folder, and nobody else can write
into it or put another in its place.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
