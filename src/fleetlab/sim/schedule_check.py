"""A second look at a schedule: runs are played back instant by instant, and nothing may be held twice.

This knows nothing of policies and does its own sums, sharing only the names of fields with the loops: it is their
audit. At one instant runs end, nodes go, nodes come, runs begin. A run that takes no time is checked before the others
that begin with it: those that came before it in that instant may be gone when it comes, but none that stays is in its
way.
"""

from __future__ import annotations

import numpy as np

from fleetlab.sim.jit import loop, step
from fleetlab.sim.nodes import (
    APP,
    COUNT,
    CPU,
    FIRST,
    FREE,
    GPU_MEMORY,
    GPUS,
    LAST,
    LIMIT,
    MILLI,
    TYPE,
    TYPES,
    UP,
    VRAM,
    WHOLE,
    Floats,
    Ints,
)  # fmt: skip
from fleetlab.sim.placements import fragment

# What may be wrong with an instance on a node.
FAULTS = (
    "", "the node is not up", "more CPU, memory, RDMA or disk than is free", "more of its app than the node may have",
    "not one of its GPU types", "not the number of GPUs it asks for", "a GPU that the node does not have",
    "more of a GPU than is free", "the node goes with it on board",
)  # fmt: skip
NOT_UP, TOO_MUCH, OVER_LIMIT, WRONG_TYPE, WRONG_COUNT, NO_SUCH_GPU, GPU_TAKEN, LEFT_BEHIND = range(1, len(FAULTS))
# A row of what is sampled, for each GPU type; all of it in milli of GPUs, but fragments may be parts of one.
SWITCHED_ON, ALLOCATED, USED, FRAGMENTS = range(4)


@step
def _wrong(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, got: int) -> int:
    """What is wrong with an instance of shape `s` on node `n` with the GPUs `got`; 0: nothing."""
    if N[n, UP] == 0:
        return NOT_UP
    for field in range(4):
        if N[n, field] < S[s, field]:
            return TOO_MUCH
    if S[s, LIMIT] and apps[S[s, APP], n] >= S[s, LIMIT]:
        return OVER_LIMIT
    if S[s, GPUS] and S[s, TYPES] & N[n, TYPE] == 0:
        return WRONG_TYPE
    if got >> (N[n, LAST] - N[n, FIRST]):
        return NO_SUCH_GPU
    count, g = 0, N[n, FIRST]
    while got:
        if got & 1:
            count += 1
            if G[g, FREE] < S[s, MILLI] or G[g, VRAM] < S[s, GPU_MEMORY]:
                return GPU_TAKEN
        got >>= 1
        g += 1
    return 0 if count == S[s, GPUS] else WRONG_COUNT


@step
def _hold(S: Ints, s: int, N: Ints, n: int, G: Ints, apps: Ints, got: int, way: int) -> None:
    """Give an instance just these GPUs of node `n` and what else it asks for (`way` 1), or take all that back (-1)."""
    for field in range(4):
        N[n, field] -= way * S[s, field]
    N[n, COUNT] += way
    if S[s, LIMIT]:
        apps[S[s, APP], n] += way
    g = N[n, FIRST]
    while got:
        if got & 1:
            G[g, FREE] -= way * S[s, MILLI]
            G[g, VRAM] -= way * S[s, GPU_MEMORY]
        got >>= 1
        g += 1


@step
def _end(k: int, R: Ints, S: Ints, N: Ints, G: Ints, apps: Ints, where: Ints, got: Ints) -> None:
    for i in range(R[k, 1], R[k, 1] + R[k, 2]):
        _hold(S, R[k, 0], N, where[i], G, apps, got[i], -1)


