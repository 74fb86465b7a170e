"""How much an instance would add to the fragmentation of a node, without testing every typical shape each time.

The result is that of `placements.fragmentation_growth`, to the last bit: weights are on a grid, so their sums are exact
in any order. Which typical shapes can run beside so much free CPU depends on the GPU type and on how the CPU ranks
among what they request. For each such pair there is a *line*: how useful a GPU is by what is free on it (the weight of
the fractions that it holds), and how useful idle GPUs are by their number (the weight of the whole requests that they
hold). Lines are filled in when they are first needed; where there are too many to keep, one replaces another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import WHOLE, Floats, Ints, Record, Records, record, table
from fleetlab.sim.placements import weight

LINES = record("width count steps idle bands", bands=WHOLE + 1)
#   width: entries of a line; count: of lines; steps: distinct amounts of CPU; idle: where a line begins to count idle
#   GPUs; bands: which entry of a line belongs to so many free milli
MAX_ENTRIES = 1 << 17  # in all lines together: 1 MB, and a hundred times what the built-in trace needs


class Usefulness(NamedTuple):
    """What free GPUs are useful for."""

    lines: Floats  # the weight of all typical shapes; then the lines, each behind the number of its type and CPU rank
    about: Record  # LINES
    cpus: Ints  # distinct amounts of CPU that typical shapes request, the least first


def no_lines(typical: int) -> Usefulness:
    """Allocate lines, for so many typical shapes."""
    return Usefulness(np.full(MAX_ENTRIES, -1.0), table(1, LINES)[0], np.zeros(typical, dtype=np.int64))


@inner
def plan_lines(nodes: Records, typical: Records, lines: Floats, about: Record, cpus: Ints) -> None:
    """Find which amounts of CPU and of GPU matter, and how long a line is."""
    biggest, steps, bands = 0, 0, about.bands
    for n in range(len(nodes)):
        biggest = max(biggest, nodes[n].end_gpu - nodes[n].first_gpu)
    lines[0] = 0.0
    for m in range(len(typical)):
        usual = typical[m]
        lines[0] += weight(usual.share)
        if usual.gpus:
            if usual.milli < WHOLE:
                bands[usual.milli] = 1
            steps = add_step(cpus, steps, usual.cpu)
    for level in range(1, WHOLE + 1):
        bands[level] += bands[level - 1]
    about.steps, about.idle = steps, bands[WHOLE] + 1
    about.width = 1 + about.idle + biggest + 1
    about.count = (len(lines) - 1) // about.width


@inner
def add_step(cpus: Ints, steps: int, cpu: int) -> int:
    """Add an amount of CPU to the sorted ones; return how many there are now."""
    i = steps
    while i and cpus[i - 1] > cpu:
        i -= 1
    if i and cpus[i - 1] == cpu:
        return steps
    for k in range(steps, i, -1):
        cpus[k] = cpus[k - 1]
    cpus[i] = cpu
    return steps + 1


@inner
def line_of(node: Record, cpu: int, typical: Records, lines: Floats, about: Record, cpus: Ints) -> int:
    """Return where the line of a node with so much CPU begins."""
    rank = about.steps
    while rank and cpus[rank - 1] > cpu:
        rank -= 1
    number = node.type_number * (about.steps + 1) + rank
    at = 1 + number % about.count * about.width
    if lines[at] != number:
        lines[at] = number
        write_line(node.gpu_type, cpu, typical, lines, about, at + 1)
    return at + 1


@inner
def write_line(gpu_type: int, cpu: int, typical: Records, lines: Floats, about: Record, at: int) -> None:
    """Fill in a line: the weight of what can run on that type of GPU beside so much CPU."""
    idle, end = about.idle, about.width - 1
    for i in range(end):
        lines[at + i] = 0.0
    for m in range(len(typical)):
        usual = typical[m]
        if usual.gpus == 0 or usual.types & gpu_type == 0 or usual.cpu > cpu:
            continue
        if usual.milli < WHOLE:
            for i in range(about.bands[usual.milli], idle):
                lines[at + i] += weight(usual.share)
        else:
            for i in range(usual.gpus, end - idle):
                lines[at + idle + i] += weight(usual.share) * (i * WHOLE)


@inner
def useful(node: Record, gpus: Records, lines: Floats, about: Record, at: int) -> float:
    """Return how much of a node's free GPU typical shapes can use, in milli, by the line that begins at `at`."""
    total, bands = lines[at + about.idle + node.idle_gpus], about.bands
    for g in range(node.first_gpu, node.end_gpu):
        total += gpus[g].free * lines[at + bands[gpus[g].free]]
    return total


@inner
def growth_by_lines(
    shape: Record, node: Record, gpus: Records, typical: Records, lines: Floats, about: Record, cpus: Ints
) -> tuple[float, int]:
    """Return what `placements.fragmentation_growth` returns for an instance on a node that holds it."""
    if node.first_gpu == node.end_gpu:
        return 0.0, -1
    milli, idle, bands = shape.milli, node.idle_gpus, about.bands
    at = line_of(node, node.free_cpu, typical, lines, about, cpus)
    before = useful(node, gpus, lines, about, at)
    after, number = before, lines[at - 1]
    at = line_of(node, node.free_cpu - shape.cpu, typical, lines, about, cpus)
    if lines[at - 1] != number:
        after = useful(node, gpus, lines, about, at)
    # Fragmentation is what is free less what is useful.
    taken, idles = lines[0] * (shape.gpus * milli), at + about.idle
    if shape.gpus == 0:
        return before - after, -1
    if milli == WHOLE:
        after -= shape.gpus * WHOLE * lines[at + bands[WHOLE]]
        after += lines[idles + idle - shape.gpus] - lines[idles + idle]
        return before - after - taken, -1
    best, card = -np.inf, -1
    for g in range(node.first_gpu, node.end_gpu):
        free = gpus[g].free
        if free < milli or gpus[g].free_memory < shape.gpu_memory:
            continue
        growth = (free - milli) * lines[at + bands[free - milli]] - free * lines[at + bands[free]]
        if free == WHOLE:
            growth += lines[idles + idle - 1] - lines[idles + idle]
        if growth > best:
            best, card = growth, g
    return before - (after + best) - taken, card
