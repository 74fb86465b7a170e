"""A trace: what a log says, in fleetlab's columns, with every row that was rejected.

On disk it is a folder: `trace.json` and, in a folder that it names, one Parquet file a table. Saving writes a new
folder of tables and then replaces `trace.json`, in one step of the file system: a process killed at any moment
leaves the old trace or the new one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import file_digest
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core.cluster import DEFAULTS as CLUSTER_DEFAULTS
from fleetlab.core.cluster import SCHEMA as NODES
from fleetlab.core.cluster import Cluster
from fleetlab.core.errors import FleetlabError, TraceError
from fleetlab.core.files import atomic_write
from fleetlab.core.result import Estimate, Provenance, Result
from fleetlab.core.schedulers import Scheduler, scheduler_of, scheduler_values
from fleetlab.core.workload import DEFAULTS as WORKLOAD_DEFAULTS
from fleetlab.core.workload import SCHEMA as JOBS
from fleetlab.core.workload import Workload, censored

LOGGED_JOB = "logged_job"  # the series of jobs that a scheduler numbered anew, with their numbers in the log as read
LAYOUT = 4  # of the folder; layout 3 has no partitions, layout 2 no jobs that were there when the log began
# Layout 1, of version 0.1, has other column names: its tables are renamed as they are read.
RENAMED = {"task": "job", "job": "parent", "service": "runtime"}

# What `save` makes in a folder, besides trace.json: nothing else there is ever touched.
OURS = re.compile(r"tables-[0-9a-f]{12}|\.trace\.json\.[0-9a-f]{8}")
DAMAGE = (OSError, KeyError, TypeError, ValueError, AttributeError, AssertionError, pl.exceptions.PolarsError)

PLACEMENTS: dict[str, pl.DataType] = {
    "job": pl.Int64(),
    "worker": pl.UInt64(),  # names the instance inside this trace: joins `usage` by (job, worker)
    "node": pl.Categorical(),
    "status": pl.String(),
    "start": pl.Float64(),
    "end": pl.Float64(),
}
REJECTS: dict[str, pl.DataType] = {"table": pl.String(), "file": pl.String(), "line": pl.Int64(), "reason": pl.String()}
COUNTS: dict[str, pl.DataType] = {"table": pl.String(), "rows": pl.Int64(), "kept": pl.Int64(), "rejected": pl.Int64()}


@dataclass(frozen=True, slots=True)
class Trace(Result):
    """A workload, the cluster it ran on, and what else the log tells; `fleetlab.read` and `Trace.load` make one.

    Parameters
    ----------
    workload
        The jobs.
    provenance
        How it was read.
    cluster
        The nodes, where the log tells them.
    scheduler
        The site's own, where its configuration was read too.
    usage
        Averages of sensors per instance. This and the next three can be larger than memory, so they are lazy frames.
    placements
        Which instance was on which node.
    names
        The source's own name of each job.
    series
        What was measured over time, by name.
    rejects
        Rows that could not be kept, with file, line and reason.
    counts
        Rows read, kept and rejected, by source table.
    notes
        What to know of it.
    scratch
        Where large tables are that are not in memory.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.synthesize(jobs=200).to_polars("nodes").height
    1897
    """

    workload: Workload
    provenance: Provenance
    cluster: Cluster | None = None
    scheduler: Scheduler | None = None
    usage: pl.LazyFrame | None = None
    placements: pl.LazyFrame | None = None
    names: pl.LazyFrame | None = None
    series: Mapping[str, pl.LazyFrame] = field(default_factory=dict)
    rejects: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=REJECTS))
    counts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COUNTS))
    notes: tuple[str, ...] = ()
    # Where large tables lie that are not in memory: keeps staged files alive as long as the trace, or names a folder.
    scratch: object = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A reader that loses a row is broken, and must not be able to hide it.
        unbalanced = self.counts.filter(pl.col("rows") != pl.col("kept") + pl.col("rejected"))
        if unbalanced.height:
            msg = f"rows lost by the reader: {unbalanced.rows()}"
            raise AssertionError(msg)  # said outright: `python -O` must not let it pass

    def __repr__(self) -> str:
        nodes = f"{len(self.cluster):,} nodes" if self.cluster is not None else "no cluster"
        return f"<Trace {len(self.workload):,} jobs, {nodes}, {self.rejects.height:,} rejects, {self.workload.source}>"

    def summary(self) -> list[Estimate]:
        """How much there is of what."""
        w = self.workload.frame
        span = float(w["submit"][-1]) if w.height else 0.0
        numbers = [
            Estimate.exact("jobs", w.height),
            Estimate.exact("instances", self.workload.instances),
            Estimate.exact("parents", w["parent"].n_unique()),
            Estimate.exact("users", w["user"].drop_nulls().n_unique()),
            Estimate.exact("submissions span", span, "s"),
        ]
        if self.cluster is not None:
            numbers += [Estimate.exact("nodes", len(self.cluster)), Estimate.exact("GPUs", self.cluster.gpus)]
        return [*numbers, Estimate.exact("rows rejected", self.rejects.height)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Rows read, kept and rejected by source table, and why they were rejected; jobs by status; nodes by type."""
        tables = {"rows": self.counts, "rejects": _by_reason(self.rejects), "status": _by_status(self.workload)}
        if self.cluster is not None:
            tables["nodes"] = self.cluster.by_type()
        return tables

    def _whole_tables(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        whole: dict[str, Callable[[], pl.DataFrame]] = {"jobs": lambda: self.workload.frame}
        if (cluster := self.cluster) is not None:
            whole["nodes"] = lambda: cluster.frame
        for name in ("placements", "usage", "names"):
            if (lazy := getattr(self, name)) is not None:
                whole[name] = lazy.collect
        whole["rejects"] = lambda: self.rejects
        return whole | {name: lazy.collect for name, lazy in self.series.items() if name not in whole}

    def save(self, folder: Path | str) -> Path:
        """Write the trace into a folder, all of it or nothing; a trace that is there is replaced.

        Parameters
        ----------
        folder
            A new or empty folder, or that of a saved trace.

        Returns
        -------
        pathlib.Path
            The folder.

        Raises
        ------
        FleetlabError
            If it cannot be written, or there is something else in the folder.

        Examples
        --------
        >>> import fleetlab
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     saved = fleetlab.synthesize(jobs=200).save(f"{folder}/mine")
        ...     Trace.load(saved)
        <Trace 200 jobs, 1,897 nodes, 0 rejects, synthesize:pai2020>
        """
        folder = Path(folder)
        name = f"tables-{uuid.uuid4().hex[:12]}"
        try:
            may_hold(folder)
            before = _tables_of(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).mkdir()
            try:
                about = self._write(folder / name)
                atomic_write(folder / "trace.json", json.dumps(about | {"folder": name}, indent=1))
            except BaseException:
                shutil.rmtree(folder / name, ignore_errors=True)
                raise
        except OSError as e:
            msg = f"cannot save the trace in {folder}: {e.strerror or e}"
            raise FleetlabError(
                msg, hint="look at free space and permissions; what was there before is untouched"
            ) from None
        if isinstance(self.scratch, Path) and self.scratch.parent.resolve() == folder.resolve():
            self._lean_on(folder / name)
        _sweep(folder, before)
        return folder

    def _lean_on(self, tables: Path) -> None:
        """Read large tables from where they were just saved: those that they were read from are about to go."""
        for name in ("usage", "placements", "names"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _scan(tables / f"{name}.parquet"))
        series = {name: _scan(tables / f"series.{name}.parquet") for name in self.series}
        object.__setattr__(self, "series", series)
        object.__setattr__(self, "scratch", tables)

    def _write(self, folder: Path) -> dict[str, Any]:
        lazy = {"workload": self.workload.frame.lazy(), "rejects": self.rejects.lazy(), "counts": self.counts.lazy()}
        if self.cluster is not None:
            lazy["cluster"] = self.cluster.frame.lazy()
        lazy |= {k: v for k in ("usage", "placements", "names") if (v := getattr(self, k)) is not None}
        lazy |= {f"series.{name}": frame for name, frame in self.series.items()}
        for name, frame in lazy.items():
            _sink(frame, folder / f"{name}.parquet")
        w = self.workload
        return {
            "layout": LAYOUT,
            "provenance": self.provenance.to_json(),
            "workload": {"source": w.source, "epoch": w.epoch, "zone": w.zone, "notes": w.notes},
            "cluster": None if self.cluster is None else {"source": self.cluster.source},
            "scheduler": None if self.scheduler is None else scheduler_values(self.scheduler),
            "notes": self.notes,
            "tables": sorted(lazy),
            "sha256": {name: _digest(folder / f"{name}.parquet") for name in sorted(lazy)},
        }

    @classmethod
    def load(cls, folder: Path | str) -> Trace:
        """Open a saved trace; large tables stay on disk until asked for.

        Parameters
        ----------
        folder
            The folder that `save`, or `fleetlab read --out`, wrote.

        Returns
        -------
        Trace
            The trace.

        Raises
        ------
        TraceError
            If there is no saved trace, or it is damaged.

        Examples
        --------
        >>> Trace.load("nowhere")
        Traceback (most recent call last):
        fleetlab.core.errors.TraceError: no saved trace in: nowhere
        hint: `fleetlab read FORMAT PATH --out DIR` makes one; `sample` comes with fleetlab
        """
        folder = Path(folder)
        about = _about(folder)
        try:
            return cls._opened(folder / about["folder"], about)
        except DAMAGE as e:
            if _tables_of(folder) not in (None, about["folder"]):
                return cls.load(folder)  # another process saved a new one just now
            msg = f"{folder}: a saved trace, but damaged: {str(e).splitlines()[0] if str(e) else e!r}"
            raise TraceError(msg, hint="save it again from its source") from None

    @classmethod
    def _opened(cls, tables: Path, about: dict[str, Any]) -> Trace:
        there, old = set(about["tables"]), about["layout"] == 1
        for name, digest in about.get("sha256", {}).items():
            if _digest(tables / f"{name}.parquet") != digest:
                raise ValueError(f"{name}.parquet is not the file that was written")
        fewer = about["layout"] < LAYOUT

        def scan(name: str) -> pl.LazyFrame:
            frame = _scan(tables / f"{name}.parquet")
            return _renamed(frame) if old else frame

        def lazy(name: str) -> pl.LazyFrame | None:
            return scan(name) if name in there else None

        w = about["workload"] | {"notes": tuple(about["workload"]["notes"])}
        return cls(
            # Checked when it was saved, so not again.
            workload=Workload(_whole(tables / "workload.parquet", JOBS, old=old, fewer=fewer), **w),
            provenance=Provenance.from_json(about["provenance"]),
            cluster=Cluster(_whole(tables / "cluster.parquet", NODES, fewer=fewer), **about["cluster"])
            if about["cluster"]
            else None,
            scheduler=scheduler_of(about["scheduler"]) if about.get("scheduler") is not None else None,
            usage=lazy("usage"),
            placements=lazy("placements"),
            names=lazy("names"),
            series={n.removeprefix("series."): scan(n) for n in sorted(there) if n.startswith("series.")},
            rejects=_whole(tables / "rejects.parquet", REJECTS),
            counts=_whole(tables / "counts.parquet", COUNTS),
            notes=tuple(about["notes"]),
            scratch=tables,
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _scan(path: Path) -> pl.LazyFrame:
    frame = pl.scan_parquet(path, glob=False)
    frame.collect_schema()  # reads the file's end, so that one that is cut off is found now
    return frame


def _renamed(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Give the columns of layout 1 their names of today."""
    names = frame.collect_schema().names()
    return frame.rename({old: new for old, new in RENAMED.items() if old in names and "task" in names})


def _whole(path: Path, schema: Mapping[str, pl.DataType], *, old: bool = False, fewer: bool = False) -> pl.DataFrame:
    frame = pl.read_parquet(path, glob=False)
    frame = _renamed(frame.lazy()).collect() if old else frame
    if fewer:  # what an older layout does not hold takes its default: read the log again to have it
        defaults = WORKLOAD_DEFAULTS if "submit" in schema else CLUSTER_DEFAULTS
        missing = {k: v.cast(schema[k]) for k, v in defaults.items() if k not in frame.columns}
        frame = frame.with_columns(**missing)
        if "submit" in schema and "runtime_at_least" not in frame.columns:
            frame = frame.with_columns(runtime_at_least=censored(frame))
        frame = frame.select(list(schema))
    if dict(frame.schema) != schema:
        raise ValueError(f"{path.name} has other columns than it should")
    return frame


def _by_reason(rejects: pl.DataFrame) -> pl.DataFrame:
    # Reasons end in the offending value after a colon: the part before it is the kind.
    kind = pl.col("reason").str.split(": ").list.first()
    first = pl.concat_str("file", pl.lit(":"), pl.col("line").cast(pl.String)).first()
    return (
        rejects.group_by("table", kind.alias("reason"), maintain_order=True)
        .agg(pl.len().alias("rows"), first.alias("first"))
        .sort("rows", descending=True, maintain_order=True)
    )


def _by_status(workload: Workload) -> pl.DataFrame:
    status = pl.col("status").cast(pl.String)
    return (
        workload.frame.group_by(status)
        .agg(pl.len().alias("jobs"), pl.col("instances").cast(pl.Int64).sum())
        .sort("jobs", "status", descending=[True, False])
    )


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / "trace.json").read_text("utf-8"))
    except OSError:
        msg = f"no saved trace in: {folder}"
        raise TraceError(
            msg, hint="`fleetlab read FORMAT PATH --out DIR` makes one; `sample` comes with fleetlab"
        ) from None
    except (ValueError, RecursionError) as e:
        msg = f"{folder / 'trace.json'}: not JSON: {e}"
        raise TraceError(msg, hint="save the trace again from its source, in a new folder") from None
    layout = about.get("layout") if isinstance(about, dict) else None
    if layout not in range(1, LAYOUT + 1):
        msg = f"{folder}: saved by another version of fleetlab, in layout: {layout}"
        raise TraceError(msg, hint=f"this version reads layouts up to {LAYOUT}: save the trace again from its source")
    if about.get("queues") is not None:
        msg = f"{folder}: saved with quotas of queues, which only schedulers have now"
        raise TraceError(msg, hint="save it again from its source; --scheduler FILE takes quotas of Kueue or KAI")
    if not OURS.fullmatch(str(about.get("folder"))):
        msg = f"{folder}: a saved trace, but damaged: its tables are said to be in {about.get('folder')!r}"
        raise TraceError(msg, hint="save it again from its source, in a new folder")
    return about  # type: ignore[no-any-return]


def may_hold(folder: Path) -> None:
    """Raise if a trace cannot be saved in `folder`: to be asked before an hour of work, not after."""
    if folder.exists() and not folder.is_dir():
        raise FleetlabError(f"not a folder: {folder}", hint="name a folder to write the trace into")
    # Others call their files trace.json too: it must be one of ours, or there is nothing but what a killed save left.
    ours = _tables_of(folder) is not None
    if folder.is_dir() and not ours and not all(OURS.fullmatch(p.name) for p in folder.iterdir()):
        msg = f"not empty, and not a saved trace: {folder}"
        raise FleetlabError(msg, hint="name a new folder, so that nothing of yours is overwritten")
    nearest = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise FleetlabError(f"cannot write into: {nearest}", hint="name a folder that you may write into")


def _sink(frame: pl.LazyFrame, path: Path) -> None:
    try:
        frame.sink_parquet(path, compression="zstd", compression_level=1)
    except pl.exceptions.PolarsError as e:
        # A full disk comes out of the frame library as an error of its own kind.
        raise OSError(None, str(e).splitlines()[0]) from None
    with path.open("rb") as f:
        os.fsync(f.fileno())


def _tables_of(folder: Path) -> str | None:
    try:
        return str(_about(folder)["folder"])
    except TraceError:
        return None


def _sweep(folder: Path, before: str | None) -> None:
    # The tables just replaced, and what a writer killed long ago left: a younger one may still be at work.
    for old in folder.iterdir():
        if OURS.fullmatch(old.name) and (old.name == before or _age(old) > 86_400):
            old.unlink(missing_ok=True) if old.is_file() else shutil.rmtree(old, ignore_errors=True)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:  # another process has swept it
        return 0.0
