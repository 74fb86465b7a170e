"""The search: Optuna proposes parameters, simulations of the training weeks score them, a journal keeps the trials.

What is proposed depends only on the seed and on the trials before, so a search that was killed continues as if nothing
had happened, to the same end. A line of the journal names its search, so one file serves many, and its number, so two
processes that run the same search, and get the same results, do no harm. A line that a kill cut off is ignored.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from fleetlab.core import FleetlabError, Progress
from fleetlab.studies.tune.terms import PLACEMENT, SHARE, USES_SHARE, WEIGHTED, Params, Space

# -- trials on disk, a line each ---------------------------------------------------------------------------------------

FILE = "trials.jsonl"
FIELDS = {"search": str, "trial": int, "params": dict, "value": float}


@dataclass(frozen=True, slots=True)
class Journal:
    """The trials of one search; without a folder they are not kept."""

    search: str
    folder: Path | None = None

    def read(self) -> list[tuple[Params, float]]:
        """Return the known trials, from the first on without a gap."""
        if self.folder is None:
            return []
        trials: dict[int, tuple[Params, float]] = {}
        for row in _rows(read_or_create(self.folder)):
            if row["search"] == self.search:
                trials.setdefault(row["trial"], (row["params"], row["value"]))
        return [trials[k] for k in takewhile(trials.__contains__, count())]

    def add(self, trial: int, params: Params, value: float) -> None:
        """Append a finished trial: in one write, and on disk before it returns."""
        if self.folder is None:
            return
        line = json.dumps({"search": self.search, "trial": trial, "params": dict(params), "value": value})
        path = self.folder / FILE
        try:
            with path.open("ab+") as f:
                f.seek(max(0, f.seek(0, os.SEEK_END) - 1))
                incomplete = f.read(1) not in (b"", b"\n")
                f.write(("\n" if incomplete else "").encode() + line.encode() + b"\n")
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise _write_error(self.folder, e) from None


def read_or_create(folder: Path) -> bytes:
    """Return all lines that are there; refuse a folder to which none could be added."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / FILE).open("ab+") as f:
            f.seek(0)
            return f.read()
    except OSError as e:
        raise _write_error(folder, e) from None


def _rows(text: bytes) -> list[dict[str, Any]]:
    """Return the complete lines."""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {key: type(value) for key, value in row.items()} == FIELDS:
            rows.append(row)
    return rows


def _write_error(folder: Path, e: OSError) -> FleetlabError:
    return FleetlabError(f"cannot keep trials in {folder}: {e.strerror or e}", hint="name another folder")


# -- proposals ---------------------------------------------------------------------------------------------------------

RANDOM = 10  # trials after the built-in policies, before the sampler uses its model
FAR = 1_000_003  # between the seeds of two searches: more than a search has trials


class PolicyTrial(NamedTuple):
    """Parameters of a policy, and its mean over the training weeks."""

    params: Params
    value: float


def search(
    space: Space, score: Callable[[Params], float], first: Sequence[Params],
    *, trials: int, seed: int, journal: Journal, progress: Progress,
) -> list[PolicyTrial]:  # fmt: skip
    """Try the `first` parameters, then what a tree-structured Parzen estimator proposes (Bergstra et al. 2011)."""
    optuna = import_optuna()
    with _quiet(optuna):
        distributions, study = _distributions(optuna, space), optuna.create_study()
        done = [PolicyTrial(*row) for row in journal.read()[:trials]]
        for trial in done:
            study.add_trial(_frozen(optuna, distributions, trial))
        for k in range(len(done), trials):
            progress("searching: trials simulated", k, k / trials)
            params = first[k] if k < len(first) else _propose(optuna, study, space, len(first), seed * FAR + k)
            done.append(PolicyTrial(params, score(params)))
            journal.add(k, *done[-1])
            study.add_trial(_frozen(optuna, distributions, done[-1]))
        progress("searching: trials simulated", trials, 1.0)
        return done


def import_optuna() -> Any:  # noqa: ANN401
    """Import Optuna, or say how to install it."""
    try:
        import optuna
    except ImportError:
        msg = "a policy search needs a library that is not installed: optuna"
        raise FleetlabError(msg, hint="pip install 'fleetlab[tune]'") from None
    return optuna


def _distributions(optuna: Any, space: Space) -> Mapping[str, Any]:  # noqa: ANN401
    number = optuna.distributions.FloatDistribution
    choice = optuna.distributions.CategoricalDistribution
    numbers = {term.name: number(term.low, 1.0) for term in (*space.order, SHARE, *PLACEMENT)}
    return numbers | {"placement": choice(space.placements), USES_SHARE: choice((False, True))}


def _propose(optuna: Any, study: Any, space: Space, first: int, seed: int) -> Params:  # noqa: ANN401
    """Return what the sampler proposes. Its own trial stays open: results are added whole, here and when read again."""
    study.sampler = optuna.samplers.TPESampler(
        seed=seed % 2**32, multivariate=True, group=True, n_startup_trials=first + RANDOM
    )
    trial = study.ask()
    params = {term.name: trial.suggest_float(term.name, term.low, 1.0) for term in space.order}
    if space.shares:
        params[USES_SHARE] = trial.suggest_categorical(USES_SHARE, (False, True))
        if params[USES_SHARE]:
            params[SHARE.name] = trial.suggest_float(SHARE.name, SHARE.low, 1.0)
    params["placement"] = trial.suggest_categorical("placement", space.placements)
    if params["placement"] == WEIGHTED:
        params |= {term.name: trial.suggest_float(term.name, term.low, 1.0) for term in PLACEMENT}
    return params


def _frozen(optuna: Any, distributions: Mapping[str, Any], trial: PolicyTrial) -> Any:  # noqa: ANN401
    return optuna.trial.create_trial(
        params=dict(trial.params), distributions={word: distributions[word] for word in trial.params}, value=trial.value
    )


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:  # noqa: ANN401
    """Suppress a line per trial, and the warning that the grouped sampler may change."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
