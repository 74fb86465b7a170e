"""The others together: weighted for each series by what would have missed least on folds that are over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetlab.forecast.demand import Floats

ROUNDS = 300
UNKNOWN = 1e300  # the error of a model of which none is known
SHY = 0.3  # of the weights goes by each model's own error alone: past folds are few


def together(
    forecasts: Mapping[str, Sequence[Floats]], came: Sequence[Floats], learnt: Floats
) -> tuple[list[Floats], Floats]:
    """What they say together in each split, with weights from the splits before it; and the last weights.

    `learnt` are mean squares [models, series] where the first fits knew the answers: they weigh in the first split, as
    nothing else is known there. Weights are [models, series].
    """
    names, combined = list(forecasts), []
    weights = by_error(learnt)
    for k in range(len(came)):
        if k:
            members = np.stack([np.concatenate(forecasts[name][:k]) for name in names])
            weights = weigh(members, np.concatenate(list(came[:k])))
        combined.append(np.einsum("mohs,ms->ohs", np.stack([forecasts[name][k] for name in names]), weights))
    return combined, weights


def by_error(squares: Floats) -> Floats:
    """Weights [models, series] that fall with the square of mean squares: one twice as far off counts a sixteenth."""
    errors = np.where(np.isfinite(squares), squares, UNKNOWN)
    best = np.min(errors, axis=0)
    share = np.where(errors <= best, 1.0, (best / np.where(errors > 0, errors, 1.0)) ** 2)
    return np.asarray(share / share.sum(axis=0))


def weigh(members: Floats, came: Floats) -> Floats:
    """Weights of [models, origins, horizon, series]: not negative, one in all, of least squares, partly by error.

    By Frank and Wolfe's steps on the products of misses, which a handful of models makes small.
    """
    models, series = members.shape[0], members.shape[3]
    weights, squares = np.empty((models, series)), np.empty((models, series))
    for k in range(series):
        missed = (members[..., k] - came[..., k]).reshape(models, -1)
        products = missed @ missed.T
        weights[:, k], squares[:, k] = _least(products), np.diag(products)
    return (1 - SHY) * weights + SHY * by_error(squares)


def _least(products: Floats) -> Floats:
    weights = np.zeros(len(products))
    weights[np.argmin(np.diag(products))] = 1.0
    for _ in range(ROUNDS):
        slope = products @ weights
        towards = -weights
        towards[np.argmin(slope)] += 1
        curve = towards @ products @ towards
        if curve <= 0 or (step := -(towards @ slope) / curve) <= 0:
            break
        weights = weights + min(1.0, float(step)) * towards
    return weights
