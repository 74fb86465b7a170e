"""Traces that come with the package: a recorded run of a real Slurm, and a synthetic one, made on first use."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import polars as pl

from fleetlab.core import FleetlabError, Trace, TraceError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.traces.synthesize import JOBS, synthesize

SAMPLES = {"sample": "sample", "sample:changed": "changed"}  # recorded, by the name of its archive
SAMPLE_NOTE = (
    "a recorded run of a real Slurm 22.05 on 20 nodes of 8 GPUs; times are compressed: a busy day of eight users "
    "passes in minutes, with jobs that sleep for 3 to 60 s"
)
NAME = "pai2020"
BUSIEST = "pai"  # the busiest part of 100,000 jobs, on half of the nodes: the whole cluster has hardly a queue
BUSY_JOBS, BUSY_SPAN, BUSY_NODES = 100_000, (338_899.0, 381_258.0), 0.5
BUSY_NOTE = (
    "the busiest 10,000 jobs in a row of `pai:100000` on half of its nodes: on all of them hardly a job waits; "
    "`pai:JOBS` is the whole cluster"
)
DIGITS = 18  # more than any number of jobs or seed needs


def open_shipped(words: str, progress: Progress = silent) -> Trace:
    """Open `sample`, `sample:changed`, `pai` (its busiest part), or `pai:JOBS[:SEED]`, also called `builtin:JOBS`."""
    if words.startswith("sample"):
        return _sample(words, progress)
    if words == BUSIEST:
        return _busiest(open_shipped(f"{BUSIEST}:{BUSY_JOBS}", progress))
    jobs, seed = _numbers(words)
    folder = _folder(jobs, seed)
    cached = _cached(folder, jobs, seed)
    if cached is not None:
        return cached
    trace = synthesize(NAME, jobs=jobs, seed=seed, progress=progress)
    _keep(trace, folder)
    return trace


def _sample(words: str, progress: Progress) -> Trace:
    """Read what `fleetlab collect slurm` gathered of a recorded run."""
    from fleetlab.traces import read

    hint = f"choose from {', '.join(SAMPLES)}"
    archive = SAMPLES[lookup("sample", words, SAMPLES, error=TraceError, hint=hint)]
    with as_file(files("fleetlab.traces") / "sample" / f"{archive}.tar.gz") as path:
        trace = read(path, "slurm", progress=progress)
    return replace(trace, workload=replace(trace.workload, source=words), notes=(SAMPLE_NOTE, *trace.notes))


def _busiest(trace: Trace) -> Trace:
    assert trace.cluster is not None
    cluster, jobs = trace.cluster.scaled(BUSY_NODES), trace.workload.window(*BUSY_SPAN)
    return replace(trace, workload=jobs, cluster=cluster, usage=None, placements=None, names=None, series={},
                   notes=(BUSY_NOTE, *trace.notes))  # fmt: skip


def _numbers(text: str) -> tuple[int, int]:
    parts = text.split(":")[1:]
    good = len(parts) <= 2 and all(p.isascii() and p.isdigit() and len(p) <= DIGITS for p in parts)
    if not good:
        msg = f"not a synthetic trace: `{text}`"
        raise TraceError(msg, hint="`pai`, `pai:20000` for 20,000 jobs, `pai:20000:7` with seed 7")
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
