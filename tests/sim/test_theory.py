"""The simulator against exact theory: schedules against recursions, bit for bit, and means against formulas.

Means come from independent runs without their beginnings, and with controls: averages that are zero whatever the
simulator does, because they join what a job found with what nobody could know by then, or look at the input only.
What the controls explain of a run's mean is chance, and is taken off. `python -m benchmarks.theory` prints the table.
"""

import heapq
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Workload, simulate

RUNS = 24
T95, SURE = 2.101, 4.78  # of Student's t with 18 degrees: 95 % of one interval; 99 % of seventy together
NARROW = 0.03

# -- what comes in -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Service:
    """Run times: each of these means with its chance; exponential, or constant."""

    parts: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    constant: bool = False

    def moment(self, k):
        return sum(p * m**k for p, m in self.parts) * (1 if self.constant else math.factorial(k))

    def draw(self, rng, count):
        means = rng.choice([m for _, m in self.parts], count, p=[p for p, _ in self.parts])
        return means if self.constant else means * rng.exponential(1.0, count)


class Kind(NamedTuple):
    """A class of jobs."""

    chance: float = 1.0
    need: int = 1
    runtime: Service = Service()
    priority: int = 0


ONE = (Kind(),)
TWO = (Kind(0.4, priority=1), Kind(0.6, priority=0))
HYPER = Service(((0.9, 0.5), (0.1, 5.5)))


def gangs(*kinds):
    return tuple(Kind(chance, need, Service(((1.0, mean),))) for chance, need, mean in kinds)


# Known constants of multiserver jobs: servers, jobs (chance, GPUs, mean run time), most jobs a second.
GANGS = {
    "k=2": (2, gangs((2 / 3, 1, 1), (1 / 3, 2, 2)), 0.9),
    "k=4": (4, gangs((0.5, 1, 1), (0.5, 4, 1)), 1.177914),
    "k=4, one size": (4, gangs((0.42, 1, 4), (0.58, 4, 1)), 0.54129),
    "k=8": (8, gangs((2 / 3, 1, 1), (1 / 3, 8, 1)), 1.427892),
    "k=8, slow elephants": (8, gangs((0.9, 1, 1), (0.1, 8, 4)), 1.532542),
    "k=8, 1-2-4-8": (8, gangs((0.6, 1, 1), (0.2, 2, 1), (0.1, 4, 1), (0.1, 8, 1)), 2.500087),
    "k=10, one size": (10, gangs((0.1, 1, 10), (0.9, 10, 1)), 0.54105),
    "k=30": (30, gangs((0.5, 3, 1), (0.5, 10, 1)), 4.068348),
}
ANSWERED = ("k=2", "k=4", "k=8, slow elephants", "k=8, 1-2-4-8", "k=10, one size", "k=30")  # for completion times
FILLED, POWERS = 8, GANGS["k=8, 1-2-4-8"][1]


def load(kinds):
    return sum(k.chance * k.need * k.runtime.moment(1) for k in kinds)


class Input(NamedTuple):
    """One run's jobs."""

    gap: Any  # seconds since the one before
    kind: Any
    runtime: Any
    need: Any
    priority: Any

    @property
    def submit(self):
        return np.cumsum(self.gap) - self.gap[0]

    def workload(self):
        columns = {"submit": self.submit, "runtime": self.runtime, "gpu_milli": self.need * 1000}
        return Workload.of(pl.DataFrame(columns | {"priority": self.priority}), source="theory")


def poisson(kinds, rate, count, seed):
    rng = np.random.default_rng(seed)
    gap, kind = rng.exponential(1 / rate, count), rng.choice(len(kinds), count, p=[k.chance for k in kinds])
    runtime = np.choose(kind, [k.runtime.draw(rng, count) for k in kinds])
    return Input(gap, kind, runtime, *(np.array([k[j] for k in kinds])[kind] for j in (1, 3)))


