"""Maximum-entropy joint distributions under published constraints.

Papers print margins: a share here, a quantile there, some over jobs and some over instances. Of all joint laws that
agree with them, the one nearest (in relative entropy) to a plain prior adds least of our own. Each number may be missed
by about its `slack`, so that numbers that contradict one another a little still have one answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

STEPS = 200
CLOSE = 1e-8
LOOSER = (100.0, 10.0, 1.0)  # firm wishes are come to by way of loose ones: from far off, Newton's steps are short


class Constraint(NamedTuple):
    """A constraint: the mean of `row` over it is `value`, give or take `slack`."""

    row: Floats  # broadcasts to the law's shape
    value: float
    slack: float


def fit(name: str, prior: Floats, constraints: Sequence[Constraint], given: Floats | None = None) -> Floats:
    """Find the distribution nearest to `prior` that satisfies the constraints; `given` fixes sums over the last axes.

    It is found from the multipliers that were written down under `name`, so that nearly always one look is enough.

    >>> law = fit("a doctest", np.ones((1, 2)) / 2, [Constraint(np.array([[0.0, 1.0]]), 0.3, 1e-6)])
    >>> np.round(law, 3)
    array([[0.7, 0.3]])
    """
    weight = np.ones(1) if given is None else given.ravel()
    start = prior.reshape(weight.size, -1)
    rows = np.stack([np.broadcast_to(w.row, prior.shape).reshape(start.shape) for w in constraints])
    slack = np.array([w.slack for w in constraints])
    value = np.array([w.value for w in constraints])
    at = np.array(multipliers().get(name, []))
    known = len(at) == len(constraints)
    at = at if known else np.zeros(len(constraints))
    for loosen in (1.0,) if known else LOOSER:
        # In units of its slack each wish is as firm as any other, and the system is well conditioned.
        unit = slack * loosen
        at, law = _descend(start, weight, rows / unit[:, None, None], value / unit, at * unit)
        at = at / unit
    multipliers()[name] = at.tolist()
    return law.reshape(prior.shape)


@cache
def multipliers() -> dict[str, list[float]]:
    """What `fit` found for each law, one number a wish: read from disk, and kept up as laws are fitted.

    When a law is changed, `python -m fleetlab.traces.synthesize.refit` looks again and writes them down.
    """
    there = files(__package__).joinpath("multipliers.json")
    saved: dict[str, list[float]] = json.loads(there.read_text("utf-8")) if there.is_file() else {}
    return saved


def _descend(prior: Floats, weight: Floats, rows: Floats, value: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Minimise the convex dual, one multiplier a wish, by damped Newton steps."""
    law, height = _tilted(prior, weight, rows, value, at)
    for _ in range(STEPS):
        slope = rows.reshape(len(value), -1) @ law.ravel() - value + at
        step = np.linalg.solve(_curvature(rows, law, weight), slope)
        # What a full step would still gain; the last steps, near the floor of floating point, gain nothing.
        if slope @ step < CLOSE:
            break
        size = 1.0
        while size > CLOSE:
            tried, tried_height = _tilted(prior, weight, rows, value, at - size * step)
            if tried_height <= height - 1e-4 * size * float(slope @ step):
                break
            size /= 2
        else:
            break
        at, law, height = at - size * step, tried, tried_height
    return at, law


def _tilted(prior: Floats, weight: Floats, rows: Floats, value: Floats, at: Floats) -> tuple[Floats, float]:
    tilt = (at @ rows.reshape(len(at), -1)).reshape(prior.shape)
    top = tilt.max(axis=1, keepdims=True)
    raw = prior * np.exp(tilt - top)
    total = raw.sum(axis=1, keepdims=True)
    live = total[:, 0] > 0
    law = np.where(live[:, None], raw / np.where(total > 0, total, 1) * weight[:, None], 0)
    law[law < 1e-60] = 0  # products of what is left would be denormal, and those are slow
    height = float((weight * (np.log(np.where(total > 0, total, 1)) + top)[:, 0])[live].sum())
    return law, height - float(at @ value) + 0.5 * float(at @ at)


def _curvature(rows: Floats, law: Floats, weight: Floats) -> Floats:
    flat = rows.reshape(len(rows), -1)
    shared = flat * law.ravel()
    means = shared.reshape(rows.shape).sum(axis=2) / np.sqrt(np.where(weight > 0, weight, 1))
    curved: Floats = shared @ flat.T - means @ means.T + np.eye(len(rows))
    return curved
