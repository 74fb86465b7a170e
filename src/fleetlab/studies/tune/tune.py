"""Search for a policy on training weeks of a trace, and compare it with baselines on held-out weeks.

Consecutive weeks are simulated in one run. A warm-up before them fills the cluster and its queue and does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fleetlab.core import Cluster, PolicyError, Progress, Scenario, Words, WorkloadError
from fleetlab.core.catalog import PLACEMENTS
from fleetlab.core.names import lookup
from fleetlab.core.progress import silent
from fleetlab.core.scenario import ScenarioLike
from fleetlab.sim import simulate
from fleetlab.stats import LEAST_BLOCKS, Ints, effective_size
from fleetlab.studies.replicas import OF_SCOPE, note_of_verdicts
from fleetlab.studies.runner import code_version
from fleetlab.studies.tune.result import GOALS, RESERVING, Baseline, Means, Tuning, Verdict, mean, orders, train
from fleetlab.studies.tune.search import Journal, PolicyTrial, import_optuna, read_or_create, search
from fleetlab.studies.tune.terms import ALL, Params, Space, words_of

# -- weeks of a trace, by submission -----------------------------------------------------------------------------------

DAY = 86_400.0
ALMOST = 0.9  # of a week: so much of the last one makes it a week
LEAST_WEEKS = 2  # held-out weeks: one has no interval


@dataclass(frozen=True, slots=True, eq=False)
class Weeks:
    """Consecutive weeks with their warm-up."""

    scenario: Scenario  # with the jobs of these weeks and of the warm-up
    first: int  # the first week that counts, of those of the trace
    week: Ints  # [jobs]: 0 is the first week that counts; -1: warm-up

    def means(self, column: str, **words: Any) -> dict[int, float]:  # noqa: ANN401
        """Simulate with some words, and return the mean of a column over the jobs of each week that ran."""
        jobs = simulate(self.scenario.replace(**words, min_coverage=0.0)).jobs
        week, values = self.week[jobs["job"].to_numpy()], jobs[column].to_numpy()
        count = np.bincount(week[week >= 0])
        total = np.bincount(week[week >= 0], weights=values[week >= 0])
        return {self.first + k: float(total[k] / n) for k, n in enumerate(count) if n}


def split(
    scenario: Scenario, *, train: int | None, held_out: int | None, days: float, warm: float
) -> tuple[Weeks, Weeks]:
    """Return the weeks to train on, and the last ones of the trace, held out (default: half of the weeks each)."""
    if not (0 < days < 1e5 and 0 <= warm < 1e5):
        msg = f"a week has more than 0 days and a warm-up at least 0: {days:g} and {warm:g}"
        raise WorkloadError(msg, hint="days=7, warm=1")
    workload = scenario.workload
    submit = workload.frame["submit"]
    there = int((float(submit[-1]) if len(submit) else 0.0) / (days * DAY) + 1 - ALMOST)
    last = held_out if held_out is not None else there - (train if train is not None else there // 2)
    first = train if train is not None else there - last
    if there > len(submit):
        msg = f"{workload.source}: more weeks of {days:g} days than jobs: {there:,}"
        raise WorkloadError(msg, hint="longer weeks: a mean needs jobs")
    if first < 1 or last < LEAST_WEEKS or first + last > there:
        request = (
            f", {max(0, first)} to train on and {max(0, last)} held out" if (train, held_out) != (None, None) else ""
        )
        msg = f"{workload.source}: too few weeks of {days:g} days: {there}{request}"
        raise WorkloadError(
            msg, hint="at least 1 to train on and 2 held out; a shorter trace has more weeks with days=1"
        )
    edges = (there - last - first, there - last, there)
    training, later = (_weeks_between(scenario, a, b, days, warm) for a, b in pairwise(edges))
    for weeks, least, what in ((training, 1, "to train on"), (later, LEAST_WEEKS, "held out")):
        if (some := len(np.unique(weeks.week[weeks.week >= 0]))) < least:
            msg = f"{workload.source}: too few weeks {what} with jobs that count: {some}"
            raise WorkloadError(msg, hint="more weeks, longer weeks, or a shorter warm-up")
    return training, later


def _weeks_between(scenario: Scenario, first: int, end: int, days: float, warm: float) -> Weeks:
    """Return the weeks from `first` up to `end`; the warm-up of the first week of the trace is a part of that week."""
    week, begin = days * DAY, max(0.0, first * days * DAY - warm * DAY)
    times = scenario.workload.frame["submit"].to_numpy()
    rows = np.flatnonzero((times >= begin) & (times < end * week))
    submit = times[rows]
    counts = (submit >= first * week) & (submit >= begin + warm * DAY)
    jobs = scenario.workload.take(rows, submit, f"weeks {first + 1} to {end}")
    cold = scenario.on(jobs, rows).replace(warm_up="none")  # its weeks have a warm-up of their own
    return Weeks(cold, first, np.where(counts, (submit // week).astype(np.int64) - first, -1))


# -- the search --------------------------------------------------------------------------------------------------------

MOST = 100_000  # trials


def tune(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    trials: int = 100,
    train_weeks: int | None = None,
    held_out: int | None = None,
    days: float = 7.0,
    warm: float = 1.0,
    goal: str = "wait",
    against: Sequence[str] = (),
    store: Path | None = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Tuning:
    """Search for weights of order and placement terms on training weeks; compare the best with baselines on later ones.

    The first trials are built-in policies, so in training the result is at least as good as those that the terms can
    express. The order and placement of the scenario are a baseline; everything else in it is the same for all policies.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it. Without a `Scenario`, `estimate` is `group` by default:
        true runtimes are not known.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    trials
        How many policies to try; the first are built-in ones (default: 100).
    train_weeks
        How many weeks to train on, before those held out (default: half of all).
    held_out
        How many weeks at the end are simulated once, after the search (default: half of all).
    days
        How many days a week has: fewer for a trace of a few days (default: 7).
    warm
        Days before each week that fill the cluster and do not count (default: 1).
    goal
        The mean to minimize: wait, jct (job completion time) or bounded_slowdown.
    against
        The built-in orders to compare with (default: all).
    store
        A folder for finished trials: a search that was killed continues there.
    progress
        Called as trials are done.

    Returns
    -------
    Tuning
        The best weights as a policy, and its paired differences from the baselines on the held-out weeks.

    Raises
    ------
    WorkloadError
        If the trace has too few weeks.
    FleetlabError
        If the extra `tune` is not installed.

    Examples
    --------
    >>> import fleetlab
    >>> trace = fleetlab.synthesize(jobs=200, days=4)
    >>> fleetlab.tune(trace, trials=2, days=1, warm=0, against=["fifo"]).provenance.settings["trials"]
    2
    """
    if not isinstance(source, Scenario):
        words.setdefault("estimate", "group")  # with an oracle the search would know the future
    scenario = Scenario.of(source, cluster, **words)
    _check(scenario, trials, goal)
    names = orders(against, scenario.policy.backfill)
    import_optuna()
    options = {"train": train_weeks, "held_out": held_out, "days": days, "warm": warm}
    training, later = split(scenario, **options)  # type: ignore[arg-type]
    if store is not None:
        read_or_create(store)  # before work starts
    runs = _Runs(training, later, goal)
    baselines = train(runs.training_means, names, scenario.policy, progress)
    done = runs.search(baselines, trials, store, progress)
    best = min(done, key=lambda trial: trial.value)  # of equal ones the first
    verdict = runs.verdict(baselines, best, progress)
    own = {"trials": trials, "goal": goal, "against": list(against), **options}
    provenance = scenario.provenance("tune", scenario.words() | own)
    result = Tuning.of(verdict, done, best, goal, provenance, _notes(training, later, verdict))
    return replace(result, coverage=scenario.coverage)


class _Runs:
    """Simulations of the training weeks and of the held-out weeks."""

    def __init__(self, training: Weeks, later: Weeks, goal: str) -> None:
        self._training, self._later, self._goal = training, later, goal

    def training_means(self, **words: Any) -> Means:  # noqa: ANN401
        """Return the mean of each training week."""
        return self._means(self._training, words)

    def _means(self, weeks: Weeks, words: dict[str, Any]) -> Means:
        means = weeks.means(self._goal, **words)
        if not means:
            cluster = weeks.scenario.cluster.source
            msg = f"{weeks.scenario.workload.source}: no job of these weeks can run on {cluster}"
            raise WorkloadError(msg, hint="`fleetlab simulate` lists the jobs that are refused, and why")
        return means

    def search(
        self, baselines: Sequence[Baseline], trials: int, store: Path | None, progress: Progress
    ) -> list[PolicyTrial]:
        """Return all trials; the first are the baselines that the terms can express."""
        scenario = self._training.scenario
        space = Space.of(scenario.workload, PLACEMENTS.names)
        first: list[Params] = []
        for baseline in baselines:
            params = space.params_of(baseline.order, baseline.placement)
            if params is not None and params not in first:
                first.append(params)
        return search(
            space, lambda params: mean(self.training_means(**words_of(params))), first,
            trials=trials, seed=scenario.seed, journal=Journal(self._name(first), store), progress=progress,
        )  # fmt: skip

    def verdict(self, baselines: Sequence[Baseline], trial: PolicyTrial, progress: Progress) -> Verdict:
        """Simulate the held-out weeks, once for each policy."""
        means = {}
        for k, baseline in enumerate(baselines):
            progress("judging policies on held-out weeks", k, k / (len(baselines) + 1))
            words = {"order": baseline.order, "placement": baseline.placement}
            means[baseline.name] = self._means(self._later, words)
        tuned = self._means(self._later, words_of(trial.params))
        progress("judging policies on held-out weeks", len(baselines) + 1, 1.0)
        return Verdict(tuned, means, baselines, trial.value)

    def _name(self, first: Sequence[Params]) -> str:
        """Return the name of a search: a digest of everything that decides its trials."""
        scenario = self._training.scenario.replace(order="fifo", placement="best_fit")
        decides = (scenario.key, self._goal, self._training.week.tolist(), ALL, first, code_version())
        return sha256(repr(decides).encode()).hexdigest()[:16]


def _check(scenario: Scenario, trials: int, goal: str) -> None:
    lookup("goal", goal, GOALS, error=WorkloadError)
    if not 1 <= trials <= MOST:
        msg = f"a number of trials is from 1 to {MOST:,}: {trials}"
        raise WorkloadError(msg, hint="default: 100")
    if scenario.until is not None or any(hasattr(event, "begin") for event in scenario.events):
        msg = "weeks are simulated one by one: `until`, outages and drains at fixed times cannot be used"
        raise WorkloadError(msg, hint="leave them out; [[faults]] and [[spot]] can be used")
    if scenario.policy.weights:
        msg = "a search sets the weights itself: leave `weights` out"
        raise PolicyError(msg, hint="a policy with its weights written out can be the order of the scenario")
    _ = scenario.cluster  # a trace without one is refused before work starts
    if (site := scenario.scheduler) is not None:
        msg = f"{site.title} orders jobs by its own rules, which a tuned order would replace"
        hint = "scheduler=event tunes an order that replaces them; --conf-range tunes settings of a Slurm"
        raise PolicyError(msg, hint=hint)


def _notes(training: Weeks, later: Weeks, verdict: Verdict) -> list[str]:
    policy = training.scenario.policy
    notes = [
        f"weeks {_numbers(verdict.best.train)} to train on, {_numbers(verdict.tuned)} held out; "
        f"{len(training.scenario.workload):,} and {len(later.scenario.workload):,} jobs, warm-up included",
        f"intervals are of {OF_SCOPE['like']}: each held-out week is a replica; {note_of_verdicts('weeks')}",
    ]
    if isinstance(policy.estimate, str) and policy.estimate == "oracle":
        notes.append("every policy knew the true runtimes, as no scheduler does")
    if policy.backfill in RESERVING:
        notes.append(f"orders that preempt cannot be combined with backfill {policy.backfill} and were left out")
    if effective_size(np.array(list(verdict.held_out[verdict.best.name].values()))) < LEAST_BLOCKS:
        notes.append(
            "nearly all waiting is in one held-out week: nothing says how weeks differ, and there are no intervals"
        )
    elif len(verdict.tuned) < 4:
        notes.append("few held-out weeks: only a large difference is significant")
    return notes


def _numbers(weeks: Means) -> str:
    names = sorted(week + 1 for week in weeks)
    whole = names == list(range(names[0], names[-1] + 1)) and len(names) > 1
    return f"{names[0]} to {names[-1]}" if whole else ", ".join(map(str, names))
