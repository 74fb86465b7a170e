"""The quick loop: jobs whose rank is fixed when they arrive, and that run to their end once they have begun.

At one instant: completions, then arrivals, then one scheduling pass. A placement policy is asked only
about nodes that can hold an instance, so nothing is allocated twice. Everything here also runs as plain
Python, with the same answer; `_full` says the same more slowly, and a test holds the two together.

Three ideas make it quick. An index finds the best-fitting node. Jobs that ask for the same are a *kind*: they fit or
fail together, so a pass under `greedy` looks at kinds, not at jobs, and only at those that a node freed since could
help. And what a kind has waited for is kept for the kind: a job takes the difference between its coming and its going.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetlab.sim._compile import inline, inner, loop
from fleetlab.sim._gangs import Memo, back, indexed, offered, reason, scored, settle, slots
from fleetlab.sim._index import Bits
from fleetlab.sim._nodes import (
    BY_HEAD,
    BY_ORDER,
    CPU,
    GPUS,
    IDLE,
    MEMORY,
    MILLI,
    MOST,
    REASONS,
    TYPE,
    TYPES,
    WHOLE,
    Floats,
    Ints,
    holds,
    pop,
    push,
    room,
)
from fleetlab.sim._places import RANDOM

WHY = len(REASONS)
ALL = 1 << 40  # more than there can be


class Jobs(NamedTuple):
    """Jobs in order of arrival."""

    submit: Floats
    runtime: Floats
    estimate: Floats  # filled in at arrival where it is learnt
    key: Floats  # rank, the lowest first; where `learnt`, the estimate is added to it on arrival
    shape: Ints
    instances: Ints
    kind: Ints
    first: Ints  # [jobs + 1]
    learns: Ints


class Land(NamedTuple):
    """Nodes and the shapes that ask for them: see `_nodes`."""

    S: Ints
    N: Ints
    G: Ints
    apps: Ints
    C: Ints
    most: Ints
    U: Ints
    share: Floats
    draws: Ints
    free: Ints  # [types]: GPU milli
    X: Ints  # the index: see `_index`; B is empty where the policy does not go by it
    B: Bits


@inner
def believe(j: int, learns: Ints, estimate: Floats, mean: Floats, seen: Ints) -> None:
    """What is believed of a job's run time when it arrives: the mean of its like, or of all, that have finished."""
    if learns[j] >= 0:
        of = learns[j] if seen[learns[j]] else len(mean) - 1
        estimate[j] = mean[of]


@inner
def learn(j: int, learns: Ints, runtime: Floats, mean: Floats, seen: Ints) -> None:
    """Remember how long a finished job ran."""
    if learns[j] >= 0:
        for of in (learns[j], len(mean) - 1):
            seen[of] += 1
            mean[of] += (runtime[j] - mean[of]) / seen[of]


@inline
def fit(
    S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, X: Ints, B: Bits, free: Ints, where: Ints, got: Ints,
    at: int,
) -> int:  # fmt: skip
    """Place all instances of a job where each fits best, or none: `put` for where there is an index."""
    each, most = S[s, GPUS] * S[s, MILLI], offered(S, s, free)
    if count * each > most:  # fewer milli free in all: no need to look
        return most // each
    placed = indexed(S, s, count, N, G, apps, X, B, where, got, at)
    settle(S, s, placed, N, free, where, at)
    if placed < count:
        back(S, s, placed, N, G, apps, X, B, free, where, got, at)
    return placed


