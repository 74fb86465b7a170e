"""How far off forecasts were, walking forward through the past, and how sure that is.

NRMSE is the root of the mean squared miss over the mean of what came. The 2025 study does not print its formula; this
is the one that fits its numbers (see docs/measurements/forecast.md). MASE is the mean absolute miss over that of the
last value, one step ahead, in what was learnt from (Hyndman and Koehler 2006); WAPE is the sum of absolute misses over
the sum of what came; pinball is the mean over the quantiles 2.5, 10, 50, 90 and 97.5 %, over the mean of what came.

Misses are autocorrelated, so intervals come from the block bootstrap over origins; both models of a pair share the
resamples.

The first width is that of split conformal prediction: the quantile of the misses on past folds. Then it follows the
series: after a miss it grows, after a hit it shrinks a little, so that misses come as often as promised whatever the
series does (Gibbs and Candès 2021; Angelopoulos, Candès and Tibshirani 2023). It is the logarithm of the width that
moves, so the pace does not depend on units: over T steps the share of misses is off by at most the change of that
logarithm over `PACE` T.

Part of a day's demand is not announced by anything before it. The mean error of a forecast that knows everything else
is a floor for any model that sees the past alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Estimate, WorkloadError, say
from fleetlab.core.catalog import RESOURCES
from fleetlab.forecast.catalogue import SIMPLE
from fleetlab.forecast.demand import Bools, DemandEvents, Floats, Forecaster, Ints, Panel, targets
from fleetlab.stats import POSITIVE, SHARE, BlockBootstrap, Interval, Range, divide

SKILL: Range = (-np.inf, 1.0)


def nrmse(blocks: BlockBootstrap, missed: Floats, came: Floats) -> Interval:
    """Return the root mean square miss over the mean of what came."""
    squares, sums, counts = (blocks.totals(blocks.sums(x)) for x in (missed**2, came, np.ones(len(came))))
    return blocks.replicates(divide(np.sqrt(divide(squares, counts)), divide(sums, counts))).interval(POSITIVE)


def skill(blocks: BlockBootstrap, missed: Floats, other: Floats) -> Interval:
    """Return by which share the root mean square miss is smaller than another's."""
    mine, theirs = (blocks.totals(blocks.sums(x**2)) for x in (missed, other))
    return blocks.replicates(1 - np.sqrt(divide(mine, theirs))).interval(SKILL)


def probability_better(blocks: BlockBootstrap, missed: Floats, other: Floats) -> float:
    """Return the probability that the mean square miss is smaller than another's."""
    return blocks.mean(missed**2 - other**2).probability_below(0.0)


def ratio(blocks: BlockBootstrap, top: Floats, bottom: Floats) -> Interval:
    """Return one sum over another, neither of them negative."""
    return blocks.ratio(blocks.sums(top), blocks.sums(bottom), POSITIVE).interval()


def share(blocks: BlockBootstrap, hits: Floats) -> Interval:
    """Return the mean of what is 0 or 1."""
    return blocks.mean(hits, SHARE).interval()


def pinball(came: Floats, forecasts: Floats, widths: Floats) -> Floats:
    """Each origin's mean loss over the quantiles that forecast and intervals are; `widths` are [levels, origins]."""
    ends = [(q, np.maximum(forecasts + side * w, 0.0)) for level, w in zip(LEVELS, widths, strict=True)
            for side, q in ((-1, (1 - level) / 2), (1, (1 + level) / 2))]  # fmt: skip
    losses = [np.maximum(q * (came - end), (q - 1) * (came - end)) for q, end in [(0.5, forecasts), *ends]]
    return np.asarray(np.mean(losses, axis=0))


LEVELS = (0.8, 0.95)
PACE = 0.1
TINY = 1e-5  # of a series' mean: a width from which it can still grow


class Widths(NamedTuple):
    """Half widths of the intervals of each origin, and those after the last."""

    each: Floats  # [levels, origins, horizon, series]
    last: Floats  # [levels, horizon, series]


