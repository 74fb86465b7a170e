"""The traces that a visitor may open, by name, and the nodes each is simulated on: its own, or assumed ones."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Trace, Workload, WorkloadError
from fleetlab.core.catalog import NODE_AMOUNTS
from fleetlab.core.names import clip
from fleetlab.core.nodes import CPU_ONLY
from fleetlab.core.schedulers import Scheduler
from fleetlab.core.site_change import SiteChange
from fleetlab.core.words import plain, text
from fleetlab.web.messages import NotFound

if TYPE_CHECKING:
    from fleetlab.stats import Floats
    from fleetlab.web.messages import NodeMenu, RecordedRun, SchedulerChange, TraceChoice
    from fleetlab.web.uploads import Uploads

SIZES = (2_000, 20_000, 100_000, 400_000, 1_260_920)  # jobs of a built-in trace; the last is its full two months
SEEDS = 10  # built-in traces of each size
SAMPLES = {"sample": "sample: a real Slurm, 1,000 jobs", "sample:changed": "sample after the change of one line"}
DEFAULT_TRACE = "sample"
MOST = 200  # saved traces that are listed
LONGEST = 200  # characters of the name of one
BUILTIN = re.compile(r"(?:builtin|pai):([0-9]{1,9})(?::([0-9]{1,3}))?")
UPLOAD = re.compile(r"upload:[A-Za-z0-9_-]{16,64}")


def check_name(name: str) -> str:
    """Return the name of a trace, or refuse what cannot be one; `TraceNames` knows whether it exists."""
    builtin = BUILTIN.fullmatch(name)
    if builtin and int(builtin[1]) in SIZES and int(builtin[2] or 0) < SEEDS:
        return f"builtin:{int(builtin[1])}:{int(builtin[2] or 0)}"
    if name in SAMPLES:
        return name
    if UPLOAD.fullmatch(name) or (name.startswith("folder:") and 0 < len(name) - len("folder:") <= LONGEST):
        return name
    msg = f"no such trace: `{clip(name)}`"
    sizes = ", ".join(map(str, SIZES))
    hint = f"{', '.join(SAMPLES)}, pai:JOBS:SEED with {sizes} jobs and a seed below {SEEDS}, folder:NAME, or upload:ID"
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
    ('PAI (synthetic), 2,000 jobs', 'mine')
    """
    if jobs := builtin_jobs(trace):
        return f"PAI (synthetic), {jobs:,} jobs"
    other = "an uploaded log" if UPLOAD.fullmatch(trace) else trace.partition(":")[2]
    return SAMPLES.get(trace, other)


class TraceNames:
    """Where the traces are: a name that is not listed opens nothing."""

    def __init__(self, root: Path | None, uploads: Uploads) -> None:
        self._root, self._uploads = root, uploads

    def choices(self) -> list[TraceChoice]:
        """Return those that everybody may choose; an upload is known only to the visitor who sent it."""
        names = [*SAMPLES, *(f"builtin:{size}:0" for size in SIZES)]
        shipped: list[TraceChoice] = [{"trace": name, "title": trace_title(name)} for name in names]
        return shipped + [{"trace": f"folder:{name}", "title": name} for name in self._folders()]

    def title(self, trace: str) -> str:
        """Return the name of a trace, for those who may open it; an upload keeps the name of its file."""
        kind, _, name = trace.partition(":")
        return self._uploads.get(name).title if kind == "upload" else trace_title(trace)

    def locate(self, trace: str) -> tuple[str, str]:
        """Return a key that changes whenever the trace does, and what to open."""
        kind, _, name = trace.partition(":")
        if kind in ("builtin", "sample"):
            return trace, trace
        if kind == "upload":
            path = self._uploads.get(name).trace
        elif name in (folders := self._folders()):
            path = folders[name]
        else:
            raise NotFound(f"no such trace: `{clip(trace)}`", hint="`--traces FOLDER` names the folder of saved traces")
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


# -- what is in one ---------------------------------------------------------------------------------------------------

BINS = 400  # of what was recorded
NO_GPUS = "No job of this log asks for a GPU. Name the column that tells the GPUs, such as gpu_milli=gpus*1000."


def summarize(trace: Trace) -> dict[str, Any]:
    """Return what the page shows of a trace before anything is simulated."""
    cluster, assumed = cluster_of(trace)
    frame, site = trace.workload.frame, trace.scheduler
    columns = {frame.columns[0], "seconds"}
    return {
        "summary": [e._asdict() for e in trace.summary()],
        "nodes": node_groups(cluster),
        "estimates": [name for name, t in trace.series.items() if columns <= set(t.collect_schema().names())],
        "scheduler": None if site is None else {
            "name": site.name, "title": site.title, "lines": site.config_lines(cluster),
            "quotas": [asdict(row) for row in site.quotas()], "changes": _changes(site),
        },
        "synthetic": trace.workload.synthetic,
        "assumed": assumed,
        "warnings": [] if (frame["gpu_milli"] > 0).any() else [NO_GPUS],
        "recorded": _recorded(frame),
        "notes": [*([assumed] if assumed else []), *trace.notes, *trace.workload.notes],
        "source": trace.workload.source,
    }  # fmt: skip