@step
def _begin(k: int, R: Ints, S: Ints, N: Ints, G: Ints, apps: Ints, where: Ints, got: Ints) -> tuple[int, int]:
    """Put the instances of a run on their nodes; what is wrong, and with which instance."""
    for i in range(R[k, 1], R[k, 1] + R[k, 2]):
        n = where[i]
        fault = _wrong(S, R[k, 0], N, n, G, apps, got[i]) if 0 <= n < len(N) else NOT_UP
        if fault:
            return fault, i
        _hold(S, R[k, 0], N, n, G, apps, got[i], 1)
    return 0, -1


@step
def _sample(N: Ints, G: Ints, kind: Ints, U: Ints, share: Floats, out: Floats) -> None:
    """Add up what the nodes have, by GPU type."""
    for n in range(len(N)):
        gpus = N[n, LAST] - N[n, FIRST]
        if gpus and N[n, UP]:
            out[kind[n], SWITCHED_ON] += gpus * WHOLE
            for g in range(N[n, FIRST], N[n, LAST]):
                out[kind[n], ALLOCATED] += WHOLE - G[g, FREE]
                out[kind[n], USED] += WHOLE if G[g, FREE] < WHOLE else 0
            out[kind[n], FRAGMENTS] += fragment(N, n, G, N[n, CPU], U, share)


@loop
def replay(
    begin: Floats, end: Floats, by_begin: Ints, by_end: Ints, R: Ints, S: Ints, N: Ints, G: Ints, apps: Ints,
    where: Ints, got: Ints, switched: Floats, switch: Ints, times: Floats, kind: Ints, U: Ints, share: Floats,
    out: Floats,
) -> tuple[int, int, int, float]:  # fmt: skip
    """Play runs back and sample at `times`; what is wrong if anything is, in which run, on which node, and when.

    `R` has a row for each run: its shape, first instance and number of instances; `by_begin` orders runs by begin and
    end, `by_end` those that take time by end; `switch` has a node and 1 or 0 for each moment of `switched`.
    """
    b, e, w = 0, 0, 0
    for k in range(len(times) + 1):
        upto = times[k] if k < len(times) else np.inf
        while True:
            now = begin[by_begin[b]] if b < len(by_begin) else np.inf
            now = min(now, end[by_end[e]]) if e < len(by_end) else now
            now = min(now, switched[w]) if w < len(switched) else now
            if now > upto or now == np.inf:
                break
            while e < len(by_end) and end[by_end[e]] == now:
                _end(by_end[e], R, S, N, G, apps, where, got)
                e += 1
            while w < len(switched) and switched[w] == now:
                n = switch[w, 0]
                if switch[w, 1] == 0 and N[n, COUNT]:
                    return LEFT_BEHIND, -1, n, now
                N[n, UP] = switch[w, 1]
                w += 1
            while b < len(by_begin) and begin[by_begin[b]] == now:
                run = by_begin[b]
                fault, i = _begin(run, R, S, N, G, apps, where, got)
                if fault:
                    return fault, run, where[i], now
                if end[run] == now:
                    _end(run, R, S, N, G, apps, where, got)
                b += 1
        if k < len(times):
            _sample(N, G, kind, U, share, out[k])
    return 0, -1, -1, 0.0


@loop
def held(begin: Floats, end: Floats, R: Ints, milli: Ints, where: Ints, kind: Ints, edges: Floats, out: Floats) -> None:
    """Add to `out[j, kind]` what is held from `edges[j]` to `edges[j + 1]` by GPU type, in milli of a GPU × seconds."""
    count = np.zeros(out.shape[1], dtype=np.int64)
    for k in range(len(begin)):
        need = milli[R[k, 0]]
        if need == 0 or end[k] <= begin[k]:
            continue
        count[:] = 0
        for i in range(R[k, 1], R[k, 1] + R[k, 2]):
            count[kind[where[i]]] += need
        j = np.searchsorted(edges, begin[k], side="right") - 1
        while j < len(edges) - 1 and edges[j] < end[k]:
            spent = min(end[k], edges[j + 1]) - max(begin[k], edges[j])
            for c in range(len(count)):
                if count[c]:
                    out[j, c] += spent * count[c]
            j += 1
