"""The best plan, proved: CP-SAT over all ways to place a small demand.

Data, variables, constraints, objective, solve, in that order.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from fleetlab.core import WorkloadError
from fleetlab.plan.problem import WHOLE, Bools, Ints, Problem
from fleetlab.plan.solvers.greedy import PartialPlan

HINT = "pip install 'fleetlab[optimize]' brings ortools"


def there() -> bool:
    """Is the solver installed?"""
    return find_spec("ortools") is not None


def cp_model() -> Any:  # noqa: ANN401
    """CP-SAT."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise WorkloadError("an exact plan needs a solver that is not installed: ortools", hint=HINT) from None
    return cp_model


def glop() -> Any:  # noqa: ANN401
    """A solver of linear programs."""
    try:
        from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]
    except ImportError:
        msg = "a bound by a linear program needs a solver that is not installed: ortools"
        raise WorkloadError(msg, hint=HINT) from None
    return pywraplp.Solver.CreateSolver("GLOP")


def cp_solver(
    model: Any,  # noqa: ANN401
    *,
    seconds: float,
    seed: int,
    work: float,
    gap: float = 0.0,
) -> tuple[Any, Any]:
    """Solve a CP-SAT model with one worker, so that the same seed gives the same answer unless the clock ends it.

    `work` is CP-SAT's own count of what it has done, in about seconds of a fast core: where that ends the search, the
    answer is the same every time. A `gap` is the part by which an answer may miss the best.
    """
    solver = cp_model().CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % (2**31)
    solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    solver.parameters.max_deterministic_time = work
    solver.parameters.relative_gap_limit = gap
    solver.parameters.catch_sigint_signal = False  # it would keep Ctrl-C to itself, and search on elsewhere
    return solver, _solved(solver, model)


def _solved(solver: Any, model: Any) -> Any:  # noqa: ANN401
    """Solve beside the main thread: that one hears Ctrl-C, which inside the solver nobody does."""
    if threading.current_thread() is not threading.main_thread():
        return solver.solve(model)
    with ThreadPoolExecutor(1) as beside:
        search = beside.submit(solver.solve, model)
        try:
            return search.result()
        except BaseException:
            solver.stop_search()
            raise


LARGEST = 12_000  # variables that say who is where: beyond, it is not tried
FINE = 100_000  # steps of a load: balanced plans are the best to one of them
STEP = 1 / FINE
CENTS = 1000  # weights are counted in thousandths


@dataclass(frozen=True, slots=True)
class CurrentPlacement:
    """Where instances are now: the row of each, its node and its GPUs as bits."""

    row: Ints
    kind: Ints
    node: Ints
    gpus: Ints


@dataclass(frozen=True, slots=True)
class ExactResult:
    """What the solver came to; no plan if it found none."""

    placing: PartialPlan | None
    bound: float  # of the objective
    proved: bool = False  # the best, or none at all
    clock: bool = False  # did the clock end it?


@dataclass(slots=True)
class _Data:
    """The model's data: candidate nodes, and current placements."""

    problem: Problem
    nodes: Ints  # those that a plan may use
    here: CurrentPlacement | None
    cards: Bools  # [nodes]: must GPUs be told apart there?
    model: Any
    number: dict[tuple[int, int], Any] = field(default_factory=dict)  # kind, node
    shares: dict[tuple[int, int, int], Any] = field(default_factory=dict)  # kind, node, GPU
    whole: dict[tuple[int, int], Any] = field(default_factory=dict)  # node, GPU
    used: dict[int, Any] = field(default_factory=dict)
    stay: dict[int, Any] = field(default_factory=dict)  # who is here
    high: Any = None


def small(p: Problem, nodes: Ints) -> bool:
    """Is it small enough to look for the best?"""
    share = (p.milli > 0) & (p.milli < WHOLE)
    each = p.may[:, p.of[nodes]] * np.where(share[:, None], 1 + p.cards[p.of[nodes]], 1)
    return int(each.sum()) <= LARGEST


