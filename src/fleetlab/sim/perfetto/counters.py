"""Counters of a trace: jobs that wait, by reason, and GPUs that are allocated, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fleetlab.core.catalog import REASONS
from fleetlab.sim.layout import WHOLE, Floats, Ints

if TYPE_CHECKING:
    from fleetlab.sim.perfetto.slices import Slices
    from fleetlab.sim.result import SimResult

FEWEST, MOST = 500, 50_000  # intervals of time
PIECES = 4_000_000  # of waits, cut at the ends of the intervals
DIGITS = 6  # of a value that are kept


def edges(result: SimResult, s: Slices) -> Floats:
    """Return times between which nothing changes; of a long run, times at equal distances."""
    world, played = result.world, result.played
    stopped = played.stopped
    times = [np.array([0.0, stopped]), s.begin, s.end, world.submitted, world.eligible, played.start + world.latency]
    if played.up is not None:
        times += [played.up.begin, played.up.end]
    instants = np.concatenate(times)
    instants = np.unique(instants[(instants >= 0) & (instants <= stopped)])  # without those that are not numbers
    waiting = float(result.jobs["wait"].sum()) / max(stopped, 1.0)
    most = int(np.clip(PIECES / max(waiting, 1e-9), FEWEST, MOST))
    return instants if len(instants) <= most + 1 else np.linspace(0.0, stopped, most + 1)


def waiting_jobs(result: SimResult, times: Floats) -> dict[str, Floats]:
    """Return the mean number of jobs that wait from each time to the next, by reason; of reasons that occur."""
    mean = result.waiting_over_time(times) / np.diff(times)[:, None]
    return {name: mean[:, k] for k, name in enumerate(REASONS.names) if mean[:, k].any()}


def gpus(result: SimResult, s: Slices, share: Floats, times: Floats) -> dict[str, Floats]:
    """Return the mean number of GPUs that are allocated from each time to the next, in all and by type."""
    world, played, frame = result.world, result.played, result.cluster.frame
    on_gpu = np.flatnonzero(s.track < len(world.gpus))
    types = frame["gpu_type"].to_list()
    of_gpu = [types[node] for node in world.gpus.node.tolist()]
    names = sorted({name for name in of_gpu if name is not None})
    number = np.array([names.index(name) if name in names else -1 for name in of_gpu], dtype=np.int64)
    type_of, milli = number[s.track[on_gpu]], np.rint(share[on_gpu] * WHOLE).astype(np.int64)
    begin, end = s.begin[on_gpu], s.end[on_gpu]
    found = {"GPUs allocated": mean_level(begin, end, milli, times) / WHOLE}
    if len(names) > 1:
        for k, name in enumerate(names):
            mine = type_of == k
            found[f"{name} allocated"] = mean_level(begin[mine], end[mine], milli[mine], times) / WHOLE
    if played.up is not None:
        there = (world.nodes.end_gpu - world.nodes.first_gpu)[played.up.node]
        found["GPUs up"] = mean_level(played.up.begin, played.up.end, there, times)
    return found


def mean_level(begin: Floats, end: Floats, amount: Ints, times: Floats) -> Floats:
    """Return the mean sum of amounts, each of which lasts from a begin to an end, from each time to the next."""
    when = np.concatenate((begin, end))
    change = np.concatenate((amount, -amount))
    order = np.argsort(when, kind="stable")
    when, change = when[order], change[order]
    level = np.append(0, np.cumsum(change))[np.searchsorted(when, times[:-1], side="right")]
    within = np.searchsorted(times, when, side="left") - 1  # changes at the first time are in the level
    inside = np.flatnonzero((within >= 0) & (within < len(times) - 1))
    k, width = within[inside], np.diff(times)
    later = times[k + 1] - when[inside]
    rest = np.bincount(k, np.where(later < width[k], change[inside] * later, 0.0), minlength=len(width))
    return np.asarray(level + rest / width, dtype=np.float64)
