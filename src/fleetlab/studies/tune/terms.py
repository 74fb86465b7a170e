"""A policy of weighted terms: what each term is, how the sum compiles once, and which weights are built-in orders.

The search moves parameters between -1 and 1. The weight of a term is its parameter to a power, times a scale: where a
weight may have any size, such as that of an hour of waiting, this is finest near 0. Weights are passed to the simulator
as numbers beside the policy, so a trial compiles nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.core import Workload
from fleetlab.sim import order, placement

Params = Mapping[str, float | str | bool]
WEIGHTED = "weighted"  # the placement by terms, beside the built-in ones
USES_SHARE = "uses share"  # whether the share of a user counts: such a key changes while a job waits, and is slower


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a key; the lowest key is first."""

    name: str
    code: str  # as a policy writes it
    above: str  # the meaning of a weight above 0
    below: str = ""  # and of one below 0; empty where there is none
    low: float = -1.0  # of the parameter; it goes up to 1
    scale: float = 1.0
    power: int = 1

    def weight(self, parameter: float) -> float:
        """Return the weight of a parameter.

        >>> Term("submit", "s.submit[job]", "", scale=10.0, power=4).weight(0.5)
        0.625
        """
        return self.scale * math.copysign(abs(parameter) ** self.power, parameter)


# Logarithms: GPUs × seconds has the order of the sum of both. Hours: so that waiting can be weighed against them.
ORDER = (
    Term("submit", "s.submit[job] / 3600.0", "earliest submission first", low=0.0, scale=10.0, power=4),
    Term("estimate", "s.estimate[job] / 3600.0", "shortest estimate first, in hours", low=0.0, scale=10.0, power=4),
    Term(
        "log estimate", "math.log1p(s.estimate[job])",
        "shortest estimate first, by the logarithm of seconds", "longest estimate first, by the logarithm of seconds",
    ),
    Term(
        "no estimate", "(s.estimate[job] == 0.0)",
        "jobs without an estimate last", "jobs without an estimate first", scale=10.0,
    ),
    Term(
        "log GPUs", "math.log1p(s.instances[job] * s.gpu_milli[job] / 1000.0)",
        "fewest GPUs first, by the logarithm", "most GPUs first, by the logarithm", scale=3.0,
    ),
    Term(
        "log CPU cores", "math.log1p(s.instances[job] * s.cpu_milli[job] / 1000.0)",
        "fewest CPU cores first, by the logarithm", "most CPU cores first, by the logarithm", scale=3.0,
    ),
    Term("priority", "(0 - s.priority[job])", "highest priority first", low=0.0, scale=10.0, power=2),
)  # fmt: skip
SHARE = Term("user share", "s.usage[s.user[job]]", "users with the lowest share first", low=0.0, scale=30.0, power=2)
PLACEMENT = (
    Term("idle GPUs", "s.idle[node]", "nodes with the fewest idle GPUs first", "nodes with the most idle GPUs first"),
    Term(
        "free fractions", "(s.free_gpu[node] - 1000 * s.idle[node]) / 1000.0",
        "nodes with the least free on GPUs in use first", "nodes with the most free on GPUs in use first",
    ),
    Term(
        "free CPU", "(s.free_cpu[node] - s.cpu_milli[job]) / max(1, s.capacity_cpu[node])",
        "nodes with the least CPU left first", "nodes with the most CPU left first", scale=10.0,
    ),
    Term(
        "free memory", "(s.free_memory[node] - s.memory_mib[job]) / max(1, s.capacity_memory[node])",
        "nodes with the least memory left first", "nodes with the most memory left first", scale=10.0,
    ),
    Term("GPU type", "s.gpu_type[node]", "weakest GPU type first", "strongest GPU type first", scale=3.0),
    Term("GPUs of node", "s.gpus[node]", "nodes with the fewest GPUs first", "nodes with the most GPUs first"),
)  # fmt: skip
ALL = (*ORDER, SHARE, *PLACEMENT)
INDEX = {term.name: k for k, term in enumerate(ALL)}  # of a weight in `s.weights`

