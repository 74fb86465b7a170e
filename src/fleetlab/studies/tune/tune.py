"""Search for a policy on training weeks of a trace, and compare it with baselines on held-out weeks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Unpack

from fleetlab.core import Cluster, PolicyError, Progress, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.catalog import PLACEMENTS
from fleetlab.core.names import lookup
from fleetlab.core.progress import silent
from fleetlab.core.scenario import ScenarioLike
from fleetlab.studies.code_version import code_version
from fleetlab.studies.tune.baselines import RESERVING, Baseline, Means, mean, orders, train
from fleetlab.studies.tune.journal import Journal, read_or_create
from fleetlab.studies.tune.result import GOALS, Tuning
from fleetlab.studies.tune.search import PolicyTrial, import_optuna, search
from fleetlab.studies.tune.terms import ALL, Params, Space, words_of
from fleetlab.studies.tune.verdict import Verdict
from fleetlab.studies.tune.weeks import Weeks, split

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
    chosen = min(done, key=lambda trial: trial.value)  # of equal ones the first
    verdict = runs.verdict(baselines, chosen, progress)
    own = {"trials": trials, "goal": goal, "against": list(against), **options}
    provenance = Provenance("tune", scenario.workload.source, scenario.words() | own, scenario.seed)
    result = Tuning.of(verdict, done, chosen, goal, provenance, _notes(training, later, verdict))
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

    def verdict(self, baselines: Sequence[Baseline], chosen: PolicyTrial, progress: Progress) -> Verdict:
        """Simulate the held-out weeks, once for each policy."""
        means = {}
        for k, baseline in enumerate(baselines):
            progress("judging policies on held-out weeks", k, k / (len(baselines) + 1))
            words = {"order": baseline.order, "placement": baseline.placement}
            means[baseline.name] = self._means(self._later, words)
        tuned = self._means(self._later, words_of(chosen.params))
        progress("judging policies on held-out weeks", len(baselines) + 1, 1.0)
        return Verdict(tuned, means, baselines, chosen.value)

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


def _notes(training: Weeks, later: Weeks, verdict: Verdict) -> list[str]:
    policy = training.scenario.policy
    notes = [
        f"weeks {_numbers(verdict.best.train)} to train on, {_numbers(verdict.tuned)} held out; "
        f"{len(training.scenario.workload):,} and {len(later.scenario.workload):,} jobs, warm-up included",
    ]
    if isinstance(policy.estimate, str) and policy.estimate == "oracle":
        notes.append("every policy knew the true runtimes, as no scheduler does")
    if policy.backfill in RESERVING:
        notes.append(f"orders that preempt cannot be combined with backfill {policy.backfill} and were left out")
    if len(verdict.tuned) < 4:
        notes.append("few held-out weeks: only a large difference is significant")
    return notes


def _numbers(weeks: Means) -> str:
    names = sorted(week + 1 for week in weeks)
    whole = names == list(range(names[0], names[-1] + 1)) and len(names) > 1
    return f"{names[0]} to {names[-1]}" if whole else ", ".join(map(str, names))
