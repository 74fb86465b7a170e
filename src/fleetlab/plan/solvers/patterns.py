"""Column generation over patterns: what one node may hold. It gives a bound, and most of a plan.

A linear program chooses how many nodes to fill by each pattern known so far (Gilmore and Gomory, 1961); its prices say
what a better pattern would be worth, and CP-SAT looks for one. Whatever the prices, they prove a bound (Farley, 1990).
Instances that differ by their app alone are one shape here: limits are loosened, so that the bound holds and the
program stays small; they are kept again when patterns become nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleetlab.plan.problem import WHOLE, Floats, Ints, Problem
from fleetlab.plan.solvers.exact import cp_model, cp_solver, glop
from fleetlab.plan.solvers.greedy import PartialPlan

FINE = 1_000_000  # steps of the highest price: CP-SAT counts in whole numbers
ROUNDS = 1000
NEARLY = 0.02  # of the best pattern's worth
FEW = 4  # classes of nodes, for each of which the best pattern is looked for at once
AT_ONCE = 6  # patterns a round: more of them would all be much alike
NEVER = 1e3  # what an instance without a place costs, in heaviest nodes


Count = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a node of class `of` may hold: so many of each shape, shares with the number of their GPU."""

    of: int
    count: Count  # shape, how many
    cards: Count = ()  # shape, GPU: one for each share


@dataclass(frozen=True, slots=True, eq=False)
class PatternSpace:
    """Kinds that differ by their app and limit alone, together."""

    problem: Problem
    of: Ints  # [kinds]
    one: Ints  # [shapes]: a kind of it
    count: Ints  # [shapes]
    most: Ints  # [shapes]: on one node, by limits

    @classmethod
    def make(cls, p: Problem) -> PatternSpace:
        """Put kinds together."""
        requests = np.column_stack([p.ask, p.gpus, p.milli, p.vram, p.may])
        _, one, of = np.unique(requests, axis=0, return_index=True, return_inverse=True)
        of = of.reshape(-1)
        most = np.zeros(len(one), dtype=np.int64)
        for s in range(len(one)):
            mine = np.flatnonzero(of == s)
            apps = {int(a): int(p.limit[mine][p.app[mine] == a].max()) for a in p.app[mine]}
            most[s] = p.count[mine].sum() if -1 in apps else sum(apps.values())
        return cls(p, of, one, np.bincount(of, weights=p.count, minlength=len(one)).astype(np.int64), most)


@dataclass(frozen=True, slots=True)
class Pricing:
    """How patterns are looked for: a part by which one may miss the best saves most of the time, at first."""

    seed: int
    until: float
    gap: float


@dataclass(slots=True)
class Generated:
    """What column generation came to."""

    bound: float
    patterns: list[Pattern] = field(default_factory=list)
    times: Floats = field(default_factory=lambda: np.zeros(0))  # how many nodes by each pattern, not whole
    rounds: int = 0
    clock: bool = False  # did the clock end it?
    done: bool = False  # is the linear program solved?


def generate(
    shapes: PatternSpace, start: PartialPlan, *, until: float, seed: int, progress: Callable[[str, int, float], None]
) -> Generated:
    """Look for patterns until none is better, or the clock reads `until`."""
    master = _Master(shapes)
    for first in sorted(_patterns_of(shapes, start), key=lambda x: (x.of, x.count)):
        master.add(first)
    result, best = Generated(0.0), start.value() if not start.unplaced.any() else np.inf
    how = Pricing(seed, until, NEARLY if len(shapes.problem.have) > FEW else 0.0)
    for result.rounds in range(1, ROUNDS + 1):
        prices, slack = master.solve()
        values, patterns = _priced(shapes, prices, shapes.problem.weight - slack, how)
        new = sum(master.add(pattern) for pattern in patterns)
        result.bound = max(result.bound, _proved(shapes, prices, values))
        part = min(0.95, result.bound / best if np.isfinite(best) else 0.5)
        progress("finding ways to fill a node", len(master.patterns), part)
        result.done, result.clock = not new and not how.gap, time.monotonic() > until
        if result.done or result.clock or result.bound >= best - 1e-6:
            break
        how = Pricing(seed, until, how.gap if new else 0.0)
    result.patterns, result.times = master.patterns, master.times()
    return result


