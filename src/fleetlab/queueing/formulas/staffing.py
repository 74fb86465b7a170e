"""How many servers? The square-root rule, and what is left of a wait where it is followed."""

from __future__ import annotations

import math
from statistics import NormalDist

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.formulas.mmc import erlang_c, mmc_wait
from fleetlab.queueing.formulas.output import Found, stable, waits

NORMAL = NormalDist()
MOST = 1_000_000  # servers


def delay(beta: float) -> float:
    """The chance to wait with β square roots of the load to spare; 1 where there is nothing to spare.

    >>> round(delay(1.0), 4)
    0.2234
    """
    return 1 / (1 + beta * NORMAL.cdf(beta) / NORMAL.pdf(beta)) if beta > 0 else 1.0


def halfin_whitt(lam: float, mu: float, c: int) -> Found:
    """The chance to wait, and the mean wait, of many servers at a high load."""
    a = lam / mu
    beta = (c - a) / math.sqrt(a)
    chance = delay(beta)
    wait = chance / (c * mu - lam) if beta > 0 else math.inf
    said = waits(rho=a / c, wait=wait, mean=1 / mu, lam=lam)
    told = [Estimate.exact("beta", beta), Estimate.exact("chance to wait", chance)]
    return Found([said[0], *told, *said[1:]], notes=stable(a / c))


def square_root(lam: float, mu: float, chance: float) -> Found:
    """The fewest servers so that no more than this chance is left to wait: by the rule, and by Erlang C."""
    a = lam / mu
    low, high = 0.0, 40.0
    for _ in range(80):  # the chance falls with β
        beta = (low + high) / 2
        low, high = (beta, high) if delay(beta) > chance else (low, beta)
    rule = math.ceil(a + high * math.sqrt(a))
    if rule > MOST:
        msg = f"these jobs need more servers than {MOST:,}: {rule:,}"
        raise WorkloadError(msg, hint="Halfin-Whitt tells the wait of a number of servers that you name")
    exact = _fewest(a, chance, rule)
    said = [
        Estimate.exact("load", a),
        Estimate.exact("beta", high),
        Estimate.exact("servers by the rule", rule),
        Estimate.exact("servers by Erlang C", exact),
        Estimate.exact("utilisation", a / exact),
        Estimate.exact("mean wait", mmc_wait(lam, mu, exact), "s"),
    ]
    return Found(said)


def _fewest(a: float, chance: float, near: int) -> int:
    """The rule is never far off."""
    c = max(near, math.floor(a) + 1)
    while erlang_c(c, a) > chance:
        c += 1
    while c - 1 > a and erlang_c(c - 1, a) <= chance:
        c -= 1
    return c