@inner
def put(placement: int, s: int, count: int, land: Land, memo: Memo, where: Ints, got: Ints, at: int) -> int:
    """Place all instances of a job by stored scores, or none; `where` and `got` take nodes and GPUs from `at` on.

    It says `count`, or, where that many do not fit, that no more than so many do.
    """
    S, N, G, apps, free = land.S, land.N, land.G, land.apps, land.free
    each, most = S[s, GPUS] * S[s, MILLI], offered(S, s, free)
    if count * each > most:
        return most // each
    placed = scored(
        placement, S, s, count, N, G, apps, land.C, land.most, land.U, land.share, land.draws, memo, where, got, at,
    )  # fmt: skip
    settle(S, s, placed, N, free, where, at)
    if placed < count:
        back(S, s, placed, N, G, apps, land.X, land.B, free, where, got, at)
    if placement == RANDOM and placed == 0 and count > 1:  # it drew no lots
        return slots(S, s, ALL, N, G, apps, land.X)
    return placed


@inner
def at_most(S: Ints, s: int, count: int, N: Ints, G: Ints, apps: Ints, X: Ints, free: Ints) -> int:
    """How many of `count` instances fit now? Where too little is free in all, those that would fill it."""
    each, most = S[s, GPUS] * S[s, MILLI], offered(S, s, free)
    return most // each if count * each > most else slots(S, s, count, N, G, apps, X)


@inner
def helps(S: Ints, s: int, N: Ints, G: Ints, apps: Ints, freed: Ints, count: int) -> bool:
    """Could one of the nodes just freed hold an instance? If none can, what failed before fails still."""
    for i in range(count):  # noqa: SIM110  compiled, a loop is quicker than a generator
        if holds(S, s, N, freed[i], G, apps):
            return True
    return False


@loop
def run_strict(
    placement: int, jobs: Jobs, land: Land, memo: Memo | None, learnt: int, sorted_keys: int, until: float
) -> tuple[Floats, Ints, Ints, Floats]:
    """Play all events where the first in line blocks those behind it: starts, nodes, GPUs and the ledger."""
    submit, runtime, estimate, key, shape, instances, _, first, learns = jobs
    S, N, G, apps, free, X, B = land.S, land.N, land.G, land.apps, land.free, land.X, land.B
    total = len(submit)
    start, ledger = np.full(total, np.nan), np.zeros((total, WHY))
    where, got = np.full(first[-1], -1, np.int64), np.zeros(first[-1], np.int64)
    ends, running, active = np.empty(total), np.empty(total, np.int64), 0
    size = 0 if sorted_keys else total
    keys, queue, waiting = np.empty(size), np.empty(size, np.int64), 0
    line = 0  # where keys come sorted, who waits is who has arrived and not begun: from here on
    mean, seen = np.zeros(learns.max() + 2 if total else 1), np.zeros(learns.max() + 2 if total else 1, np.int64)
    stamp, freed, frees = np.full(len(N), -1, np.int64), np.empty(len(N), np.int64), 0
    blocked, since, cause = -1, 0.0, 0  # the head that does not fit, from when on, and why
    arrived, turn, lacks = 0, 0, np.zeros(3, np.int64)
    while arrived < total or active:
        now = ends[0] if active else np.inf
        if arrived < total and submit[arrived] < now:
            now = submit[arrived]
        if now > until:
            break
        turn += 1
        frees = 0
        while active and ends[0] == now:  # GPUs are freed before a newcomer asks for them
            j = running[0]
            pop(ends, running, 0, active)
            active -= 1
            back(S, shape[j], instances[j], N, G, apps, X, B, free, where, got, first[j])
            learn(j, learns, runtime, mean, seen)
            if blocked >= 0:
                for i in range(first[j], first[j + 1]):
                    if stamp[where[i]] != turn:
                        stamp[where[i]] = turn
                        freed[frees] = where[i]
                        frees += 1
        while arrived < total and submit[arrived] == now:
            j = arrived
            arrived += 1
            waiting += 1
            if learnt:
                believe(j, learns, estimate, mean, seen)
                key[j] += estimate[j]
            if not sorted_keys:
                push(keys, queue, 0, waiting - 1, key[j], j)
        while waiting:
            j = line if sorted_keys else queue[0]
            if j == blocked and not helps(S, shape[j], N, G, apps, freed, frees):
                break
            if blocked >= 0:
                ledger[blocked, cause] += now - since
                blocked = -1
            s, count, at = shape[j], instances[j], first[j]
            if memo is None:
                placed = fit(S, s, count, N, G, apps, X, B, free, where, got, at)
            else:
                placed = put(placement, s, count, land, memo, where, got, at)
            if placed < count:
                blocked, since, cause = j, now, reason(S, s, count, N, G, apps, X, free, placed, lacks)
                break
            if sorted_keys:
                line += 1
            else:
                pop(keys, queue, 0, waiting)
            waiting -= 1
            start[j] = now
            push(ends, running, 0, active, now + runtime[j], j)
            active += 1
    end = until if arrived < total or active else 0.0
    if blocked >= 0:
        ledger[blocked, cause] += end - since
    for j in range(arrived):  # whatever it did not wait as the head itself, it waited behind one
        waited = (start[j] if start[j] == start[j] else end) - submit[j]
        if waited > 0:
            for r in range(WHY):
                if r != BY_HEAD:
                    waited -= ledger[j, r]
            ledger[j, BY_HEAD] = waited
    return start, where, got, ledger


