"""Square-root staffing and the Halfin–Whitt regime."""

from __future__ import annotations

import math
from statistics import NormalDist

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.formulas.mmc import erlang_c, mmc_wait
from fleetlab.queueing.formulas.output import FormulaOutput, stable, waits

NORMAL = NormalDist()
MOST = 1_000_000  # servers


def delay(beta: float) -> float:
    """The probability of waiting with β square roots of the load to spare; 1 where there is nothing to spare.

    >>> round(delay(1.0), 4), delay(50.0)
    (0.2234, 0.0)
    """
    density = NORMAL.pdf(beta)  # 0 beyond 38
    return density / (density + beta * NORMAL.cdf(beta)) if beta > 0 else 1.0


def halfin_whitt(lam: float, mu: float, c: int) -> FormulaOutput:
    """The probability of waiting, and the mean wait, of many servers at a high load."""
    a = lam / mu
    beta = (c - a) / math.sqrt(a)
    chance = delay(beta)
    wait = chance / (c * mu - lam) if beta > 0 else math.inf
    metrics = waits(rho=a / c, wait=wait, mean=1 / mu, lam=lam)
    extra = [Estimate.exact("beta", beta), Estimate.exact("probability of waiting", chance)]
    return FormulaOutput([metrics[0], *extra, *metrics[1:]], notes=stable(a / c))


def square_root(lam: float, mu: float, chance: float) -> FormulaOutput:
    """The fewest servers so that no more than this chance is left to wait: by the rule, and by Erlang C."""
    a = lam / mu
    low, high = 0.0, 40.0
    for _ in range(80):  # the chance falls with β
        beta = (low + high) / 2
        low, high = (beta, high) if delay(beta) > chance else (low, beta)
    rule = math.ceil(a + high * math.sqrt(a))
    if rule > MOST:
        msg = f"these jobs need more servers than {MOST:,}: {rule:,}"
        raise WorkloadError(msg, hint="Halfin-Whitt gives the wait for a given number of servers")
    exact = _fewest(a, chance, rule)
    metrics = [
        Estimate.exact("load", a),
        Estimate.exact("beta", high),
        Estimate.exact("servers by the square-root rule", rule),
        Estimate.exact("servers by Erlang C", exact),
        Estimate.exact("utilization", a / exact),
        Estimate.exact("mean wait", mmc_wait(lam, mu, exact), "s"),
    ]
    return FormulaOutput(metrics)


def _fewest(a: float, chance: float, near: int) -> int:
    """The rule is never far off."""
    c = max(near, math.floor(a) + 1)
    while erlang_c(c, a) > chance:
        c += 1
    while c - 1 > a and erlang_c(c - 1, a) <= chance:
        c -= 1
    return c
