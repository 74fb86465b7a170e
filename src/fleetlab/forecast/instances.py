"""How many instances come next, of each role: over a whole horizon, with the quantiles of past errors.

The quantile of a sum is not the sum of quantiles: so the errors are those of the whole horizon, at every origin that
models were walked through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.core import Trace, WorkloadError
from fleetlab.core.coverage import Coverage
from fleetlab.core.progress import Progress, silent
from fleetlab.forecast import backtest
from fleetlab.forecast.catalogue import models_of
from fleetlab.forecast.demand import COLUMN, By, DemandEvents, Floats, Forecaster, Ints, Panel, Target
from fleetlab.forecast.forecast import check_options, step_seconds
from fleetlab.forecast.study import PartStudy, ahead, study
from fleetlab.stats import Interval

FOLDS = 4
SERIES = "instances"
# What a horizon needs: all that is requested in it, or the most that is allocated at the end of any of its steps.
OVER_HORIZON: dict[str, Callable[[Floats], Floats]] = {
    "requests": lambda steps: np.asarray(steps.sum(axis=1)),
    "level": lambda steps: np.asarray(steps.max(axis=1)),
}


@dataclass(frozen=True, slots=True, eq=False)
class PartAhead:
    """The instances of one part of the demand over the horizon."""

    part: str
    expected: float  # by the selected models
    median: float
    upper: float  # exceeded with probability 1 - quantile
    below: Interval  # of the held-out origins, the share whose demand did not exceed the quantile of the folds
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InstancesAhead:
    """How many instances are forecast for the horizon after `now`, by part; and the part of each job of the log."""

    parts: tuple[PartAhead, ...]
    of: Ints  # [jobs]: the number of the part
    now: float  # the end of the last whole step, s: the forecast begins here
    every: float
    horizon: int
    target: str
    quantile: float
    by: str | None
    origins: int  # that errors are known of
    notes: tuple[str, ...]
    coverage: Coverage

    @property
    def seconds(self) -> float:
        """The length of the horizon."""
        return self.every * self.horizon


def instances_ahead(
    trace: Trace,
    *,
    target: Target = "requests",
    every: str | float = "1h",
    horizon: int = 24,
    by: By | None = None,
    quantile: float = 0.9,
    models: Sequence[str | Forecaster] = ("simple", "classic"),
    seed: int = 0,
    progress: Progress = silent,
) -> InstancesAhead:
    """Forecast how many instances are requested over a horizon, or allocated at its peak: median and a quantile.

    Parts are roles where the trace names some and `by` does not say otherwise. A quantile is the forecast plus that
    quantile of past errors (conformal), so it holds if errors stay as they were.
    """
    seconds = _check(target, every, horizon, quantile)
    which, ensemble = models_of(models)
    by = _role(trace) if by is None else by
    events = DemandEvents.of(trace, by=by)
    events = replace(events, amounts=trace.workload.frame["instances"].cast(pl.Float64).to_numpy()[:, None])
    panels = {part: _panel(events, target, seconds, k) for k, part in enumerate(events.parts)}
    total, count = len(panels) * len(which), 0

    def done() -> None:
        nonlocal count
        count += 1
        progress("testing forecasts on past demand", count, count / total)

    parts = []
    for part, panel in panels.items():
        one = study(
            part, panel, which, ensemble=ensemble, horizon=horizon, gap=horizon, folds=FOLDS, trials=0, seed=seed,
            done=done,
        )  # fmt: skip
        values, _ = ahead(one, seed=seed)
        parts.append(_part(one, values[:, 0], OVER_HORIZON[target], quantile))
    now, origins = events.steps(seconds) * seconds, sum(len(cut.at) for cut in one.cuts)
    return InstancesAhead(
        tuple(parts), events.part, now, seconds, horizon, target, quantile, by, origins, events.notes,
        events.coverage,
    )  # fmt: skip


def _check(target: str, every: str | float, horizon: int, quantile: float) -> float:
    seconds = step_seconds(every)
    check_options(target, horizon=horizon)
    if not 0.5 <= quantile < 1:
        msg = f"a quantile is from 0.5 to below 1: {quantile}"
        raise WorkloadError(msg, hint="--quantile 0.9: demand exceeds it with a probability of 10 %")
    return seconds


def _role(trace: Trace) -> By | None:
    """Split by role where any job names one."""
    column = trace.workload.frame[COLUMN["role"]]
    return "role" if column.null_count() < len(column) else None


def _panel(events: DemandEvents, target: Target, every: float, part: int) -> Panel:
    mine = events.part == part
    arrivals, released = (events.added(when, every, mine) for when in (events.requested, events.until))
    if target == "requests":
        return Panel(arrivals, released, (SERIES,), every)
    return Panel(events.level(every, mine), np.hstack([arrivals, released]), (SERIES,), every)


def _part(one: PartStudy, values: Floats, over: Callable[[Floats], Floats], quantile: float) -> PartAhead:
    """Add quantiles of the errors over whole horizons to the forecast of the next one."""
    models = [row[0] for row in one.selected]
    errors, came = [], []
    for cut, actual in enumerate(one.came):
        predicted = np.column_stack([one.forecasts[name][cut][:, h, 0] for h, name in enumerate(models)])
        came.append(over(actual[:, :, 0]))
        errors.append(came[-1] - over(predicted))
    expected = float(over(values[None, :])[0])
    every_error = np.concatenate(errors)
    median, upper = (max(0.0, expected + _quantile(every_error, q)) for q in (0.5, quantile))
    limit = _quantile(np.concatenate(errors[:-1]), quantile)
    below = backtest.share(one.blocks, (errors[-1] <= limit + 1e-9).astype(np.float64))
    return PartAhead(one.part, expected, median, upper, below, tuple(dict.fromkeys(models)))


def _quantile(errors: Floats, level: float) -> float:
    """Return the conformal quantile: an exchangeable next error exceeds it with probability 1 - level at most.

    >>> _quantile(np.arange(1.0, 20.0), 0.9), _quantile(np.arange(1.0, 20.0), 0.5)
    (18.0, 10.0)
    """
    rank = min(len(errors), math.ceil((len(errors) + 1) * level - 1e-9))
    return float(np.partition(errors, rank - 1)[rank - 1])
