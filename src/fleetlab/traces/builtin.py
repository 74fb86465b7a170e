"""A trace by its words: the folder of a saved one, or `builtin`, made on first use and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
from importlib.resources import files
from pathlib import Path

import polars as pl

from fleetlab.core import FleetlabError, Trace, TraceError
from fleetlab.core.progress import Progress, silent
from fleetlab.traces.synthesize import JOBS, synthesize

WORD = "builtin"
NAME = "pai2020"
DIGITS = 18  # more than any number of jobs or seed needs


def open_trace(words: str | Path, progress: Progress = silent) -> Trace:
    """Open what a TRACE on the command line names: `builtin`, `builtin:JOBS`, `builtin:JOBS:SEED` or a folder."""
    text = str(words)
    if text != WORD and not text.startswith(f"{WORD}:"):
        return Trace.load(words)
    jobs, seed = _numbers(text)
    folder = _folder(jobs, seed)
    cached = _cached(folder, jobs, seed)
    if cached is not None:
        return cached
    made = synthesize(NAME, jobs=jobs, seed=seed, progress=progress)
    _keep(made, folder)
    return made


def _numbers(text: str) -> tuple[int, int]:
    parts = text.split(":")[1:]
    good = len(parts) <= 2 and all(p.isascii() and p.isdigit() and len(p) <= DIGITS for p in parts)
    if not good:
        msg = f"not a built-in trace: `{text}`"
        raise TraceError(msg, hint="`builtin`, `builtin:20000` for 20,000 jobs, `builtin:20000:7` with seed 7")
    jobs, seed = (*[int(p) for p in parts], *(JOBS, 0)[len(parts) :])
    return jobs, seed


def _folder(jobs: int, seed: int) -> Path | None:
    """Where it is kept; nowhere, if there is no place of the user's own."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache / "fleetlab" / f"builtin-{NAME}-{jobs}-{seed}-{_made_by()}"


def _made_by() -> str:
    """What makes it, as a digest of the code and the numbers: a trace of an older generator is not this one's."""
    parts = sorted(
        (p for p in files("fleetlab.traces.synthesize").iterdir() if p.name.endswith((".py", ".json"))),
        key=lambda p: p.name,
    )
    return hashlib.sha256(b"".join(p.read_bytes() for p in parts)).hexdigest()[:12]


def _cached(folder: Path | None, jobs: int, seed: int) -> Trace | None:
    """Open what is kept, if it is there, whole, and what its name says."""
    if folder is None:
        return None
    try:
        trace = Trace.load(folder)
        if trace.usage is not None:
            trace.usage.select(pl.len()).collect()
    except (FleetlabError, OSError, pl.exceptions.PolarsError):
        return None
    whole = len(trace.workload) == jobs and trace.usage is not None and trace.cluster is not None
    return trace if whole and trace.provenance.seed == seed else None


def _keep(trace: Trace, folder: Path | None) -> None:
    """Keep it for the next time; where that cannot be, it is made again."""
    if folder is None:
        return
    try:
        # What could not be opened is not taken for a trace, and would stay in the way.
        (folder / "trace.json").unlink(missing_ok=True)
        trace.save(folder)
    except (FleetlabError, OSError):
        return