def candidates(p: Problem, best: PartialPlan | None, *, weighed: bool) -> Ints:
    """The nodes that the best plan may need: of each class no more than a plan that is known could pay for."""
    result: list[int] = []
    for c in range(len(p.have)):
        mine, most = np.flatnonzero(p.of == c), int(p.count.sum())
        if weighed and best is not None and not best.unplaced.any() and p.weight[c] > 0:
            most = min(most, int(best.value() / p.weight[c] + 1e-9))
        result += mine[: most if weighed else len(mine)].tolist()
    return np.array(sorted(result), dtype=np.int64)


def exact(
    p: Problem, nodes: Ints, *, objective: str, best: PartialPlan | None = None,
    here: CurrentPlacement | None = None, seconds: float, seed: int,
) -> ExactResult:  # fmt: skip
    """Look for the best plan on these nodes: `weight`, `balance` or `moves`."""
    share = (p.milli > 0) & (p.milli < WHOLE)
    apart = share.any() or (here is not None and bool((here.gpus > 0).any()))
    d = _Data(p, nodes, here, apart & (p.cards[p.of] > 0), cp_model().CpModel())
    _variables(d)
    _constraints(d, alike=here is None and objective == "weight")
    _objective(d, objective)
    if best is not None and not best.unplaced.any():
        _hint(d, best)
    cp = cp_model()
    solver, status = cp_solver(d.model, seconds=seconds, seed=seed, work=seconds)
    clock = solver.wall_time >= seconds and status != cp.OPTIMAL
    if status == cp.INFEASIBLE:
        return ExactResult(None, float("inf"), proved=True)
    raw = solver.best_objective_bound if status in (cp.OPTIMAL, cp.FEASIBLE) else 0.0
    if objective == "weight":
        bound = max(0.0, raw) / CENTS
    elif objective == "balance":
        bound = max(0.0, raw / FINE - STEP)
    else:
        bound = 0.0 if d.here is None else max(0.0, len(d.here.row) + (raw if status != cp.UNKNOWN else -1e18))
    placing = _read(d, solver) if status in (cp.OPTIMAL, cp.FEASIBLE) else None
    return ExactResult(placing, bound, proved=status == cp.OPTIMAL, clock=clock)


def stayers(p: Problem, here: CurrentPlacement, mine: Ints, n: int, *, seed: int) -> tuple[list[int], int] | None:
    """Who of those on node `n` may stay, as many as can, and how many must go at least."""
    d = _Data(p, np.array([n]), here, p.cards[p.of] > 0, cp_model().CpModel())
    d.used[n] = d.model.new_constant(1)
    d.stay = {i: d.model.new_bool_var("") for i in mine.tolist() if p.may[here.kind[i], p.of[n]]}
    d.whole = {(n, g): d.model.new_constant(0) for g in range(p.cards[p.of[n]])}
    staying = _by_node(d).get(n, [])
    who = [(k, x) for k, x, _ in staying]
    _amounts(d, n, who)
    _limits(d, n, who)
    _gpus(d, n, {}, staying)
    d.model.maximize(sum(d.stay.values()))
    solver, status = cp_solver(d.model, seconds=10.0, seed=seed, work=2.0)
    if status not in (cp_model().OPTIMAL, cp_model().FEASIBLE):
        return None
    may_stay = [i for i, x in d.stay.items() if solver.value(x)]
    return may_stay, len(mine) - int(solver.best_objective_bound + 1e-6)


