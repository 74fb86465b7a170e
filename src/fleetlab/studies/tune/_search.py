"""The search itself: Optuna asks for weights, weeks of simulation answer, a journal keeps the answers.

What a trial asks depends on the seed and on the trials before it, and on nothing else: a search that was killed goes on
as if nothing had happened, to the same end.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fleetlab.core import FleetlabError
from fleetlab.studies.tune._journal import Journal
from fleetlab.studies.tune._terms import PLACE, SHARE, SHARED, WEIGHTED, Params, Space

BY_LOT = 10  # trials after the built-in ones, before the sampler has a view of its own
FAR = 1_000_003  # between the seeds of two searches: more than a search has trials

Progress = Callable[[str, int, float], None]


class Trial(NamedTuple):
    """What was tried, and the mean over the training weeks that it gave."""

    params: Params
    value: float


def search(
    space: Space, score: Callable[[Params], float], corners: Sequence[Params],
    *, trials: int, seed: int, journal: Journal, progress: Progress,
) -> list[Trial]:  # fmt: skip
    """Try the corners first, then what a tree-structured Parzen estimator (Bergstra et al. 2011) asks for."""
    optuna = engine()
    with _quietly(optuna):
        knobs, study = _knobs(optuna, space), optuna.create_study()
        found = [Trial(*row) for row in journal.read()[:trials]]
        for trial in found:
            study.add_trial(_answered(optuna, knobs, trial))
        for k in range(len(found), trials):
            progress("trials", k, k / trials)
            params = corners[k] if k < len(corners) else _next(optuna, study, space, len(corners), seed * FAR + k)
            found.append(Trial(params, score(params)))
            journal.add(k, *found[-1])
            study.add_trial(_answered(optuna, knobs, found[-1]))
        progress("trials", trials, 1.0)
        return found


def engine() -> Any:  # noqa: ANN401
    """Optuna, or a word how to have it."""
    try:
        import optuna
    except ImportError:
        msg = "a policy search needs what is not installed: optuna"
        raise FleetlabError(msg, hint="pip install 'fleetlab[tune]' brings it") from None
    return optuna


def _knobs(optuna: Any, space: Space) -> Mapping[str, Any]:  # noqa: ANN401
    knob = optuna.distributions.FloatDistribution
    choice = optuna.distributions.CategoricalDistribution
    found = {term.name: knob(term.low, 1.0) for term in (*space.order, SHARE, *PLACE)}
    return found | {"placement": choice(space.places), SHARED: choice((False, True))}


def _next(optuna: Any, study: Any, space: Space, corners: int, seed: int) -> Params:  # noqa: ANN401
    """What the sampler asks for. Its own trial is never answered: answers are added whole, here and when read again."""
    study.sampler = optuna.samplers.TPESampler(
        seed=seed % 2**32, multivariate=True, group=True, n_startup_trials=corners + BY_LOT
    )
    trial = study.ask()
    params = {term.name: trial.suggest_float(term.name, term.low, 1.0) for term in space.order}
    if space.shares:
        params[SHARED] = trial.suggest_categorical(SHARED, (False, True))
        if params[SHARED]:
            params[SHARE.name] = trial.suggest_float(SHARE.name, SHARE.low, 1.0)
    params["placement"] = trial.suggest_categorical("placement", space.places)
    if params["placement"] == WEIGHTED:
        params |= {term.name: trial.suggest_float(term.name, term.low, 1.0) for term in PLACE}
    return params


def _answered(optuna: Any, knobs: Mapping[str, Any], trial: Trial) -> Any:  # noqa: ANN401
    return optuna.trial.create_trial(
        params=dict(trial.params), distributions={word: knobs[word] for word in trial.params}, value=trial.value
    )


@contextmanager
def _quietly(optuna: Any) -> Iterator[None]:  # noqa: ANN401
    """Without a line for each trial, and without a word that a sampler used for years may change."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
