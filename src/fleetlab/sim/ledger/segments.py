"""The wait ledger of one job, not summed: the reason of each of its waiting seconds, in order of time.

The replay sums seconds by row of a table. Here each row is the piece of the job's wait between two instants at which a
reason may change, so that a piece has one reason and its sum is its length: the same replay, and the same seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.sim.layout import Floats, Ints, Records, table
from fleetlab.sim.ledger.ledger import explained, replay, switches_of, waiting_of
from fleetlab.sim.ledger.reasons import COUNT, WAIT, Waiting
from fleetlab.sim.ledger.waits import waits
from fleetlab.sim.schedule import Played
from fleetlab.sim.schedule_check import RunTable
from fleetlab.sim.timeline import run_table
from fleetlab.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class WaitSegments:
    """The waits of one job in pieces of one reason each, in order of time; neighbors have different reasons."""

    begin: Floats
    end: Floats
    reason: Ints  # places in the catalog

    def merged(self) -> WaitSegments:
        """Return them in order of time, neighbors of the same reason as one."""
        order = np.lexsort((self.end, self.begin))
        begin, end, reason = self.begin[order], self.end[order], self.reason[order]
        first = np.ones(len(begin), dtype=bool)
        first[1:] = (reason[1:] != reason[:-1]) | (begin[1:] != end[:-1])
        last = np.append(first[1:], True)[: len(first)]
        return WaitSegments(begin[first], end[last], reason[first])


def wait_segments(world: World, played: Played, row: int) -> WaitSegments:
    """Return why a job, the row of the world, waited when; its reasons sum to its row of the ledger."""
    runs = run_table(world, played.runs(world.first))
    waiting = waiting_of(world, played)
    mine = waiting.waits[waiting.waits.job == row]
    begin, end, group = _pieces(mine, _instants(world, played, waiting, runs))
    pieces, whole = len(begin), len(mine)
    # The last rows are the whole waits: as long as one lasts, its group is not taken off the list and put on again.
    rows = table(
        pieces + whole, WAIT, job=np.append(np.arange(pieces), np.full(whole, pieces)),
        group=np.append(group, mine.group), begin=np.append(begin, mine.begin), end=np.append(end, mine.end),
    )  # fmt: skip
    order = np.argsort(rows.begin, kind="stable")
    rows = rows[order]
    one = waiting._replace(
        waits=rows, by_end=np.argsort(rows.end, kind="stable"), ledger=np.zeros((pieces + 1, COUNT)),
        before=np.zeros(pieces + 1),
    )  # fmt: skip
    if pieces:
        replay(world, played, one, runs, None, waiting.waits)
    seconds = one.ledger[:pieces]
    reason = np.argmax(seconds, axis=1) if pieces else np.zeros(0, dtype=np.int64)
    if not np.array_equal(seconds[np.arange(pieces), reason], end - begin):
        msg = f"a reason of job {row} changes between two instants"
        raise AssertionError(msg)
    known = _known(world, played, row)
    return WaitSegments(
        np.append(begin, known.begin), np.append(end, known.end), np.append(reason, known.reason)
    ).merged()


def _known(world: World, played: Played, row: int) -> WaitSegments:
    """Return the waits of a job whose reasons the loops tell, not the schedule."""
    of_job = np.arange(len(world.submit)) == row
    _, _, charged = explained(world, played, waits(world, played).of(of_job))
    parts = [(known.begin, known.end, np.full(len(known.job), reason)) for known, reason in charged]
    empty = (np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
    begin, end, reason = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
    return WaitSegments(begin, end, reason)


def _instants(world: World, played: Played, waiting: Waiting, runs: RunTable) -> Floats:
    """Return the instants at which the replay of all jobs assigns reasons."""
    times = [waiting.waits.begin, waiting.waits.end, runs.runs.begin, runs.runs.end, switches_of(played).time]
    if played.rules is not None:
        times += [played.rules.marks, runs.runs.end + played.rules.epilog]
    return np.unique(np.concatenate(times))


def _pieces(mine: Records, instants: Floats) -> tuple[Floats, Floats, Ints]:
    """Cut waits at instants; return begin, end and group of each piece."""
    parts = []
    for wait in mine:
        inside = instants[(instants > wait.begin) & (instants < wait.end)]
        edges = np.concatenate(([wait.begin], inside, [wait.end]))
        parts.append((edges[:-1], edges[1:], np.full(len(edges) - 1, wait.group)))
    empty = (np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
    begin, end, group = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
    return begin, end, group
