"""Timelines of runs, on disk: written by the process that simulated, mapped into memory by any that cuts tiles.

A run is indexed once (`sim.tiles`), in arrays that need not be read whole. What takes longer, waiting jobs by reason
and fragmentation, is computed on request, by the process that has the run in memory or simulates it again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.core import WorkloadError
from fleetlab.core.names import clip
from fleetlab.sim import SimResult
from fleetlab.sim.tiles.figure import Clock, about, packed, panels
from fleetlab.sim.tiles.rows import Coloring, GpuRows, RowLevel, main_reasons, used_milli
from fleetlab.sim.tiles.sums import GpuRuns
from fleetlab.sim.tiles.timeline import ClusterTimeline, Spells, TilePlace, fragmented, job_table

if TYPE_CHECKING:
    from fleetlab.web.worker import Channel

MOST_BYTES = 2 << 30  # of all timelines on disk; the least recently used go first
OPEN = 4  # timelines mapped by one process
MOST_JOBS = 300_000  # jobs of a run that a process has in memory
SOON = 20_000  # jobs of a run whose queue is summed up before anybody asks

_open: OrderedDict[str, ClusterTimeline] = OrderedDict()
_last: dict[str, SimResult] = {}  # the newest run of this process, by name


# -- on disk ----------------------------------------------------------------------------------------------------------


def save(timeline: ClusterTimeline, head: Mapping[str, Any], folder: Path) -> None:
    """Write a timeline; it is there whole or not at all."""
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent))
    for name, array in _arrays(timeline).items():
        np.save(new / f"{name}.npy", array)
    timeline.nodes.write_ipc(new / "nodes.ipc")
    timeline.jobs.write_ipc(new / "jobs.ipc")
    rest = {
        "span": timeline.span,
        "levels": [level.name for level in timeline.rows.levels],
        "labels": {name: list(coloring.labels) for name, coloring in timeline.coloring.items()},
        "head": dict(head),
    }
    (new / "rest.json").write_text(json.dumps(rest))
    try:
        new.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(new, ignore_errors=True)
    forget_old(folder.parent)


def _arrays(timeline: ClusterTimeline) -> dict[str, Any]:
    arrays: dict[str, Any] = {"milli": timeline.milli, "nodes": timeline.rows.nodes, "first": timeline.rows.first}
    arrays["row_of_gpu"] = timeline.rows.row_of_gpu
    arrays |= {f"edges-{k}": level.edges for k, level in enumerate(timeline.rows.levels)}
    arrays |= {f"runs-{name}": array for name, array in timeline.runs._asdict().items()}
    arrays |= {f"color-{name}": coloring.of_job for name, coloring in timeline.coloring.items()}
    for kind in ("down", "drained"):
        arrays |= {f"{kind}-{f.name}": getattr(getattr(timeline, kind), f.name) for f in fields(Spells)}
    return arrays | ({} if timeline.used is None else {"used": timeline.used})


def load(folder: Path) -> ClusterTimeline:
    """Map a timeline into memory."""
    rest = json.loads((folder / "rest.json").read_text())

    def array(name: str) -> Any:  # noqa: ANN401
        return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="c"))  # writable: as the loops were compiled for

    def spells(kind: str) -> Spells:
        return Spells(*(array(f"{kind}-{f.name}") for f in fields(Spells)))

    done = (folder / "panels.json").exists()  # what `complete` adds is there
    if done:
        rest["labels"]["reason"] = json.loads((folder / "reasons.json").read_text())
    levels = tuple(RowLevel(name, array(f"edges-{k}")) for k, name in enumerate(rest["levels"]))
    return ClusterTimeline(
        span=rest["span"],
        rows=GpuRows(array("nodes"), array("first"), array("row_of_gpu"), levels),
        nodes=pl.read_ipc(folder / "nodes.ipc"),
        runs=GpuRuns(*(array(f"runs-{name}") for name in GpuRuns._fields)),
        milli=array("milli"),
        coloring={name: Coloring(tuple(of), array(f"color-{name}")) for name, of in rest["labels"].items()},
        used=array("used") if (folder / "used.npy").exists() else None,
        down=spells("down"),
        drained=spells("drained"),
        fragmented=array("fragmented") if done else None,
        jobs=pl.read_ipc(folder / ("named.ipc" if done else "jobs.ipc")),
    )


def forget_old(root: Path) -> None:
    """Delete the folders that were not used for longest, until the rest is not too large."""
    folders = []
    for folder in root.iterdir():
        try:
            size = sum(file.stat().st_size for file in folder.iterdir())
            folders.append((folder.stat().st_mtime, size, folder))
        except OSError:
            continue  # another process deletes it
    total = sum(size for _, size, _ in folders)
    for _, size, folder in sorted(folders)[:-1]:
        if total <= MOST_BYTES:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size


# -- in a process -----------------------------------------------------------------------------------------------------


def keep(request: Mapping[str, Any], result: SimResult) -> None:
    """Store the timeline of a run that was just simulated; before anything is computed of it, it can be looked at."""
    if "timeline" not in request or not result.cluster.gpus or not result.played.stopped:
        return
    name, folder = str(request["timeline"]), Path(request["timelines"])
    _last.clear()
    if len(result.world.submit) <= MOST_JOBS:
        _last[name] = result
    if (folder / name).exists():
        return
    timeline = ClusterTimeline.of(result.world, result.played, result.cluster, result.scenario, whole=False)
    over_time = panels(result.world, result.played, reasons=False)
    save(timeline, about(timeline, str(request.get("label", "")), Clock.of(result.scenario), over_time), folder / name)


def answer(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Answer a question about the timeline of a run; simulate it if nobody has."""
    ask, folder = request["ask"], Path(request["timelines"]) / str(request["timeline"])
    if ask["what"] == "panels":
        return _panels(request, channel, folder)
    timeline = _timeline(request, channel, folder)
    os.utime(folder)
    if ask["what"] == "about":
        head: dict[str, Any] = json.loads((folder / "rest.json").read_text())["head"]
        return {"about": head | {"planes": list(timeline.planes)}}
    if ask["what"] == "at":
        count, jobs = timeline.at(ask["first"], ask["end"], ask["time"])
        return {"count": count, "jobs": jobs}
    return _tile(timeline, ask)


