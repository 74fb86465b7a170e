"""Sets of nodes as bits, 62 in a word: a plan compares and intersects thousands of them."""

from __future__ import annotations

import numpy as np

from fleetlab.schedulers.slurm.state import Slurm
from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Ints

WORD = 62  # nodes in a word: its sign is never set
PAIRS, FOURS, EIGHTS = 0x1555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F


def pack(member: Ints) -> Ints:
    """Return rows of nodes, 1 for each that is in the set, as rows of words."""
    rows, nodes = member.shape
    words = np.zeros((rows, (nodes + WORD - 1) // WORD), dtype=np.int64)
    for n in range(nodes):
        words[:, n // WORD] |= (member[:, n] != 0).astype(np.int64) << (n % WORD)
    return words


@inner
def has_node(words: Ints, n: int) -> bool:
    """Return whether a node is in a set."""
    return (words[n // WORD] >> (n % WORD)) & 1 == 1


@inner
def add_node(words: Ints, n: int) -> None:
    """Put a node into a set."""
    words[n // WORD] |= 1 << (n % WORD)


@inner
def drop_node(words: Ints, n: int) -> None:
    """Take a node out of a set."""
    words[n // WORD] &= ~(1 << (n % WORD))


@inner
def count_nodes(words: Ints) -> int:
    """Return how many nodes a set has."""
    count = 0
    for w in range(len(words)):
        bits = words[w]
        if bits:
            bits -= (bits >> 1) & PAIRS
            bits = (bits & FOURS) + ((bits >> 2) & FOURS)
            bits = (bits + (bits >> 4)) & EIGHTS
            bits += bits >> 8
            bits += bits >> 16
            count += (bits + (bits >> 32)) & 127
    return count


@inner
def same_set(one: Ints, other: Ints) -> bool:
    """Return whether two sets have the same nodes."""
    for w in range(len(one)):  # noqa: SIM110  compiled, a loop is quicker
        if one[w] != other[w]:
            return False
    return True


@inner
def copy_set(words: Ints, into: Ints) -> None:
    """Copy a set of nodes."""
    for w in range(len(words)):
        into[w] = words[w]


@inner
def reaches(s: Slurm, r: int, time: float, limit: float) -> bool:
    """Return whether a job of a time limit that starts at a time would run into a reservation."""
    return s.reservations[r].begin < time + limit and s.reservations[r].end > time


@inner
def usable_set(s: Slurm, t: int, p: int, time: float, up: Ints, into: Ints) -> None:
    """Find the nodes that a job may use from a time on for its time limit: partition, request, reservations."""
    job = s.jobs[t]
    for w in range(len(into)):
        into[w] = up[w] & s.partition_set[p, w] & s.allowed_set[job.request, w]
    for r in range(len(s.reservations)):
        kept = s.reservations[r]
        if kept.group != job.reservation and kept.known <= s.clock.now and reaches(s, r, time, job.limit):
            for w in range(len(into)):
                into[w] &= ~s.reserved_set[r, w]
    if job.reservation >= 0:
        keep_reserved(s, job.reservation, time, into)


@inner
def keep_reserved(s: Slurm, group: int, time: float, into: Ints) -> None:
    """Leave the nodes that jobs of a reservation may use at a time."""
    for w in range(len(into)):
        bits = 0
        for r in range(len(s.reservations)):
            kept = s.reservations[r]
            if kept.group == group and time < kept.end and (kept.flex or kept.begin <= time):
                bits |= into[w] if kept.flex else s.reserved_set[r, w]
        into[w] &= bits


@inner
def list_nodes(words: Ints, into: Ints) -> None:
    """Write 1 for each node of a set, 0 for all others."""
    for n in range(len(into)):
        into[n] = (words[n // WORD] >> (n % WORD)) & 1