def _patterns_of(shapes: PatternSpace, placing: PartialPlan) -> set[Pattern]:
    """The patterns of the nodes of a plan."""
    p, share = shapes.problem, (shapes.problem.milli > 0) & (shapes.problem.milli < WHOLE)
    counts: dict[int, dict[int, int]] = {}
    cards: dict[int, list[tuple[int, int]]] = {}
    for k, n, bits in zip(placing.kind, placing.node, placing.gpus, strict=True):
        s = int(shapes.of[k])
        counts.setdefault(n, {})[s] = counts.setdefault(n, {}).get(s, 0) + 1
        if share[k]:
            cards.setdefault(n, []).append((s, bits.bit_length() - 1))
    return {Pattern(int(p.of[n]), tuple(sorted(h.items())), tuple(sorted(cards.get(n, [])))) for n, h in counts.items()}


class _Master:
    """The linear program: the least weight of nodes by patterns that hold everybody."""

    def __init__(self, shapes: PatternSpace) -> None:
        p, self.lp = shapes.problem, glop()
        self.patterns: list[Pattern] = []
        self.patterns_seen: set[tuple[int, Count]] = set()
        self.columns: list[Any] = []
        self.demand = [self.lp.Constraint(float(d), self.lp.infinity()) for d in shapes.count]
        self.stock = [self.lp.Constraint(-self.lp.infinity(), float(t)) for t in p.there]
        self.weight = p.weight
        self.lp.Objective().SetMinimization()
        for row in self.demand:  # someone may have no place, at a price
            column = self.lp.NumVar(0.0, self.lp.infinity(), "")
            row.SetCoefficient(column, 1.0)
            self.lp.Objective().SetCoefficient(column, NEVER * max(float(p.weight.max()), 1e-3))

    def add(self, pattern: Pattern) -> bool:
        """One more pattern; False if it was known."""
        if (pattern.of, pattern.count) in self.patterns_seen:
            return False
        self.patterns_seen.add((pattern.of, pattern.count))
        column = self.lp.NumVar(0.0, self.lp.infinity(), "")
        self.lp.Objective().SetCoefficient(column, float(self.weight[pattern.of]))
        for s, count in pattern.count:
            self.demand[s].SetCoefficient(column, float(count))
        self.stock[pattern.of].SetCoefficient(column, 1.0)
        self.patterns.append(pattern)
        self.columns.append(column)
        return True

    def solve(self) -> tuple[Floats, Floats]:
        """The prices of shapes, at least 0, and of nodes of each class, at most 0."""
        self.lp.Solve()
        prices = np.array([max(0.0, row.dual_value()) for row in self.demand])
        return prices, np.array([min(0.0, row.dual_value()) for row in self.stock])

    def times(self) -> Floats:
        """How many nodes by each pattern."""
        self.lp.Solve()
        return np.array([max(0.0, column.solution_value()) for column in self.columns])


def _priced(shapes: PatternSpace, prices: Floats, cost: Floats, how: Pricing) -> tuple[Floats, list[Pattern]]:
    """No pattern of a class is worth more than so much; and patterns worth more than they cost, if there are any.

    A linear program per class says what a pattern cannot exceed. Where that is more than it costs, CP-SAT looks for
    one, in the most promising classes first, and no further than to a few.
    """
    values = np.array([_at_most(shapes, c, prices) for c in range(len(cost))])
    result: list[Pattern] = []
    for c in np.argsort(cost - values, kind="stable").tolist():
        if values[c] <= cost[c] + 1e-7 or len(result) == AT_ONCE:
            break
        value, pattern = _better(shapes, c, prices, how)
        values[c] = min(values[c], value)
        if pattern is not None and float(sum(prices[s] * count for s, count in pattern.count)) > cost[c] + 1e-7:
            result.append(pattern)
    return values, result


