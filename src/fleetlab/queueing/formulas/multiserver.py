"""Multi-server jobs under FCFS: maximum throughput and response time.

The head of the line blocks all behind it, so servers idle while jobs wait. What gets through is what a system with a
line that never ends does: its state is what runs, and the class of the blocked head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fleetlab.core import Estimate, WorkloadError
from fleetlab.queueing.distributions import Floats
from fleetlab.queueing.formulas.mmc import FormulaOutput, alike, stable

MOST = 3_000  # states: the equations are solved as they are

State = tuple[tuple[int, ...], int]  # how many of each class run, the class of the head


@dataclass(frozen=True, slots=True)
class Saturated:
    """A line that never ends: how many jobs a second get through, and what RESET needs to know beside it."""

    rate: float  # λ*
    delta: float  # Δ(Y_d, Y): how many jobs more get through when one looks just after a completion
    states: int


def saturated_chain(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> Saturated:
    """Solve the Markov chain of the saturated system."""
    unit = math.gcd(*n)  # what is left of the servers after whole units is never used
    states, moves = _chain(c // unit, tuple(need // unit for need in n), p, mu)
    out = moves.sum(axis=1)
    q = moves - np.diag(out)
    ones = np.ones(len(states))
    balance = q.T.copy()
    balance[-1] = ones
    pi = np.linalg.solve(balance, np.eye(len(states))[-1])
    rate = float(pi @ out)
    # Poisson's equation QΔ = λ* - μ with πΔ = 0: the matrix Q - 1π is regular, and gives that solution.
    delta = np.linalg.solve(q - np.outer(ones, pi), rate - out)
    return Saturated(rate, float((pi @ moves / rate) @ delta), len(states))


def _chain(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> tuple[list[State], Floats]:
    """All states that can be reached, and the rates between them; every move is a completion."""
    after = _settling(c, n, p)
    small = n.index(min(n))
    # Where the smallest fill all servers everybody is blocked: a state that comes up again and again.
    states: list[State] = [(tuple(c // n[small] if i == small else 0 for i in range(len(n))), 0)]
    number = {states[0]: 0}
    moves: list[tuple[int, int, float]] = []
    for k, (running, head) in enumerate(states):  # the list grows as new ones are found
        for i, many in enumerate(running):
            if not many:
                continue
            for state, chance in after(_with(running, i, -1), head).items():
                if state not in number:
                    number[state] = len(states)
                    states.append(state)
                moves.append((k, number[state], many * mu[i] * chance))
        if len(states) > MOST:
            msg = f"the chain of these jobs has more than {MOST:,} states"
            raise WorkloadError(msg, hint="merge classes, or count servers in larger units")
    rates = np.zeros((len(states), len(states)))
    for k, j, rate in moves:
        rates[k, j] += rate
    return states, rates


def _with(running: tuple[int, ...], i: int, more: int) -> tuple[int, ...]:
    return (*running[:i], running[i] + more, *running[i + 1 :])


def _settling(c: int, n: tuple[int, ...], p: tuple[float, ...]) -> Callable[[tuple[int, ...], int], dict[State, float]]:
    """Who starts, and who is the next head, once servers are free."""

    def free(running: tuple[int, ...]) -> int:
        return c - sum(many * need for many, need in zip(running, n, strict=True))

    @cache
    def drawn(running: tuple[int, ...]) -> dict[State, float]:
        """A new head comes: it blocks, or starts and is followed by another."""
        settled: dict[State, float] = {}
        pending = {running: 1.0}
        while pending:
            # Those with the most free servers first: none is reached again later.
            now = max(pending, key=free)
            weight = pending.pop(now)
            for i, chance in enumerate(p):
                if n[i] > free(now):
                    settled[now, i] = settled.get((now, i), 0.0) + weight * chance
                else:
                    begun = _with(now, i, 1)
                    pending[begun] = pending.get(begun, 0.0) + weight * chance
        return settled

    def after(running: tuple[int, ...], head: int) -> dict[State, float]:
        return {(running, head): 1.0} if n[head] > free(running) else drawn(_with(running, head, 1))

    return after


def saturated(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> FormulaOutput:
    """The maximum throughput that get through, and the share of the servers that are then busy."""
    _possible(c, n, p, mu)
    chain = saturated_chain(c, n, p, mu)
    return FormulaOutput([*_limit(chain.rate, c, n, p, mu), Estimate.exact("states of the chain", chain.states)])


def reset(lam: float, c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> FormulaOutput:
    """The mean response, but for a constant that does not grow with the load."""
    _possible(c, n, p, mu)
    chain = saturated_chain(c, n, p, mu)
    part = lam / chain.rate
    mean = sum(chance / rate for chance, rate in zip(p, mu, strict=True))
    response = (1 + chain.delta) / chain.rate / (1 - part) if part < 1 else math.inf
    metrics = [
        *_limit(chain.rate, c, n, p, mu),
        Estimate.exact("share of maximum throughput", part),
        Estimate.exact("delta", chain.delta),
        Estimate.exact("mean response", response, "s"),
        Estimate.exact("mean wait", max(0.0, response - mean), "s"),
    ]
    over = f"{lam:.4g} jobs/s arrive, the maximum throughput is {chain.rate:.4g}: waits grow without bound"
    return FormulaOutput(metrics, notes=() if part < 1 else (over,))


def two_classes(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> FormulaOutput:
    """The maximum throughput of two classes, by their product form: for any number of servers."""
    _possible(c, n, p, mu)
    if len(n) != 2 or n[0] == n[1]:
        msg = f"the product form is of two classes with different numbers of servers, not: {list(n)}"
        raise WorkloadError(msg, hint="MSJ saturated takes any classes")
    return FormulaOutput(_limit(product_form(c, n, p, mu), c, n, p, mu))


def server_filling(
    lam: float, c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]
) -> FormulaOutput:
    """The mean response where all servers are filled by putting jobs off, but for a constant."""
    _possible(c, n, p, mu)
    if any(c % need for need in n) or c & (c - 1):
        msg = f"ServerFilling fills a number of servers that is a power of 2 with such needs, not: {c}, {list(n)}"
        raise WorkloadError(msg, hint="MSJ RESET takes any needs")
    size = [(need / c / rate, chance) for need, chance, rate in zip(n, p, mu, strict=True)]
    mean, second = sum(q * s for s, q in size), sum(2 * q * s * s for s, q in size)
    rho = lam * mean
    work = second / (2 * mean) * rho / (1 - rho) if rho < 1 else math.inf
    alone = sum(chance / rate for chance, rate in zip(p, mu, strict=True))
    metrics = [
        Estimate.exact("utilization", min(rho, 1.0)),
        Estimate.exact("mean response of a single fast server", work + mean, "s"),
        Estimate.exact("mean response", work + alone, "s"),
    ]
    return FormulaOutput(metrics, notes=stable(rho))


def product_form(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> float:
    """The rate that gets through, of two classes: how many small jobs run says how many large ones do."""
    (small, p1, mu1), (large, p2, mu2) = sorted(zip(n, p, mu, strict=True))
    ones = np.arange(c // small + 1)
    twos = (c - ones * small) // large
    out = ones * mu1 + twos * mu2
    # A large head is known to wait where a small one would have fitted.
    blocked = (c - ones * small - twos * large >= small).astype(np.int64)
    # f₁ in the one state with that many small jobs; f₂ in that with so many large jobs and the most small ones.
    f1 = ones[1:] * mu1 / out[1:]
    most = (c - np.arange(1, c // large + 1) * large) // small
    f2 = np.arange(1, c // large + 1) * mu2 / (most * mu1 + np.arange(1, c // large + 1) * mu2)
    less1, less2 = (np.concatenate([[0.0], np.cumsum(np.log(f))]) for f in (f1, f2))
    log = ones * math.log(p1) + (twos + blocked) * math.log(p2) - less1 - less2[twos]
    weights = np.exp(log - log.max())  # at completions, but for a factor
    return float(weights.sum() / (weights / out).sum())


def _limit(rate: float, c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> list[Estimate]:
    work = sum(need * chance / m for need, chance, m in zip(n, p, mu, strict=True))
    return [
        Estimate.exact("maximum throughput", rate, "1/s"),
        Estimate.exact("utilization at maximum throughput", rate * work / c),
    ]


def _possible(c: int, n: tuple[int, ...], p: tuple[float, ...], mu: tuple[float, ...]) -> None:
    alike(n=n, p=p, mu=mu)
    if max(n) > c:
        raise WorkloadError(f"a job of {max(n)} servers can never run on: {c}", hint="n is at most c, for each class")
    if not math.isclose(sum(p), 1.0, rel_tol=1e-6):
        raise WorkloadError(f"the probabilities of all classes sum to: {sum(p):.6g}", hint="--p 0.5,0.5")
