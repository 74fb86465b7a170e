"""One part of the demand, studied: every model walked forward, one taken for each series and step by past folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from fleetlab.forecast.backtest import Split, WalkForward, splits, walk
from fleetlab.forecast.catalogue import ENSEMBLE, SIMPLE, left_out
from fleetlab.forecast.conformal import Widths, follow
from fleetlab.forecast.models.ensemble import together
from fleetlab.forecast.models.neural import Network
from fleetlab.forecast.panel import Floats, Forecaster, Ints, Panel, targets
from fleetlab.forecast.scores import probability_better
from fleetlab.forecast.tuning import Tuning, tune
from fleetlab.stats import BlockBootstrap

LUCK = 0.1  # the chance that any of the models is taken over the best simple one without being better

Forecasts = Mapping[str, Sequence[Floats]]


@dataclass(frozen=True, slots=True, eq=False)
class PartStudy:
    """What all models said of one panel, and which is taken."""

    part: str
    panel: Panel
    horizon: int
    cuts: list[Split]
    came: list[Floats]  # what came, for each split: [origins, horizon, series]
    forecasts: dict[str, list[Floats]]
    models: dict[str, Forecaster]  # with the settings that were searched for them
    tunings: dict[str, Tuning]
    walks: dict[str, WalkForward]
    widths: dict[str, Widths]  # of the tail
    simple: list[list[str]]  # [horizon][series]: the best simple model on past folds
    taken: list[list[str]]  # [horizon][series]: the best model, if it beats the simple one significantly
    weights: Floats  # [models, series], of the ensemble
    members: tuple[str, ...]
    blocks: BlockBootstrap  # of the tail
    left_out: dict[str, str]

    def missed(self, name: str, *, tail: bool = True) -> Floats:
        """How far off a model was, in the tail or on the folds before it."""
        if tail:
            return np.asarray(self.came[-1] - self.forecasts[name][-1])
        return np.concatenate([c - s for c, s in zip(self.came[:-1], self.forecasts[name][:-1], strict=True)])


def study(
    part: str, panel: Panel, models: Sequence[Forecaster], *,
    ensemble: bool, horizon: int, gap: int, folds: int, trials: int, seed: int, done: Callable[[], None],
) -> PartStudy:  # fmt: skip
    """Tune the networks, walk every model forward, put them together, set their intervals, and choose."""
    cuts = splits(len(panel), horizon, gap=gap, folds=folds)
    came = [targets(panel.values, cut.at, horizon) for cut in cuts]
    out = {m.name: why for m in models if (why := left_out(m.name, panel, cuts[0].learn - horizon))}
    ready = {m.name: m for m in models if m.name not in out}
    walks: dict[str, WalkForward] = {}
    tunings: dict[str, Tuning] = {}
    for model in models:
        if isinstance(model, Network) and trials and model.name in ready:
            past = panel.until(cuts[0].learn)
            tunings[model.name] = tune(model, past, horizon=horizon, gap=gap, trials=trials, seed=seed)
            ready[model.name] = tunings[model.name].model
        if model.name in ready:
            walks[model.name] = walk(ready[model.name], panel, cuts, horizon, seed=seed)
        done()
    forecasts, weights = {name: w.forecasts for name, w in walks.items()}, np.empty((0, panel.width))
    members = tuple(forecasts)
    if ensemble:
        learnt = np.stack([w.learnt[0].mean(axis=0) for w in walks.values()])
        forecasts[ENSEMBLE], weights = together(forecasts, came, learnt)
    simple, taken = _choose(forecasts, came, panel)
    mean = panel.values[: cuts[-1].learn].mean(axis=0)
    scale = np.where(mean > 0, mean, 1.0)
    widths = {name: _widths(came, by_model, scale) for name, by_model in forecasts.items()}
    blocks = BlockBootstrap.of_series(len(cuts[-1].at))
    return PartStudy(
        part, panel, horizon, cuts, came, forecasts, ready, tunings, walks, widths, simple, taken, weights, members,
        blocks, out,
    )  # fmt: skip


def _widths(came: Sequence[Floats], forecasts: Sequence[Floats], scale: Floats) -> Widths:
    missed = [np.abs(c - s) for c, s in zip(came, forecasts, strict=True)]
    return follow(np.concatenate(missed[:-1]), missed[-1], scale)


def _choose(forecasts: Forecasts, came: Sequence[Floats], panel: Panel) -> tuple[list[list[str]], list[list[str]]]:
    """The best simple model, and the one to take, for each step and series: by the folds, never by the tail."""
    missed = {
        n: np.concatenate([c - s for c, s in zip(came[:-1], by_model[:-1], strict=True)])
        for n, by_model in forecasts.items()
    }
    squares = {name: (m**2).mean(axis=0) for name, m in missed.items()}
    blocks = BlockBootstrap.of_series(len(next(iter(missed.values()))))
    simple: list[list[str]] = []
    taken: list[list[str]] = []
    for h in range(came[0].shape[1]):
        simple.append(
            [min((n for n in SIMPLE if n in forecasts), key=lambda n: squares[n][h, k]) for k in range(panel.width)]
        )
        taken.append([_take(missed, squares, blocks, simple[h][k], h, k) for k in range(panel.width)])
    return simple, taken


def _take(
    missed: Mapping[str, Floats], squares: Mapping[str, Floats], blocks: BlockBootstrap, simple: str, h: int, k: int
) -> str:
    """The most accurate model that beats the simple one significantly; else the simple one."""
    # Where many are tried one of them is lucky: the chance is shared out among them (Bonferroni).
    allowed = LUCK / max(1, sum(name not in SIMPLE for name in missed))
    for name in sorted(missed, key=lambda n: float(squares[n][h, k])):
        if squares[name][h, k] >= squares[simple][h, k]:
            return simple
        if 1 - probability_better(blocks, missed[name][:, h, k], missed[simple][:, h, k]) <= allowed:
            return name
    return simple


def ahead(study_: PartStudy, *, seed: int) -> tuple[Floats, Floats]:
    """What comes after the end of the trace, by the models that were taken: values, and half widths by level.

    Everything is learnt from this time, the tail too.
    """
    panel, horizon = study_.panel, study_.horizon
    needed = {name for row in study_.taken for name in row}
    if ENSEMBLE in needed:
        needed |= set(study_.members)
    at = np.array([len(panel)])
    by_model = {
        name: _after(model, panel, at, horizon, seed) for name, model in study_.models.items() if name in needed
    }
    if ENSEMBLE in needed:
        by_model[ENSEMBLE] = np.einsum(
            "mhs,ms->hs", np.stack([by_model[name] for name in study_.members]), study_.weights
        )
    values = np.empty((horizon, panel.width))
    widths = np.empty((len(next(iter(study_.widths.values())).last), horizon, panel.width))
    for h, row in enumerate(study_.taken):
        for k, name in enumerate(row):
            values[h, k], widths[:, h, k] = by_model[name][h, k], study_.widths[name].last[:, h, k]
    return values, widths


def _after(model: Forecaster, panel: Panel, at: Ints, horizon: int, seed: int) -> Floats:
    fitted = deepcopy(model).fit(panel, horizon=horizon, seed=seed)
    return np.asarray(np.maximum(fitted.predict(panel, at, horizon=horizon)[0], 0.0))
