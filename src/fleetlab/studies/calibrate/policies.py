"""Which built-in policy explains the recorded starts best: order, backfill, placement and estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.stats import Floats, Interval, bonferroni, paired_difference
from fleetlab.studies.calibrate.likelihood import GAIN, Fit, Ranking, Score, ranking

FEW = 4  # policies whose placements and estimates are tried

PARTS = ("order", "backfill", "placement", "estimate", "preemption")
ORACLE = "oracle"
EASY, CONSERVATIVE = (rule.name for rule in BACKFILLS if rule.reserves)
EXACT = 1e-9  # mean error of starts: nothing can explain them better
PLACED = tuple(rule.name for rule in PLACEMENTS if not rule.randomized)  # no log has the seed of random ones
BEST, SAME, CLOSE, WORSE = "best", "same starts", "not distinguishable", "worse"


@dataclass(frozen=True, eq=False)
class Identification:
    """The policies that were tried, the best first."""

    scores: Sequence[Score]
    fit: Fit
    contested: int  # recorded starts at which another job could have been taken
    own: Mapping[str, Any]  # the words of the policy as given

    @property
    def best(self) -> Score:
        """The policy with the highest log-likelihood."""
        return self.scores[0]

    @property
    def chosen(self) -> Score:
        """The most likely policy; that of the scenario, where it is as likely.

        Intervals of log-likelihoods are wide, since errors last: the best of several that cannot be told apart for sure
        is still the best guess.
        """
        own = next(score for score in self.scores if score.words == self.own)
        return self.best if self.best.total - own.total > GAIN else own

    def same(self) -> list[Score]:
        """Return the policies under which every job starts when it does under the best one, that one first.

        Where no simulated schedule is the recorded one, they must also agree in whom the scheduler took.
        """
        exact, choices = self.best.error < EXACT, self.best.choices.sum()
        alike = [s for s in self.scores[1:] if exact or abs(s.choices.sum() - choices) < EXACT]
        return [self.best, *(s for s in alike if s.same_schedule(self.best))]

    def _differences(self, part: Callable[[Score], Floats]) -> list[Interval]:
        """Return how far each policy is below the best, in log-likelihood per job; all intervals hold together."""
        limits = bonferroni(max(1, len(self.scores) - 1))
        best = self.fit.blocks.means(part(self.best))
        return [paired_difference(best, self.fit.blocks.means(part(s))).interval(limits) for s in self.scores]

    @cached_property
    def _below(self) -> list[Interval]:
        return self._differences(lambda score: score.by_job + score.choices)

    @cached_property
    def _verdicts(self) -> dict[int, str]:
        """The verdict on each policy: one is worse if it explains starts and choices worse, or the choices alone.

        Errors of simulated starts last long, so that they tell less than their number; choices hardly do.
        """
        same = {id(score) for score in self.same()}
        verdicts = {}
        for score, below, by_choices in zip(
            self.scores, self._below, self._differences(lambda score: score.choices), strict=True
        ):
            few = np.isnan(below.low) and self.best.total - score.total > GAIN  # jobs, for an interval
            worse = few or below.high < 0 or by_choices.high < 0
            verdicts[id(score)] = SAME if id(score) in same else WORSE if worse else CLOSE
        return verdicts | {id(self.best): BEST}

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each policy with its log-likelihood, and how far it is below the best."""
        rows = [
            {
                "policy": name_of(score.words),
                "log-likelihood": score.total,
                "of starts": float(score.by_job.sum()),
                "of choices": float(score.choices.sum()),
                "per job below the best": below.value,
                "low": below.low,
                "high": below.high,
                "mean wait": score.mean_wait,
                "verdict": self._verdicts[id(score)],
            }
            for score, below in zip(self.scores, self._below, strict=True)
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def names(self, verdict: str) -> list[str]:
        """Return the policies with a verdict."""
        return self.table.filter(pl.col("verdict") == verdict)["policy"].to_list()


def name_of(words: Mapping[str, Any]) -> str:
    """Return order/backfill/placement, and what else matters.

    >>> name_of({"order": "sjf", "backfill": "easy", "placement": "best_fit", "estimate": "user"})
    'sjf/easy/best_fit, estimate user'
    """
    parts = ["/".join(str(words[name]) for name in ("order", "backfill", "placement"))]
    if uses_estimates(words) and words["estimate"] != ORACLE:
        parts.append(f"estimate {words['estimate']}")
    return ", ".join([*parts, *(["preemption"] if words.get("preemption") else [])])


def uses_estimates(words: Mapping[str, Any]) -> bool:
    """Whether a schedule depends on estimates of run times."""
    order = words["order"]
    return order not in ORDERS or ORDERS[order].needs_estimate or BACKFILLS[words["backfill"]].reserves


class PolicySearch:
    """The policies that have been simulated on the first part of a log."""

    def __init__(
        self,
        fit: Fit,
        base: Scenario,
        choices: Mapping[Ranking, Floats],
        estimates: Mapping[str, Any],  # the own one first
        *,
        every: bool,
    ) -> None:
        self.fit, self.base, self.choices, self.estimates, self.every = fit, base, choices, estimates, every
        self.scores: dict[str, Score] = {}

    def attempt(self, words: Mapping[str, Any]) -> None:
        """Simulate a policy, unless it has been."""
        words = self.own | dict(words)
        if name_of(words) not in self.scores and (self.every or self._promises(words)):
            scenario = self.base.replace(**words | {"estimate": self.estimates[words["estimate"]]})
            score = self.fit.score(scenario, self.choices.get(ranking(words["order"], words["estimate"])))
            self.scores[name_of(words)] = replace(score, words=words)

    @property
    def own(self) -> dict[str, Any]:
        """The words of the policy of the scenario."""
        return {name: getattr(self.base.policy, name) for name in PARTS} | {"estimate": next(iter(self.estimates))}

    def _promises(self, words: dict[str, Any]) -> bool:
        """Whether a policy is worth its time: reservations for all jobs take long, and are like one for the first."""
        return words["backfill"] != CONSERVATIVE or self.ranked()[0].words == words | {"backfill": EASY}

    def ranked(self) -> list[Score]:
        """Return the scores, the best first; of equal ones the simplest order, or the one that was tried first."""
        return sorted(self.scores.values(), key=lambda s: (-s.total, _changes(s.words["order"])))

    @property
    def exact(self) -> bool:
        """Whether a policy starts every job when it did."""
        return self.ranked()[0].error < EXACT

    def orders(self, *, preempted: bool) -> list[dict[str, Any]]:
        """Return the orders that may be, each with the estimate by which it explains best whom the scheduler took."""
        scenarios = []
        for order in (order for order in ORDERS if not order.timed):
            estimates = [name for name in self.estimates if ranking(order.name, name) in self.choices]
            best = max(estimates, key=lambda name: self.choices[ranking(order.name, name)].sum(), default=None)
            words = {"order": order.name, "preemption": False}
            scenarios.append(words if best is None or not order.needs_estimate else words | {"estimate": best})
            if preempted and not order.preemptive:
                scenarios.append(words | {"preemption": True})
        return scenarios


def screen(search: PolicySearch, *, preempted: bool) -> None:
    """Simulate orders and backfill rules.

    That is every combination, with other placements too until one fits exactly; or all orders with the backfill rule of
    the scenario, and the few best of them with the other rules.
    """
    orders = search.orders(preempted=preempted)
    search.attempt({})
    if search.every:
        for words in _with_rules(orders):
            search.attempt(words)
        for placement in PLACED:
            for words in () if search.exact else _with_rules(orders):
                search.attempt(words | {"placement": placement})
        return
    for words in orders:
        if preempted or not ORDERS[words["order"]].preemptive:
            search.attempt(words)
    for words in _with_rules(_best_orders(search)):
        if words["backfill"] != CONSERVATIVE:
            search.attempt(words)


def identify(search: PolicySearch, *, contested: int, preempted: bool) -> Identification:
    """Simulate more policies after a screening, and rank all by their log-likelihood.

    The other placements are tried for the few best, and orders and rules again if another placement is better, until
    nothing is; then other estimates.
    """
    best = None
    while search.ranked()[0] is not best:
        best = search.ranked()[0]
        for score in search.ranked()[:FEW]:
            for placement in PLACED:
                search.attempt(dict(score.words) | {"placement": placement})
        placement = search.ranked()[0].words["placement"]
        for words in _with_rules(search.orders(preempted=preempted) if search.every else _best_orders(search)):
            search.attempt(words | {"placement": placement})
    for score in search.ranked()[:FEW]:
        if uses_estimates(score.words):
            for estimate in search.estimates:
                search.attempt(dict(score.words) | {"estimate": estimate})
    return Identification(search.ranked(), search.fit, contested, search.own)


def _best_orders(search: PolicySearch) -> list[dict[str, Any]]:
    """Return the few orders that explain the starts best so far."""
    by_starts: dict[tuple[object, ...], dict[str, Any]] = {}
    for score in search.ranked():
        words = {name: score.words[name] for name in ("order", "estimate", "preemption")}
        by_starts.setdefault((words["order"], words["preemption"]), words)
    return list(by_starts.values())[:FEW]


def _with_rules(orders: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return orders with every backfill rule that they can be combined with."""
    return [
        dict(words) | {"backfill": backfill.name}
        for words in orders
        for backfill in BACKFILLS
        if not backfill.reserves or not (words["preemption"] or _preempts(words["order"]))
    ]


def _changes(order: str) -> bool:
    return order in ORDERS and ORDERS[order].dynamic


def _preempts(order: str) -> bool:
    return order in ORDERS and ORDERS[order].preemptive
