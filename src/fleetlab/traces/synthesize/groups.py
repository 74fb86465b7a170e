"""Recurring groups of jobs, their request shapes and their users.

Groups are dealt like cards, the largest first, each into a place that still has capacity for it; the small ones fill
the rest at the end. So every law of jobs holds although a group's jobs are all alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.traces.synthesize.joint_law import FULL, LAWS, PRINTED, Bools, Floats, Ints, curve, summed
from fleetlab.traces.synthesize.requests import RequestShapes

# How many users there are in a part of the trace: the authors' sample of 100,000 jobs has about 577 of 1,300.
USERS_GROW = np.log(577 / PRINTED["users"]) / np.log(100_000 / FULL)

# Share of a user's jobs that are gangs, by the user's jobs (at full size): small users hardly run any.
GANG_JOBS = np.log([20.0, 76.0, 400.0, 2018.0, 13_450.0])
GANG_SHARE = np.array([0.06, 0.075, 0.22, 0.40, 0.30])


STAYS = 16  # jobs of a group after which its CPUs and memory may change
TWO = 0.12  # of the groups of several jobs, those that ask now for one GPU share and now for another
FEWEST, LARGEST = 4, 200  # jobs of such a group: of larger ones there are few, and halves of one size are not found
WINDOW = 32  # halves of about one size, of which those with different GPU shares become one group


@dataclass(frozen=True, slots=True)
class Groups:
    """One entry a group, or a half of one: how often it runs, of which kind of shape, and whose it is."""

    jobs: Ints
    kind: Ints
    user: Ints
    name: Ints  # the same for both halves of a group
    second: Bools  # whether it is the second half of a group


def groups(jobs: int, shapes: RequestShapes, rng: np.random.Generator) -> Groups:
    """Make groups with `jobs` jobs in all, give each a size, GPU share and type, and a user.

    Some have two GPU shares: their halves are dealt as groups, and those of one size and type are put together.
    """
    parts, is_half = _halved(group_sizes(jobs), rng)
    kind = deal(parts, summed(shapes.kind, shapes.share), rng)
    row = shapes.first[kind]
    first = _paired(np.flatnonzero(is_half), shapes, row, rng, np.arange(len(parts)))
    second = first != np.arange(len(parts))
    sizes = summed(first, parts, len(parts)).astype(np.int64)
    gang, user = shapes.instances[row] > 1, np.empty(len(parts), dtype=np.int64)
    users, share = _users(jobs, int(parts[gang].sum()))
    for some, capacity in ((gang, users * share), (~gang, users * (1 - share))):
        whole = np.flatnonzero(some & ~second)
        whole = whole[np.argsort(-sizes[whole], kind="stable")]
        user[whole] = deal(sizes[whole], capacity, rng)
    _, name = np.unique(first, return_inverse=True)
    return Groups(parts, kind, user[first], name, second)


def _halved(sizes: Ints, rng: np.random.Generator) -> tuple[Ints, Bools]:
    """Cut some groups in two; return all, largest first, and which are halves."""
    two = (sizes >= FEWEST) & (sizes <= LARGEST) & (rng.random(len(sizes)) < TWO)
    half = sizes[two] // 2
    parts = np.concatenate([sizes[~two], half, sizes[two] - half])
    is_half = np.arange(len(parts)) >= np.count_nonzero(~two)
    order = np.argsort(-parts, kind="stable")
    return parts[order], is_half[order]


def _paired(halves: Ints, shapes: RequestShapes, row: Ints, rng: np.random.Generator, first: Ints) -> Ints:
    """Pair halves of one type and about one size that ask for different GPU shares; give each the first of its pair."""
    gang = shapes.instances[row[halves]] > 1
    where = shapes.type[row[halves]] * 2 + gang
    first = first.copy()
    for place in np.unique(where):
        mine = halves[where == place]  # largest first
        for start in range(0, len(mine) - 1, WINDOW):
            window = mine[start : start + WINDOW]
            window = window[np.lexsort((rng.random(len(window)), shapes.gpu_milli[row[window]]))]
            middle = len(window) // 2
            first[window[middle : 2 * middle]] = window[:middle]
    return first


def job_shapes(parts: Groups, shapes: RequestShapes, rng: np.random.Generator) -> Ints:
    """Shape of each job, group by group: a large group changes its CPUs and memory every so many jobs."""
    group = np.repeat(np.arange(len(parts.jobs)), parts.jobs)
    first = np.cumsum(parts.jobs) - parts.jobs
    fresh = (np.arange(len(group)) - first[group]) % STAYS == 0
    stretch = np.cumsum(fresh) - 1
    sizes, kind = np.bincount(stretch), parts.kind[group[fresh]]
    order = np.lexsort((rng.random(len(sizes)), kind))
    total = summed(kind, sizes, len(shapes.first) - 1)
    # The middle of a stretch, as a part of all jobs of its kind, laid along the shapes of that kind.
    middle = np.cumsum(sizes[order]) - sizes[order] / 2 - (np.cumsum(total) - total)[kind[order]]
    share = summed(shapes.kind, shapes.share)
    at = (np.cumsum(share) - share)[kind[order]] + middle / total[kind[order]] * share[kind[order]]
    shape = np.empty(len(sizes), dtype=np.int64)
    shape[order] = np.searchsorted(np.cumsum(shapes.share), at, side="right")
    return np.asarray(np.clip(shape, shapes.first[kind], shapes.first[kind + 1] - 1)[stretch])


def group_sizes(jobs: int) -> Ints:
    """Sizes of groups, largest first, so that the share of jobs in groups up to each size is as published.

    A part of the trace has no group larger than its part of the largest.
    """
    upto, percent = curve(LAWS["recurrence_cdf"])
    largest = max(1, int(upto[-1] * min(1.0, jobs / FULL)))
    keep = upto < largest
    upto, percent = np.append(upto[keep], largest), np.append(percent[keep], 100.0)
    masses = np.diff(percent, prepend=0.0) / 100 * jobs
    parts = [_between(a, b, mass) for a, b, mass in zip(np.append(0.0, upto[:-1]), upto, masses, strict=True)]
    sizes = np.concatenate(parts[1:])[::-1] if len(parts) > 1 else np.empty(0, dtype=np.int64)
    sizes = np.sort(sizes)[::-1]
    sizes = sizes[np.cumsum(sizes) <= jobs]
    # Groups of one job are what is left: sizes are whole, so the classes above do not use up quite their share.
    return np.concatenate([sizes, np.ones(jobs - int(sizes.sum()), dtype=np.int64)])


def _between(a: float, b: float, mass: float) -> Ints:
    """Sizes above `a` and up to `b` that hold `mass` jobs, even by factors when counted by jobs."""
    if b - a <= 1:
        return np.full(int(mass / b), int(b), dtype=np.int64)
    low = a + 1
    mean = np.log(b / low) / (1 / low - 1 / b)
    count = max(round(mass / mean), int(mass >= low))
    at = (np.arange(count) + 0.5) / max(count, 1)
    sizes = np.rint(1 / (1 / low - at * (1 / low - 1 / b)))
    # The few of a high class would miss its mass by much: stretch them onto it.
    stretched = np.rint(sizes * mass / max(sizes.sum(), 1.0))
    return np.asarray(np.clip(stretched, low, b), dtype=np.int64)


def deal(sizes: Ints, capacity: Floats, rng: np.random.Generator) -> Ints:
    """Deal groups, largest first, over places in proportion to the capacity left there; give each its place."""
    remaining = capacity * (sizes.sum() / capacity.sum())
    place = np.empty(len(sizes), dtype=np.int64)
    start = 0
    while start < len(sizes):
        # The last ones, of a single job, also go where less than one is expected: there, now and then, there is one.
        enough = sizes[start] if sizes[start] > 1 else 0.0
        fits = np.where(remaining >= enough, remaining, 0.0)
        if not fits.any():
            fits = (remaining >= remaining.max()).astype(float)
        stop = _hand(sizes, start, float(fits.sum()))
        hand = sizes[start:stop]
        upto = np.cumsum(fits)
        # Evenly through the places: each gets what it should, to one group.
        at = (rng.permutation(len(hand)) + rng.random()) / len(hand) * upto[-1]
        place[start:stop] = np.minimum(np.searchsorted(upto, at, side="right"), len(capacity) - 1)
        remaining -= summed(place[start:stop], hand, len(capacity))
        start = stop
    return place


def _hand(sizes: Ints, start: int, capacity: float) -> int:
    """How many to deal at once: of about one size, and at most a good part of the capacity, except the last ones."""
    if sizes[start] == 1:
        return len(sizes)
    alike = int(np.searchsorted(-sizes, -sizes[start] * 0.8, side="right"))
    upto = int(np.searchsorted(np.cumsum(sizes[start:alike]), capacity / 3)) + start
    return max(start + 1, min(alike, upto))


def _users(jobs: int, gang_jobs: int) -> tuple[Floats, Floats]:
    """Jobs of each user, and the share of them that are gangs."""
    count = int(np.clip(round(PRINTED["users"] * (min(jobs, FULL) / FULL) ** USERS_GROW), 1, jobs))
    full = _user_jobs(PRINTED["users"])
    # Fewer users, each the mean of those that it stands for: the top keeps its share.
    upto = np.interp(np.linspace(0, len(full), count + 1), np.arange(len(full) + 1), np.append(0, np.cumsum(full)))
    law = np.diff(upto) * count / len(full)
    share = np.interp(np.log(law), GANG_JOBS, GANG_SHARE)
    amount = law * jobs / law.sum()
    # The largest users have what the others leave.
    top = law >= np.exp(GANG_JOBS[-1])
    if top.any() and not top.all():
        rest = gang_jobs - float((amount * share)[~top].sum())
        share[top] = np.clip(rest / amount[top].sum(), 0.01, 0.99)
    return amount, share


def _user_jobs(users: int) -> Floats:
    """Jobs of each user at full size: published quantiles, and a top that makes the sum right."""
    percent, jobs = curve(LAWS["user_jobs"])
    at = (np.arange(users) + 0.5) / users * 100
    lower: Floats = np.exp(np.interp(at, np.append(0, percent), np.append(0, np.log(jobs))))
    edge, top = percent[-2], at > percent[-2]
    part = (at[top] - edge) / (at[-1] - edge)

    def total(bend: float) -> float:
        lower[top] = jobs[-2] * (jobs[-1] / jobs[-2]) ** (part**bend)
        return float(lower.sum())

    low, high = 0.2, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > FULL else (low, middle)
    return lower
