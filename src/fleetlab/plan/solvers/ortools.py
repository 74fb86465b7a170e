"""The solver, which is an extra: how to have it, and what to say where it is not there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from fleetlab.core import WorkloadError

HINT = "pip install 'fleetlab[optimize]' brings ortools"


def there() -> bool:
    """Is the solver installed?"""
    return find_spec("ortools") is not None


def cp_model() -> Any:  # noqa: ANN401
    """CP-SAT."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        msg = "an exact plan needs a solver that is not installed: ortools"
        raise WorkloadError(msg, hint=HINT) from None
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
