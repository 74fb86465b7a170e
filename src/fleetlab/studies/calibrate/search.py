"""What may make simulated starts like the recorded ones: latency, policy, nodes, quota, settings of a scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import ESTIMATES
from fleetlab.core.progress import Progress
from fleetlab.core.schedulers import Setting, compare_settings
from fleetlab.stats import Floats
from fleetlab.studies.calibrate import hidden
from fleetlab.studies.calibrate.hidden import (
    RESOLUTION,
    HiddenLoad,
    Law,
    Pools,
    fit_latency,
    median_latency,
    unobstructed,
    without_nodes,
)
from fleetlab.studies.calibrate.likelihood import Choices, Fit, Score, past_means, simulated_queues
from fleetlab.studies.calibrate.policies import Identification, PolicySearch, identify, screen
from fleetlab.studies.calibrate.recorded import RecordedJobs
from fleetlab.studies.eta.snapshot import backfill_cycles, columns_without_values

SCREENED = 3000  # jobs of the first part on which all policies are simulated
SMALL = 600  # jobs: of no more, all policies are simulated, of more those that are close to the best
WAITED = 500  # of them that waited, where there are as many
ROUNDS = 4  # of changes of a scheduler's settings
LATENCY, FITTED = "start-up latency", "fitted rules"
OWN = "own"  # an estimate that is a column
REQUESTED = "requested"  # the series of a trace that has walltime limits


@dataclass(frozen=True, eq=False)
class FitResult:
    """What was fitted on the first part of a log."""

    jobs: int  # of the part
    law: Law
    latency: pl.DataFrame
    free: int  # jobs that had nothing in their way
    pools: Pools
    limits: pl.DataFrame
    candidates: Mapping[str, Scenario]  # what may be closer to the log than the scenario as configured
    nodes: Mapping[str, int] = field(default_factory=dict)  # that nobody may use, by GPU type
    identification: Identification | None = None  # None: the scheduler has rules of its own, which stay
    load: HiddenLoad | None = None
    settings: tuple[Setting, ...] = ()  # of the scheduler that are fitted


def fit_policy(
    scenario: Scenario, log: RecordedJobs, jobs: int, progress: Progress, *, scarce: bool, spare: bool
) -> FitResult:
    """Fit latency, policy, hidden nodes and quota on the first jobs of a log.

    Where GPUs are not `scarce`, only the latency is fitted; where there are always enough, it is that of all jobs.
    """
    fit = Fit(scenario, log, jobs, _counter(progress))
    fitted_part = log.first(jobs, fit.until)
    free = fitted_part.compared if spare else unobstructed(fitted_part, fitted_part.everyone)
    law, table = fit_latency(fitted_part, free, every=spare)
    latency = median_latency(law, fitted_part)
    pools = Pools.of(fitted_part, scenario.cluster, scenario.trace.placements)
    limits = hidden.limits(fitted_part, fitted_part.everyone, latency)
    fitting = _Fitting(scenario, log, fit, fitted_part, latency)
    base = fit.base.replace(latency=law)
    if scarce:
        options = hidden.quotas(limits) if scenario.policy.quota is None and len(log.users) > 1 else []
        identification, best, nodes = fitting.search(base, pools, options)
        if isinstance(law, Mapping):  # where jobs differ, more of them tell how: those that simulation starts at once
            free = fitted_part.compared & ~(simulated_queues(best.scenario) > RESOLUTION)
            law, table = fit_latency(fitted_part, free)
            latency = median_latency(law, fitted_part)
            fitting = _Fitting(scenario, log, fit, fitted_part, latency)
            identification, best, nodes = fitting.search(fit.base.replace(latency=law), pools, options)
    else:
        identification = fitting.own(base)
        best, nodes = identification.best, dict.fromkeys(pools.spare, 0)
    words = {name: value for name, value in identification.chosen.words.items() if value != OWN}
    words |= {"latency": law, "nodes": best.scenario.nodes, "quota": best.scenario.policy.quota}
    load = None
    if scarce:
        gpus = without_nodes(scenario, nodes).cluster.gpus
        load = hidden.hidden_load(fitted_part, fitted_part.with_starts(best.starts), latency, gpus, fit.until)
    fitted = {LATENCY: scenario.replace(latency=law), FITTED: scenario.replace(**words)}
    candidates = {LATENCY: fitted[LATENCY]} if law else {}
    candidates |= {FITTED: fitted[FITTED]} if fitted[FITTED] not in (scenario, fitted[LATENCY]) else {}
    return FitResult(jobs, law, table, int(free.sum()), pools, limits, candidates, nodes, identification, load)


def fit_settings(scenario: Scenario, log: RecordedJobs, jobs: int, progress: Progress) -> FitResult:
    """Fit the start-up latency and the settings of a scheduler with rules of its own, which stay its own.

    The settings that it offers to vary are changed one after another, as long as the starts are explained significantly
    better. The latency is what jobs with nothing in their way wait beyond what its rules make them wait.
    """
    fit = Fit(scenario, log, jobs, _counter(progress))
    part = log.first(jobs, fit.until)
    best, free = fit.score(fit.base), unobstructed(part, part.everyone)
    beyond = part.with_starts(part.submit + np.maximum(part.wait - np.maximum(best.starts - part.submit, 0.0), 0.0))
    law, table = fit_latency(beyond, free)
    if law:
        best = max(best, fit.score(fit.base.replace(latency=law)), key=lambda score: score.total)
    law = law if best.scenario.latency else 0.0
    limits = hidden.limits(part, part.everyone, median_latency(law, part))
    quotas = hidden.quotas(limits) if len(log.users) > 1 else []
    own, cycles = scenario.scheduler, backfill_cycles(scenario.trace)
    assert own is not None
    seen = None if cycles is None else cycles[cycles <= fit.until]
    for _ in range(ROUNDS):
        now = best.scenario.scheduler
        assert now is not None
        tried = [fit.score(best.scenario.replace(scheduler=other)) for other in now.variants(seen, quotas)]
        better = [score for score in tried if fit.better(best, score)]
        if not better:
            break
        best = max(better, key=lambda score: score.total)
    candidates = {}
    if law:
        candidates[LATENCY] = scenario.replace(latency=law)
    if best.scenario.scheduler != own:
        candidates[FITTED] = scenario.replace(latency=law, scheduler=best.scenario.scheduler)
    pools = Pools.of(part, scenario.cluster, scenario.trace.placements)
    assert best.scenario.scheduler is not None
    settings = compare_settings(own, best.scenario.scheduler, own.title).settings
    return FitResult(jobs, law, table, int(free.sum()), pools, limits, candidates, settings=settings)


def _surroundings(score: Score) -> tuple[object, ...]:
    return score.scenario.nodes, score.scenario.policy.quota


def _counter(progress: Progress) -> Any:  # noqa: ANN401  a function without arguments
    count = [0]

    def done() -> None:
        count[0] += 1
        # How many there will be is not known.
        progress("simulating the log under other settings", count[0], 1 - 0.98 ** count[0])

    return done


class _Fitting:
    def __init__(
        self, scenario: Scenario, log: RecordedJobs, fit: Fit, first_part: RecordedJobs, latency: Floats
    ) -> None:
        self.scenario, self.log, self.fit, self.first_part = scenario, log, fit, first_part
        jobs = _screened(first_part, latency)
        self.screen = fit if jobs == fit.jobs else Fit(scenario, log, jobs, fit.done)
        part = first_part.first(jobs, self.screen.until) if jobs != fit.jobs else first_part
        choices = Choices(part, scenario.cluster, jobs, latency, self._known_estimates(part))
        self.choices, self.contested = choices.log_likelihoods(self.screen.compared)
        self.every = jobs <= SMALL
        self.preempted = part.interrupted > 0
        if self.preempted:  # the recorded state is not known between the first start and the end
            self.choices, self.contested = {}, 0

    def search(self, base: Scenario, pools: Pools, options: list[Any]) -> tuple[Identification, Score, dict[str, int]]:
        """Find the best policy, hidden nodes and quota together."""
        clusters = [base, *(without_nodes(base, guess) for guess in pools.guesses())]
        identified = self.identify([b.replace(quota=q) for q in (base.policy.quota, *options) for b in clusters])
        best, nodes = self.refine(base, identified, pools, options)
        if _surroundings(best) != _surroundings(identified.best):
            identified = self.identify([best.scenario])
            best, nodes = self.refine(base, identified, pools, options)
        return identified, best, nodes

    def own(self, base: Scenario) -> Identification:
        """Simulate the policy of the scenario alone."""
        search = self._search(base)
        search.attempt({})
        return Identification(search.ranked(), self.screen, self.contested, search.own)

    def identify(self, bases: Sequence[Scenario]) -> Identification:
        """Find the best policy, with the nodes and quotas of one of some scenarios."""
        searches = [self._search(base) for base in bases]
        for search in searches:
            screen(search, preempted=self.preempted)
            if search.exact:
                break
        searches = [search for search in searches if search.scores]
        best = max(searches, key=lambda search: search.ranked()[0].total)
        return identify(best, contested=self.contested, preempted=self.preempted)

    def _search(self, base: Scenario) -> PolicySearch:
        """Return a search on the screened jobs, with the nodes, latency and quota of a scenario."""
        policy = base.policy.replace(estimate=self.screen.base.policy.estimate)
        screened = self.screen.base.replace(policy=policy, nodes=base.nodes, latency=base.latency)
        return PolicySearch(self.screen, screened, self.choices, self._estimates(), every=self.every)

    def _estimates(self) -> dict[str, Any]:
        """Return the estimates that are tried on the screened jobs: that of the scenario, built-in ones, limits."""
        own = self.scenario.policy.estimate if isinstance(self.scenario.policy.estimate, str) else OWN
        values: dict[str, Any] = {own: self.screen.base.policy.estimate} | {
            rule.name: rule.name for rule in ESTIMATES if not columns_without_values(rule.name, self.log.jobs)
        }
        if REQUESTED in self.scenario.trace.series:
            values[REQUESTED] = self.estimate(REQUESTED, self.screen.jobs)
        return values

    def _known_estimates(self, part: RecordedJobs) -> dict[str, Floats]:
        """Return the estimates of the screened jobs when they came, as far as the log tells them."""
        estimates = {}
        for name, value in self._estimates().items():
            if not isinstance(value, str):
                estimates[name] = value.fill_null(pl.Series(part.runtime)).to_numpy()
            else:
                columns = ESTIMATES[value].columns
                estimates[name] = past_means(part, columns) if columns else part.runtime
        return estimates

    def estimate(self, name: str, jobs: int) -> Any:  # noqa: ANN401
        """Return an estimate for the first jobs."""
        column = self.scenario.estimate if name == OWN else self.scenario.replace(estimate=name).estimate
        return column if isinstance(column, str) else column[:jobs]

    def refine(
        self, base: Scenario, identification: Identification, pools: Pools, options: list[Any]
    ) -> tuple[Score, dict[str, int]]:
        """Fit hidden nodes and quota under the best policy, on the whole first part."""
        words = dict(identification.chosen.words)
        words["estimate"] = self.estimate(words["estimate"], self.fit.jobs)
        start = self.fit.score(base.replace(**words))
        quota = hidden.fit_quota(self.fit, start, options)
        best, nodes = hidden.fit_nodes(self.fit, quota, pools)
        if quota is start and any(nodes.values()):
            best = hidden.fit_quota(self.fit, best, options)
        return best, nodes


def _screened(first_part: RecordedJobs, latency: Floats) -> int:
    """Return how many of the first jobs to simulate under all policies: enough, and enough that waited."""
    waited = np.cumsum(first_part.compared & (first_part.wait > latency + hidden.LONG))
    enough = int(np.searchsorted(waited, min(WAITED, waited[-1] if len(waited) else 0))) + 1
    return min(len(first_part), max(SCREENED, enough))
