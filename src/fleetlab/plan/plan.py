"""Where to put a demand: a plan for an objective, with a bound that says how far from the best it may be."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Provenance, Workload, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.plan.checker import check
from fleetlab.plan.problem import Ints, Problem, problem
from fleetlab.plan.result import METRICS, Plan, why
from fleetlab.plan.solvers import exact, fewest_moves, greedy, patterns
from fleetlab.plan.solvers.exact import HINT, CurrentPlacement, there
from fleetlab.plan.solvers.greedy import PartialPlan, aligned, best_fit, emptied, largest_first, smallest_first, spread

AGAIN = 4  # quick plans in other orders, drawn by the seed
FEW = 500  # instances: beyond, one order must do
PARTS = (0.0, 0.2, 0.4, 0.6)  # of a node, that rounding a pattern up adds at most


def plan(
    demand: Workload,
    nodes: Cluster,
    *,
    objective: str = "nodes",
    prices: Mapping[str, float] | None = None,
    current: pl.DataFrame | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = silent,
) -> Plan:
    """Where to put it? Every instance of `demand` on one of `nodes`, and a bound on how much better it could be.

    Every plan is checked by code that none of the solvers uses.

    Parameters
    ----------
    demand
        The jobs to place. Their times do not matter: all instances are there at once.
    nodes
        The nodes to place them on.
    objective
        What to have least of: `nodes` in use; `stranded` GPUs, on nodes in use and held by nobody; `cost` of nodes in
        use; `balance`, the highest load of a node; `moves` from where instances are (default: nodes).
    prices
        For `cost`: the price of a node in use, by pool.
    current
        For `moves`: who is where, a table of job, instance, node and gpus.
    seconds
        How long to search (default: 60 s).
    seed
        Random seed of the search (default: 0).
    progress
        Called as the search advances.

    Returns
    -------
    Plan
        The `placements`, the value of the objective, and a bound that no plan can be below.

    Raises
    ------
    WorkloadError
        If there is no such objective, or what it needs is not given.

    Examples
    --------
    >>> three = Workload.of(pl.DataFrame({"submit": 0.0, "instances": [3], "gpu_milli": [600]}), source="by hand")
    >>> plan(three, Cluster.uniform(4, 2))
    <Plan 3 of 3 instances, nodes in use 2>
    """
    _check_options(objective, seconds, seed, prices, current)
    p = problem(demand, nodes, weight=_weight(objective, nodes, prices))
    here = None if current is None else fewest_moves.here_of(p, current)
    search = _Search(p, until=time.monotonic() + seconds, seconds=seconds, seed=seed, progress=progress)
    search.notes += [] if current is None or here is None else fewest_moves.notes(p, current, here)
    {"balance": search.balance, "moves": search.moves}.get(objective, search.weight)(here)
    settings = {"objective": objective, "seconds": seconds, "cluster": nodes.source}
    settings |= {} if prices is None else {"prices": dict(prices)}
    return _result(search, demand, nodes, here, Provenance.of_jobs("plan", demand, settings, seed, nodes))


def _check_options(
    objective: str, seconds: float, seed: int, prices: Mapping[str, float] | None, current: pl.DataFrame | None
) -> None:
    lookup("objective", objective, METRICS, error=WorkloadError)
    if not 0 < seconds <= 86_400:
        raise WorkloadError(f"`seconds` must be above 0 and at most a day: {seconds}", hint="--seconds 60")
    if seed < 0:
        raise WorkloadError(f"a seed is a whole number of 0 or more: {seed}", hint="--seed 0")
    if (objective == "cost") != (prices is not None):
        msg = "the objective `cost` needs prices, and prices the objective `cost`"
        raise WorkloadError(msg, hint="--objective cost --price POOL=12.5, once for each pool")
    if objective == "moves" and current is None:
        msg = "the objective `moves` needs a current placement"
        raise WorkloadError(msg, hint=f"--current FILE.csv with {fewest_moves.COLUMNS}")
    if objective != "moves" and current is not None:
        msg = f"the objective `{objective}` does not use a current placement"
        raise WorkloadError(msg, hint="--objective moves, or omit --current")


def _weight(objective: str, nodes: Cluster, prices: Mapping[str, float] | None) -> pl.Series | None:
    """What a node in use counts for."""
    if objective == "stranded":
        return nodes.frame["gpus"].cast(pl.Float64)
    if prices is None:
        return None
    pools = set(nodes.frame["pool"])
    if unknown := sorted(set(prices) - pools):
        raise WorkloadError(f"a price for an unknown pool: `{unknown[0]}`", hint=f"pools: {', '.join(sorted(pools))}")
    if missing := sorted(pools - set(prices)):
        msg = f"no price for the nodes of pool: `{missing[0]}`"
        raise WorkloadError(msg, hint=f"--price {missing[0]}=12.5 sets the price of one node")
    for pool, price in prices.items():
        if not (math.isfinite(price) and 0 <= price <= 1e9 and abs(price * 1000 - round(price * 1000)) < 1e-6):
            msg = f"a price is a number of 0 or more with up to three decimals, not: {pool}={price}"
            raise WorkloadError(msg, hint="--price cpu=4.25")
    return nodes.frame["pool"].replace_strict(dict(prices), return_dtype=pl.Float64)


@dataclass(slots=True)
class _Search:
    """One look for a plan: the best so far, what is proved, and the time that is left."""

    p: Problem
    until: float
    seconds: float
    seed: int
    progress: Progress
    best: PartialPlan = field(init=False)
    bound: float = 0.0
    value: float = math.inf
    never: bool = False  # it is proved that not all fit
    clock: bool = False
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best = PartialPlan.empty(self.p)
        if not there():
            self.notes.append(f"without ortools only heuristics and simple bounds are used: {HINT}")

    @property
    def seconds_left(self) -> float:
        return self.until - time.monotonic()

    def _late(self, part: float) -> bool:
        """Is less than this part of the time left? Then the clock has a say in what is found."""
        late = self.seconds_left < part * self.seconds
        self.clock |= late
        return late

    # -- nodes that count: fewest, cheapest, least stranded ---------------------------------------------------------

    def weight(self, _: CurrentPlacement | None) -> None:
        self.bound = greedy.whole_steps(self.p, greedy.simple(self.p))
        self._quickly()
        if there() and not self._closed() and math.isfinite(self.bound) and self.seconds_left > 0:
            self._by_patterns()
        if there() and not self._closed() and not self.never and self.seconds_left > 0:
            self._exactly("weight", exact.candidates(self.p, self.best, weighed=True), None)
        self.value = self.best.value()
        self.never = self.never or math.isinf(self.bound)

    def _closed(self) -> bool:
        return not self.best.unplaced.any() and self.best.value() <= self.bound + 1e-6

    def _better(self, placing: PartialPlan) -> None:
        if placing.rank() < self.best.rank():
            self.best = placing

    def _quickly(self) -> None:
        """The largest first by several rules, small demands in several orders; nodes with little on are emptied."""
        rng = np.random.default_rng(self.seed)
        again = AGAIN if self.p.count.sum() <= FEW else 0
        tries = [(best_fit, None), (aligned, None)] + [(best_fit, rng)] * again
        for j, (score, random) in enumerate(tries):
            if self._closed() or (j and self._late(0.9)):
                break
            self._better(largest_first(self.p, score, rng=random))
            self.progress("placing by heuristics", j + 1, (j + 1) / len(tries))
        if self.best.unplaced.any():
            self._better(smallest_first(self.p, best_fit))
        elif not self._closed():
            self._better(emptied(self.best, until=self.until - 0.85 * self.seconds))
            self._late(0.85)

    def _by_patterns(self) -> None:
        """A bound by column generation, and plans by rounding what it found."""
        shapes = patterns.PatternSpace.make(self.p)
        until = time.monotonic() + 0.6 * self.seconds_left
        improved = patterns.generate(shapes, self.best, until=until, seed=self.seed, progress=self.progress)
        self.clock |= improved.clock
        self.bound = max(self.bound, greedy.whole_steps(self.p, improved.bound))
        self.never = improved.bound > float(self.p.weight @ self.p.there) + 1e-6
        for up in PARTS:
            if self._late(0.0):
                return
            self._better(self._filled(patterns.rounded(shapes, improved, up=up)))
        if not self._closed() and not self.never and self.seconds_left > 0:
            whole = patterns.in_wholes(
                shapes, improved, seconds=0.6 * self.seconds_left, work=0.4 * self.seconds, seed=self.seed
            )
            if whole is not None:
                self._better(self._filled(patterns.rounded(shapes, whole)))

    def _filled(self, placing: PartialPlan) -> PartialPlan:
        """Give those without a place one, and empty what can be emptied."""
        for k in np.argsort(-np.where(np.isfinite(self.p.size()), self.p.size(), 0.0), kind="stable").tolist():
            spread(placing, k, best_fit)
        improved = emptied(placing, until=self.until)
        self._late(0.0)
        return improved

    def _exactly(self, objective: str, nodes: Ints, here: CurrentPlacement | None) -> None:
        if not exact.small(self.p, nodes):
            return
        self.progress("searching for a better placement, or a proof that there is none", 0, 0.0)
        improved = exact.exact(
            self.p,
            nodes,
            objective=objective,
            best=self.best,
            here=here,
            seconds=max(self.seconds_left, 0.05),
            seed=self.seed,
        )
        self.clock |= improved.clock
        if improved.proved and improved.placing is None:
            self.never = True
            return
        proved = improved.bound if objective != "weight" else greedy.whole_steps(self.p, improved.bound)
        self.bound = max(self.bound, proved)
        if improved.placing is not None and (
            self.best.unplaced.any() or self._worth(improved.placing, objective, here)
        ):
            self.best = improved.placing
        if objective == "balance" and greedy.highest(self.best) <= self.bound + 1.5 * exact.STEP:
            self.bound = greedy.highest(self.best)
            self.notes.append("optimal to within 0.001 %")

    def _worth(self, placing: PartialPlan, objective: str, here: CurrentPlacement | None) -> bool:
        if objective == "weight":
            return placing.rank() < self.best.rank()
        if objective == "balance":
            return greedy.highest(placing) < greedy.highest(self.best)
        assert here is not None
        return moved(placing, here) < moved(self.best, here)

    # -- the other objectives ---------------------------------------------------------------------------------------

    def balance(self, _: CurrentPlacement | None) -> None:
        self.bound, rng = greedy.bound(self.p), np.random.default_rng(self.seed)
        for j in range(AGAIN):
            placing = greedy.balanced(self.p, rng=rng if j else None)
            before = (self.best.unplaced.sum(), greedy.highest(self.best))
            if not j or (placing.unplaced.sum(), greedy.highest(placing)) < before:
                self.best = placing
            self.progress("placing by heuristics", j + 1, (j + 1) / AGAIN)
            if self._late(0.5):
                break
        if self.best.unplaced.any():  # spread out, someone has no place left: packed, all may have one
            self.best = min(self.best, greedy.lowered(largest_first(self.p, best_fit)), key=lambda x: x.unplaced.sum())
        if (
            there()
            and (self.best.unplaced.any() or greedy.highest(self.best) > self.bound + 1e-9)
            and self.seconds_left > 0
        ):
            self._exactly("balance", np.arange(self.p.nodes), None)
        self.value = greedy.highest(self.best)
        self.never = self.never or math.isinf(self.bound)

    def moves(self, here: CurrentPlacement | None) -> None:
        assert here is not None
        self.best, self.bound = fewest_moves.least_moves(self.p, here, seed=self.seed)
        if there() and (self.best.unplaced.any() or moved(self.best, here) > self.bound) and self.seconds_left > 0:
            self._exactly("moves", np.arange(self.p.nodes), here)
        self.value = float(moved(self.best, here))
        self.never = self.never or math.isinf(greedy.simple(self.p))


def moved(placing: PartialPlan, here: CurrentPlacement) -> int:
    """How many of those that have a place now go elsewhere."""
    now: dict[tuple[int, int, int], int] = {}
    for k, n, g in zip(here.kind.tolist(), here.node.tolist(), here.gpus.tolist(), strict=True):
        now[k, n, g] = now.get((k, n, g), 0) + 1
    staying = 0
    for key in zip(placing.kind, placing.node, placing.gpus, strict=True):
        if now.get(key, 0):
            now[key] -= 1
            staying += 1
    return len(here.row) - staying


def _result(
    search: _Search, demand: Workload, nodes: Cluster, here: CurrentPlacement | None, provenance: Provenance
) -> Plan:
    placements = rows_of(search.p, search.best, here)
    whole = not search.best.unplaced.any()
    if wrong := check(demand, nodes, placements, whole=whole):
        raise AssertionError(f"a plan that is wrong: {wrong[:3]}")  # said outright: `python -O` must not let it pass
    unplaced = why(search.p, search.best, proved=search.never) if not whole else why_nothing()
    closed = whole and search.value <= search.bound + 1e-6
    ended = "proved" if closed or search.never else "clock" if search.clock else "searched"
    if search.clock:
        more = "" if ended == "proved" else "; a larger --seconds may help"
        search.notes.append(f"the time limit stopped the search: another run may give another plan{more}")
    return Plan(
        provenance, demand, nodes, placements, unplaced, search.value if whole else math.nan,
        float(min(search.bound, search.value)) if whole else math.nan, ended, (*demand.notes, *search.notes),
    )  # fmt: skip


def why_nothing() -> pl.DataFrame:
    """Everybody has a place."""
    from fleetlab.plan.result import SCHEMA

    return pl.DataFrame(schema=SCHEMA)


def rows_of(p: Problem, placing: PartialPlan, here: CurrentPlacement | None) -> pl.DataFrame:
    """Which instance of each kind has which place: who may stay where they are does, others in turn."""
    free: dict[int, list[tuple[int, int]]] = {}
    for k, n, g in zip(placing.kind, placing.node, placing.gpus, strict=True):
        free.setdefault(k, []).append((n, g))
    place_of: dict[int, tuple[int, int]] = {}
    if here is not None:
        for row, k, n, g in zip(*(x.tolist() for x in (here.row, here.kind, here.node, here.gpus)), strict=True):
            if (n, g) in free.get(k, []):
                free[k].remove((n, g))
                place_of[row] = (n, g)
    for k, places in free.items():
        rest = (row for row in range(int(p.first[k]), int(p.first[k + 1])) if row not in place_of)
        place_of |= dict(zip(rest, places, strict=False))
    rows = sorted(place_of)
    who = p.rows.select("job", "instance")[rows]
    return who.with_columns(
        node=p.names.gather([place_of[row][0] for row in rows]),
        gpus=pl.Series([place_of[row][1] for row in rows], dtype=pl.Int64),
    ).sort("job", "instance")
