"""Walking forward: learn from the past, leave a gap, forecast what comes, move on; the end of the trace is met once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fleetlab.core import WorkloadError
from fleetlab.forecast.panel import Floats, Forecaster, Ints, Panel, targets
from fleetlab.stats import divide

FIRST, HELD_OUT = 0.4, 0.2  # of all steps: learnt from before the first fold, and kept for the end
LEAST = 100  # steps
ROWS = 8  # origins from which a regression learns, at least
PROBES = 3  # origins at which a model is shown another future
SAMPLE = 1500  # origins at which it is asked about what it learnt from


class Split(NamedTuple):
    """Learn from the steps before `learn`, then forecast from each origin of `at`."""

    learn: int
    at: Ints


@dataclass(eq=False)
class WalkForward:
    """What one model said at every origin of every split, the last being the tail."""

    forecasts: list[Floats]  # [origins, horizon, series] each
    learnt: list[Floats]  # mean square miss in what it learnt from, over its variance: [horizon, series] each


def splits(steps: int, horizon: int, *, gap: int, folds: int) -> list[Split]:
    """The folds, and last the tail: no origin's horizon reaches into what the next one is tested on."""
    first, fold = round(FIRST * steps) - gap, (1 - HELD_OUT - FIRST) * steps / folds
    rows = first - first // 4 - horizon  # a quarter, at most, is what the first of them looks back upon
    if steps < LEAST or min(fold, HELD_OUT * steps) <= horizon + 1 or rows < ROWS:
        msg = f"too few steps to learn from and test on: {steps}, with a horizon of {horizon} and {folds} folds"
        enough = max(LEAST, (horizon + 3) * max(folds / (1 - HELD_OUT - FIRST), 1 / HELD_OUT),
                     (gap + 4 / 3 * (horizon + ROWS) + 3) / FIRST)  # fmt: skip
        most = math.ceil((1 - HELD_OUT - FIRST) * steps / (horizon + 1)) - 1  # folds that leave an origin each
        fewer = "" if steps < LEAST or HELD_OUT * steps <= horizon + 1 or rows < ROWS else f"{most} --folds at most, "
        hint = f"{fewer}shorter steps, a shorter horizon or a longer trace: about {math.ceil(enough):,} steps"
        raise WorkloadError(msg, hint=hint)
    edges = [round(FIRST * steps + k * fold) for k in range(folds)] + [round((1 - HELD_OUT) * steps), steps]
    return [Split(a - gap, np.arange(a, b - horizon + 1)) for a, b in pairwise(edges)]


def walk(model: Forecaster, panel: Panel, cuts: Sequence[Split], horizon: int, *, seed: int) -> WalkForward:
    """Fit afresh for each split, and forecast from each of its origins; a look ahead is an error."""
    forecasts, learnt = [], []
    for k, split in enumerate(cuts):
        fitted = deepcopy(model).fit(panel.until(split.learn), horizon=horizon, seed=seed)
        known = panel.until(int(split.at[-1]) + horizon)
        forecast = fitted.predict(known, split.at, horizon=horizon)
        if k == 0:
            probe(fitted, known, split.at, forecast, horizon, seed=seed)
        forecasts.append(_sound(forecast, model.name))
        learnt.append(_learnt(fitted, panel.until(split.learn), horizon))
    return WalkForward(forecasts, learnt)


def _sound(forecast: Floats, name: str) -> Floats:
    if not np.isfinite(forecast).all():
        msg = f"the model `{name}` returned non-finite values: at {int((~np.isfinite(forecast)).sum()):,} places"
        raise WorkloadError(msg, hint="leave it out with --models, or mend it")
    return np.maximum(forecast, 0.0)  # nobody asks for less than nothing


def _learnt(fitted: Forecaster, past: Panel, horizon: int) -> Floats:
    """How far off it is where it knows the answers: the mean square over the variance."""
    first = max(1, min(past.day, len(past) // 2, len(past) - horizon))
    at = np.unique(np.linspace(first, len(past) - horizon, SAMPLE).astype(np.int64))
    came = targets(past.values, at, horizon)
    missed = came - np.maximum(fitted.predict(past, at, horizon=horizon), 0.0)
    return divide((missed**2).mean(axis=0), came.var(axis=0))


def probe(fitted: Forecaster, known: Panel, at: Ints, forecast: Floats, horizon: int, *, seed: int) -> None:
    """Show a fitted model another future: if it then says something else, it has looked ahead."""
    draw = np.random.default_rng(seed)
    for k in np.unique(np.linspace(0, len(at) - 1, PROBES).astype(np.int64)):
        origin = int(at[k])
        again = fitted.predict(_another(known, origin, draw), at[k : k + 1], horizon=horizon)[0]
        scale = 1e-6 * np.abs(known.values[:origin]).max(axis=0)
        if (np.abs(again - forecast[k]) > scale + 1e-5 * np.abs(forecast[k])).any():
            msg = f"the model `{fitted.name}` looks ahead: its forecast at step {origin} depends on later values"
            raise WorkloadError(msg, hint="`predict` may use the steps before each origin, for scales and features too")


def _another(known: Panel, origin: int, draw: np.random.Generator) -> Panel:
    values, beside = known.values.copy(), known.beside.copy()
    for x in (values, beside):
        x[origin:] = draw.permuted(x[origin:], axis=0) * 3 + 10 * x[:origin].max(axis=0, initial=0.0) + 1
    return Panel(values, beside, known.names, known.every)


def check_forecaster(make: Callable[[], Forecaster]) -> None:
    """Does a model keep the contract? Shape, numbers, no look ahead, nothing changed that it was shown, same again.

    Parameters
    ----------
    make
        Returns a fresh model: what has `fit` and `predict` as `fleetlab.forecast.models` describes them.

    Raises
    ------
    WorkloadError
        If it does not keep the contract: the message says in what.

    Examples
    --------
    >>> import fleetlab
    >>> from fleetlab.forecast.catalogue import BY_NAME
    >>> fleetlab.check_forecaster(lambda: BY_NAME["last"])

    """
    draw, horizon, width = np.random.default_rng(0), 4, 2
    day = 24
    level = 50 + 10 * np.sin(np.arange(240) / day * 2 * np.pi)[:, None] + draw.normal(0, 2, (240, width)).cumsum(axis=0)
    panel = Panel(np.maximum(level, 0.0), draw.poisson(3.0, (240, width)).astype(np.float64), ("a", "b"), 3600.0)
    before = panel.values.copy(), panel.beside.copy()
    cuts = splits(len(panel), horizon, gap=horizon, folds=2)
    first, second = (walk(make(), panel, cuts, horizon, seed=1) for _ in range(2))
    if any(
        forecasts.shape != (len(cut.at), horizon, width) for forecasts, cut in zip(first.forecasts, cuts, strict=True)
    ):
        msg = f"the model `{make().name}` returns another shape than [origins, horizon, series]"
        raise WorkloadError(msg, hint="one row an origin, one column a step ahead, one layer a series")
    if any(not np.array_equal(now, then) for now, then in zip((panel.values, panel.beside), before, strict=True)):
        msg = f"the model `{make().name}` modifies its input"
        raise WorkloadError(msg, hint="copy what you change")
    if any(not np.array_equal(a, b) for a, b in zip(first.forecasts, second.forecasts, strict=True)):
        msg = f"the model `{make().name}` is not deterministic for the same seed"
        raise WorkloadError(msg, hint="draw from a generator made with `seed`")