@inner
def charge(k: int, now: float, spent: Floats, since: Floats, cause: Ints) -> None:
    """Charge what kind `k` has waited since the last look to the cause it waited for."""
    spent[k, cause[k]] += now - since[k]
    since[k] = now


@inner
def largest(freed: Ints, frees: int, N: Ints, top: Ints) -> None:
    """The most CPU, memory, GPU and idle GPUs on one of the freed nodes, and all their types."""
    top[:] = 0
    for i in range(frees):
        n = freed[i]
        top[0] = max(top[0], N[n, CPU])
        top[1] = max(top[1], N[n, MEMORY])
        top[2] = max(top[2], N[n, MOST])
        top[3] = max(top[3], N[n, IDLE])
        top[4] |= N[n, TYPE]


@inner
def hopeless(S: Ints, s: int, top: Ints) -> bool:
    """Does a shape ask for more than any freed node has?"""
    if S[s, CPU] > top[0] or S[s, MEMORY] > top[1]:
        return True
    if S[s, GPUS] == 0:
        return False
    if S[s, TYPES] & top[4] == 0:
        return True
    return S[s, MILLI] > top[2] or (S[s, MILLI] == WHOLE and S[s, GPUS] > top[3])


@inner
def hopes(S: Ints, N: Ints, G: Ints, apps: Ints, shapes: Ints, lines: int, freed: Ints, frees: int, top: Ints,
          hope: Ints) -> None:  # fmt: skip
    """For every shape that waits: at most so many instances may fit, now that nodes were freed."""
    for i in range(lines):
        s = shapes[i]
        if not hopeless(S, s, top):
            for f in range(frees):
                hope[s] += room(S, s, N, freed[f], G, apps)


@inner
def join(k: int, s: int, shapes: Ints, lines: int, place_of: Ints, chain: Ints, after: Ints, ahead: Ints) -> int:
    """A kind waits: put it first in the chain of its shape, and the shape into the list; how long that is now."""
    if chain[s] < 0:
        shapes[lines], place_of[s] = s, lines
        lines += 1
    else:
        ahead[chain[s]] = k
    after[k], ahead[k], chain[s] = chain[s], -1, k
    return lines


@inner
def part(k: int, s: int, shapes: Ints, lines: int, place_of: Ints, chain: Ints, after: Ints, ahead: Ints) -> int:
    """Undo `join`."""
    if ahead[k] >= 0:
        after[ahead[k]] = after[k]
    else:
        chain[s] = after[k]
    if after[k] >= 0:
        ahead[after[k]] = ahead[k]
    if chain[s] < 0:
        lines -= 1
        shapes[place_of[s]] = shapes[lines]
        place_of[shapes[lines]] = place_of[s]
    return lines


