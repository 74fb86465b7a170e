"""The traces that a visitor may open, by name: built-in ones, saved ones of one folder, and uploads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fleetlab.core import WorkloadError
from fleetlab.core.names import clip
from fleetlab.web.errors import NotFound

if TYPE_CHECKING:
    from fleetlab.web.messages import TraceChoice
    from fleetlab.web.uploads import Uploads

SIZES = (2_000, 20_000, 100_000, 400_000, 1_260_920)  # jobs of a built-in trace; the last is its full two months
SEEDS = 10  # built-in traces of each size
DEFAULT_TRACE = f"builtin:{SIZES[2]}:0"
MOST = 200  # saved traces that are listed
LONGEST = 200  # characters of the name of one
BUILTIN = re.compile(r"builtin:([0-9]{1,9})(?::([0-9]{1,3}))?")
UPLOAD = re.compile(r"upload:[A-Za-z0-9_-]{16,64}")


def check_name(name: str) -> str:
    """Return the name of a trace, or refuse what cannot be one; `TraceNames` knows whether it exists."""
    builtin = BUILTIN.fullmatch(name)
    if builtin and int(builtin[1]) in SIZES and int(builtin[2] or 0) < SEEDS:
        return f"builtin:{int(builtin[1])}:{int(builtin[2] or 0)}"
    if UPLOAD.fullmatch(name) or (name.startswith("folder:") and 0 < len(name) - len("folder:") <= LONGEST):
        return name
    msg = f"no such trace: `{clip(name)}`"
    sizes = ", ".join(map(str, SIZES))
    hint = f"builtin:JOBS:SEED with {sizes} jobs and a seed below {SEEDS}, folder:NAME, or upload:ID"
    raise WorkloadError(msg, hint=hint)


def builtin_jobs(trace: str) -> int | None:
    """Return how many jobs a built-in trace has; None for others.

    >>> builtin_jobs("builtin:2000:0"), builtin_jobs("folder:mine")
    (2000, None)
    """
    builtin = BUILTIN.fullmatch(trace)
    return int(builtin[1]) if builtin else None


def trace_title(trace: str) -> str:
    """Return the name of a trace for a title; that of an upload is known only to the visitor who sent it.

    >>> trace_title("builtin:2000:0"), trace_title("folder:mine")
    ('built-in (synthetic), 2,000 jobs', 'mine')
    """
    jobs = builtin_jobs(trace)
    return (
        f"built-in (synthetic), {jobs:,} jobs"
        if jobs
        else "an uploaded log"
        if UPLOAD.fullmatch(trace)
        else trace.partition(":")[2]
    )


class TraceNames:
    """Where the traces are: a name that is not listed opens nothing."""

    def __init__(self, root: Path | None, uploads: Uploads) -> None:
        self._root, self._uploads = root, uploads

    def choices(self) -> list[TraceChoice]:
        """Return those that everybody may choose; an upload is known only to the visitor who sent it."""
        builtin: list[TraceChoice] = [
            {"trace": name, "title": trace_title(name)} for name in (f"builtin:{size}:0" for size in SIZES)
        ]
        return builtin + [{"trace": f"folder:{name}", "title": name} for name in self._folders()]

    def title(self, trace: str) -> str:
        """Return the name of a trace, for those who may open it; an upload keeps the name of its file."""
        kind, _, name = trace.partition(":")
        return self._uploads.get(name).title if kind == "upload" else trace_title(trace)

    def locate(self, trace: str) -> tuple[str, str]:
        """Return a key that changes whenever the trace does, and what to open."""
        kind, _, name = trace.partition(":")
        if kind == "builtin":
            return trace, trace
        if kind == "upload":
            path = self._uploads.get(name).trace
        elif name in (folders := self._folders()):
            path = folders[name]
        else:
            msg = f"no such trace: `{clip(trace)}`"
            raise NotFound(msg, hint="`--traces FOLDER` names the folder of saved traces")
        try:
            return f"{trace}@{(path / 'trace.json').stat().st_mtime_ns}", str(path)
        except OSError:
            msg = f"the trace no longer exists: `{clip(trace)}`"
            raise NotFound(msg, hint="choose another one, or upload it again") from None

    def _folders(self) -> dict[str, Path]:
        """Return the saved traces of the folder by name; symbolic links are not followed."""
        if self._root is None:
            return {}
        root = self._root.resolve()
        try:
            inside = sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            return {}
        named = [p for p in inside if p.name.isprintable() and len(p.name) <= LONGEST and (p / "trace.json").is_file()]
        return {p.name: p for p in named[:MOST]}
