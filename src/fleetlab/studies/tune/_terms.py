"""A policy made of weighted terms: what each term is, how they compile once, and which weights are built-in policies.

The search turns knobs between -1 and 1. A knob's weight is the knob to some power, times a scale: where a weight may be
of any size, such as that of an hour of waiting, this is finest near 0, and 0 is 0. The weights are handed to the
simulator as numbers beside the policy, so a trial compiles nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlab.core import Workload
from fleetlab.sim import order, placement

Params = Mapping[str, float | str | bool]
WEIGHTED = "weighted"  # the place that goes by terms, beside the built-in ones
SHARED = "by share"  # whether what a user holds counts: such a rank moves while a job waits, and takes longer


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a rank, the lowest first."""

    name: str
    code: str  # as a policy writes it
    says: str  # what a weight above 0 means
    turned: str  # and one below 0; empty where there is none
    low: float = -1.0  # of the knob; it goes up to 1
    scale: float = 1.0
    power: int = 1

    def weight(self, knob: float) -> float:
        """The weight that a knob stands for.

        >>> Term("age", "s.submit[job]", "", "", scale=10.0, power=4).weight(0.5)
        0.625
        """
        return self.scale * math.copysign(abs(knob) ** self.power, knob)


# Logarithms: of GPUs × seconds the order is that of the sum of both. Hours: so that waiting can be set against them.
ORDER = (
    Term("age", "s.submit[job] / 3600.0", "who came first", "", low=0.0, scale=10.0, power=4),
    Term("hours", "s.estimate[job] / 3600.0", "short ones first, by the hour", "", low=0.0, scale=10.0, power=4),
    Term(
        "short", "math.log1p(s.estimate[job])",
        "short ones first, by the logarithm of seconds", "long ones first, by the logarithm of seconds",
    ),
    Term(
        "unknown", "(s.estimate[job] == 0.0)",
        "those of unknown run time last", "those of unknown run time first", scale=10.0,
    ),
    Term(
        "small", "math.log1p(s.instances[job] * s.gpu_milli[job] / 1000.0)",
        "few GPUs first, by their logarithm", "many GPUs first, by their logarithm", scale=3.0,
    ),
    Term(
        "light", "math.log1p(s.instances[job] * s.cpu_milli[job] / 1000.0)",
        "few CPU cores first, by their logarithm", "many CPU cores first, by their logarithm", scale=3.0,
    ),
    Term("priority", "(0 - s.priority[job])", "high priority first", "", low=0.0, scale=10.0, power=2),
)  # fmt: skip
SHARE = Term("share", "s.usage[s.user[job]]", "users who hold little first", "", low=0.0, scale=30.0, power=2)
PLACE = (
    Term("on idle", "s.idle[node]", "nodes with few idle GPUs first", "nodes with many idle GPUs first"),
    Term(
        "on parts", "(s.free_gpu[node] - 1000 * s.idle[node]) / 1000.0",
        "nodes with little free on GPUs in use first", "nodes with much free on GPUs in use first",
    ),
    Term(
        "on cpu", "(s.free_cpu[node] - s.cpu_milli[job]) / max(1, s.capacity_cpu[node])",
        "nodes with little CPU left first", "nodes with much CPU left first", scale=10.0,
    ),
    Term(
        "on memory", "(s.free_memory[node] - s.memory_mib[job]) / max(1, s.capacity_memory[node])",
        "nodes with little memory left first", "nodes with much memory left first", scale=10.0,
    ),
    Term("on type", "s.gpu_type[node]", "weak GPU types first", "strong GPU types first", scale=3.0),
    Term("on size", "s.gpus[node]", "nodes with few GPUs first", "nodes with many GPUs first"),
)  # fmt: skip
ALL = (*ORDER, SHARE, *PLACE)
AT = {term.name: k for k, term in enumerate(ALL)}  # where a weight stands in `s.weights`

