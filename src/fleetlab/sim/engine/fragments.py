"""How much an instance would add to the fragments of a node, without asking every usual shape each time.

The answer is that of `growth` in `_places`, to the last bit: weights are on a grid, so their sums are exact in any
order. Which usual shapes can run beside so much free CPU depends on the GPU type and on how the CPU ranks among what
they ask for. For each such pair there is a *line*: how useful a GPU is by what is free on it (the weight of the shares
that it holds), and how useful idle GPUs are by their number (the weight of the whole requests that they hold). Lines
are filled in when they are first asked for; where there are too many to keep, one drives out another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim.jit import inner
from fleetlab.sim.nodes import (
    CPU,
    FIRST,
    FREE,
    GPU_MEMORY,
    GPUS,
    IDLE,
    LAST,
    MILLI,
    ORDINAL,
    TYPE,
    VRAM,
    WHOLE,
    Floats,
    Ints,
)
from fleetlab.sim.placements import USUAL_CPU, USUAL_GPUS, USUAL_MILLI, USUAL_TYPES, weight

MOST_USES = 1 << 17  # numbers in all lines together: 1 MB, and a hundred times what the built-in trace needs
LEVELS = WHOLE + 1
# `marks` begins with these: entries of a line, lines, distinct amounts of CPU, where a line speaks of idle GPUs. Then,
# for each level of free milli, which entry of a line is its own; then the amounts of CPU, the least first.
WIDTH, LINES, STEPS, IDLES, BANDS = range(5)
CPUS = BANDS + LEVELS


class Uses(NamedTuple):
    """What free GPUs are good for."""

    lines: Floats  # the weight of all usual shapes; then the lines, each behind the number of its type and rank
    marks: Ints


def uses_of(shapes: int) -> Uses:
    """Room for lines, for a workload of so many shapes; nothing is in it yet."""
    return Uses(np.full(MOST_USES, -1.0), np.zeros(CPUS + shapes, dtype=np.int64))


@inner
def lay_out(N: Ints, U: Ints, share: Floats, lines: Floats, marks: Ints) -> None:
    """Learn which amounts of CPU and of GPU matter, and how long a line is."""
    biggest, steps = 0, 0
    for n in range(len(N)):
        biggest = max(biggest, N[n, LAST] - N[n, FIRST])
    lines[0] = 0.0
    for m in range(len(share)):
        lines[0] += weight(share[m])
        if U[m, USUAL_GPUS]:
            if U[m, USUAL_MILLI] < WHOLE:
                marks[BANDS + U[m, USUAL_MILLI]] = 1
            steps = put_step(marks, steps, U[m, USUAL_CPU])
    for level in range(1, LEVELS):
        marks[BANDS + level] += marks[BANDS + level - 1]
    marks[STEPS], marks[IDLES] = steps, marks[BANDS + WHOLE] + 1
    marks[WIDTH] = 1 + marks[IDLES] + biggest + 1
    marks[LINES] = (len(lines) - 1) // marks[WIDTH]


@inner
def put_step(marks: Ints, steps: int, cpu: int) -> int:
    """Add an amount of CPU to those that are known; how many there are now."""
    i = steps
    while i and marks[CPUS + i - 1] > cpu:
        i -= 1
    if i and marks[CPUS + i - 1] == cpu:
        return steps
    for k in range(steps, i, -1):
        marks[CPUS + k] = marks[CPUS + k - 1]
    marks[CPUS + i] = cpu
    return steps + 1


@inner
def line_of(N: Ints, n: int, cpu: int, U: Ints, share: Floats, lines: Floats, marks: Ints) -> int:
    """Where the line of a node with so much CPU begins."""
    rank = marks[STEPS]
    while rank and marks[CPUS + rank - 1] > cpu:
        rank -= 1
    number = N[n, ORDINAL] * (marks[STEPS] + 1) + rank
    at = 1 + number % marks[LINES] * marks[WIDTH]
    if lines[at] != number:
        lines[at] = number
        write(N[n, TYPE], cpu, U, share, lines, marks, at + 1)
    return at + 1


@inner
def write(kind: int, cpu: int, U: Ints, share: Floats, lines: Floats, marks: Ints, at: int) -> None:
    """Fill in a line: the weight of what can run on that type of GPU beside so much CPU."""
    bands, end = marks[IDLES], marks[WIDTH] - 1
    for i in range(end):
        lines[at + i] = 0.0
    for m in range(len(share)):
        gpus, need = U[m, USUAL_GPUS], U[m, USUAL_MILLI]
        if gpus == 0 or U[m, USUAL_TYPES] & kind == 0 or U[m, USUAL_CPU] > cpu:
            continue
        if need < WHOLE:
            for i in range(marks[BANDS + need], bands):
                lines[at + i] += weight(share[m])
        else:
            for i in range(gpus, end - bands):
                lines[at + bands + i] += weight(share[m]) * (i * WHOLE)


@inner
def useful(N: Ints, n: int, G: Ints, lines: Floats, marks: Ints, at: int) -> float:
    """How much of a node's free GPU the usual shapes can use, in milli, by the line that begins at `at`."""
    total = lines[at + marks[IDLES] + N[n, IDLE]]
    for g in range(N[n, FIRST], N[n, LAST]):
        total += G[g, FREE] * lines[at + marks[BANDS + G[g, FREE]]]
    return total


@inner
def grown(
    S: Ints, s: int, N: Ints, n: int, G: Ints, U: Ints, share: Floats, lines: Floats, marks: Ints
) -> tuple[float, int]:
    """What `growth` says of an instance on a node that holds it: the milli of fragments, and the GPU for a share."""
    if N[n, FIRST] == N[n, LAST]:
        return 0.0, -1
    milli, gpus, idle = S[s, MILLI], S[s, GPUS], N[n, IDLE]
    at = line_of(N, n, N[n, CPU], U, share, lines, marks)
    before = useful(N, n, G, lines, marks, at)
    after, number = before, lines[at - 1]
    at = line_of(N, n, N[n, CPU] - S[s, CPU], U, share, lines, marks)
    if lines[at - 1] != number:
        after = useful(N, n, G, lines, marks, at)
    # Fragments are what is free less what is useful.
    taken, idles = lines[0] * (gpus * milli), at + marks[IDLES]
    if gpus == 0:
        return before - after, -1
    if milli == WHOLE:
        after -= gpus * WHOLE * lines[at + marks[BANDS + WHOLE]]
        after += lines[idles + idle - gpus] - lines[idles + idle]
        return before - after - taken, -1
    best, card = -np.inf, -1
    for g in range(N[n, FIRST], N[n, LAST]):
        free = G[g, FREE]
        if free < milli or G[g, VRAM] < S[s, GPU_MEMORY]:
            continue
        left = (free - milli) * lines[at + marks[BANDS + free - milli]] - free * lines[at + marks[BANDS + free]]
        if free == WHOLE:
            left += lines[idles + idle - 1] - lines[idles + idle]
        if left > best:
            best, card = left, g
    return before - (after + best) - taken, card