def seated(p: Problem, here: CurrentPlacement, placed: Ints, unplaced: Ints, n: int) -> dict[int, int] | None:
    """GPUs of node `n` for as many as can be of whom none are told, beside those of whom some are."""
    d = _Data(p, np.array([n]), here, p.cards[p.of] > 0, cp_model().CpModel())
    one = d.used[n] = d.model.new_constant(1)
    d.stay = dict.fromkeys(placed.tolist(), one)
    d.whole = {(n, g): d.model.new_bool_var("") for g in range(p.cards[p.of[n]])}
    number = {k: d.model.new_int_var(0, int(c), "") for k, c in enumerate(np.bincount(here.kind[unplaced])) if c}
    for k in (k for k in number if p.milli[k] < WHOLE):
        d.shares |= {(k, n, g): d.model.new_int_var(0, len(unplaced), "") for g in range(p.cards[p.of[n]])}
    _gpus(d, n, number, _by_node(d).get(n, []))
    d.model.maximize(sum(number.values()))
    solver, status = cp_solver(d.model, seconds=10.0, seed=0, work=2.0)
    if status not in (cp_model().OPTIMAL, cp_model().FEASIBLE):
        return None
    whole = [1 << g for (_, g), x in d.whole.items() if solver.value(x)]
    seats = {k: [1 << g for (j, _, g), x in d.shares.items() if j == k for _ in range(solver.value(x))] for k in number}
    for k, x in number.items():
        if p.milli[k] == WHOLE:
            seats[k] = [sum(whole.pop() for _ in range(p.gpus[k])) for _ in range(solver.value(x))]
    return {i: seats[k].pop() for i, k in zip(unplaced.tolist(), here.kind[unplaced].tolist(), strict=True) if seats[k]}