def split(missed: Floats, level: float) -> Floats:
    """The half width that held so many of the misses [origins, horizon, series], and one more to come.

    >>> split(np.arange(1.0, 20.0).reshape(19, 1, 1), 0.8).item()
    16.0
    """
    count = len(missed)
    rank = min(count, int(np.ceil((count + 1) * level)))
    return np.asarray(np.sort(missed, axis=0)[rank - 1])


def follow(before: Floats, missed: Floats, scale: Floats) -> Widths:
    """Widths for a stretch of origins in a row, of which `missed` tells how far off each turned out to be.

    `before` are misses of origins that are over. The miss of an origin at step h is known h steps later: not sooner.
    """
    count, horizon, series = missed.shape
    width = np.stack([split(before, level) for level in LEVELS])
    each = np.empty((len(LEVELS), count, horizon, series))
    out = np.zeros((count, len(LEVELS), horizon, series), dtype=bool)
    nominal = 1 - np.array(LEVELS)[:, None, None]
    steps = np.arange(horizon)
    for t in range(count + 1):
        decided = t - 1 - steps  # the origin whose miss at each step ahead has just become known
        late = out[np.maximum(decided, 0), :, steps].transpose(1, 0, 2)
        moved = width * np.exp(PACE * (late - nominal))
        width = np.maximum(np.where((decided >= 0)[None, :, None], moved, width), TINY * scale)
        if t < count:
            each[:, t], out[t] = width, missed[t] > width
    return Widths(each, width)


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
        until_then = panel.until(int(split.at[-1]) + horizon)
        forecast = fitted.predict(until_then, split.at, horizon=horizon)
        if k == 0:
            probe(fitted, until_then, split.at, forecast, horizon, seed=seed)
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


def probe(fitted: Forecaster, until_then: Panel, at: Ints, forecast: Floats, horizon: int, *, seed: int) -> None:
    """Show a fitted model another future: if it then says something else, it has looked ahead."""
    draw = np.random.default_rng(seed)
    for k in np.unique(np.linspace(0, len(at) - 1, PROBES).astype(np.int64)):
        origin = int(at[k])
        again = fitted.predict(_another(until_then, origin, draw), at[k : k + 1], horizon=horizon)[0]
        scale = 1e-6 * np.abs(until_then.values[:origin]).max(axis=0)
        if (np.abs(again - forecast[k]) > scale + 1e-5 * np.abs(forecast[k])).any():
            msg = f"the model `{fitted.name}` looks ahead: its forecast at step {origin} depends on later values"
            raise WorkloadError(msg, hint="`predict` may use the steps before each origin, for scales and features too")


def _another(panel: Panel, origin: int, draw: np.random.Generator) -> Panel:
    values, beside = panel.values.copy(), panel.beside.copy()
    for x in (values, beside):
        x[origin:] = draw.permuted(x[origin:], axis=0) * 3 + 10 * x[:origin].max(axis=0, initial=0.0) + 1
    return Panel(values, beside, panel.names, panel.every)


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
        raise WorkloadError(f"the model `{make().name}` modifies its input", hint="copy what you change")
    if any(not np.array_equal(a, b) for a, b in zip(first.forecasts, second.forecasts, strict=True)):
        msg = f"the model `{make().name}` is not deterministic for the same seed"
        raise WorkloadError(msg, hint="draw from a generator made with `seed`")


QUIET = 3600.0  # seconds without a request or a release of the same app


def unannounced(demand: DemandEvents, every: float) -> pl.DataFrame:
    """For each resource the share of requests in the tail that nothing announced, and the NRMSE left by them alone."""
    if demand.apps is None:
        return pl.DataFrame()
    everyone = np.ones(len(demand.requested), dtype=bool)
    blue = demand.added(demand.requested, every, _quiet_before(demand, demand.apps, every))
    came = demand.added(demand.requested, every, everyone)
    cut = round((1 - HELD_OUT) * len(came))
    residual = blue[cut:] - blue[:cut].mean(axis=0)
    rows = {
        "resource": list(RESOURCES.names),
        "share of requests": divide(blue[cut:].sum(axis=0), came[cut:].sum(axis=0)),
        "NRMSE if all else were known": divide(np.sqrt((residual**2).mean(axis=0)), came[cut:].mean(axis=0)),
    }
    return pl.DataFrame(rows).filter(pl.Series(came[cut:].any(axis=0)))


