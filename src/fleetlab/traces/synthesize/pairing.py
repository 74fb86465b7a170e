"""Maximum-entropy joint distribution of two quantities with given margins and published joint statistics.

Inside each pool both margins are kept. Of all joint distributions that satisfy the constraints, the one nearest (in
relative entropy) to independence is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleetlab.traces.synthesize.joint_law import Floats, multipliers

STEPS = 50
CLOSE = 1e-4  # of a wish's slack: nearer is not looked for
ROUNDS = 2000
KEPT = 1e-8  # of all weight: so near the margins are kept
RIDGE = 1e-9  # both margins add up to the same: without it, what they explain has no single answer


@dataclass(frozen=True, slots=True)
class Margins:
    """One entry a pool: its part of all, and what is known of either quantity there; each row adds up to 1."""

    share: Floats  # f8[pools]
    first: Floats  # f8[pools, bins]
    second: Floats  # f8[pools, bins of the other]


class PairConstraint(NamedTuple):
    """A constraint: the mean of `weight[pool] * row[bin, other bin]` is `value`, or within `slack`."""

    row: Floats
    weight: Floats
    value: float
    slack: float


def tilt(name: str, margins: Margins, constraints: Sequence[PairConstraint]) -> Floats:
    """Find the log-odds of each pair of bins, relative to independence, that satisfy the constraints.

    Multipliers saved under `name` are used as they are: `refit` computes them, and a test checks them.

    >>> even = Margins(np.ones(1), np.full((1, 2), 0.5), np.full((1, 2), 0.5))
    >>> both = PairConstraint(np.array([[0.0, 0.0], [0.0, 1.0]]), np.ones(1), 0.4, 1e-6)
    >>> np.round(paired(even, tilt("a doctest of pairs", even, [both])), 3)
    array([[[0.4, 0.1],
            [0.1, 0.4]]])
    """
    rows, weights = np.stack([w.row for w in constraints]), np.stack([w.weight for w in constraints])
    at = np.array(multipliers().get(name, []))
    if len(at) != len(constraints):
        value, slack = (np.array(x) for x in zip(*((w.value, w.slack) for w in constraints), strict=True))
        at = _multipliers(margins, rows, weights, value, slack)
        multipliers()[name] = at.tolist()
    return _tilted(at, rows, weights)


def paired(margins: Margins, tilt: Floats) -> Floats:
    """Tilt the independent distribution, and rescale it to its margins (Sinkhorn 1967)."""
    first, second = margins.first, margins.second
    raw = np.exp(tilt - tilt.max(axis=(1, 2), keepdims=True)) * second[:, None, :]
    across = np.ones_like(second)
    for _ in range(ROUNDS):
        along = first / np.maximum(np.matmul(raw, across[:, :, None])[:, :, 0], 1e-300)
        has = np.matmul(along[:, None, :], raw)[:, 0] * across
        if margins.share @ np.abs(has - second).sum(axis=1) < KEPT:
            break
        across = across * second / np.maximum(has, 1e-300)
    law: Floats = along[:, :, None] * raw * across[:, None, :] * margins.share[:, None, None]
    return law


def _tilted(at: Floats, rows: Floats, weights: Floats) -> Floats:
    return np.asarray(np.einsum("k,kp,kij->pij", at, weights, rows, optimize=True))


def _multipliers(margins: Margins, rows: Floats, weights: Floats, value: Floats, slack: Floats) -> Floats:
    """Minimise the convex dual by Newton's steps."""
    at = np.zeros(len(value))
    for _ in range(STEPS):
        law = paired(margins, _tilted(at, rows, weights))
        slope = _moments(law, rows, weights) - value + at * slack**2
        if (np.abs(slope) < CLOSE * slack).all():
            return at
        at = at - np.linalg.solve(_curvature(law, rows, weights) + np.diag(slack**2), slope)
    raise AssertionError("no pairing has these margins and grants these wishes")


def _moments(law: Floats, rows: Floats, weights: Floats) -> Floats:
    return np.asarray(np.einsum("pij,kp,kij->k", law, weights, rows, optimize=True))


def _curvature(law: Floats, rows: Floats, weights: Floats) -> Floats:
    """How wishes vary together where margins are kept: all their variance, less what the margins explain."""
    curved = np.zeros((len(rows), len(rows)))
    flat = rows.reshape(len(rows), -1)
    for mine, weight in zip(law, weights.T, strict=True):
        along, across = (np.sqrt(np.maximum(mine.sum(axis=axis), 1e-300)) for axis in (1, 0))
        both = mine / along[:, None] / across
        first = (rows * mine).sum(axis=2) / along
        more = (rows * mine).sum(axis=1) / across - first @ both  # what the second margin tells beyond the first
        schur = (1 + RIDGE) * np.eye(len(across)) - both.T @ both
        rest = (flat * mine.ravel()) @ flat.T - first @ first.T - more @ np.linalg.solve(schur, more.T)
        curved += rest * np.outer(weight, weight)
    return curved
