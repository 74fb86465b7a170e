"""`forecast`: demand of the next steps, with intervals and a leaderboard of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import polars as pl

from fleetlab.core import Provenance, Trace, WorkloadError
from fleetlab.core.durations import HINT, in_seconds
from fleetlab.core.progress import Progress, silent
from fleetlab.forecast import tables
from fleetlab.forecast.backtest import sentences, unannounced
from fleetlab.forecast.catalogue import DEFAULT, ENSEMBLE, models_of
from fleetlab.forecast.demand import By, DemandEvents, Forecaster, Target
from fleetlab.forecast.study import PartStudy, ahead, study
from fleetlab.forecast.tables import Forecast
from fleetlab.forecast.tuning import FOLDS, TRIALS

MOST = 2_000_000  # steps times horizon: each model says so many numbers of each series
RECENT = 3  # horizons that are drawn before what comes, and a day at least


def forecast(
    trace: Trace,
    *,
    target: Target = "requests",
    every: str | float = "5m",
    horizon: int = 12,
    by: By | None = None,
    models: Sequence[str | Forecaster] = DEFAULT,
    gap: int | None = None,
    folds: int = 4,
    trials: int = TRIALS,
    seed: int = 0,
    progress: Progress = silent,
) -> Forecast:
    """What demand comes next, with intervals, and which model may be trusted with which resource how far ahead?

    Models are walked forward over `folds`. The last 20 % of the time is held out: it is used once, after one model was
    chosen per series and step.

    Parameters
    ----------
    trace
        The log to forecast from.
    target
        `requests`: what jobs submitted in each step request; `level`: what is allocated at its end.
    every
        Length of a step: seconds, or such as 5m, 1h (default: 5m).
    horizon
        Steps ahead (default: 12).
    by
        Forecast each `role`, `app` or `gpu_type` by itself: the six largest, and the others together.
    models
        Families and names of models, or models of your own; the simple ones are always included.
    gap
        Steps between what models learn from and what they forecast (default: the horizon).
    folds
        How often models are walked forward before the held-out end (default: 4).
    trials
        Settings to try for each network before the first fold; 0 takes the default settings (default: 8).
    seed
        Random seed (default: 0).
    progress
        Called as models are fitted.

    Returns
    -------
    Forecast
        The next steps with intervals, and each model's error on the held-out end.

    Raises
    ------
    WorkloadError
        If the trace is too short for the horizon and the folds, or there is no model by that name.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.forecast(fleetlab.synthesize(jobs=200, days=2), every="15m", horizon=2, models=["simple"])
    <Forecast of requests, 3 series, 15 min steps, synthesize:pai2020>
    """
    seconds = step_seconds(every)
    which, ensemble = models_of(models)
    gap = horizon if gap is None else gap
    check_options(target, horizon=horizon, gap=gap, folds=folds, trials=trials, seed=seed)
    demand = DemandEvents.of(trace, by=by)
    if demand.steps(seconds) * horizon > MOST:
        msg = f"too many forecasts: {demand.steps(seconds):,} steps of {seconds:,.6g} s, each with {horizon:,} ahead"
        raise WorkloadError(msg, hint=f"use longer steps or a shorter horizon: at most {MOST:,} in total")
    panels = list(demand.panels(target, seconds)) if demand.steps(seconds) else []
    if not panels:
        msg = f"{trace.workload.source}: no demand in whole steps of {seconds:,.6g} s"
        raise WorkloadError(msg, hint="use shorter steps, or a trace with resource requests")
    total, count = len(panels) * len(which), 0

    def done() -> None:
        nonlocal count
        count += 1
        progress("testing forecasts on past demand", count, count / total)

    how: dict[str, Any] = {"horizon": horizon, "gap": gap, "folds": folds, "trials": trials, "seed": seed}
    studies = [study(name, panel, which, ensemble=ensemble, done=done, **how) for name, panel in panels]
    settings = {
        "target": target, "every": seconds, "horizon": horizon, "by": by, "gap": gap, "folds": folds, "trials": trials,
        "models": [*(m.name for m in which), *([ENSEMBLE] if ensemble else [])],
    }  # fmt: skip
    frames = _frames(studies, demand, target, seconds, seed)
    findings = tuple(sentences(frames["chosen"], frames["next"]["model"], seconds))
    provenance = Provenance.of_jobs("forecast", trace.workload, settings, seed)
    tail = pl.concat([tables.held_out(one) for one in studies])
    notes = (*demand.notes, *_notes(studies))
    return Forecast(provenance, findings, frames, tail, _recent(studies), seconds, notes, demand.coverage)


def _frames(
    studies: Sequence[PartStudy], demand: DemandEvents, target: str, every: float, seed: int
) -> dict[str, pl.DataFrame]:
    board = pl.concat([tables.leaderboard(one) for one in studies])
    horizon = studies[0].horizon
    steps = dict.fromkeys((1, horizon))
    return {
        "chosen": tables.chosen(board),
        "next": pl.concat([tables.to_come(one, *ahead(one, seed=seed)) for one in studies]),
        **{f"NRMSE, steps ahead: {step}": tables.beside(board, step) for step in steps},
        "leaderboard": board,
        "overfitting": pl.concat([tables.overfitting(one) for one in studies]),
        "weights": pl.concat([tables.weights(one) for one in studies], how="diagonal"),
        "tuning": pl.concat([tables.tuning(one) for one in studies], how="diagonal"),
        "unannounced": unannounced(demand, every) if target == "requests" else pl.DataFrame(),
    }


def _recent(studies: Sequence[PartStudy]) -> pl.DataFrame:
    rows = []
    for one in studies:
        panel = one.panel
        first = max(0, len(panel) - max(panel.day, RECENT * one.horizon))
        hours = [(step + 1) * panel.every / 3600 for step in range(first, len(panel))]
        rows += [
            pl.DataFrame({"part": one.part, "resource": name, "hour": hours, "value": panel.values[first:, k]})
            for k, name in enumerate(panel.names)
        ]
    return pl.concat(rows)


def _notes(studies: Sequence[PartStudy]) -> list[str]:
    every = {f"{name}: not run: {why}" for one in studies for name, why in one.left_out.items()}
    *folds, tail = studies[0].cuts
    return [
        f"the last {len(tail.at):,} origins are held out; each of the {len(folds)} folds before them "
        "judges the models that the folds before it select",
        "NRMSE is RMSE over the mean of the actual values; skill is the relative reduction of RMSE",
        *_spent(studies),
        *sorted(every),
    ]


def _spent(studies: Sequence[PartStudy]) -> list[str]:
    """What the search for settings of networks spent, and where there were too few steps for one."""
    searches = [search for one in studies for search in one.tunings.values()]
    trials = [trial for search in searches for trial in search.trials]
    notes = []
    if trials:
        steps = max(search.steps for search in searches)
        notes.append(
            f"networks: {len(trials):,} trials of settings, {sum(t.epochs for t in trials):,} epochs in total, each on "
            f"{FOLDS} walk-forward folds of the first {steps:,} steps; selection and evaluation use later ones"
        )
    if any(not search.trials for search in searches):
        notes.append("networks: default settings, as the steps before the first fold are too few for a search")
    return notes


def check_options(target: str, **counts: int) -> None:
    """Refuse an unknown target, and numbers that are too small."""
    if target not in get_args(Target):
        raise WorkloadError(f"unknown target: `{target}`", hint=f"there are {', '.join(get_args(Target))}")
    for name, value in counts.items():
        least = 1 if name in ("horizon", "folds") else 0
        if value < least:
            msg = f"{name} is below {least}: {value}"
            raise WorkloadError(msg, hint=f"{name} is a whole number of {least} or more")


def step_seconds(every: str | float) -> float:
    """Return the length of a step; an error if it is none."""
    seconds = in_seconds(every)
    if not 0 < seconds < math.inf:
        raise WorkloadError(f"not a length of time: `{every}`", hint=HINT)
    return seconds