def _quiet_before(demand: DemandEvents, apps: Ints, every: float) -> Bools:
    """Has nobody asked for or let go of an instance of the same app in the hour before the step that a job came in?"""
    quiet = np.zeros(len(demand.requested), dtype=bool)
    for app in np.unique(apps):
        mine = np.flatnonzero(apps == app)
        requested, until = demand.requested[mine] // every, demand.until[mine]
        signs = np.unique(np.concatenate((requested[~np.isnan(requested)], until[np.isfinite(until)] // every)))
        before = np.concatenate(([-np.inf], signs))[np.searchsorted(signs, requested)]
        quiet[mine] = (requested - before) * every > QUIET
    return quiet


MEANS = {
    "predictable": "capacity can follow the forecast with a reserve of {reserve}",
    "partly": "the forecast helps; keep a reserve of {reserve} for work that must not wait",
    "not predictable": "do not scale ahead on it: keep a reserve of {reserve}, or let jobs wait",
}


def spoken(seconds: float) -> str:
    """A time as people say it.

    >>> spoken(300), spoken(3600), spoken(5400), spoken(172800), spoken(20)
    ('5 min', '1 h', '1.5 h', '2 days', '20 s')
    """
    for size, unit in ((2 * 86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86_400 if unit == 'days' else size):.3g} {unit}"
    return f"{seconds:.3g} s"


def sentences(rows: pl.DataFrame, models: pl.Series, every: float) -> list[str]:
    """One for each resource at its first and last step, and one on whether anything beats the simple models.

    `rows` are of the steps that are looked at one by one, `models` those taken for every series and step.
    """
    lines = []
    for (part, resource), mine in rows.group_by("part", "resource", maintain_order=True):
        name = str(resource) if part == "all" else f"{resource} of {part}"
        ends = mine.sort("steps ahead")
        lines += [_one(name, row, every) for row in ends[[0, -1] if ends.height > 1 else [0]].iter_rows(named=True)]
    return [*lines, _simple(rows, models)]


def _one(name: str, row: Mapping[str, Any], every: float) -> str:
    lead = f"{name}, {spoken(row['steps ahead'] * every)} ahead: {row['verdict']}"
    if row["NRMSE"] is None:
        return f"{lead}: no demand in the held-out period"
    unit = RESOURCES[row["resource"]].unit
    reserve = f"{row['reserve 95%']:,.3g} {unit}" if row["reserve 95%"] < 1000 else f"{row['reserve 95%']:,.0f} {unit}"
    value, low, high = (float("nan") if row[c] is None else row[c] for c in ("NRMSE", "low", "high"))
    error = Estimate("NRMSE", value, low, high, "")
    return f"{lead}, {say(error)} by `{row['model']}`{_skill(row)}; {MEANS[row['verdict']].format(reserve=reserve)}"


def _skill(row: Mapping[str, Any]) -> str:
    if row["model"] in SIMPLE:
        return ", as no model beat the simple ones significantly on past folds"
    if row["skill"] is None:
        return ""
    low, high = row["skill low"], row["skill high"]
    interval = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    word = "better" if row["skill"] >= 0 else "worse"
    return f", {abs(100 * row['skill']):.1f} % {word}{interval} than `{row['against']}`"


def _simple(rows: pl.DataFrame, models: pl.Series) -> str:
    clever = int((~models.is_in(SIMPLE)).sum())
    if not clever:
        return "no model beats the simple ones significantly: the simple ones are used"
    beaten = rows.filter(~pl.col("model").is_in(SIMPLE))
    better, significant = (beaten.filter(pl.col(c) > 0).height for c in ("skill", "skill low"))
    text = f"in {clever} of {len(models)} cases a model beat the simple ones significantly on past folds; "
    if beaten.is_empty():
        return f"{text}none of them is among the {rows.height} evaluated on the held-out period"
    of = f"of the {beaten.height} evaluated on the held-out period it was better in {better}"
    return f"{text}{of}, significantly in {significant}"
