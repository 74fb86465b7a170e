"""One part of the demand, studied: every model walked forward, and one taken for each series and step by past folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from fleetlab.forecast.backtest import Split, WalkForward, Widths, follow, probability_better, splits, walk
from fleetlab.forecast.catalogue import ENSEMBLE, SIMPLE, left_out
from fleetlab.forecast.demand import Floats, Forecaster, Ints, Panel, targets
from fleetlab.forecast.models.ensemble import together
from fleetlab.forecast.models.neural import Network
from fleetlab.forecast.models.regression import persistent
from fleetlab.forecast.tuning import Tuning, tune
from fleetlab.stats import BlockBootstrap

LAST, LATELY = "last", "mean_24h"  # the usual simple model of a series that hardly moves from step to step; of others
LUCK = 0.1  # the chance that a model is taken in place of a simpler one without being better: two are tried

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
    simple: list[list[str]]  # [horizon][series]: the simple model that others have to beat
    selected: list[list[str]]  # [horizon][series]: the model that beats it and all other simple ones, or itself
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
    simple, selected = _choose(forecasts, came, panel.until(cuts[-1].learn))
    mean = panel.values[: cuts[-1].learn].mean(axis=0)
    scale = np.where(mean > 0, mean, 1.0)
    widths = {name: _widths(came, by_model, scale) for name, by_model in forecasts.items()}
    blocks = BlockBootstrap.of_series(len(cuts[-1].at))
    return PartStudy(
        part, panel, horizon, cuts, came, forecasts, ready, tunings, walks, widths, simple, selected, weights, members,
        blocks, out,
    )  # fmt: skip


def _widths(came: Sequence[Floats], forecasts: Sequence[Floats], scale: Floats) -> Widths:
    missed = [np.abs(c - s) for c, s in zip(came, forecasts, strict=True)]
    return follow(np.concatenate(missed[:-1]), missed[-1], scale)


def _choose(forecasts: Forecasts, came: Sequence[Floats], past: Panel) -> tuple[list[list[str]], list[list[str]]]:
    """The simple model to beat, and the one to take, for each step and series: by the folds, never by the tail.

    Each fold judges what the folds before it choose. A simple model is taken in place of the usual one only if such
    choices were better on every one of them, and significantly; a trained one only if they were so against every
    simple one.
    """
    folds = [{n: by_model[k] - c for n, by_model in forecasts.items()} for k, c in enumerate(came[:-1])]
    if len(folds) == 1:  # its halves
        middle = len(came[0]) // 2
        folds = [{n: missed[part] for n, missed in folds[0].items()} for part in (slice(middle), slice(middle, None))]
    judges = folds[1:]
    blocks = BlockBootstrap.of_series(sum(len(fold[LAST]) for fold in judges))
    simple_ones = [n for n in SIMPLE if n in forecasts]

    def chosen(names: Sequence[str], others: Sequence[Sequence[str]]) -> list[list[str]]:
        """For each step and series, one of the names if it beats all of the others of the series, else the first."""
        followed, best = _followed(folds, names)
        taken = [[other[0] for other in others] for _ in best]
        for h, k in np.ndindex(best.shape):
            mine = [fold[:, h, k] for fold in followed]
            if all(_better(blocks, mine, [fold[n][:, h, k] for fold in judges]) for n in others[k] if n):
                taken[h][k] = names[int(best[h, k])]
        return taken

    usual = [LATELY if not slow and LATELY in forecasts else LAST for slow in persistent(past.values)]
    simple = chosen(simple_ones, [[name] for name in usual])
    if not (trained := [n for n in forecasts if n not in SIMPLE]):
        return simple, simple
    beats_all = chosen(trained, [["", *simple_ones]] * past.width)
    selected = [[name or simple[h][k] for k, name in enumerate(row)] for h, row in enumerate(beats_all)]
    return simple, selected


def _followed(folds: Sequence[Mapping[str, Floats]], names: Sequence[str]) -> tuple[list[Floats], Ints]:
    """Misses on each fold but the first, of the model that was most accurate before; and that of all folds."""
    squares, followed = np.zeros(()), []
    for k, fold in enumerate(folds):
        missed = np.stack([fold[name] for name in names])  # [models, origins, horizon, series]
        if k:
            followed.append(np.take_along_axis(missed, squares.argmin(axis=0)[None, None], axis=0)[0])
        squares = squares + (missed**2).sum(axis=1)
    return followed, squares.argmin(axis=0)


def _better(blocks: BlockBootstrap, missed: Sequence[Floats], other: Sequence[Floats]) -> bool:
    """Are misses smaller than others on each fold, and significantly so on all of them?"""
    each = all(_square(one) < _square(two) for one, two in zip(missed, other, strict=True))
    return each and 1 - probability_better(blocks, np.concatenate(missed), np.concatenate(other)) <= LUCK / 2


def _square(missed: Floats) -> Floats:
    return np.asarray((missed**2).mean(axis=0))


def ahead(study_: PartStudy, *, seed: int) -> tuple[Floats, Floats]:
    """What comes after the end of the trace, by the models that were taken: values, and half widths by level.

    Everything is learnt from this time, the tail too.
    """
    panel, horizon = study_.panel, study_.horizon
    needed = {name for row in study_.selected for name in row}
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
    for h, row in enumerate(study_.selected):
        for k, name in enumerate(row):
            values[h, k], widths[:, h, k] = by_model[name][h, k], study_.widths[name].last[:, h, k]
    return values, widths


def _after(model: Forecaster, panel: Panel, at: Ints, horizon: int, seed: int) -> Floats:
    fitted = deepcopy(model).fit(panel, horizon=horizon, seed=seed)
    return np.asarray(np.maximum(fitted.predict(panel, at, horizon=horizon)[0], 0.0))
