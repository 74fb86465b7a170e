"""Write a simulated run as a trace of Perfetto: packets of its protocol, streamed to the file.

All packets of a kind follow each other. Perfetto sorts them by time, and those of one time stay in the order of the
file: slices that end come before slices that begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import polars as pl

from fleetlab.core.catalog import REASONS
from fleetlab.core.files import atomic_write
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.perfetto.protobuf import Fixed, Message, Number, Part, messages, number, text
from fleetlab.sim.perfetto.slices import (
    DIGITS,
    ENDS,
    MOST,
    Slices,
    allocated_gpus,
    edges,
    ends,
    flows,
    slices,
    waiting_jobs,
)
from fleetlab.sim.result_notes import timed_out

if TYPE_CHECKING:
    from fleetlab.core import Progress
    from fleetlab.sim.result import SimResult

SECOND = 1_000_000_000  # ns
ROWS = 100_000  # packets that are made at once
TEXTS = 10_000  # interned texts of one packet
EARLIER = "earlier job"  # that runs before those that are measured
SLICE_BEGIN, SLICE_END, COUNTER = 1, 2, 4
CLEARED, NEEDED = 1, 2  # interned texts before it do not count; it needs those before it
REALTIME, BOOTTIME = 1, 6  # clocks

# Fields of the messages of a trace, by their numbers in Perfetto's description.
PACKET = 1
CLOCKS, TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, TRACK = 6, 8, 10, 11, 12, 13, 60
ANNOTATION, TYPE, NAME_IID, TRACK_UUID, COUNTER_VALUE, LEAVES, ARRIVES = 4, 9, 10, 11, 44, 47, 48
EVENT_NAMES, ANNOTATION_NAMES, ANNOTATION_TEXTS = 2, 3, 29
ARGUMENTS = (
    "job", "user", "group", "GPUs of the job", "share of the GPU", "wait, s", "main reason", "ended", "passed job",
)  # fmt: skip
STAMP = (Number(TIMESTAMP, "time", 9), number(SEQUENCE, 1))


def write(result: SimResult, path: Path, progress: Progress | None = None) -> None:
    """Write a run to a file that Perfetto opens; whole or not at all."""
    content = _Content.of(result)

    def stream(temporary: Path) -> None:
        with temporary.open("wb") as file:
            _packets(content, file, progress or (lambda _what, _done, _share: None))

    atomic_write(path, stream)


@dataclass(frozen=True, slots=True, eq=False)
class _Texts:
    """Texts that packets refer to by number, from 1 on; 0: none."""

    texts: list[str]
    number: Ints

    @classmethod
    def of(cls, column: pl.Series) -> _Texts:
        column = column.cast(pl.String)
        texts = column.drop_nulls().unique().sort()
        place = column.cast(pl.Enum(texts)).to_physical().cast(pl.Int64) + 1
        return cls(texts.to_list(), place.fill_null(0).to_numpy())


@dataclass(frozen=True, slots=True, eq=False)
class _Content:
    """What is written: slices with their columns, and where they are drawn."""

    result: SimResult
    slices: Slices
    columns: dict[str, Any]  # by slice
    names: _Texts
    people: list[str]  # texts of arguments
    share: Floats

    @classmethod
    def of(cls, result: SimResult) -> _Content:
        world, played = result.world, result.played
        runs = played.runs(world.first)
        how = ends(world, played, runs, timed_out(world, played))
        s = slices(world, played, runs)
        arrows = flows(world, played, runs, how, s)
        job = runs.job[s.run]
        names = _names(result)
        users, groups = (_Texts.of(world.frame[name]) for name in ("user", "group"))
        reasons = [*users.texts, *groups.texts, *REASONS.names, *ENDS]
        base = np.cumsum([0, len(users.texts), len(groups.texts), len(REASONS)])
        wait, main = _waits(result)
        of_gpu = s.track < len(world.gpus)
        share = np.where(of_gpu, world.shapes.milli[world.shape[job]] / WHOLE, 0.0)
        columns = {
            "begin": _ns(s.begin), "end": _ns(s.end), "name": names.number[job],
            "number": _plus(world.frame["job"], job), "user": users.number[job],
            "group": _shifted(groups.number[job], int(base[1])),
            "gpus": world.gpu_milli[job] / WHOLE, "share": share, "wait": wait[job],
            "reason": _shifted(main[job], int(base[2])), "ended": how[s.run] + 1 + int(base[3]),
            "ahead": np.where(arrows.ahead >= 0, _plus(world.frame["job"], arrows.ahead), 0),
            "preempted": arrows.preempted, "preempts": arrows.preempts, "interrupted": arrows.interrupted,
            "resumes": arrows.resumes, "passes": arrows.passes, "passed": arrows.passed,
        }  # fmt: skip
        return cls(result, s, columns, names, reasons, share)


def _ns(seconds: Floats) -> Ints:
    return np.rint(seconds * SECOND).astype(np.int64)


def _plus(jobs: pl.Series, rows: Ints) -> Ints:
    """Return the numbers of jobs + 1; 0 of those that are not measured."""
    return np.maximum(jobs.to_numpy().astype(np.int64)[rows] + 1, 0)


def _shifted(numbers: Ints, by: int) -> Ints:
    return np.where(numbers > 0, numbers + by, 0)


def _names(result: SimResult) -> _Texts:
    """Return what each job of the world is called: as the log does, or by its number."""
    jobs = result.world.frame.select("job")
    own = pl.format("job {}", "job")
    names = None if result.scenario is None else result.scenario.trace.names
    if result.scenario is not None and names is not None:
        of_job = result.scenario.by_job(names).select("job", pl.col("name").cast(pl.String)).collect()
        jobs = jobs.join(of_job.unique("job"), on="job", how="left", maintain_order="left")
        own = pl.coalesce("name", own)
    return _Texts.of(jobs.select(name=pl.when(pl.col("job") < 0).then(pl.lit(EARLIER)).otherwise(own))["name"])


def _waits(result: SimResult) -> tuple[Floats, Ints]:
    """Return the wait of each job of the world, and its main reason + 1; 0: it did not wait."""
    mine, jobs = result.world.measured, len(result.world.submit)
    wait, main = np.zeros(jobs), np.zeros(jobs, dtype=np.int64)
    wait[mine] = result.jobs["wait"].to_numpy()
    main[mine] = result.ledger.drop("job").to_numpy().argmax(axis=1) + 1
    return wait, np.where(wait > 0, main, 0)


# -- packets ---------------------------------------------------------------------------------------------------------


def _packets(content: _Content, file: BinaryIO, progress: Progress) -> None:
    file.write(_start(content.result))
    tracks = _Tracks.of(content)
    for packet in tracks.descriptors(content):
        file.write(packet)
    for field, texts in (
        (ANNOTATION_NAMES, ARGUMENTS), (ANNOTATION_TEXTS, content.people), (EVENT_NAMES, content.names.texts)
    ):  # fmt: skip
        for packet in _interned(field, texts):
            file.write(packet)
    columns = content.columns | {"uuid": tracks.of_slice}
    lasts = content.slices.end > content.slices.begin
    done, total = 0, 2 * len(lasts)
    steps = ((_ends, lasts), (_begins, ~lasts), (_ends, ~lasts), (_begins, lasts))
    for make, which in steps:
        for rows in _chunks(np.flatnonzero(which)):
            file.write(make({name: values[rows] for name, values in columns.items()}))
            done += len(rows)
            progress("writing the Perfetto trace", done // 2, done / total)
    times = edges(content.result, content.slices)
    for packet in _counters(content, times):
        file.write(packet)


def _chunks(rows: Ints) -> Iterator[Ints]:
    for k in range(0, len(rows), ROWS):
        yield rows[k : k + ROWS]


def _start(result: SimResult) -> bytes:
    """Return the first packet: texts are interned from here on, and second 0 is as late as the log says."""
    first = text(PACKET, number(SEQUENCE, 1) + number(FLAGS, CLEARED))
    epoch = None if result.scenario is None else result.scenario.workload.epoch
    if epoch is None:
        return first
    clocks = ((BOOTTIME, 0), (REALTIME, int(epoch * SECOND)))
    snapshot = b"".join(text(1, number(1, clock) + number(2, time)) for clock, time in clocks)
    return first + text(PACKET, text(CLOCKS, snapshot))


def _interned(field: int, texts: Sequence[str]) -> Iterator[bytes]:
    for first in range(0, len(texts), TEXTS):
        some = texts[first : first + TEXTS]
        entries = (text(field, number(1, first + k) + text(2, one)) for k, one in enumerate(some, 1))
        packet = number(SEQUENCE, 1) + number(FLAGS, NEEDED) + text(INTERNED, b"".join(entries))
        yield text(PACKET, packet)


@dataclass(frozen=True, slots=True, eq=False)
class _Tracks:
    """Where slices are drawn: a track for each GPU, and one for each lane beside it."""

    track: Ints  # of each track of the file, in the order of their numbers
    lane: Ints
    of_slice: Ints  # number of the track of each slice
    first: int  # number of the first track

    @classmethod
    def of(cls, content: _Content) -> _Tracks:
        s, gpus = content.slices, len(content.result.world.gpus)
        lanes = int(s.lane.max(initial=0)) + 1
        keys = np.unique(np.append(s.track * lanes + s.lane, np.arange(gpus) * lanes))  # GPUs that are idle too
        first = len(content.result.cluster) + 1
        return cls(keys // lanes, keys % lanes, first + np.searchsorted(keys, s.track * lanes + s.lane), first)

    def descriptors(self, content: _Content) -> Iterator[bytes]:
        """Return the packets that name nodes, GPUs and lanes."""
        world, cluster = content.result.world, content.result.cluster.frame
        gpu_types = cluster["gpu_type"].to_list()
        for k, (node, kind) in enumerate(zip(cluster["node"].to_list(), gpu_types, strict=True), 1):
            name = f"{node} ({kind})" if kind else f"{node}"
            yield _track(k, text(3, number(1, k) + text(6, name)))
        gpus, gpu = len(world.gpus), 0
        node_of, first_gpu = world.gpus.node.tolist(), world.nodes.first_gpu.tolist()
        rows = zip(self.track.tolist(), self.lane.tolist(), strict=True)
        for uuid, (track, lane) in enumerate(rows, self.first):
            if track >= gpus:
                yield _track(uuid, number(5, track - gpus + 1) + text(2, "jobs without GPUs"))
                continue
            node = node_of[track]
            name = f"GPU {track - first_gpu[node]}"
            if lane:
                yield _track(uuid, number(5, gpu) + text(2, f"{name}, shared"))
                continue
            gpu = uuid
            yield _track(uuid, text(4, number(1, node + 1) + number(2, uuid) + text(5, name)))


def _track(uuid: int, parts: bytes) -> bytes:
    return text(PACKET, text(TRACK, number(1, uuid) + parts))


def _ends(columns: Mapping[str, Any]) -> bytes:
    event = Message(EVENT, (number(TYPE, SLICE_END), Number(TRACK_UUID, "uuid", 5)))
    return messages(Message(PACKET, (*STAMP, event)), {"time": columns["end"], "uuid": columns["uuid"]})


def _begins(columns: Mapping[str, Any]) -> bytes:
    """Return the packets of slices that begin; those with the same arguments and flows are made together."""
    optional: dict[str, Part] = {
        "number": _argument(0, Number(3, "number", 5)), "user": _argument(1, Number(17, "user", 4)),
        "group": _argument(2, Number(17, "group", 4)), "gpus": _argument(3, Fixed(5, "gpus")),
        "share": _argument(4, Fixed(5, "share")), "wait": _argument(5, Fixed(5, "wait")),
        "reason": _argument(6, Number(17, "reason", 4)), "ahead": _argument(8, Number(3, "ahead", 5)),
        "preempted": Fixed(LEAVES, "preempted"), "interrupted": Fixed(LEAVES, "interrupted"),
        "passes": Fixed(LEAVES, "passes"), "preempts": Fixed(ARRIVES, "preempts"),
        "resumes": Fixed(ARRIVES, "resumes"), "passed": Fixed(ARRIVES, "passed"),
    }  # fmt: skip
    has = sum((columns[name] > 0).astype(np.int64) << k for k, name in enumerate(optional))
    columns = {**columns, "time": columns["begin"], "number": columns["number"] - 1, "ahead": columns["ahead"] - 1}
    always = (number(TYPE, SLICE_BEGIN), Number(TRACK_UUID, "uuid", 5), Number(NAME_IID, "name", 4))
    out = []
    for these in np.unique(has).tolist():
        rows = np.flatnonzero(has == these)
        some = [part for k, part in enumerate(optional.values()) if these >> k & 1]
        event = Message(EVENT, (*always, *some, _argument(7, Number(17, "ended", 4))))
        layout = Message(PACKET, (*STAMP, number(FLAGS, NEEDED), event))
        out.append(messages(layout, {name: values[rows] for name, values in columns.items()}))
    return b"".join(out)


def _argument(place: int, value: Part) -> Message:
    return Message(ANNOTATION, (number(1, place + 1), value))


def _counters(content: _Content, times: Floats) -> Iterator[bytes]:
    """Return the packets of the counters, under one heading each."""
    if len(times) < 2:
        return
    result, base = content.result, 1 << 32  # above the numbers of all other tracks
    waiting = waiting_jobs(result, times)
    gpus = allocated_gpus(result, content.slices, content.share, times)
    unit = "mean over the interval" if len(times) == MOST + 1 else ""
    for heading, of in (("waiting jobs by reason", waiting), ("GPUs over time", gpus)):
        base += 1
        parent = base
        yield _track(parent, text(2, heading))
        for name, values in of.items():
            base += 1
            yield _track(base, number(5, parent) + text(2, name) + text(8, text(6, unit) if unit else b""))
            yield _counter(base, times, values)


def _counter(uuid: int, times: Floats, values: Floats) -> bytes:
    """Return the packets of one counter, where it changes."""
    values = np.append(np.round(values, DIGITS), 0.0)
    rows = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    event = Message(EVENT, (number(TYPE, COUNTER), number(TRACK_UUID, uuid), Fixed(COUNTER_VALUE, "value")))
    return messages(Message(PACKET, (*STAMP, event)), {"time": _ns(times[rows]), "value": values[rows]})
