"""The traces of a study, made ready once: what many workers need lies in files that each of them maps.

A source is a folder named by a digest of what is in it: `nodes`, and `jobs` where not every seed makes its own.
Workers map these files, and copy what a seed draws of them.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, FleetlabError, Trace, TraceError
from fleetlab.studies.believed import BEFORE
from fleetlab.studies.sweep._cell import JOBS, NODES
from fleetlab.studies.sweep._code import text_digest
from fleetlab.studies.sweep._packed import Packed
from fleetlab.traces import Progress
from fleetlab.traces.builtin import WORD, open_trace

NOT_NEEDED = ("job", "start", "end")


@dataclass(frozen=True, slots=True)
class Source:
    """A trace as workers know it."""

    words: str
    draw: str
    digest: str
    fresh: int | None  # how many jobs a built-in trace is made of, where every seed makes its own


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A source and its tables, before they lie in a folder."""

    source: Source
    nodes: pl.DataFrame
    tables: Mapping[str, Packed]
    believed: tuple[str, ...]


def prepare(words: str, *, base: Path, cluster: Cluster | None, draw: str | None, progress: Progress) -> Prepared:
    """Open a trace and name it by its content; folders are looked for beside the study."""
    builtin = words == WORD or words.startswith(f"{WORD}:")
    trace = open_trace(words if builtin else base / words, progress=progress)
    nodes = _cluster_of(trace, words, cluster).frame
    hardware = Packed.of(nodes)
    draw = draw or ("new" if builtin and words.count(":") < 2 else "blocks")
    if draw == "new":
        if not builtin or words.count(":") == 2:
            msg = f"only a built-in trace without a seed of its own can be made anew for each seed, not: {words}"
            raise TraceError(msg, hint='draw = "blocks" draws parts of a log again; "builtin:2000" is made anew')
        fresh = len(trace.workload)
        digest = text_digest(f"{WORD}:{fresh} {hardware.digest()}")
        return Prepared(Source(words, draw, digest, fresh), nodes, {NODES: hardware}, ())
    jobs, believed = _jobs(trace, words)
    packed = Packed.of(jobs)
    digest = text_digest(f"{packed.digest()} {hardware.digest()}")
    return Prepared(Source(words, draw, digest, None), nodes, {NODES: hardware, JOBS: packed}, believed)


def _cluster_of(trace: Trace, words: str, cluster: Cluster | None) -> Cluster:
    found = cluster or trace.cluster
    if found is None:
        msg = f"the trace has no cluster: {words}"
        raise TraceError(msg, hint='cluster = "FILE.toml" in the study gives it one')
    return found


def _jobs(trace: Trace, words: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The jobs, with what the trace believes of their run times."""
    if not len(trace.workload):
        msg = f"the trace has no jobs: {words}"
        raise TraceError(msg, hint="a study needs something to play")
    jobs, names = trace.workload.frame, []
    for name, series in trace.series.items():
        if {"job", "seconds"} <= set(series.collect_schema()):
            seconds = series.select("job", pl.col("seconds").cast(pl.Float64).alias(f"{BEFORE}{name}"))
            jobs = jobs.join(seconds.collect(), on="job", how="left", maintain_order="left")
            names.append(name)
    return jobs.drop(NOT_NEEDED), tuple(names)


def share(prepared: Sequence[Prepared], folder: Path) -> None:
    """Put the tables where workers find them, each in one step; what is there already is the same."""
    for one in prepared:
        at = folder / one.source.digest
        if at.is_dir():
            continue
        beside = folder / f".{one.source.digest}.{uuid.uuid4().hex[:8]}"
        try:
            beside.mkdir(parents=True)
            for name, table in one.tables.items():
                table.save(beside / name)
            os.rename(beside, at)  # noqa: PTH104  a folder that is there already must not be replaced
        except OSError as e:
            shutil.rmtree(beside, ignore_errors=True)
            if not at.is_dir():  # else another sweep was first
                msg = f"cannot write the trace into {folder}: {e.strerror or e}"
                raise FleetlabError(msg, hint="look at free space and permissions") from None
