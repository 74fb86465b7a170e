"""Which job waits how long: drawn, not scheduled, so that short and long jobs wait the published part of their time.

A synthetic log saw no scheduler. Its waits have the published quantiles and go with run times as published, but they do
not know what else was running, so an audit of capacity over its `start` and `end` may find more than the cluster has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from fleetlab.traces.synthesize.joint_law import (
    CPU_ONLY,
    GANGS,
    LAWS,
    REQUESTS,
    TYPES,
    Floats,
    Ints,
    at_quantiles,
    curve,
    ranked,
    summed,
)
from fleetlab.traces.synthesize.pairing import Margins, PairConstraint, paired, tilt
from fleetlab.traces.synthesize.requests import RequestShapes, shapes
from fleetlab.traces.synthesize.run_times import EDGES, run_times
from fleetlab.traces.synthesize.waits import EDGES as WAIT_EDGES
from fleetlab.traces.synthesize.waits import pools, wait_law

POOLS = (CPU_ONLY + 1) * len(REQUESTS) * len(GANGS)
RUN_EDGES = EDGES[::2]  # two bins in one: waits do not hang on run times that closely
DIGITISED = 2e-3
GOLDEN = (5**0.5 - 1) / 2
FINE = 8  # waits that stand for a bin


def waits(law: RequestShapes, shape: Ints, runtime: Floats, rng: np.random.Generator) -> Floats:
    """Wait of each job, in whole seconds; where its run time is not a number, one of any run time."""
    pool, bins = _pools(law)[shape], len(RUN_EDGES) - 1
    has_runtime = np.isfinite(runtime)
    at = np.clip(np.searchsorted(RUN_EDGES, runtime, side="right") - 1, 0, bins - 1)
    # What jobs wait by their run time; and, in a last row, whatever that is.
    conditional = np.concatenate(
        [_conditional(pool[has_runtime], at[has_runtime]), margins().second[:, None, :]], axis=1
    )
    row = pool * (bins + 1) + np.where(has_runtime, at, bins)
    score, _ = at_quantiles(
        conditional.reshape(POOLS * (bins + 1), -1), WAIT_EDGES, row, _spread_evenly(row, law.instances[shape], rng)
    )
    # Ranks give back to each pool its own waits, to the last one.
    return np.rint(at_quantiles(margins().second, WAIT_EDGES, pool, ranked(pool, score))[0])


def _conditional(pool: Ints, at: Ints) -> Floats:
    """Waits by pool and run time, paired with the run times that there are: a small pool has more of some by chance."""
    bins = len(RUN_EDGES) - 1
    counts = summed(pool * bins + at, np.ones(len(pool)), POOLS * bins).reshape(POOLS, bins)
    total = counts.sum(axis=1)
    run = np.where(total[:, None] > 0, counts / np.maximum(total, 1.0)[:, None], margins().first)
    return paired(Margins(total / max(len(pool), 1), run, margins().second), tilts())


def _spread_evenly(row: Ints, instances: Ints, rng: np.random.Generator) -> Floats:
    """A quantile for each job, so that those of any few neighbours in row and gang size are spread over (0, 1).

    Steps of the golden ratio do that best (Weyl's sequence); random ranks would vary more.
    """
    order = np.lexsort((rng.random(len(row)), instances, row))
    at = np.empty(len(row))
    at[order] = (rng.random() + np.arange(len(row)) * GOLDEN) % 1.0
    return at


def _pools(law: RequestShapes) -> Ints:
    return pools(law.type, np.where(law.type == CPU_ONLY, 1000, law.gpu_milli), law.instances)


@cache
def margins() -> Margins:
    """What is known of each pool: of jobs without a GPU no waits are published, so they wait as MISC ones do."""
    law = shapes()
    type, request, gang = np.unravel_index(np.arange(POOLS), (CPU_ONLY + 1, len(REQUESTS), len(GANGS)))
    waiting = np.where(type == CPU_ONLY, TYPES.index("MISC"), type)
    run = np.add.reduceat(run_times().sum(axis=1), np.arange(0, len(EDGES) - 1, 2), axis=1)
    wait = wait_law()[(waiting * len(REQUESTS) + request) * len(GANGS) + gang]
    return Margins(summed(_pools(law), law.share, POOLS), _parts(run[type * len(GANGS) + gang]), _parts(wait))


def _parts(law: Floats) -> Floats:
    """Of each pool's own; a pool that the law has no jobs in is like all of them."""
    total = law.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, law / np.where(total > 0, total, 1), law.sum(axis=0) / law.sum()))


@cache
def tilts() -> Floats:
    """Tilt run times and waits towards one another, by the published part of JCT that is waiting."""
    law, share = shapes(), margins().share
    size = summed(_pools(law), law.share * law.instances, POOLS) / np.maximum(share, 1e-300)
    constraints = [*_constraints("job", np.ones(POOLS)), *_constraints("instance", size / (share @ size))]
    return tilt("waits and run times", margins(), constraints)


def _constraints(of: str, weight: Floats) -> Iterator[PairConstraint]:
    middle = _median(margins().share * weight @ margins().first)
    short, long = agreed(LAWS["waiting_part"][of])
    for percent, below, above in zip(curve(LAWS["waiting_part"][of]["all"])[0], short, long, strict=True):
        every, longer = _within(percent / 100), _within(percent / 100, middle + 1)
        # Half of all are short and half are long.
        yield PairConstraint(2 * (every - longer), weight, below / 100, DIGITISED)
        yield PairConstraint(2 * longer, weight, above / 100, DIGITISED)


def agreed(part: dict[str, dict[str, float]]) -> tuple[Floats, Floats]:
    """Curves of short and of long ones that agree with that of all: each read off a figure, they meet half-way.

    >>> agreed({"short": {"10": 50.0}, "long": {"10": 90.0}, "all": {"10": 71.0}})
    (array([50.5]), array([90.5]))
    """
    short, long, every = (curve(part[of])[1] for of in ("short", "long", "all"))
    off = (every - (short + long) / 2) / 2
    return short + off, long + off


def _median(law: Floats) -> float:
    return float(np.rint(at_quantiles(law[None, :], RUN_EDGES, np.zeros(1, dtype=np.int64), np.array([0.5]))[0][0]))


def _within(part: float, least: float = 0.0) -> Floats:
    """Of each bin of run time by bin of wait: how much of it waits at most `part` of JCT, and runs `least`."""
    logs = np.log(WAIT_EDGES)
    wait = np.rint(np.exp(logs[:-1] + (np.arange(FINE)[:, None] + 0.5) / FINE * np.diff(logs)))
    enough = np.maximum(wait * (1 - part) / part, least)
    edges = np.log(RUN_EDGES)[:, None, None]
    # Run times are whole seconds, rounded: half a second less is enough.
    reached = np.clip((edges[1:] - np.log(np.ceil(enough - 1e-9) - 0.5)) / np.diff(edges, axis=0), 0.0, 1.0)
    return np.asarray(reached.mean(axis=1))