# Knobs by which the terms rank as a built-in order does; `las` is `fifo` as long as nobody is interrupted.
LIKE: dict[str, dict[str, float]] = {
    "fifo": {"age": 1.0},
    "sjf": {"short": 1.0},
    "smallest": {"small": 1.0},
    "largest": {"small": -1.0},
    "priority": {"priority": 1.0},
    "aging": {"age": 0.5, "hours": 0.5},
    "las": {"age": 1.0},
    "fair": {"share": 1.0},
}


def _sum(terms: Sequence[Term], takes: str) -> Any:  # noqa: ANN401
    """A function that adds up the weighted terms; of one text with what `text` writes out."""
    ranks = " + ".join(f"s.weights[{AT[term.name]}] * {term.code}" for term in terms)
    made = eval(f"lambda {takes}: {ranks}", {"math": math})
    made.__name__ = WEIGHTED
    return made


STILL = order(_sum(ORDER, "s, job, now"))  # ranks that stay as they were when a job came: the quick loop
MOVING = order(_sum((*ORDER, SHARE), "s, job, now"))
SOMEWHERE = placement(_sum(PLACE, "s, job, node"))


@dataclass(frozen=True, slots=True)
class Space:
    """What may be searched: terms that tell jobs of this trace apart, and the places."""

    order: tuple[Term, ...]
    shares: bool
    places: tuple[str, ...]

    @classmethod
    def of(cls, workload: Workload, places: Sequence[str]) -> Space:
        """Leave out priorities where all jobs have the same, and users where there is one."""
        frame = workload.frame
        same = {"priority"} if frame["priority"].n_unique() < 2 else set()
        terms = tuple(term for term in ORDER if term.name not in same)
        return cls(terms, frame["user"].n_unique() > 1, (*places, WEIGHTED))

    def corner(self, order: str, placement: str) -> dict[str, float | str | bool] | None:
        """A built-in order and place in terms of the space, where it has them."""
        knobs = LIKE.get(order)
        known = {term.name for term in self.order} | ({SHARE.name} if self.shares else set())
        if knobs is None or not set(knobs) <= known:
            return None
        found: dict[str, float | str | bool] = {term.name: knobs.get(term.name, 0.0) for term in self.order}
        if self.shares:
            found[SHARED] = SHARE.name in knobs
            found |= {SHARE.name: knobs[SHARE.name]} if SHARE.name in knobs else {}
        return found | {"placement": placement}


def weights_of(params: Params) -> dict[str, float]:
    """The weight of each term; 0 where the trial did not have it."""
    return {term.name: term.weight(float(params.get(term.name, 0.0))) for term in ALL}


def rules_of(params: Params) -> dict[str, Any]:
    """As `simulate` takes it."""
    where = params["placement"]
    return {
        "order": MOVING if params.get(SHARED) else STILL,
        "placement": SOMEWHERE if where == WEIGHTED else where,
        "weights": tuple(weights_of(params).values()),
    }


def text(params: Params) -> str:
    """The same policy as a file of one's own, its weights written out."""
    lines = ["import math", "", "import fleetlab"]
    lines += _function("order", "s, job, now", (*ORDER, SHARE), params)
    if params["placement"] == WEIGHTED:
        lines += _function("placement", "s, job, node", PLACE, params)
    return "\n".join(lines) + "\n"


def _function(kind: str, takes: str, terms: Sequence[Term], params: Params) -> list[str]:
    weights = weights_of(params)
    used = [term for term in terms if weights[term.name]]
    said = [t.says if weights[t.name] > 0 else t.turned for t in used]
    ranks = [f"        {'+ ' if k else ''}{weights[t.name]!r} * {t.code}  # {said[k]}" for k, t in enumerate(used)]
    body = ["    return (", *ranks, "    )"] if ranks else ["    return 0.0"]
    return ["", "", f"@fleetlab.{kind}", f"def {kind}({takes}):", *body]
