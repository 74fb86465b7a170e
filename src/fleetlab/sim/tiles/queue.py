"""How many jobs arrive and wait over time, and why they wait."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import BY_ELIGIBLE, BY_START_UP
from fleetlab.sim.layout import WAITING, Floats, Ints
from fleetlab.sim.ledger.ledger import ledger_over_time
from fleetlab.sim.ledger.waits import waits
from fleetlab.sim.schedule import Played
from fleetlab.sim.tiles.sums import sum_intervals
from fleetlab.sim.world import World

PIECES = 8_000_000  # of waits, which are cut at the edges of bins


def arrivals(world: World, since: float, width: float, bins: int) -> Ints:
    """Return how many measured jobs are submitted in each bin; the last one takes those at its end."""
    at = world.submitted[world.measured]
    counted, _ = np.histogram(at, bins, (since, since + width * bins))
    return counted.astype(np.int64)


def waiting(world: World, played: Played, since: float, width: float, bins: int) -> Floats:
    """Return the mean number of jobs that wait in each bin, whatever the reason."""
    out = np.zeros(bins)
    for begin, end in _all_waits(world, played):
        sum_intervals(begin, end, since, width, out)
    return out / width


def bins_for(world: World, played: Played, most: int) -> int:
    """Return into how many bins waits can be cut."""
    seconds = sum(float((end - begin).sum()) for begin, end in _all_waits(world, played))
    queue = seconds / max(played.stopped, 1e-9)
    return int(min(most, max(64, PIECES / max(queue, 1.0))))


def waiting_by_reason(world: World, played: Played, bins: int) -> Floats:
    """Return the mean number of jobs that wait in each bin from 0 to the end, by reason: [bins, reasons]."""
    width = played.stopped / bins
    edges = np.linspace(0.0, played.stopped, bins + 1)
    out = ledger_over_time(world, played, edges)
    for (begin, end), reason in zip(_outside(world, played), (BY_ELIGIBLE, BY_START_UP), strict=True):
        column = np.zeros(bins)
        sum_intervals(begin, end, 0.0, width, column)
        out[:, reason] += column
    return out / width


def _all_waits(world: World, played: Played) -> list[tuple[Floats, Floats]]:
    measured = world.frame["job"].to_numpy() >= 0
    if played.segments is not None:  # some ran more than once, and waited again between
        mine = waits(world, played).of(measured)
        return [(mine.begin, mine.end), *_outside(world, played)]
    # One wait a job: nothing needs to be sorted, which would take most of the time.
    ran = ~np.isnan(played.start)
    end = np.where(ran, played.start, played.stopped)
    rows = np.flatnonzero(measured & (ran | (played.status == WAITING)) & (end > world.eligible))
    return [(world.eligible[rows], end[rows]), *_outside(world, played)]


def _outside(world: World, played: Played) -> list[tuple[Floats, Floats]]:
    """Return the waits before a job is eligible, and those in which it starts up."""
    rows = world.measured
    eligible = np.minimum(world.eligible[rows], played.stopped)
    start = np.nan_to_num(played.start[rows], nan=played.stopped)
    latency = np.where(np.isnan(played.start[rows]), 0.0, world.latency[rows])
    return [(np.minimum(world.submitted[rows], eligible), eligible), (start, start + latency)]
