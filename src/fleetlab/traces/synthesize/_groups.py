"""Who submits what again and again: recurring groups, their shapes and their users.

Groups are dealt like cards, the largest first, each into a place that still has room for it; the small ones at the end
fill what is left. So every law of tasks holds although a group's tasks are all alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleetlab.traces.synthesize._binned import summed
from fleetlab.traces.synthesize._joint import Floats, Ints
from fleetlab.traces.synthesize._laws import FULL, LAWS, PRINTED, curve
from fleetlab.traces.synthesize._requests import Shapes

# How many users there are in a part of the trace: the authors' sample of 100,000 jobs has about 577 of 1,300.
USERS_GROW = np.log(577 / PRINTED["users"]) / np.log(100_000 / FULL)

# Share of a user's tasks that are gangs, by the user's tasks (at full size): small users hardly run any.
GANG_TASKS = np.log([20.0, 76.0, 400.0, 2018.0, 13_450.0])
GANG_SHARE = np.array([0.06, 0.075, 0.22, 0.40, 0.30])


STAYS = 16  # tasks of a group after which its CPUs and memory may change


@dataclass(frozen=True, slots=True)
class Groups:
    """One entry a group: how often it runs, of which kind of shape, and whose it is."""

    tasks: Ints
    kind: Ints
    user: Ints


def groups(tasks: int, shapes: Shapes, rng: np.random.Generator) -> Groups:
    """Make groups with `tasks` tasks in all, give each a size, GPU share and type, and a user."""
    sizes = group_sizes(tasks)
    kind = deal(sizes, summed(shapes.kind, shapes.share), rng)
    gang = shapes.instances[shapes.first[kind]] > 1
    users, share = _users(tasks, int(sizes[gang].sum()))
    user = np.empty(len(sizes), dtype=np.int64)
    user[gang] = deal(sizes[gang], users * share, rng)
    user[~gang] = deal(sizes[~gang], users * (1 - share), rng)
    return Groups(sizes, kind, user)


def task_shapes(found: Groups, shapes: Shapes, rng: np.random.Generator) -> Ints:
    """Shape of each task, group by group: a large group changes its CPUs and memory every so many tasks."""
    group = np.repeat(np.arange(len(found.tasks)), found.tasks)
    first = np.cumsum(found.tasks) - found.tasks
    fresh = (np.arange(len(group)) - first[group]) % STAYS == 0
    stretch = np.cumsum(fresh) - 1
    sizes, kind = np.bincount(stretch), found.kind[group[fresh]]
    order = np.lexsort((rng.random(len(sizes)), kind))
    total = summed(kind, sizes, len(shapes.first) - 1)
    # The middle of a stretch, as a part of all tasks of its kind, laid along the shapes of that kind.
    middle = np.cumsum(sizes[order]) - sizes[order] / 2 - (np.cumsum(total) - total)[kind[order]]
    share = summed(shapes.kind, shapes.share)
    at = (np.cumsum(share) - share)[kind[order]] + middle / total[kind[order]] * share[kind[order]]
    shape = np.empty(len(sizes), dtype=np.int64)
    shape[order] = np.searchsorted(np.cumsum(shapes.share), at, side="right")
    return np.asarray(np.clip(shape, shapes.first[kind], shapes.first[kind + 1] - 1)[stretch])


def group_sizes(tasks: int) -> Ints:
    """Sizes of groups, largest first, so that the share of tasks in groups up to each size is as published.

    A part of the trace has no group larger than its part of the largest.
    """
    upto, percent = curve(LAWS["recurrence_cdf"])
    largest = max(1, int(upto[-1] * min(1.0, tasks / FULL)))
    keep = upto < largest
    upto, percent = np.append(upto[keep], largest), np.append(percent[keep], 100.0)
    masses = np.diff(percent, prepend=0.0) / 100 * tasks
    found = [_between(a, b, mass) for a, b, mass in zip(np.append(0.0, upto[:-1]), upto, masses, strict=True)]
    sizes = np.concatenate(found[1:])[::-1] if len(found) > 1 else np.empty(0, dtype=np.int64)
    sizes = np.sort(sizes)[::-1]
    sizes = sizes[np.cumsum(sizes) <= tasks]
    # Groups of one task are what is left: sizes are whole, so the classes above do not use up quite their share.
    return np.concatenate([sizes, np.ones(tasks - int(sizes.sum()), dtype=np.int64)])


def _between(a: float, b: float, mass: float) -> Ints:
    """Sizes above `a` and up to `b` that hold `mass` tasks, even by factors when counted by tasks."""
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


def deal(sizes: Ints, room: Floats, rng: np.random.Generator) -> Ints:
    """Deal groups, largest first, over places in proportion to the room left there; give each its place."""
    left = room * (sizes.sum() / room.sum())
    place = np.empty(len(sizes), dtype=np.int64)
    start = 0
    while start < len(sizes):
        # The last ones, of a single task, also go where less than one is expected: there, now and then, there is one.
        enough = sizes[start] if sizes[start] > 1 else 0.0
        fits = np.where(left >= enough, left, 0.0)
        if not fits.any():
            fits = (left >= left.max()).astype(float)
        stop = _hand(sizes, start, float(fits.sum()))
        hand = sizes[start:stop]
        upto = np.cumsum(fits)
        # Evenly through the places: each gets what it should, to one group.
        at = (rng.permutation(len(hand)) + rng.random()) / len(hand) * upto[-1]
        place[start:stop] = np.minimum(np.searchsorted(upto, at, side="right"), len(room) - 1)
        left -= summed(place[start:stop], hand, len(room))
        start = stop
    return place


def _hand(sizes: Ints, start: int, room: float) -> int:
    """How many to deal at once: of about one size, and no more than a good part of the room, except the last ones."""
    if sizes[start] == 1:
        return len(sizes)
    alike = int(np.searchsorted(-sizes, -sizes[start] * 0.8, side="right"))
    upto = int(np.searchsorted(np.cumsum(sizes[start:alike]), room / 3)) + start
    return max(start + 1, min(alike, upto))


def _users(tasks: int, gang_tasks: int) -> tuple[Floats, Floats]:
    """Tasks of each user, and the share of them that are gangs."""
    count = int(np.clip(round(PRINTED["users"] * (min(tasks, FULL) / FULL) ** USERS_GROW), 1, tasks))
    full = _user_tasks(PRINTED["users"])
    # Fewer users, each the mean of those that it stands for: the top keeps its share.
    upto = np.interp(np.linspace(0, len(full), count + 1), np.arange(len(full) + 1), np.append(0, np.cumsum(full)))
    law = np.diff(upto) * count / len(full)
    share = np.interp(np.log(law), GANG_TASKS, GANG_SHARE)
    amount = law * tasks / law.sum()
    # The largest users have what the others leave.
    top = law >= np.exp(GANG_TASKS[-1])
    if top.any() and not top.all():
        rest = gang_tasks - float((amount * share)[~top].sum())
        share[top] = np.clip(rest / amount[top].sum(), 0.01, 0.99)
    return amount, share


def _user_tasks(users: int) -> Floats:
    """Tasks of each user at full size: published quantiles, and a top that makes the sum right."""
    percent, tasks = curve(LAWS["user_tasks"])
    at = (np.arange(users) + 0.5) / users * 100
    lower: Floats = np.exp(np.interp(at, np.append(0, percent), np.append(0, np.log(tasks))))
    edge, top = percent[-2], at > percent[-2]
    part = (at[top] - edge) / (at[-1] - edge)

    def total(bend: float) -> float:
        lower[top] = tasks[-2] * (tasks[-1] / tasks[-2]) ** (part**bend)
        return float(lower.sum())

    low, high = 0.2, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > FULL else (low, middle)
    return lower
