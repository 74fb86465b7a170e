"""How many jobs arrive and wait over time, and why they wait."""

from __future__ import annotations

import numpy as np

from fleetlab.sim.codes import BY_ELIGIBLE, BY_START_UP, REASONS
from fleetlab.sim.jit import compile_notice
from fleetlab.sim.layout import Floats, Ints, table
from fleetlab.sim.ledger import ledger
from fleetlab.sim.ledger.reasons import WAIT, replay_waits
from fleetlab.sim.ledger.rules import anew
from fleetlab.sim.ledger.waits import waits
from fleetlab.sim.schedule import Played
from fleetlab.sim.tiles.sums import sum_intervals
from fleetlab.sim.timeline import run_table
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
    out = _replayed(world, played, edges)
    for (begin, end), reason in zip(_outside(world, played), (BY_ELIGIBLE, BY_START_UP), strict=True):
        column = np.zeros(bins)
        sum_intervals(begin, end, 0.0, width, column)
        out[:, reason] += column
    return out / width


def _all_waits(world: World, played: Played) -> list[tuple[Floats, Floats]]:
    mine = waits(world, played).of(world.frame["job"].to_numpy() >= 0)
    return [(mine.begin, mine.end), *_outside(world, played)]


def _outside(world: World, played: Played) -> list[tuple[Floats, Floats]]:
    """Return the waits before a job is eligible, and those in which it starts up."""
    rows = world.measured
    eligible = np.minimum(world.eligible[rows], played.stopped)
    start = np.nan_to_num(played.start[rows], nan=played.stopped)
    latency = np.where(np.isnan(played.start[rows]), 0.0, world.latency[rows])
    return [(np.minimum(world.submitted[rows], eligible), eligible), (start, start + latency)]


def _replayed(world: World, played: Played, edges: Floats) -> Floats:
    """Charge each wait, cut at the edges, to its bin in the place of its job: the replay sums by whatever it is told.

    What a site's Slurm charges before the replay is known by job alone, and is spread over the wait of the job.
    """
    whole, runs = ledger._waiting(world, played), run_table(world, played.runs(world.first))
    row, bin_, begin, end = _cut(whole.waits.begin, whole.waits.end, edges)
    order = np.argsort(begin, kind="stable")
    rows = table(
        len(row), WAIT, job=bin_[order], group=whole.waits.group[row][order], begin=begin[order], end=end[order]
    )  # fmt: skip
    out = _known_before(world, played, whole.ledger, edges)
    pieces = whole._replace(waits=rows, by_end=np.argsort(rows.end, kind="stable"), ledger=out)
    rules = None if played.rules is None else anew(played.rules, whole.waits, len(whole.groups))
    with compile_notice():
        replay_waits(runs, ledger._switches(played), pieces, ledger._nodes(world, played), None, rules)
    return np.maximum(out, 0.0)


def _known_before(world: World, played: Played, seconds: Floats, edges: Floats) -> Floats:
    out = np.zeros((len(edges) - 1, len(REASONS)))
    jobs = np.flatnonzero(seconds.sum(axis=1) > 0)
    if not len(jobs):
        return out
    begin = world.eligible[jobs]
    for reason in np.flatnonzero(seconds.sum(axis=0) > 0):
        sum_intervals(begin, begin + seconds[jobs, reason], 0.0, float(edges[1]), column := np.zeros(len(out)))
        out[:, reason] = column
        begin = begin + seconds[jobs, reason]
    return out


def _cut(begin: Floats, end: Floats, edges: Floats) -> tuple[Ints, Ints, Floats, Floats]:
    """Cut intervals at edges: the row of each piece, its bin, its begin and its end."""
    first = np.maximum(np.searchsorted(edges, begin, side="right") - 1, 0)
    last = np.minimum(np.searchsorted(edges, end, side="left") - 1, len(edges) - 2)
    count = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(begin)), count)
    bin_ = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    begin, end = np.maximum(begin[row], edges[bin_]), np.minimum(end[row], edges[bin_ + 1])
    some = np.flatnonzero(end > begin)
    return row[some], bin_[some], begin[some], end[some]