def cluster(servers):
    return Cluster.uniform(servers // 8, 8) if servers % 8 == 0 else Cluster.uniform(1, servers)


# -- theory --------------------------------------------------------------------------------------------------------


def erlang_c_wait(servers, rho):
    """Mean wait of M/M/c at unit runtime."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = servers * rho * blocked / (n + servers * rho * blocked)
    return blocked / (1 - rho * (1 - blocked)) / (servers * (1 - rho))


def pollaczek_khinchine(rate, mean, second):
    """Mean wait of M/G/1."""
    return rate * second / (2 * (1 - rate * mean))


def cobham(servers, rho, high):
    """Mean waits of M/M/c, unit runtime, with a share `high` of jobs going first; nobody is put off."""
    first = erlang_c_wait(servers, rho) * (1 - rho)
    return first / (1 - high * rho), first / ((1 - high * rho) * (1 - rho))


def preempted(rho, high):
    """Mean JCT times of M/M/1, unit runtime, where the others are put off: they make up the sum of an M/M/1."""
    a, b = high * rho, (1 - high) * rho
    return 1 / (1 - a), (rho / (1 - rho) - a / (1 - a)) / b


def srpt(rate, parts, steps=400_001):
    """Mean JCT of M/G/1 under SRPT (Schrage and Miller), by the trapezoid rule; `parts` as of a Service."""
    x = np.linspace(0, 40 * max(m for _, m in parts), steps)
    density = sum(p / m * np.exp(-x / m) for p, m in parts)
    beyond = sum(p * np.exp(-x / m) for p, m in parts)

    def upto(values):
        return np.append(0, np.cumsum((values[1:] + values[:-1]) / 2)) * x[1]

    left = 1 - rate * upto(x * density)
    wait = rate * (upto(x * x * density) + x * x * beyond) / (2 * left**2)
    return upto((wait + upto(1 / left)) * density)[-1]


class Rule(NamedTuple):
    """Which jobs a scheduler looks at: GPUs of each, in a tuple, those behind only when it is not full."""

    full: Callable
    served: Callable
    tidy: Callable  # the tuple in one order of many that mean the same


def head_of_line(servers):
    """The last blocks all behind it when it does not fit."""
    return Rule(
        lambda seen: sum(seen) > servers,
        lambda seen: seen[:-1] if sum(seen) > servers else seen,
        lambda seen: (*sorted(seen[:-1]), seen[-1]) if sum(seen) > servers else tuple(sorted(seen)),
    )


def server_filling(servers):
    """The shortest line that can fill all servers; the largest of it first."""
    return Rule(
        lambda seen: sum(seen) >= servers, lambda seen: largest_first(seen, servers), lambda s: tuple(sorted(s))
    )


def largest_first(needs, servers):
    served = []
    for need in sorted(needs, reverse=True):
        if sum(served) + need <= servers:
            served.append(need)
    return served


class Line:
    """Gangs with exponential run times as a Markov chain: what the scheduler sees, and how many wait behind.

    Behind a full view, whoever comes only adds to those behind; whoever ends draws in some of them. So numbers behind
    have a matrix-geometric law (Neuts): p(n) = p(0) Rⁿ.
    """

    def __init__(self, rule, kinds):
        self.rule = rule
        self.chance = {k.need: k.chance for k in kinds}
        self.speed = {k.need: 1 / k.runtime.moment(1) for k in kinds}
        self.views = {True: {}, False: {}}  # full or not: its place in the matrices
        self.moves = []  # from, to, how many are drawn in (-1: one came), rate
        self._explore()

    def _explore(self):
        todo = [()]
        while todo:
            seen = todo.pop()
            full = self.rule.full(seen)
            if seen in self.views[full]:
                continue
            self.views[full][seen] = len(self.views[full])
            found = [] if full else [(self.rule.tidy((*seen, n)), -1, p) for n, p in self.chance.items()]
            for need in self.rule.served(seen):
                rest = list(seen)
                rest.remove(need)
                found += [(to, n, p * self.speed[need]) for to, n, p in self._refilled(rest, draw=full)]
            self.moves += [(seen, *move) for move in found]
            todo += [to for to, *_ in found]

    def _refilled(self, rest, draw):
        """Views after those behind were drawn in one by one: until it is full, or nobody is left."""
        found, now, n = [], {self.rule.tidy(rest): 1.0}, 0
        while now:
            found += [(seen, n, p) for seen, p in now.items()]
            after = {}
            for seen, p in now.items():
                for need, q in self.chance.items() if draw and not self.rule.full(seen) else ():
                    to = self.rule.tidy((*seen, need))
                    after[to] = after.get(to, 0.0) + p * q
            now, n = after, n + 1
        return found

    @cached_property
    def blocks(self):
        """Rates: full to full and full to not full by how many are drawn in; not full by arrivals and by departures."""
        fulls, others = len(self.views[True]), len(self.views[False])
        most = 1 + max(n for *_, n, _ in self.moves)
        down, out = np.zeros((most, fulls, fulls)), np.zeros((most, fulls, others))
        up, within, end = np.zeros((others, fulls)), np.zeros((others, others)), np.zeros((others, others))
        for seen, to, n, rate in self.moves:
            full, stays = self.rule.full(seen), self.rule.full(to)
            a, b = self.views[full][seen], self.views[stays][to]
            if full:
                (down if stays else out)[n, a, b] += rate
            else:
                (end if n >= 0 else up if stays else within)[a, b] += rate
        return down, out, up, within, end

    def limit(self):
        """Jobs a second when there is always somebody behind."""
        down = self.blocks[0]
        law = _stationary(down.sum(axis=0) - np.diag(down.sum(axis=(0, 2))), np.ones(len(down[0])))
        return sum(n * (law @ rates).sum() for n, rates in enumerate(down))

    def completion(self, rate):
        """Mean JCT: Little's law on those seen and those behind."""
        down, out, up, within, end = self.blocks
        stay = down[0] - np.diag(down.sum(axis=(0, 2)) + rate)
        ratio = self._ratio(rate, stay)
        bottom, emptied, power = stay, out[0], np.eye(len(ratio))
        for drawn, left in zip(down[1:], out[1:], strict=True):
            power = power @ ratio
            bottom, emptied = bottom + power @ drawn, emptied + power @ left
        inside = rate * within + end
        inside -= np.diag(inside.sum(axis=1) + rate * up.sum(axis=1))
        every = np.linalg.inv(np.eye(len(ratio)) - ratio)  # of all numbers behind together
        others, fulls = self.views[False], self.views[True]
        weights = np.append(np.ones(len(others)), every.sum(axis=1))
        law = _stationary(np.block([[inside, rate * up], [emptied, bottom]]), weights)
        there = np.append(
            [len(v) for v in others], every @ [len(v) for v in fulls] + (ratio @ every @ every).sum(axis=1)
        )
        return law @ there / rate

    def _ratio(self, rate, stay):
        """The least R with rate·1 + R·(stay) + R²·(one drawn in) + R³·(two) + … = 0."""
        back, ratio, step = np.linalg.inv(-stay), np.zeros_like(stay), 1.0
        while step > 1e-12:
            drawn = np.zeros_like(stay)
            for rates in self.blocks[0][:0:-1]:
                drawn = rates + ratio @ drawn
            better = (rate * np.eye(len(stay)) + ratio @ ratio @ drawn) @ back
            ratio, step = better, abs(better - ratio).max()
        return ratio


def _stationary(rates, weights):
    """The law that these rates leave as it is, its weighted sum 1."""
    equations = np.vstack([rates.T, weights])
    return np.linalg.lstsq(equations, np.append(np.zeros(len(rates)), 1.0), rcond=None)[0]


@cache
def gang_completion(name, share):
    servers, kinds, limit = GANGS[name]
    return Line(head_of_line(servers), kinds).completion(share * limit)


# -- the cases -----------------------------------------------------------------------------------------------------


def found_in_line(jobs, put, case):
    """How long until all before it had started: 0 where nobody waits. A job alone with one GPU waits just so long."""
    if case.servers > 1 and (put.need > 1).any():
        return np.maximum(np.append(0, jobs["start"].to_numpy()[:-1]) - put.submit, 0)
    return jobs["wait"].to_numpy()


def found_by_one_server(_jobs, put, case):
    """Work before it if all GPUs were one fast server: Lindley's recursion on the input alone."""
    walk = np.append(0, np.cumsum(put.need[:-1] * put.runtime[:-1] / case.servers - put.gap[1:]))
    return walk - np.minimum.accumulate(walk)


@dataclass(frozen=True, eq=False)
class Case:
    """A system with a mean that theory knows, for each priority from the highest."""

    name: str
    theory: Callable[[], tuple[float, ...]]
    kinds: tuple[Kind, ...]
    servers: int
    rate: float
    count: int  # jobs of a run
    warm: int  # jobs of its beginning that are left out
    rules: tuple[dict[str, Any], ...]  # the runs take turns
    metric: str = "jct"
    found: Callable[..., Any] = found_in_line
    endless: bool = False  # control by what M/G/∞ would hold, too

    def run(self, k):
        """The mean of one run, for each priority, and its controls."""
        put = poisson(self.kinds, self.rate, self.count, [zlib.crc32(self.name.encode()), k])
        jobs = simulate(put.workload(), cluster(self.servers), **self.rules[k % len(self.rules)]).jobs
        values, kept = jobs[self.metric].to_numpy(), np.arange(self.count) >= self.warm
        ranks = sorted({kind.priority for kind in self.kinds}, reverse=True)
        return [values[kept & (put.priority == p)].mean() for p in ranks], self._controls(jobs, put, kept)

    def _controls(self, jobs, put, kept):
        found, kept = self.found(jobs, put, self)[kept][:-1], np.flatnonzero(kept)[:-1]
        controls = [(found * (put.gap[kept + 1] - 1 / self.rate)).mean()]
        for k, kind in enumerate(self.kinds):
            seconds = np.where(put.kind[kept] == k, put.runtime[kept], 0.0)
            controls.append((found * (seconds - kind.chance * kind.runtime.moment(1))).mean())
        if self.found is found_by_one_server:
            second = sum(k.chance * k.need**2 * k.runtime.moment(2) for k in self.kinds) / self.servers**2
            controls.append(found.mean() - pollaczek_khinchine(self.rate, load(self.kinds) / self.servers, second))
        if self.endless:
            held = kept - np.searchsorted(np.sort(put.submit + put.runtime), put.submit[kept], "right")
            number, chance = poisson_law(self.rate)
            over = (lambda n: n >= self.servers, lambda n: np.maximum(n - self.servers + 1, 0))
            controls += [of(held).mean() - (of(number) * chance).sum() for of in over]
        return controls


def poisson_law(mean):
    number = np.arange(int(mean + 20 * mean**0.5 + 20))
    return number, np.exp(number * math.log(mean) - mean - np.array([math.lgamma(n + 1) for n in number]))


class Found(NamedTuple):
    """A simulated mean beside the exact one, with the half-width of its 95 % interval; and without controls."""

    exact: float
    mean: float
    half: float
    plain: float
    plain_half: float

    @property
    def off(self):
        return abs(self.mean - self.exact) / self.half


@cache
def measured(case):
    means, controls = (np.array(part) for part in zip(*map(case.run, range(RUNS)), strict=True))
    exact = case.theory()
    return [Found(exact[j], *controlled(means[:, j], controls), *controlled(means[:, j])) for j in range(len(exact))]


def controlled(means, controls=None):
    """The mean over runs where all controls are zero, by least squares, and the half-width of its interval."""
    columns = np.ones((RUNS, 1)) if controls is None else np.column_stack([np.ones(RUNS), controls])
    fitted = np.linalg.lstsq(columns, means, rcond=None)[0]
    left = means - columns @ fitted
    variance = left @ left / (RUNS - columns.shape[1]) * np.linalg.pinv(columns.T @ columns)[0, 0]
    return fitted[0], T95 * variance**0.5


EITHER = ({"backfill": "none"}, {"backfill": "greedy"})
LENGTHS = {0.7: (20_000, 1_000), 0.9: (30_000, 6_000), 0.95: (50_000, 15_000)}
MOVING = {0.5: (6_000, 1_500), 0.7: (6_000, 1_500), 0.8: (9_000, 2_000), 0.9: (14_000, 3_000), 0.95: (16_000, 5_000)}
MORE: dict[Any, int] = {  # where chance is great, or few jobs wait
    (64, 0.7): 150_000, (64, 0.9): 60_000, (64, 0.95): 80_000,
    "k=8, slow elephants": 100_000, "k=8, 1-2-4-8": 90_000, "k=10, one size": 80_000,
}  # fmt: skip


def many_servers(servers, rho):
    count, warm = LENGTHS[rho]
    count = MORE.get((servers, rho), count)
    return Case(
        f"M/M/{servers}, ρ {rho}", lambda: (erlang_c_wait(servers, rho),), ONE, servers, servers * rho, count, warm,
        EITHER, "wait", endless=servers > 1,
    )  # fmt: skip


def one_server(word, runtime, rho):
    exact = pollaczek_khinchine(rho, runtime.moment(1), runtime.moment(2))
    kinds = (Kind(runtime=runtime),)
    return Case(
        f"M/{word}/1, ρ {rho}",
        lambda: (exact,),
        kinds,
        1,
        rho,
        30_000 if rho < 0.9 or runtime.constant else 80_000,
        6_000,
        EITHER,
        "wait",
    )


def priorities(servers, rho):
    return Case(
        f"M/M/{servers}, two priorities, ρ {rho}", lambda: cobham(servers, rho, 0.4), TWO, servers, servers * rho,
        30_000, 5_000, tuple({"order": "priority"} | rules for rules in EITHER), "wait", found_by_one_server,
    )  # fmt: skip


def put_off(rho):
    return Case(
        f"M/M/1, the second put off, ρ {rho}", lambda: preempted(rho, 0.4), TWO, 1, rho, *MOVING[rho],
        ({"order": "priority", "preemption": True},), "jct", found_by_one_server,
    )  # fmt: skip


def shortest_left(word, runtime, rho):
    kinds = (Kind(runtime=runtime),)
    return Case(
        f"M/{word}/1, SRPT, ρ {rho}", lambda: (srpt(rho, runtime.parts),), kinds, 1, rho, *MOVING[rho],
        ({"order": "srpt"},), "jct", found_by_one_server,
    )  # fmt: skip


def blocking(name, share):
    servers, kinds, limit = GANGS[name]
    count = {0.5: 15_000, 0.8: 30_000, 0.9: MORE.get(name, 40_000)}[share]
    return Case(
        f"gangs {name}, {share} of the limit", lambda: (gang_completion(name, share),), kinds, servers, share * limit,
        count, count // 6, EITHER[:1],
    )  # fmt: skip


def filling(order, rho, theory):
    rate = rho * FILLED / load(POWERS)
    return Case(
        f"{order}, ρ {rho}", lambda: (theory(rate),), POWERS, FILLED, rate, *MOVING[rho], ({"order": order},),
        "jct", found_by_one_server,
    )  # fmt: skip


EXACT = [
    *(many_servers(servers, rho) for servers in (1, 2, 8, 64) for rho in (0.7, 0.9, 0.95)),
    *(
        one_server(word, runtime, rho)
        for word, runtime in (("D", Service(constant=True)), ("H", HYPER))
        for rho in (0.7, 0.9)
    ),
    *(priorities(servers, rho) for servers, rho in ((1, 0.7), (1, 0.9), (8, 0.9))),
    put_off(0.9),
    shortest_left("M", Service(), 0.9),
    shortest_left("H", HYPER, 0.8),
    *(blocking(name, share) for name in ANSWERED for share in (0.5, 0.8, 0.9)),
    *(
        filling("server_filling", rho, lambda rate: Line(server_filling(FILLED), POWERS).completion(rate))
        for rho in (0.5, 0.8, 0.9, 0.95)
    ),
]


def named(case):
    return case.name


@pytest.mark.validate
@pytest.mark.parametrize("case", EXACT, ids=named)
def test_means_are_as_theory_says(case):
    for found in measured(case):
        assert found.half <= NARROW * found.exact, found
        assert found.off <= SURE / T95, found


@pytest.mark.validate
def test_no_more_intervals_miss_the_theory_than_should():
    offs = [found.off for case in EXACT for found in measured(case)]
    assert sum(off > 1 for off in offs) <= 8  # of 48 at 95 %: two; nine or more once in a thousand


# For ServerFilling-SRPT there are bounds (Grosof, Harchol-Balter and Scully), and what another simulator found in 2.4
# million jobs: 2 % are its own error, for it misses the exact mean of ServerFilling by more.
SEEN = {0.5: 1.43, 0.8: 1.87, 0.9: 2.24}
BOUNDED = [filling("server_filling_srpt", rho, lambda _rate, seen=seen: seen) for rho, seen in SEEN.items()]


def srpt_bounds(rate):
    """What one server of the same speed would need, and at most how much longer it takes."""
    least = srpt(rate, tuple((k.chance, k.need * k.runtime.moment(1) / FILLED) for k in POWERS))
    idle = 1 - rate * load(POWERS) / FILLED
    return least, least + ((math.e + 1) * (FILLED - 1) * math.log(1 / idle) + math.e) / rate


@pytest.mark.validate
@pytest.mark.parametrize("case", BOUNDED, ids=named)
def test_server_filling_srpt_is_within_its_bounds_and_as_seen_before(case):
    (found,) = measured(case)
    least, most = srpt_bounds(case.rate)
    assert least < found.mean - found.half
    assert found.mean + found.half < most
    assert found.mean == pytest.approx(found.exact, rel=NARROW)


@cache
def saturated(name, runs=10, count=30_000):
    """Jobs a second where all have come already: between the first tenth and the last, and its interval."""
    servers, kinds, limit = GANGS[name]
    rates = []
    for k in range(runs):
        put = poisson(kinds, limit, count, [zlib.crc32(name.encode()), k])
        put = put._replace(gap=np.zeros(count))
        start = simulate(put.workload(), cluster(servers), backfill="none").jobs["start"]
        rates.append(0.8 * count / (start[int(0.9 * count)] - start[int(0.1 * count)]))
    half = 2.262 * np.std(rates, ddof=1) / runs**0.5
    return Found(limit, np.mean(rates), half, np.mean(rates), half)


@pytest.mark.validate
@pytest.mark.parametrize("name", GANGS)
def test_gangs_that_block_the_head_run_at_the_published_throughput(name):
    found = saturated(name)
    assert found.half <= NARROW / 2 * found.exact
    assert found.off <= 6.0 / 2.262  # 98 % of eight together, with 9 degrees


@pytest.mark.parametrize("name", GANGS)
def test_the_chain_of_gangs_has_the_published_limit(name):
    servers, kinds, limit = GANGS[name]
    assert Line(head_of_line(servers), kinds).limit() == pytest.approx(limit, rel=1e-5)


def test_the_chain_of_gangs_of_one_is_erlangs():
    assert Line(head_of_line(8), ONE).completion(7.2) == pytest.approx(1 + erlang_c_wait(8, 0.9))


# -- schedules, bit for bit ----------------------------------------------------------------------------------------


def first_come(jobs, servers):
    """Starts by Kiefer and Wolfowitz's recursion: whoever comes takes the server that is free first."""
    free, starts = [0.0] * servers, []
    for submit, runtime in jobs.select("submit", "runtime").iter_rows():
        starts.append(max(submit, free[0]))
        heapq.heapreplace(free, starts[-1] + runtime)
    return starts


def in_line(jobs, servers):
    """Starts where each needs several servers at once and nobody passes another."""
    now, free, running, starts = 0.0, servers, [], []
    for submit, runtime, milli in jobs.select("submit", "runtime", "gpu_milli").iter_rows():
        now, need = max(now, submit), milli // 1000
        while free < need or (running and running[0][0] <= now):
            end, held = heapq.heappop(running)
            now, free = max(now, end), free + held
        free -= need
        heapq.heappush(running, (now + runtime, need))
        starts.append(now)
    return starts


def chosen_anew(jobs, choose):
    """Ends where, whenever one comes or ends, a choice is made anew of who runs; what was done stays done."""
    submit, left, ends, now, come = jobs["submit"].to_list(), {}, [0.0] * len(jobs), 0.0, 0
    while come < len(submit) or left:
        served = choose(left)
        then = min([now + left[t] for t in served] + submit[come : come + 1])
        for t in served:
            left[t] -= then - now
            if left[t] == 0:
                ends[t] = then
                del left[t]
        now = then
        while come < len(submit) and submit[come] == now:
            left[come] = jobs["runtime"][come]
            come += 1
    return ends


def filled(line, needs, servers):
    """Of the shortest beginning of a line that can fill the servers, the largest first, as they fit."""
    seen, served = [], []
    while len(seen) < len(line) and sum(needs[t] for t in seen) < servers:
        seen.append(line[len(seen)])
    for t in sorted(seen, key=lambda t: -needs[t]):
        if sum(needs[u] for u in served) + needs[t] <= servers:
            served.append(t)
    return served


def steadily(count, servers):
    return poisson(ONE, 0.95 * servers, count, 1)


def in_bursts(count, _servers):
    """Whole seconds, many at once, and run times with a heavy tail, some zero."""
    rng = np.random.default_rng(2)
    whole = {"gap": rng.integers(0, 2, count), "runtime": np.floor(rng.pareto(1.5, count))}
    return steadily(count, 1)._replace(**whole)


ANY_LINE = [{"backfill": d} for d in ("none", "greedy", "easy", "conservative")] + [{"preemption": True}]


@pytest.mark.parametrize("rules", ANY_LINE, ids=lambda rules: "-".join(map(str, rules.values())))
@pytest.mark.parametrize("servers", [1, 2, 8, 64])
@pytest.mark.parametrize("come", [steadily, in_bursts])
def test_alike_jobs_start_as_the_recursion_says(come, servers, rules):
    count = 500 if "conservative" in rules.values() else 4000
    jobs = simulate(come(count, servers).workload(), cluster(servers), **rules).jobs
    assert jobs["start"].to_list() == first_come(jobs, servers)


@pytest.mark.parametrize("preempt", [False, True], ids=["quick", "full"])
@pytest.mark.parametrize("name", GANGS)
def test_gangs_in_a_strict_line_start_as_the_recursion_says(name, preempt):
    servers, kinds, limit = GANGS[name]
    put = poisson(kinds, 0.95 * limit, 4000, 3)
    jobs = simulate(put.workload(), cluster(servers), backfill="none", preemption=preempt).jobs
    assert jobs["start"].to_list() == in_line(jobs, servers)


@pytest.mark.parametrize("servers", [1, 8])
def test_srpt_ends_as_choosing_the_shortest_anew_does(servers):
    jobs = simulate(poisson(ONE, 0.9 * servers, 3000, 4).workload(), cluster(servers), order="srpt").jobs
    assert jobs["end"].to_list() == chosen_anew(jobs, lambda left: sorted(left, key=lambda t: (left[t], t))[:servers])


@pytest.mark.parametrize("servers", [1, 8])
def test_priorities_end_as_choosing_the_highest_anew_does(servers):
    put = poisson(TWO, 0.9 * servers, 3000, 5)
    jobs = simulate(put.workload(), cluster(servers), order="priority", preemption=True).jobs
    assert jobs["end"].to_list() == chosen_anew(
        jobs, lambda left: sorted(left, key=lambda t: (-put.priority[t], t))[:servers]
    )


@pytest.mark.parametrize("order", ["server_filling", "server_filling_srpt"])
def test_server_filling_ends_as_choosing_anew_does(order):
    put = poisson(POWERS, 0.9 * FILLED / load(POWERS), 3000, 6)
    jobs = simulate(put.workload(), cluster(FILLED), order=order).jobs

    def choose(left):
        size = (lambda t: (put.need[t] * left[t], t)) if order == "server_filling_srpt" else (lambda t: t)
        return filled(sorted(left, key=size), put.need, FILLED)

    assert jobs["end"].to_list() == chosen_anew(jobs, choose)