def _tile(timeline: ClusterTimeline, ask: Mapping[str, Any]) -> dict[str, Any]:
    place = TilePlace(*ask["place"])
    timeline.check(place)
    if unknown := [name for name in ask["planes"] if name not in timeline.planes]:
        msg = f"no such plane of a tile: `{clip(unknown[0])}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(timeline.planes)}")
    content = packed(timeline, place, ask["planes"])
    return {"planes": {name: b64encode(plane).decode() if plane else None for name, plane in content.items()}}


def _timeline(request: Mapping[str, Any], channel: Channel, folder: Path) -> ClusterTimeline:
    if folder.name in _open:
        _open.move_to_end(folder.name)
        return _open[folder.name]
    if not folder.exists():
        keep(request, _result(request, channel))
    if not folder.exists():
        msg = "this run has no timeline: no GPU, or nothing ran"
        raise WorkloadError(msg, hint="a cluster with GPUs, and jobs that end")
    while len(_open) >= OPEN:
        _open.popitem(last=False)
    _open[folder.name] = load(folder)
    return _open[folder.name]


def _result(request: Mapping[str, Any], channel: Channel) -> SimResult:
    """Return the run, from memory if this process has it."""
    from fleetlab.sim import simulate
    from fleetlab.web.worker import bound

    name = str(request["timeline"])
    if name not in _last:
        channel.progress("simulating", 0, None)
        result = simulate(bound(request, channel).replace(min_coverage=0.0), progress=channel.progress)
        keep(request, result)
        return result
    return _last[name]


def _panels(request: Mapping[str, Any], channel: Channel, folder: Path) -> dict[str, Any]:
    """Return waiting jobs by reason, and measure fragmentation, which is one more plane of the tiles then."""
    timeline = _timeline(request, channel, folder)
    if not (folder / "panels.json").exists():
        result = _result(request, channel)
        channel.progress("summing up the queue", len(result.world.submit), None)
        complete(request, result)
    if timeline.fragmented is None:
        _open.pop(folder.name, None)
        timeline = _timeline(request, channel, folder)
    over_time = json.loads((folder / "panels.json").read_text())
    head = about(timeline, "", Clock(), over_time)
    return {"panels": over_time} | {name: head[name] for name in ("meanings", "planes", "labels")}


def complete(request: Mapping[str, Any], result: SimResult) -> None:
    """Store what takes longer: waiting jobs by reason, fragmentation, what jobs used, and their names."""
    folder = Path(request["timelines"]) / str(request["timeline"])
    if (folder / "panels.json").exists() or not folder.exists():
        return
    over_time = panels(result.world, result.played)
    _write(folder / "fragmented.npy", fragmented(result.world, result.played, load(folder).rows))
    if (used := used_milli(result.world, result.scenario)) is not None:
        _write(folder / "used.npy", used)
    reasons = main_reasons(result.world, result.ledger)
    _write(folder / "color-reason.npy", reasons.of_job)
    (folder / "reasons.json").write_text(json.dumps(reasons.labels))
    job_table(result.world, result.scenario).write_ipc(folder / "named.ipc")
    (folder / "panels.json").write_text(json.dumps(over_time))


def _write(path: Path, array: Any) -> None:  # noqa: ANN401
    new = path.with_name(f".{os.getpid()}.npy")
    np.save(new, array)
    new.replace(path)
