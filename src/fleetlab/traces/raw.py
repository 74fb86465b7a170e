"""A log in the place of a saved trace: its format, its columns and its nodes are guessed, and the guess is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shlex import join

from fleetlab.core import Trace, TraceError
from fleetlab.core.progress import Progress, silent
from fleetlab.traces import read, readers
from fleetlab.traces.guessed_cluster import GPUS, WHOLE, guessed_cluster
from fleetlab.traces.input.format import Peek

TABLE = "csv"


def open_raw(path: Path | str, progress: Progress = silent) -> Trace:
    """Read a log as its content says; the first notes say how, as a command, and which cluster was guessed."""
    path = Path(path)
    formats = [one.name for one in readers().values() if one.fits(Peek(path))]
    if len(formats) > 1:
        msg = f"{path.name}: this may be {' or '.join(formats)}"
        raise TraceError(msg, hint=f"say which: `fleetlab read {formats[0]} {path} --out DIR`")
    name, map_ = (formats or [TABLE])[0], {}
    trace = read(path, name, progress=progress)
    most = int(trace.workload.frame["gpu_milli"].max() or 0)  # type: ignore[arg-type]
    if name == TABLE and trace.cluster is None and trace.placements is None and most > GPUS * WHOLE:
        map_ = {"gpus_per_node": f"{GPUS}"}
        trace = read(path, name, map=map_, progress=progress)
    options = [word for target, text in map_.items() for word in ("--map", f"{target}={text}")]
    command = join(["fleetlab", "read", name, f"{path}", *options, "--out", path.name.split(".")[0] + "-trace"])
    notes = [f"read as: {command}"]
    if trace.cluster is None:
        cluster, how = guessed_cluster(trace)
        trace = replace(trace, cluster=cluster)
        notes.append(f"cluster guessed: {how}")
    return replace(trace, notes=(*notes, *trace.notes))