@inner
def part_of_each(kind: Ints, begin: Ints) -> None:
    """Where the part of each kind begins, if all jobs stand in one long row, kind by kind."""
    for j in range(len(kind)):
        begin[kind[j] + 1] += 1
    for k in range(len(begin) - 1):
        begin[k + 1] += begin[k]


@inner
def pay(j: int, k: int, sign: int, ledger: Floats, spent: Floats) -> None:
    """What a job has waited for is what its kind has, from its coming (-1) to its going (1)."""
    for r in range(WHY):
        ledger[j, r] += sign * spent[k, r]


@loop
def run_skip(
    placement: int, jobs: Jobs, kinds: Ints, land: Land, memo: Memo | None, learnt: int, until: float
) -> tuple[Floats, Ints, Ints, Floats]:
    """Play all events where a job that does not fit is passed over: starts, nodes, GPUs and the ledger."""
    submit, runtime, estimate, key, _, _, kind, first, learns = jobs
    S, N, G, apps, free, X, B = land.S, land.N, land.G, land.apps, land.free, land.X, land.B
    total, many = len(submit), len(kinds)
    start, ledger = np.full(total, np.nan), np.zeros((total, WHY))
    where, got = np.full(first[-1], -1, np.int64), np.zeros(first[-1], np.int64)
    ends, running, active = np.empty(total), np.empty(total, np.int64), 0
    # A line a kind: a heap in its own part of two long arrays.
    begin = np.zeros(many + 1, np.int64)
    part_of_each(kind, begin)
    keys, queue, size = np.empty(total), np.empty(total, np.int64), np.zeros(many, np.int64)
    # Kinds that wait, by shape: shapes with any in a list, the kinds of a shape in a chain.
    shapes, lines, place_of = np.empty(len(S), np.int64), 0, np.full(len(S), -1, np.int64)
    chain, after, ahead = np.full(len(S), -1, np.int64), np.full(many, -1, np.int64), np.full(many, -1, np.int64)
    waits = np.zeros(many, np.bool_)
    # What a kind has waited for in all, from when on it waits for the present cause, and which.
    spent, since, cause = np.zeros((many, WHY)), np.zeros(many), np.zeros(many, np.int64)
    # At most so many instances of a shape fit: counted when one last failed, and what was freed on top of that since.
    hope, counted = np.zeros(len(S), np.int64), np.full(len(S), -1, np.int64)  # in which pass
    asked, asks, fitted = np.empty(many, np.int64), 0, np.zeros(many, np.bool_)  # fitted: when the pass began
    ranks, best = np.empty(many), np.empty(many, np.int64)
    mean, seen = np.zeros(learns.max() + 2 if total else 1), np.zeros(learns.max() + 2 if total else 1, np.int64)
    stamp, freed, frees = np.full(len(N), -1, np.int64), np.empty(len(N), np.int64), 0
    top, lacks = np.zeros(5, np.int64), np.zeros(3, np.int64)
    arrived, turn = 0, 0
    while arrived < total or active:
        now = ends[0] if active else np.inf
        if arrived < total and submit[arrived] < now:
            now = submit[arrived]
        if now > until:
            break
        turn += 1
        frees, asks = 0, 0
        while active and ends[0] == now:  # GPUs are freed before a newcomer asks for them
            j = running[0]
            pop(ends, running, 0, active)
            active -= 1
            k = kind[j]
            back(S, kinds[k, 0], kinds[k, 1], N, G, apps, X, B, free, where, got, first[j])
            learn(j, learns, runtime, mean, seen)
            if lines:
                for i in range(first[j], first[j + 1]):
                    if stamp[where[i]] != turn:
                        stamp[where[i]] = turn
                        freed[frees] = where[i]
                        frees += 1
        if frees:
            largest(freed, frees, N, top)
            hopes(S, N, G, apps, shapes, lines, freed, frees, top, hope)
            for i in range(lines):
                k = chain[shapes[i]]
                while k >= 0:
                    if kinds[k, 1] <= hope[shapes[i]]:
                        asked[asks] = k
                        asks += 1
                    k = after[k]
        while arrived < total and submit[arrived] == now:
            j = arrived
            arrived += 1
            k = kind[j]
            if learnt:
                believe(j, learns, estimate, mean, seen)
                key[j] += estimate[j]
            if size[k] == 0:
                asked[asks] = k
                asks += 1
                since[k], cause[k] = now, 0
            elif waits[k]:
                charge(k, now, spent, since, cause)
            pay(j, k, -1, ledger, spent)
            push(keys, queue, begin[k], size[k], key[j], j)
            size[k] += 1
        if asks == 0:
            continue
        trying = 0
        for i in range(asks):
            k = asked[i]
            s, count = kinds[k, 0], kinds[k, 1]
            # What a node just freed can hold fitted when the pass began; a gang must be counted, and a newcomer if it
            # is not alone. A newcomer of a shape that waits knows that it will not find more than those who wait.
            fitted[k] = waits[k]
            if not waits[k] and chain[s] >= 0 and hope[s] < count:
                if hope[s]:
                    hope[s] = slots(S, s, ALL, N, G, apps, X)
                continue
            if (count > 1 or not waits[k]) and (waits[k] or asks > 1):
                fitted[k] = hope[s] >= count
                if counted[s] < turn:
                    fits = at_most(S, s, count, N, G, apps, X, free)
                    fitted[k] = fits >= count
                    if not fitted[k]:  # so many fit, and no more: the others of its shape need not count
                        hope[s], counted[s] = fits, turn
                if not fitted[k]:
                    continue
            push(ranks, best, 0, trying, keys[begin[k]], queue[begin[k]])
            trying += 1
        while trying:  # the best-ranked of the kinds that may fit, until none does
            j = best[0]
            k = kind[j]
            s, count, at = kinds[k, 0], kinds[k, 1], first[j]
            pop(ranks, best, 0, trying)
            trying -= 1
            # One that waited can only be helped by a node that was freed: those are quickly looked through.
            if waits[k] and (hopeless(S, s, top) or not helps(S, s, N, G, apps, freed, frees)):
                if count == 1:
                    hope[s] = 0
                continue
            if memo is None:
                placed = fit(S, s, count, N, G, apps, X, B, free, where, got, at)
            else:
                placed = put(placement, s, count, land, memo, where, got, at)
            if placed < count:
                hope[s] = placed
                continue
            fitted[k] = True
            if waits[k]:
                charge(k, now, spent, since, cause)
            pay(j, k, 1, ledger, spent)
            start[j] = now
            push(ends, running, 0, active, now + runtime[j], j)
            active += 1
            pop(keys, queue, begin[k], size[k])
            size[k] -= 1
            if size[k]:
                push(ranks, best, 0, trying, keys[begin[k]], queue[begin[k]])
                trying += 1
            if frees and trying:
                largest(freed, frees, N, top)
        for i in range(asks):
            k = asked[i]
            s = kinds[k, 0]
            if size[k] and not waits[k]:
                waits[k] = True
                lines = join(k, s, shapes, lines, place_of, chain, after, ahead)
            elif size[k] == 0 and waits[k]:
                waits[k] = False
                lines = part(k, s, shapes, lines, place_of, chain, after, ahead)
            if size[k] == 0:
                continue
            if not (fitted[k] and cause[k] == BY_ORDER):
                charge(k, now, spent, since, cause)
                cause[k] = BY_ORDER
                if not fitted[k]:
                    cause[k] = reason(S, s, kinds[k, 1], N, G, apps, X, free, hope[s], lacks)
    for k in range(many):
        if size[k]:
            charge(k, until, spent, since, cause)
            for i in range(begin[k], begin[k] + size[k]):
                pay(queue[i], k, 1, ledger, spent)
    return start, where, got, ledger
