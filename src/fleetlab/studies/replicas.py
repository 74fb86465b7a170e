"""Runs of several scenarios in paired replicas: as many as decide the verdicts, or as there is time for.

A study asks `replicate` to call a function of a module on every scenario in replica 1, 2, …, and judges after 5, 10 and
20 of them whether more are needed. How many there may be at most depends on the number of jobs and runs, never on the
clock: the same command gives the same answer everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fleetlab.core import Scenario, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.replicas import SCOPES, Scope, is_drawn_anew, perturbed
from fleetlab.stats import ANY, LEAST_BLOCKS, MARGIN, Floats, Range, Statistic, Verdict, bonferroni, effective_size
from fleetlab.stats import replicas as of_replicas
from fleetlab.studies.runner import Arrays, Call, Workers, process_count, run_calls

LOOKS = (5, 10, 20)  # replicas after which verdicts are looked at
LEAST, MOST = 3, LOOKS[-1]
BUDGET = 100_000  # instances to simulate beyond the least: about as long as what a command does besides
LIMIT = 1000  # replicas that can be asked for
DECIDED, SPENT, ENOUGH, FIXED = "decided", "budget", "limit", "fixed"
BLOCKS = 20  # of a log, with as many jobs each: of how many of them does its waiting come?
OF_SCOPE = {"log": "this log", "like": "logs like it"}
Results = Sequence[Mapping[str, Arrays]]  # by replica, by name


@dataclass(frozen=True, slots=True)
class Plan:
    """How many replicas, and of what.

    Attributes
    ----------
    count
        How many; None: as many as decide, at most 20. One is the log as it is.
    scope
        `log`: this log, nudged; `like`: logs like it.
    """

    count: int | None = None
    scope: Scope = "log"

    @classmethod
    def of(cls, replicas: int | None = None, scope: str = "log") -> Plan:
        """Build one from the words of a verb, and refuse what cannot be."""
        lookup("scope", scope, SCOPES, error=WorkloadError)
        if replicas is not None and not 1 <= replicas <= LIMIT:
            msg = f"from 1 to {LIMIT:,} replicas: {replicas}"
            raise WorkloadError(msg, hint="replicas=10; leave it out, and there are as many as decide")
        return cls(replicas, "like" if scope == "like" else "log")

    def looks(self, instances: int, allowance: float = 1.0) -> tuple[int, ...]:
        """Return after how many replicas verdicts are looked at, where all runs of one have so many instances.

        >>> Plan().looks(10_000), Plan().looks(1_000_000), Plan(8).looks(10_000)
        ((5, 10, 13), (3,), (8,))
        """
        if self.count is not None:
            return (self.count,)
        most = min(MOST, int(LEAST * allowance + BUDGET / max(instances, 1)))
        return (*(look for look in LOOKS if look < most), most)

    def numbers(self, count: int) -> range:
        """Return which replicas these are; one alone is the log as it is."""
        return range(1) if self.count == 1 else range(1, count + 1)


@dataclass(frozen=True)
class Replication:
    """The results of all replicas, why there are no more, and what follows from them.

    Attributes
    ----------
    base
        The name of the baseline, where replicas are drawn again from one log; its waits say how much that log tells.
    """

    plan: Plan
    results: Results
    stopped: str = ""
    base: str = ""

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return len(self.results)

    @property
    def resampled(self) -> bool:
        """Whether the spread between replicas is that between logs."""
        return self.plan.scope == "like"

    @cached_property
    def blocks(self) -> float | None:
        """Of how many blocks of the log its waiting comes: as `stats.over_replicas` takes it."""
        if not self.resampled:
            return None
        waits = [replica[self.base]["wait"] for replica in self.results if self.base]
        parts = [np.array([np.nansum(part) for part in np.array_split(wait, BLOCKS)]) for wait in waits]
        each = [effective_size(part) for part in parts]
        return float(np.mean(each)) if each else math.inf

    def statistic(self, values: Floats, within: Range = ANY) -> Statistic:
        """Return the mean over replicas with its standard error."""
        return of_replicas.over_replicas(values, within, blocks=self.blocks)

    def verdict(self, differences: Floats, level: float, comparisons: int = 1) -> Verdict:
        """Return what paired replicas say of a change, so that so many verdicts hold together."""
        return of_replicas.verdict(differences, level, blocks=self.blocks, confidence=bonferroni(comparisons))

    def chances_of_first(self, values: Mapping[str, Floats]) -> dict[str, float]:
        """Return with which probability each of several has the lowest mean."""
        return of_replicas.chances_of_first(values, blocks=self.blocks)

    def is_decided(self, differences: Floats, level: float, comparisons: int) -> bool:
        """Return whether more replicas would hardly change one of so many verdicts."""
        return of_replicas.is_decided(differences, level, blocks=self.blocks, comparisons=comparisons)

    @property
    def scope(self) -> str:
        """What numbers speak of."""
        return OF_SCOPE[self.plan.scope]

    @property
    def numbers(self) -> range:
        """Which replicas these are, as `core.replicas.perturbed` takes them."""
        return self.plan.numbers(self.count)

    def notes(self, verdicts: int) -> list[str]:
        """Return what intervals rest on, and when so many verdicts are given."""
        return [self.note(), *([note_of_verdicts("replicas", verdicts)] if self.count > 1 else [])]

    def note(self) -> str:
        """Return what intervals rest on, how many replicas there are, and why."""
        if self.count == 1:
            return "one run of the log as it is: nothing says how much of it is chance; --replicas 10 does"
        of = "the same jobs, nudged" if self.plan.scope == "log" else "other jobs of the same kind"
        why = {
            DECIDED: "every verdict is decided", SPENT: "more would take too long: --replicas N takes N",
            ENOUGH: "there are no more by default: --replicas N takes N", FIXED: "as asked for",
        }[self.stopped]  # fmt: skip
        if self.blocks is not None and self.blocks < LEAST_BLOCKS:
            many = f"{math.floor(10 * self.blocks) / 10:g} of {BLOCKS}"
            part = f"{many} parts would have all of its waiting, and {LEAST_BLOCKS:g} are needed"
            return f"the log is too short for intervals of {self.scope}: {part}; a longer one, or --scope log, has them"
        beyond = "; --scope like asks about other logs" if self.plan.scope == "log" else ""
        return f"intervals are of {self.scope}: {self.count} replicas of {of} ({why}){beyond}"

    def settings(self) -> dict[str, Any]:
        """Return what gives the same replicas again."""
        return {"replicas": self.count, "scope": self.plan.scope}


def note_of_verdicts(replicas: str, verdicts: int = 1) -> str:
    """Return when one of so many verdicts is given; of what the replicas are (weeks, days).

    >>> note_of_verdicts("weeks")
    'better or worse: in nine of ten weeks, with 95 % confidence; no difference: less than 5 % of the baseline'
    """
    together = f" (the {verdicts} verdicts hold together)" if verdicts > 1 else ""
    return (
        f"better or worse: in nine of ten {replicas}, with 95 % confidence{together}; no difference: less than "
        f"{100 * MARGIN:g} % of the baseline"
    )


@dataclass(slots=True)
class Replicator:
    """Runs a function of a module on scenarios by name, replica after replica.

    Attributes
    ----------
    function
        What simulates a scenario, and returns arrays; further arguments are those of `arguments` by name.
    scenarios
        By name, the baseline first.
    plan
        How many replicas.
    arguments
        Other arguments of the function by name.
    of_replica
        What turns a scenario and a replica number into the scenario that runs (default: `perturbed`).
    base
        The name of the baseline, where its results have `wait`: one a job, in order of submission.
    allowance
        How many times the least number of replicas the budget begins with, where a study does much besides.
    """

    function: Callable[..., Arrays]
    scenarios: Mapping[str, Scenario]
    plan: Plan
    workers: Workers = None
    done: Callable[[int, float], None] = lambda count, share: None
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    of_replica: Callable[[Scenario, int, Scope], Scenario] = perturbed
    base: str = ""
    allowance: float = 1.0

    def run(self, undecided: Callable[[Replication], bool]) -> Replication:
        """Run as many replicas as it takes until nothing is undecided, or there is no time for more."""
        results: list[Mapping[str, Arrays]] = []
        drawn_anew = self.base and is_drawn_anew(self.scenarios[self.base])
        base = "" if drawn_anew else self.base
        instances = sum(s.trace.workload.instances for s in self.scenarios.values())
        looks = self.plan.looks(instances, self.allowance)
        for look in looks:
            results += self._more(len(results), look, looks[-1])
            if look < looks[-1] and not undecided(Replication(self.plan, results, base=base)):
                return Replication(self.plan, results, DECIDED, base)
        stopped = FIXED if self.plan.count is not None else ENOUGH if looks[-1] == MOST else SPENT
        if stopped != FIXED and not undecided(Replication(self.plan, results, base=base)):
            stopped = DECIDED
        return Replication(self.plan, results, stopped, base)

    def _more(self, first: int, last: int, most: int) -> list[Mapping[str, Arrays]]:
        numbers = self.plan.numbers(last)[first:]
        names = list(self.scenarios)
        calls = [
            Call(self.of_replica(self.scenarios[name], k, self.plan.scope), self.arguments.get(name, {}))
            for k in numbers
            for name in names
        ]
        size, total = len(names), most * len(names)
        answers = run_calls(
            self.function, calls, workers=process_count(self._instances(), self.workers),
            done=lambda count: self.done(first * size + count, (first * size + count) / total),
        )  # fmt: skip
        return [dict(zip(names, answers[k : k + size], strict=True)) for k in range(0, len(answers), size)]

    def _instances(self) -> int:
        return next(iter(self.scenarios.values())).trace.workload.instances
