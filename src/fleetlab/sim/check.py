"""Is this policy a pure ranking? Asked on small made-up states, before a run and in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fleetlab.core import PolicyError
from fleetlab.sim.layout import WHOLE, Floats, Ints
from fleetlab.sim.policy import FLOATS, Ranking, State, arrived_in_python, order, placement, read_only

# Jobs, nodes, and what times and amounts are multiplied by: one of each, a usual mix, as large as they get, nothing.
MADE_UP = ((1, 1, 1.0), (40, 24, 1.0), (40, 24, 1000.0), (12, 6, 0.0))
ASKED = 8  # jobs of each state that a placement policy is asked about


def check_order(policy: order | Callable[..., Any], *, weights: Sequence[float] | Floats = ()) -> None:
    """Refuse an order that is not a pure ranking: a PolicyError says what is wrong with it.

    Parameters
    ----------
    policy
        The order, or the function that was to become one.
    weights
        Numbers that it reads as `s.weights`.

    Raises
    ------
    PolicyError
        If it does not compile, writes, remembers, or returns what is no number.

    Examples
    --------
    >>> @order
    ... def hasty(s, job, now):
    ...     return 1 / (now - s.submit[job])
    >>> check_order(hasty)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetlab.core.errors.PolicyError: order policy `hasty` divides by 0, asked for job 0 ...
    """
    mine = _as(order, policy)
    for s in _states(weights):
        jobs = np.arange(len(s.submit))
        for now in (float(s.submit[-1]), float(s.submit[-1]) + 86_400.0):
            _check(mine, s, jobs, now)


def check_placement(policy: placement | Callable[..., Any], *, weights: Sequence[float] | Floats = ()) -> None:
    """Refuse a placement policy that is not a pure ranking: a PolicyError says what is wrong with it.

    Parameters
    ----------
    policy
        The placement, or the function that was to become one.
    weights
        Numbers that it reads as `s.weights`.

    Raises
    ------
    PolicyError
        If it does not compile, writes, remembers, or returns what is no number.

    Examples
    --------
    >>> @placement
    ... def tight(s, job, node):
    ...     return s.free_gpu[node] - s.gpu_milli[job]
    >>> check_placement(tight)
    """
    mine = _as(placement, policy)
    for s in _states(weights):
        for job in range(min(ASKED, len(s.submit))):
            _check(mine, s, _able(s, job), job)


def _as(kind: type[Ranking], policy: object) -> Ranking:
    if isinstance(policy, Ranking) and not isinstance(policy, kind):
        msg = f"here an {kind.kind} is asked for, not: {policy}".replace("an p", "a p")
        raise PolicyError(msg, hint=f"`check_{policy.kind}` checks it")
    return policy if isinstance(policy, Ranking) else kind(policy)  # type: ignore[arg-type]


def _check(policy: Ranking, s: State, items: Ints, beside: float) -> None:
    """Ask twice as it will be asked, and once as plain Python: the same numbers, and nothing else changed?"""
    fill, before = policy.compiled(), [column.tobytes() for column in s]
    answers: list[Floats] = [np.empty(len(items)), np.empty(len(items))]
    for answer in answers:
        if not fill(s, items, len(items), beside, answer):
            raise policy.refusal(s, items, beside)
    if before != [column.tobytes() for column in s]:
        msg = f"{policy} writes to the state"
        raise PolicyError(msg, hint="the state is the simulator's: read it, and return a number")
    for k, item in enumerate(items):
        _agree(policy, int(item), answers[0][k], answers[1][k], policy.ask(s, int(item), beside))


def _agree(policy: Ranking, item: int, first: float, second: float, plain: float | str) -> None:
    if first != second:
        msg = f"{policy} is not deterministic: asked twice for the same, it says {first} and {second}"
        raise PolicyError(msg, hint="leave out chance, time and all that remembers: the same state, the same number")
    if first != plain:
        answer = f"it {plain}" if isinstance(plain, str) else f"it says {plain}"
        msg = f"{policy} says {first} when compiled, but as plain Python {answer}"
        raise PolicyError(
            msg, hint="write x * x for x ** 2, `math.exp` for `np.exp`; or numbers are too large for 64 bits"
        )


# -- made-up states ------------------------------------------------------------------------------------------------


def _states(weights: Sequence[float] | Floats = ()) -> Iterator[State]:
    for seed, (jobs, nodes, scale) in enumerate(MADE_UP):
        s = _made_up(np.random.default_rng(seed), jobs, nodes, scale, np.asarray(weights))
        for count in sorted({jobs, (jobs + 1) // 2}):  # before and after the others have arrived
            yield arrived_in_python(s, count)


def _made_up(rng: np.random.Generator, jobs: int, nodes: int, scale: float, weights: Floats) -> State:
    """A state as a run could show it: nobody holds what is not there, and some have nothing."""
    gpus = rng.integers(0, 9, nodes)
    idle = rng.integers(0, gpus + 1)
    cpu, memory = rng.integers(1, 128_000, nodes), rng.integers(1, 1 << 20, nodes)
    milli = rng.choice([0, 100, 500, 1000, 2000, 8000], jobs)
    times = {name: rng.exponential(3600.0, jobs) * rng.integers(0, 2, jobs) * scale for name in FLOATS[1:4]}
    columns = {
        "submit": np.sort(rng.integers(0, 100_000, jobs)) * scale,
        **times,
        "instances": 1 + (rng.integers(0, 100, jobs) * scale),
        "cpu_milli": rng.integers(0, 8000, jobs) * scale,
        "memory_mib": rng.integers(0, 1 << 16, jobs) * scale,
        "gpu_milli": milli,
        "priority": rng.integers(-5, 6, jobs) * scale,
        "user": rng.integers(0, 5, jobs),
        "limit": np.where(rng.integers(0, 2, jobs) == 1, 3600.0 * scale, np.inf),
        "qos": rng.integers(0, 3, jobs),
        "partition_id": rng.integers(-1, 3, jobs),
        "account": rng.integers(0, 6, jobs),
        "qos_priority": np.array([10, -5, 0]),
        "parent": np.array([-1, 0, 0, 1, 1, 2]),
        "level": np.array([0, 1, 1, 2, 2, 2]),
        "shares": np.array([1.0, 0.5, 0.5, 0.5, 0.0, 0.5]),
        "decayed": np.array([9.0, 9.0, 0.0, 9.0, 0.0, 0.0]) * scale * 1e5,
        "fair_share": np.array([0.5, 0.25, 1.0, 0.25, 0.0, 1.0]),
        "usage": np.append(rng.random(4), 0.0) * min(1.0, scale),
        "weights": weights,
        "free_cpu": rng.integers(0, cpu + 1) * scale,
        "free_memory": rng.integers(0, memory + 1) * scale,
        "free_gpu": idle * WHOLE + (idle < gpus) * 300,
        "idle": idle,
        "most": np.where(idle > 0, WHOLE, (gpus > 0) * 300),
        "gpus": gpus,
        "gpu_type": np.where(gpus > 0, gpus % 3, -1),
        "capacity_cpu": cpu * scale,
        "capacity_memory": memory * scale,
    }
    kinds = {name: np.float64 if name in FLOATS else np.int64 for name in State._fields}
    return State(**{name: read_only(columns[name].astype(kind)) for name, kind in kinds.items()})


def _able(s: State, job: int) -> Ints:
    """The nodes that could take an instance of the job: a policy is asked about no others."""
    need = s.gpu_milli[job]
    gpu = s.most >= need if need < WHOLE else s.idle * WHOLE >= need
    fits = gpu & (s.free_cpu >= s.cpu_milli[job]) & (s.free_memory >= s.memory_mib[job])
    return np.flatnonzero(fits).astype(np.int64)