def _at_most(shapes: PatternSpace, c: int, prices: Floats) -> float:
    """What no pattern of a class is worth more than: parts of instances allowed.

    The solver is right to its tolerance only, so what it says is not taken: whatever amounts cost, a pattern is worth
    no more than all of them on the node, and what its instances are worth beyond theirs. The solver names the costs.
    """
    p, lp = shapes.problem, glop()
    ask = np.column_stack([p.ask[shapes.one], (p.gpus * p.milli)[shapes.one]]).astype(np.float64)
    has = np.append(p.have[c], p.cards[c] * WHOLE).astype(np.float64)
    which = np.flatnonzero((prices > 0) & p.may[shapes.one, c])
    most = np.array([_most(shapes, s, c) for s in which.tolist()], dtype=np.float64)
    rows = [lp.Constraint(-lp.infinity(), amount) for amount in has.tolist()]
    lp.Objective().SetMaximization()
    for s, count in zip(which.tolist(), most.tolist(), strict=True):
        x = lp.NumVar(0.0, count, "")
        lp.Objective().SetCoefficient(x, float(prices[s]))
        for row, amount in zip(rows, ask[s].tolist(), strict=True):
            if amount:
                row.SetCoefficient(x, amount)
    lp.Solve()
    costs = np.array([max(0.0, row.dual_value()) for row in rows])
    return float(costs @ has + most @ np.maximum(prices[which] - ask[which] @ costs, 0.0)) * (1 + 1e-12)


def _proved(shapes: PatternSpace, prices: Floats, values: Floats) -> float:
    """What prices prove, if no pattern of a class is worth more than `values`: the best of their multiples."""
    p, total = shapes.problem, float(prices @ shapes.count)
    times = [1.0, *(float(w / v) for w, v in zip(p.weight, values, strict=True) if v > w)]
    return max(t * total + float(p.there @ np.minimum(0.0, p.weight - t * values)) for t in times)


# -- the best pattern of a class -----------------------------------------------------------------------------------


def _better(shapes: PatternSpace, c: int, prices: Floats, how: Pricing) -> tuple[float, Pattern | None]:
    """No pattern of class `c` is worth more than this, and a pattern of it that is worth much, if one was found.

    Which share is on which GPU is left open at first: what that allows is rarely more than there is. Only where shares
    then do not fit on the GPUs are these told apart, which takes much longer.
    """
    value, count, _ = _solved(shapes, c, prices, how, apart=False)
    if count is None:
        return value, None
    cards = _on_cards(shapes, c, count)
    if cards is not None:
        return value, Pattern(c, count, cards)
    other, count, cards = _solved(shapes, c, prices, how, apart=True)
    return min(value, other), None if count is None or cards is None else Pattern(c, count, cards)


def _solved(
    shapes: PatternSpace, c: int, prices: Floats, how: Pricing, *, apart: bool
) -> tuple[float, Count | None, Count | None]:
    """What no pattern is worth more than; how many of each shape are worth most; if `apart`, the GPU of each share."""
    fine = FINE / max(float(prices.max(initial=0.0)), 1e-9)
    # Rounded up: what is proved of these holds for the prices themselves.
    worth = np.ceil(prices * fine).astype(np.int64)
    model, number, per_gpu = _model(shapes, c, worth, apart=apart)
    if not number:
        return 0.0, None, None
    seconds = min(5.0, max(0.05, how.until - time.monotonic()))
    solver, status = cp_solver(model, seconds=seconds, seed=how.seed, work=0.3, gap=how.gap)
    cp = cp_model()
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return float("inf"), None, None
    count = tuple((s, v) for s, x in number.items() if (v := solver.value(x)))
    cards = tuple((s, g) for (s, g), x in per_gpu.items() for _ in range(solver.value(x)))
    return solver.best_objective_bound / fine, count, cards


