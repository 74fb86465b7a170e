"""Which built-in policy explains the recorded starts best: order, backfill, placement and estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Scenario
from fleetlab.core.catalog import BACKFILLS, ORDERS, PLACEMENTS
from fleetlab.stats import Floats, bonferroni, paired_difference
from fleetlab.studies.calibrate.fit import GAIN, Fit, Score

FEW = 4  # policies whose placements and estimates are tried

PARTS = ("order", "backfill", "placement", "estimate", "preemption")
ORACLE = "oracle"
EXACT = 1e-9  # mean error of starts: nothing can explain them better
PLACED = tuple(rule.name for rule in PLACEMENTS if not rule.randomized)  # no log has the seed of random ones
BEST, SAME, CLOSE, WORSE = "best", "same starts", "not distinguishable", "worse"


@dataclass(frozen=True, eq=False)
class Identification:
    """The policies that were tried, the best first."""

    scores: Sequence[Score]
    fit: Fit
    contested: int  # recorded starts at which another job could have been taken

    @property
    def best(self) -> Score:
        """The policy with the highest log-likelihood."""
        return self.scores[0]

    def same(self) -> list[Score]:
        """Return the policies under which every job starts when it does under the best one, that one first."""
        return [self.best, *(s for s in self.scores[1:] if s.same_schedule(self.best))]

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each policy with its log-likelihood, and how far it is below the best."""
        same = {id(s) for s in self.same()}
        limits = bonferroni(max(1, len(self.scores) - 1))
        rows = []
        for score in self.scores:
            sides = [self.fit.blocks.means(s.by_job + s.choices) for s in (self.best, score)]
            below = paired_difference(*sides).interval(limits)
            few = np.isnan(below.low) and self.best.total - score.total > GAIN  # jobs, for an interval
            worse = few or below.high < 0
            verdict = BEST if score is self.best else SAME if id(score) in same else WORSE if worse else CLOSE
            row = {
                "policy": name_of(score.words),
                "log-likelihood": score.total,
                "of starts": float(score.by_job.sum()),
                "of choices": float(score.choices.sum()),
                "per job below the best": below.value,
                "low": below.low,
                "high": below.high,
                "mean wait": score.mean_wait,
                "verdict": verdict,
            }
            rows.append(row)
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


class Search:
    """The policies that have been simulated on the first part of a log."""

    def __init__(self, fit: Fit, base: Scenario, choices: Mapping[str, Floats], estimates: Mapping[str, Any]) -> None:
        self.fit, self.base, self.choices, self.estimates = fit, base, choices, estimates  # the own estimate first
        self.found: dict[str, Score] = {}

    def attempt(self, words: Mapping[str, Any]) -> None:
        """Simulate a policy, unless it has been."""
        own = {name: getattr(self.base.policy, name) for name in PARTS} | {"estimate": next(iter(self.estimates))}
        words = own | dict(words)
        if name_of(words) not in self.found:
            scenario = self.base.replace(**words | {"estimate": self.estimates[words["estimate"]]})
            score = self.fit.score(scenario, self.choices.get(words["order"]))
            self.found[name_of(words)] = replace(score, words=words)

    def ranked(self) -> list[Score]:
        """Return the scores, the best first; of equal ones the one that was tried first."""
        return sorted(self.found.values(), key=lambda s: -s.total)


def screen(search: Search, *, every_placement: bool, preempted: bool) -> None:
    """Simulate all orders and backfill rules, with the placement of the scenario or with others too, until one fits."""
    rules = _rules(preempted=preempted)
    for words in ({}, *rules):
        search.attempt(words)
    for placement in PLACED if every_placement else ():
        if search.ranked()[0].error < EXACT:
            break
        for words in rules:
            search.attempt(words | {"placement": placement})


def identify(search: Search, *, contested: int, preempted: bool) -> Identification:
    """Simulate more policies after a screening, and rank all by their log-likelihood.

    The other placements are tried for the few best, and all orders and rules again if another placement is better,
    until nothing is; then other estimates.
    """
    rules, best = _rules(preempted=preempted), None
    while search.ranked()[0] is not best:
        best = search.ranked()[0]
        for score in search.ranked()[:FEW]:
            for placement in PLACED:
                search.attempt(dict(score.words) | {"placement": placement})
        for words in rules:
            search.attempt(words | {"placement": search.ranked()[0].words["placement"]})
    for score in search.ranked()[:FEW]:
        if uses_estimates(score.words):
            for estimate in search.estimates:
                search.attempt(dict(score.words) | {"estimate": estimate})
    return Identification(search.ranked(), search.fit, contested)


def _rules(*, preempted: bool) -> list[dict[str, Any]]:
    """Return the orders and backfill rules that can be combined; with preemption where the log shows some."""
    rules = []
    for order in ORDERS:
        for backfill in BACKFILLS:
            if not (order.preemptive and backfill.reserves):
                rules.append({"order": order.name, "backfill": backfill.name, "preemption": False})
            if preempted and not order.preemptive and not backfill.reserves:
                rules.append({"order": order.name, "backfill": backfill.name, "preemption": True})
    return rules
