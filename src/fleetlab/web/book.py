"""Which traces there are: built-in ones, those in the folder that was given, those that were sent; and where."""

from __future__ import annotations

from pathlib import Path

from fleetlab.web.answers import TraceChoice
from fleetlab.web.choices import SIZES
from fleetlab.web.errors import Missing
from fleetlab.web.scenario import NAME, clipped
from fleetlab.web.uploads import Uploads

MOST = 200  # traces of the folder that are listed


class Book:
    """Names to places: a name that is not listed leads nowhere."""

    def __init__(self, root: Path | None, uploads: Uploads) -> None:
        self._root, self._uploads = root, uploads

    def listed(self) -> list[TraceChoice]:
        """Those that anybody may choose; an upload is known to whoever sent it."""
        builtin: list[TraceChoice] = [
            {"trace": f"builtin:{size}:0", "title": f"built-in, {size:,} jobs"} for size in SIZES
        ]
        return builtin + [{"trace": f"folder:{name}", "title": name} for name in self._folders()]

    def where(self, trace: str) -> tuple[str, str]:
        """The name under which a trace is kept in memory, which changes when it does, and where it is opened."""
        kind, _, name = trace.partition(":")
        if kind == "builtin":
            return trace, trace
        if kind == "upload":
            path = self._uploads.get(name).trace
        elif name in (folders := self._folders()):
            path = folders[name]
        else:
            msg = f"no such trace: `{clipped(trace)}`"
            raise Missing(msg, hint="`--traces FOLDER` names the folder whose traces can be chosen")
        try:
            return f"{trace}@{(path / 'trace.json').stat().st_mtime_ns}", str(path)
        except OSError:
            msg = f"the trace is not there any more: `{clipped(trace)}`"
            raise Missing(msg, hint="choose another, or send it again") from None

    def _folders(self) -> dict[str, Path]:
        """Folders with a trace in the one that was given, by name; links out of it are not followed."""
        if self._root is None:
            return {}
        root = self._root.resolve()
        try:
            inside = sorted(p for p in root.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            return {}
        named = [p for p in inside if p.name.isprintable() and len(p.name) <= NAME and (p / "trace.json").is_file()]
        return {p.name: p for p in named[:MOST]}