def _on_cards(shapes: PatternSpace, c: int, count: Count) -> Count | None:
    """The GPU of each share: the largest first to the tightest that holds it; None if one finds none."""
    p, one = shapes.problem, shapes.one
    whole = sum(int(p.gpus[one[s]]) * n for s, n in count if p.milli[one[s]] == WHOLE)
    free = [[WHOLE, int(p.memory[c])] for _ in range(int(p.cards[c]) - whole)]
    result: list[tuple[int, int]] = []
    shares = [(int(p.milli[one[s]]), s) for s, n in count for _ in range(n) if 0 < p.milli[one[s]] < WHOLE]
    for milli, s in sorted(shares, reverse=True):
        vram = int(p.vram[one[s]])
        fits = [g for g, (milli_left, memory) in enumerate(free) if milli_left >= milli and memory >= vram]
        if not fits:
            return None
        g = min(fits, key=lambda g: free[g][0])
        free[g][0] -= milli
        free[g][1] -= vram
        result.append((s, g))
    return tuple(sorted(result))


def _model(
    shapes: PatternSpace, c: int, worth: Ints, *, apart: bool
) -> tuple[Any, dict[int, Any], dict[tuple[int, int], Any]]:
    p, model = shapes.problem, cp_model().CpModel()
    number: dict[int, Any] = {}
    for s, k in enumerate(shapes.one):
        if worth[s] > 0 and p.may[k, c] and (most := _most(shapes, s, c)):
            number[s] = model.new_int_var(0, most, "")
    for a in range(p.ask.shape[1]):
        model.add(sum(int(p.ask[shapes.one[s], a]) * x for s, x in number.items()) <= int(p.have[c, a]))
    per_gpu: dict[tuple[int, int], Any] = {}
    if p.cards[c]:
        per_gpu = _apart(shapes, c, model, number) if apart else _together(shapes, c, model, number)
    model.maximize(sum(int(worth[s]) * x for s, x in number.items()))
    return model, number, per_gpu