def _changes(site: Scheduler) -> list[SchedulerChange]:
    """Return the settings that a diagnosis would try, where a line of a configuration says them."""
    found = [(change, SiteChange(change.line)) for change in site.what_ifs() if change.line]
    return [{"title": c.title, "action": c.action, "scheduler": text(plain(with_line))} for c, with_line in found]


def _recorded(frame: pl.DataFrame) -> RecordedRun | None:
    """Return what jobs held and who waited while jobs arrived, where the log has starts and ends."""
    jobs = frame.drop_nulls(["start", "end"])
    span = float(jobs["submit"].max() or 0.0)  # type: ignore[arg-type]
    if not span or not (jobs["start"] > jobs["submit"]).any():
        return None
    gpus = jobs.select(pl.col("gpu_milli") * pl.col("instances") / WHOLE).to_series().to_numpy()
    submit, start, end = (jobs[name].to_numpy() for name in ("submit", "start", "end"))
    edges = np.linspace(0.0, span, BINS + 1)

    def mean(begin: Floats, end: Floats, of: Floats) -> list[float]:
        upto = np.array([(np.minimum(end, edge) - np.minimum(begin, edge)) @ of for edge in edges])
        return [round(float(x), 3) for x in np.diff(upto) / (span / BINS)]

    return {"width": span / BINS, "gpus": mean(start, end, gpus), "waiting": mean(submit, start, np.ones(len(gpus)))}


# -- nodes -----------------------------------------------------------------------------------------------------------

BUSY = 0.7  # GPU allocation of assumed nodes
GPUS = 8  # per assumed node
MOST_NODES = 50_000
AMPLE = dict.fromkeys(NODE_AMOUNTS, 1_000_000_000) | {"cpu_milli": 10_000_000, "memory_mib": 100_000_000}
WHOLE = 1000  # milli-GPU


def node_groups(cluster: Cluster) -> list[NodeMenu]:
    """Return nodes and GPUs by GPU type, most GPUs first; nodes without a GPU last."""
    name = pl.when(pl.col("gpus") > 0).then("gpu_type").otherwise(pl.lit(CPU_ONLY)).alias("name")
    counts = cluster.frame.group_by(name).agg(pl.len().alias("nodes"), pl.col("gpus").cast(pl.Int64).sum())
    rows = counts.sort("gpus", "name", descending=[True, False]).iter_rows()
    return [{"name": name, "nodes": nodes, "gpus": gpus} for name, nodes, gpus in rows]


def cluster_of(trace: Trace) -> tuple[Cluster, str]:
    """Return the cluster of a trace; where it has none, an assumed one and a note that says so."""
    if trace.cluster is not None:
        return trace.cluster, ""
    note = (
        f"The log names no nodes. Assumed: nodes with {GPUS} GPUs each, as many as give a GPU allocation of "
        f"{100 * BUSY:g} % over the trace, with ample CPU and memory."
    )
    return _assumed(trace.workload), note


def _assumed(workload: Workload) -> Cluster:
    frame, gpu_type = workload.frame, pl.col("gpu_types").list.first().fill_null("GPU")
    jobs = frame.filter((pl.col("gpu_milli") > 0) & pl.col("runtime").is_not_null())
    span = max(float(frame["submit"].max() or 0.0), 1.0)  # type: ignore[arg-type]
    gpus = pl.col("gpu_milli") * pl.col("instances").cast(pl.Int64) / WHOLE
    demand = jobs.group_by(gpu_type.alias("type")).agg(seconds=(gpus * pl.col("runtime")).sum(), largest=gpus.max())
    frames = [_uniform("GPU", 1)] if demand.is_empty() else []
    for name, seconds, largest in demand.sort("type").iter_rows():
        count = max(math.ceil(seconds / span / BUSY / GPUS), math.ceil(largest / GPUS))
        frames.append(_uniform(name, min(count, MOST_NODES)))
    nodes = pl.concat(frames).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())))
    return Cluster.of(nodes, source="assumed")


def _uniform(gpu_type: str, nodes: int) -> pl.DataFrame:
    return Cluster.uniform(nodes, GPUS, gpu_type=gpu_type, **AMPLE).frame