# Parameters with which the terms give a built-in order; `las` is `fifo` without preemption.
BUILT_IN: dict[str, dict[str, float]] = {
    "fifo": {"submit": 1.0},
    "sjf": {"log estimate": 1.0},
    "smallest": {"log GPUs": 1.0},
    "largest": {"log GPUs": -1.0},
    "priority": {"priority": 1.0},
    "aging": {"submit": 0.5, "estimate": 0.5},
    "las": {"submit": 1.0},
    "fair": {"user share": 1.0},
}


def _sum(name: str, terms: Sequence[Term], takes: str) -> Any:  # noqa: ANN401
    """Return a function that adds up the weighted terms; it has the text that `text` writes out."""
    keys = " + ".join(f"s.weights[{INDEX[term.name]}] * {term.code}" for term in terms)
    function = eval(f"lambda {takes}: {keys}", {"math": math, "__name__": __name__})
    function.__name__ = function.__qualname__ = name
    return function


weighted_order = order(_sum("weighted_order", ORDER, "s, job, now"))  # its keys do not change: the quick loop
weighted_share_order = order(_sum("weighted_share_order", (*ORDER, SHARE), "s, job, now"))
weighted_placement = placement(_sum("weighted_placement", PLACEMENT, "s, job, node"))


@dataclass(frozen=True, slots=True)
class Space:
    """What is searched: the terms that differ between jobs of this trace, and the placements."""

    order: tuple[Term, ...]
    shares: bool
    placements: tuple[str, ...]

    @classmethod
    def of(cls, workload: Workload, placements: Sequence[str]) -> Space:
        """Leave out priorities where all jobs have the same, and shares where there is one user."""
        frame = workload.frame
        same = {"priority"} if frame["priority"].n_unique() < 2 else set()
        terms = tuple(term for term in ORDER if term.name not in same)
        return cls(terms, frame["user"].n_unique() > 1, (*placements, WEIGHTED))

    def params_of(self, order: object, placement: object) -> dict[str, float | str | bool] | None:
        """Return the parameters of a built-in policy, where the space has them."""
        values = BUILT_IN.get(order) if isinstance(order, str) else None
        names = {term.name for term in self.order} | ({SHARE.name} if self.shares else set())
        if values is None or not set(values) <= names or placement not in self.placements:
            return None
        params: dict[str, float | str | bool] = {term.name: values.get(term.name, 0.0) for term in self.order}
        if self.shares:
            params[USES_SHARE] = SHARE.name in values
            params |= {SHARE.name: values[SHARE.name]} if SHARE.name in values else {}
        return params | {"placement": str(placement)}


def weights_of(params: Params) -> dict[str, float]:
    """Return the weight of each term; 0 where the trial did not have it."""
    return {term.name: term.weight(float(params.get(term.name, 0.0))) for term in ALL}


def words_of(params: Params) -> dict[str, Any]:
    """Return the policy as words of a scenario: order, placement and weights."""
    where = params["placement"]
    return {
        "order": weighted_share_order if params.get(USES_SHARE) else weighted_order,
        "placement": weighted_placement if where == WEIGHTED else where,
        "weights": tuple(weights_of(params).values()),
    }


def policy_text(params: Params) -> str:
    """Return the same policy as a Python module, its weights written out."""
    lines = ["import math", "", "import fleetlab"]
    lines += _function("order", "s, job, now", (*ORDER, SHARE), params)
    if params["placement"] == WEIGHTED:
        lines += _function("placement", "s, job, node", PLACEMENT, params)
    return "\n".join(lines) + "\n"


def _function(kind: str, takes: str, terms: Sequence[Term], params: Params) -> list[str]:
    weights = weights_of(params)
    used = [term for term in terms if weights[term.name]]
    meanings = [t.above if weights[t.name] > 0 else t.below for t in used]
    keys = [f"        {'+ ' if k else ''}{weights[t.name]!r} * {t.code}  # {meanings[k]}" for k, t in enumerate(used)]
    body = ["    return (", *keys, "    )"] if keys else ["    return 0.0"]
    return ["", "", f"@fleetlab.{kind}", f"def {kind}({takes}):", *body]