def _most(shapes: PatternSpace, s: int, c: int) -> int:
    """How many of a shape one node of a class could hold."""
    p, k = shapes.problem, int(shapes.one[s])
    fits = [int(p.have[c, a] // p.ask[k, a]) for a in range(p.ask.shape[1]) if p.ask[k, a]]
    if p.gpus[k]:
        fits.append(int(p.cards[c] * (WHOLE // p.milli[k]) // p.gpus[k]))
    return min([int(shapes.count[s]), int(shapes.most[s]), *fits])


def _together(shapes: PatternSpace, c: int, model: Any, number: dict[int, Any]) -> dict[tuple[int, int], Any]:  # noqa: ANN401
    """What holds for all GPUs of a node together, wherever the shares are.

    Of shares larger than one part in k + 1, no GPU holds more than k: those are the dual feasible functions of bin
    packing (Fekete and Schepers, 2001) that cost nothing.
    """
    p, one = shapes.problem, shapes.one
    whole = sum(int(p.gpus[one[s]]) * x for s, x in number.items() if p.milli[one[s]] == WHOLE)
    shares = {s: int(p.milli[one[s]]) for s in number if 0 < p.milli[one[s]] < WHOLE}
    cards = int(p.cards[c])
    model.add(WHOLE * whole + sum(milli * number[s] for s, milli in shares.items()) <= WHOLE * cards)
    for k in sorted({WHOLE // milli for milli in shares.values()}):
        large = sum(number[s] for s, milli in shares.items() if milli * (k + 1) > WHOLE)
        model.add(large + k * whole <= k * cards)
    model.add(sum(int(p.vram[one[s]]) * number[s] for s in shares) <= int(p.memory[c]) * cards)
    return {}


def _apart(shapes: PatternSpace, c: int, model: Any, number: dict[int, Any]) -> dict[tuple[int, int], Any]:  # noqa: ANN401
    """Shares each go to one GPU, and whole GPUs are nobody else's."""
    p, one = shapes.problem, shapes.one
    whole = sum(int(p.gpus[one[s]]) * x for s, x in number.items() if p.milli[one[s]] == WHOLE)
    shares = [s for s in number if 0 < p.milli[one[s]] < WHOLE]
    whole_gpu = [model.new_bool_var("") for _ in range(p.cards[c])]
    model.add(sum(whole_gpu) >= whole)
    per_gpu = {
        (s, g): model.new_int_var(0, int(WHOLE // p.milli[one[s]]), "") for s in shares for g in range(p.cards[c])
    }
    for s in shares:
        model.add(sum(per_gpu[s, g] for g in range(p.cards[c])) == number[s])
    for g in range(p.cards[c]):
        model.add(sum(int(p.milli[one[s]]) * per_gpu[s, g] for s in shares) + WHOLE * whole_gpu[g] <= WHOLE)
        model.add(sum(int(p.vram[one[s]]) * per_gpu[s, g] for s in shares) <= int(p.memory[c]))
        if g:  # GPUs are alike: whole ones come first
            model.add(whole_gpu[g - 1] >= whole_gpu[g])
    return per_gpu


# -- from patterns to nodes ----------------------------------------------------------------------------------------


def rounded(shapes: PatternSpace, result: Generated, *, up: float = 0.0) -> PartialPlan:
    """Fill as many nodes by each pattern as the linear program says, in whole ones; others have no place yet.

    With `up`, a part of a node of at least 1 - `up` counts as a node.
    """
    p, placing = shapes.problem, PartialPlan.empty(shapes.problem)
    stock = [list(np.flatnonzero(p.of == c)[::-1]) for c in range(len(p.have))]
    for j in np.argsort(-result.times, kind="stable"):
        pattern = result.patterns[j]
        for _ in range(int(result.times[j] + up + 1e-9)):
            if not stock[pattern.of] or not any(bool(placing.unplaced[shapes.of == s].any()) for s, _ in pattern.count):
                break
            _fill(shapes, placing, pattern, int(stock[pattern.of].pop()))
    return placing


def _fill(shapes: PatternSpace, placing: PartialPlan, pattern: Pattern, n: int) -> None:
    """Put the instances of a pattern on node `n`; of each shape the app that needs most nodes yet comes first."""
    cards: dict[int, list[int]] = {}
    for s, g in pattern.cards:
        cards.setdefault(s, []).append(g)
    # Shares first: whole GPUs are any that are left, shares those of the pattern.
    for s, count in sorted(pattern.count, key=lambda x: x[0] not in cards):
        kinds = np.flatnonzero(shapes.of == s)
        for j in range(count):
            free = [int(k) for k in kinds if placing.unplaced[k] and placing.nodes.allowed(int(k), n)]
            if not free:
                break
            bits = 1 << cards[s][j] if s in cards else None
            placing.put(max(free, key=lambda k: placing.unplaced[k] / (placing.nodes.problem.limit[k] or 1e9)), n, bits)


def in_wholes(shapes: PatternSpace, result: Generated, *, seconds: float, work: float, seed: int) -> Generated | None:
    """The best whole numbers of nodes by the patterns that are known, by CP-SAT; nothing where none suffice."""
    p, cp = shapes.problem, cp_model()
    model = cp.CpModel()
    times = [model.new_int_var(0, int(p.there[x.of]), "") for x in result.patterns]
    rows: list[list[Any]] = [[] for _ in shapes.count]
    for x, pattern in zip(times, result.patterns, strict=True):
        for s, count in pattern.count:
            rows[s].append(count * x)
    for row, count in zip(rows, shapes.count.tolist(), strict=True):
        model.add(sum(row) >= count)
    for c, there in enumerate(p.there.tolist()):
        model.add(sum(x for x, pattern in zip(times, result.patterns, strict=True) if pattern.of == c) <= there)
    model.minimize(sum(round(1000 * float(p.weight[t.of])) * x for x, t in zip(times, result.patterns, strict=True)))
    for x, value in zip(times, result.times.tolist(), strict=True):
        model.add_hint(x, int(value + 0.5))
    solver, status = cp_solver(model, seconds=seconds, seed=seed, work=work)
    if status not in (cp.OPTIMAL, cp.FEASIBLE):
        return None
    return Generated(result.bound, result.patterns, np.array([float(solver.value(x)) for x in times]))
