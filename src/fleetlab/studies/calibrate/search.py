"""What makes simulated starts like the recorded ones: latency, policy, hidden nodes and quota, fitted together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import ESTIMATES
from fleetlab.core.progress import Progress
from fleetlab.stats import Floats
from fleetlab.studies.calibrate import hidden
from fleetlab.studies.calibrate.choices import Choices, learned
from fleetlab.studies.calibrate.fit import Fit, Score, simulated_queues
from fleetlab.studies.calibrate.hidden import HiddenLoad, Pools, without_nodes
from fleetlab.studies.calibrate.latency import LEAST, Law, fit_latency, median_latency, unobstructed
from fleetlab.studies.calibrate.policies import Identification, Search, identify, screen
from fleetlab.studies.calibrate.recorded import Recorded

SCREENED = 3000  # jobs of the first part on which all policies are simulated
SMALL = 600  # jobs: of no more, all policies are simulated, of more those that are close to the best
WAITED = 500  # of them that waited, where there are as many
OWN = "own"  # an estimate that is a column
REQUESTED = "requested"  # the series of a trace that has walltime limits


@dataclass(frozen=True, eq=False)
class Fitted:
    """What was fitted on the first part of a log."""

    jobs: int  # of the part
    until: float
    law: Law
    latency: pl.DataFrame
    free: int  # jobs that had nothing in their way
    identification: Identification
    nodes: Mapping[str, int]  # that nobody may use, by GPU type
    quota: float | Mapping[str, float] | None
    pools: Pools
    limits: pl.DataFrame
    load: HiddenLoad | None
    words: Mapping[str, Any]  # what calibrates the scenario


def fit_scenario(
    scenario: Scenario, log: Recorded, jobs: int, progress: Progress, *, scarce: bool, roomy: bool
) -> Fitted:
    """Fit latency, policy, hidden nodes and quota on the first jobs of a log.

    Where GPUs are not `scarce`, only the latency is fitted; where there are always enough, it is that of all jobs.
    """
    fit = Fit(scenario, log, jobs, _counter(progress))
    fitted_part = log.first(jobs, fit.until)
    free = fitted_part.known if roomy else unobstructed(fitted_part, fitted_part.everyone)
    law, table = fit_latency(fitted_part, free, every=roomy)
    latency = median_latency(law, fitted_part)
    pools = Pools.of(fitted_part, scenario.cluster, scenario.trace.placements)
    limits = hidden.limits(fitted_part, fitted_part.everyone, latency)
    fitting = _Fitting(scenario, log, fit, fitted_part, latency)
    base = fit.base.replace(latency=law)
    if scarce:
        options = hidden.quotas(limits) if scenario.policy.quota is None and len(log.users) > 1 else []
        found, best, nodes = fitting.search(base, pools, options)
        if isinstance(law, Mapping):  # where jobs differ, more of them tell how: those that simulation starts at once
            free = fitted_part.known & ~(simulated_queues(best.scenario) > LEAST)
            law, table = fit_latency(fitted_part, free)
            latency = median_latency(law, fitted_part)
            fitting = _Fitting(scenario, log, fit, fitted_part, latency)
            found, best, nodes = fitting.search(fit.base.replace(latency=law), pools, options)
    else:
        found = fitting.own(base)
        best, nodes = found.best, dict.fromkeys(pools.spare, 0)
    quota = best.scenario.policy.quota
    words = {name: value for name, value in found.chosen.words.items() if value != OWN}
    words |= {"latency": law, "nodes": best.scenario.nodes, "quota": quota}
    load = None
    if scarce:
        gpus = without_nodes(scenario, nodes).cluster.gpus
        load = hidden.hidden_load(fitted_part, fitted_part.with_starts(best.starts), latency, gpus, fit.until)
    return Fitted(jobs, fit.until, law, table, int(free.sum()), found, nodes, quota, pools, limits, load, words)


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
    def __init__(self, scenario: Scenario, log: Recorded, fit: Fit, seen: Recorded, latency: Floats) -> None:
        self.scenario, self.log, self.fit, self.seen = scenario, log, fit, seen
        jobs = _screened(seen, latency)
        self.screen = fit if jobs == fit.jobs else Fit(scenario, log, jobs, fit.done)
        part = seen.first(jobs, self.screen.until) if jobs != fit.jobs else seen
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
        searches = [search for search in searches if search.found]
        best = max(searches, key=lambda search: search.ranked()[0].total)
        return identify(best, contested=self.contested, preempted=self.preempted)

    def _search(self, base: Scenario) -> Search:
        """Return a search on the screened jobs, with the nodes, latency and quota of a scenario."""
        policy = base.policy.replace(estimate=self.screen.base.policy.estimate)
        screened = self.screen.base.replace(policy=policy, nodes=base.nodes, latency=base.latency)
        return Search(self.screen, screened, self.choices, self._estimates(), every=self.every)

    def _estimates(self) -> dict[str, Any]:
        """Return the estimates that are tried on the screened jobs: that of the scenario, built-in ones, limits."""
        own = self.scenario.policy.estimate if isinstance(self.scenario.policy.estimate, str) else OWN
        values: dict[str, Any] = {own: self.screen.base.policy.estimate} | {name: name for name in ESTIMATES.names}
        if REQUESTED in self.scenario.trace.series:
            values[REQUESTED] = self.estimate(REQUESTED, self.screen.jobs)
        return values

    def _known_estimates(self, part: Recorded) -> dict[str, Floats]:
        """Return the estimates of the screened jobs when they came, as far as the log tells them."""
        known = {}
        for name, value in self._estimates().items():
            if not isinstance(value, str):
                known[name] = value.fill_null(pl.Series(part.runtime)).to_numpy()
            else:
                columns = ESTIMATES[value].columns
                known[name] = learned(part, columns) if columns else part.runtime
        return known

    def estimate(self, name: str, jobs: int) -> Any:  # noqa: ANN401
        """Return an estimate for the first jobs."""
        column = self.scenario.estimate if name == OWN else self.scenario.replace(estimate=name).estimate
        return column if isinstance(column, str) else column[:jobs]

    def refine(
        self, base: Scenario, found: Identification, pools: Pools, options: list[Any]
    ) -> tuple[Score, dict[str, int]]:
        """Fit hidden nodes and quota under the best policy, on the whole first part."""
        words = dict(found.chosen.words)
        words["estimate"] = self.estimate(words["estimate"], self.fit.jobs)
        start = self.fit.score(base.replace(**words))
        quota = hidden.fit_quota(self.fit, start, options)
        best, nodes = hidden.fit_nodes(self.fit, quota, pools)
        if quota is start and any(nodes.values()):
            best = hidden.fit_quota(self.fit, best, options)
        return best, nodes


def _screened(seen: Recorded, latency: Floats) -> int:
    """Return how many of the first jobs to simulate under all policies: enough, and enough that waited."""
    waited = np.cumsum(seen.known & (seen.wait > latency + hidden.LONG))
    enough = int(np.searchsorted(waited, min(WAITED, waited[-1] if len(waited) else 0))) + 1
    return min(len(seen), max(SCREENED, enough))