def _variables(d: _Data) -> None:
    p, m = d.problem, d.model
    for n in d.nodes.tolist():
        c = int(p.of[n])
        d.used[n] = m.new_bool_var("")
        for k in np.flatnonzero(p.may[:, c]).tolist():
            d.number[k, n] = m.new_int_var(0, int(p.count[k]), "")
            if d.cards[n] and 0 < p.milli[k] < WHOLE:
                for g in range(p.cards[c]):
                    d.shares[k, n, g] = m.new_int_var(0, int(min(p.count[k], WHOLE // p.milli[k])), "")
        if d.cards[n]:
            d.whole |= {(n, g): m.new_bool_var("") for g in range(p.cards[c])}
    if d.here is not None:
        there = set(d.nodes.tolist())
        for i, (k, n) in enumerate(zip(d.here.kind.tolist(), d.here.node.tolist(), strict=True)):
            if n in there and p.may[k, p.of[n]]:
                d.stay[i] = m.new_bool_var("")


def _constraints(d: _Data, *, alike: bool) -> None:
    p, m = d.problem, d.model
    staying = _by_node(d)
    for k in range(p.kinds):
        stays = sum(x for i, x in d.stay.items() if d.here is not None and d.here.kind[i] == k)
        m.add(sum(x for (j, _), x in d.number.items() if j == k) + stays == int(p.count[k]))
    of_node: dict[int, dict[int, Any]] = {}
    for (k, n), x in d.number.items():
        of_node.setdefault(n, {})[k] = x
    for n in d.nodes.tolist():
        who = [(k, x) for k, x in of_node.get(n, {}).items()] + [(k, x) for k, x, _ in staying.get(n, [])]
        _amounts(d, n, who)
        _limits(d, n, who)
        _gpus(d, n, of_node.get(n, {}), staying.get(n, []))
    if alike:
        for a, b in zip(d.nodes.tolist(), d.nodes.tolist()[1:], strict=False):
            if p.of[a] == p.of[b]:
                m.add_implication(d.used[b], d.used[a])


def _by_node(d: _Data) -> dict[int, list[tuple[int, Any, int]]]:
    result: dict[int, list[tuple[int, Any, int]]] = {}
    for i, x in d.stay.items():
        assert d.here is not None
        result.setdefault(int(d.here.node[i]), []).append((int(d.here.kind[i]), x, int(d.here.gpus[i])))
    return result


def _amounts(d: _Data, n: int, who: list[tuple[int, Any]]) -> None:
    p = d.problem
    for a in range(p.ask.shape[1]):
        if any(p.ask[k, a] for k, _ in who):
            d.model.add(sum(int(p.ask[k, a]) * x for k, x in who) <= int(p.have[p.of[n], a]) * d.used[n])
    for k, x in who:  # an instance without requests also puts its node in use
        if not p.ask[k].any():
            d.model.add(x <= int(p.count[k]) * d.used[n])


def _limits(d: _Data, n: int, who: list[tuple[int, Any]]) -> None:
    p = d.problem
    for app, limit in sorted({(int(p.app[k]), int(p.limit[k])) for k, _ in who if p.app[k] >= 0}):
        d.model.add(sum(x for k, x in who if p.app[k] == app and p.limit[k] <= limit) <= limit)


def _gpus(d: _Data, n: int, number: dict[int, Any], staying: list[tuple[int, Any, int]]) -> None:
    p, m = d.problem, d.model
    cards = int(p.cards[p.of[n]])
    whole = sum(int(p.gpus[k]) * x for k, x in number.items() if p.milli[k] == WHOLE)
    if not d.cards[n]:
        if cards:
            m.add(whole <= cards * d.used[n])
        return
    m.add(sum(d.whole[n, g] for g in range(cards)) >= whole)
    shares = [k for k in number if 0 < p.milli[k] < WHOLE]
    for k in shares:
        m.add(sum(d.shares[k, n, g] for g in range(cards)) == number[k])
    for g in range(cards):
        stays = [(k, x) for k, x, bits in staying if bits >> g & 1]
        milli = sum(int(p.milli[k]) * d.shares[k, n, g] for k in shares) + sum(int(p.milli[k]) * x for k, x in stays)
        m.add(milli + WHOLE * d.whole[n, g] <= WHOLE * d.used[n])
        vram = sum(int(p.vram[k]) * d.shares[k, n, g] for k in shares) + sum(int(p.vram[k]) * x for k, x in stays)
        m.add(vram <= int(p.memory[p.of[n]]))


def _objective(d: _Data, objective: str) -> None:
    p, m = d.problem, d.model
    if objective == "weight":
        m.minimize(sum(round(CENTS * float(p.weight[p.of[n]])) * x for n, x in d.used.items()))
    elif objective == "moves":
        m.minimize(-sum(d.stay.values()))
    else:
        d.high = m.new_int_var(0, FINE, "")
        _loads(d)
        m.minimize(d.high)


def _loads(d: _Data) -> None:
    """No node has a higher load of anything than the highest."""
    p, m = d.problem, d.model
    need = np.column_stack([p.ask, p.gpus * p.milli])
    there = np.column_stack([p.have, p.cards * WHOLE])
    for n in d.nodes.tolist():
        for a in range(need.shape[1]):
            who = [(k, x) for (k, j), x in d.number.items() if j == n and need[k, a]]
            if who:
                m.add(sum(FINE * int(need[k, a]) * x for k, x in who) <= int(there[p.of[n], a]) * d.high)


def _hint(d: _Data, best: PartialPlan) -> None:
    """Begin with a plan that is known; nodes of a class are taken in their order."""
    p, count = d.problem, dict.fromkeys(d.number, 0)
    place = _in_turn(p, best, d.nodes) if d.here is None else {n: n for n in best.used.tolist()}
    for k, n in zip(best.kind, best.node, strict=True):
        if (k, place.get(n, -1)) in count:
            count[k, place[n]] += 1
    for key, x in d.number.items():
        d.model.add_hint(x, count[key])
    for n, x in d.used.items():
        d.model.add_hint(x, n in place.values())


def _in_turn(p: Problem, best: PartialPlan, nodes: Ints) -> dict[int, int]:
    """For each node in use, the node of its class that stands for it among the candidates."""
    result: dict[int, int] = {}
    for c in range(len(p.have)):
        mine = [n for n in best.used.tolist() if p.of[n] == c]
        result |= dict(zip(mine, [n for n in nodes.tolist() if p.of[n] == c], strict=False))
    return result


def _read(d: _Data, solver: Any) -> PartialPlan:  # noqa: ANN401
    """The plan that the solver found; who stays comes first, then shares, then whole GPUs in what is left."""
    p, placing = d.problem, PartialPlan.empty(d.problem)
    for i, x in d.stay.items():
        if d.here is not None and solver.value(x):
            placing.put(int(d.here.kind[i]), int(d.here.node[i]), int(d.here.gpus[i]))
    for (k, n, g), x in d.shares.items():
        for _ in range(solver.value(x)):
            placing.put(k, n, 1 << g)
    for (k, n), x in d.number.items():
        for _ in range(0 if d.cards[n] and 0 < p.milli[k] < WHOLE else solver.value(x)):
            placing.put(k, n)
    return placing
