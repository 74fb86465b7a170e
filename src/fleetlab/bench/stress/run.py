"""Raise the number of tenants of one kind until something breaks.

The number is doubled, then bisected between the last good and the first bad one. Each number is one cell of a suite
with exactly that many processes, so that no others use memory. A run that is started again resumes: existing
measurements are judged again, not repeated. On a machine with few packages:
`python -m fleetlab.bench.stress WORKLOAD --out FOLDER`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleetlab.bench.options import StressOptions
from fleetlab.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.bench.stress.verdict import StressGoal, StressStep, judge_steps
from fleetlab.bench.suite import SuiteRun, finished_cells
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import atomic_write
from fleetlab.devices.progress import Progress
from fleetlab.sharing.modes import MODES

MOST = 256


@dataclass(frozen=True, slots=True)
class StressPlan:
    """Workload, modes, maximum number of tenants, and goals."""

    work: str
    modes: tuple[str, ...] = ("time-slicing", "mps")
    up_to: int = 32
    goal: StressGoal = field(default_factory=StressGoal)
    settle: float = 1.0
    window: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.work not in BY_NAME and ":" not in self.work:
            msg = f"unknown workload: `{self.work}`"
            raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name your own as module:Class")
        if not 1 <= self.up_to <= MOST:
            msg = f"not a number of tenants: {self.up_to}"
            raise BenchError(msg, hint=f"from 1 to {MOST}")
        if unknown := [mode for mode in self.modes if mode not in MODES]:
            msg = f"unknown sharing mode: {', '.join(f'`{m}`' for m in unknown)}"
            raise BenchError(msg, hint=f"there are {', '.join(MODES)}")
        if not self.modes or len(set(self.modes)) < len(self.modes):
            msg = f"name each mode once: {', '.join(self.modes) or '(none)'}"
            raise BenchError(msg, hint=f"there are {', '.join(MODES)}")

    @property
    def tenant(self) -> str:
        """The name of the workload in cells."""
        return self.work.rpartition(":")[2]

    def cell(self, mode: str, n: int) -> BenchCell:
        """A cell of `n` copies."""
        seats = tuple(Seat(self.tenant, k) for k in range(n))
        return BenchCell(mode, mode, 0, seats, label=f"{n}x{self.tenant}")

    def plan(self, mode: str, counts: Iterable[int]) -> SuitePlan:
        """A plan of these numbers of tenants in one mode."""
        cells = tuple(self.cell(mode, n) for n in counts)
        tenants, name = {self.tenant: Tenant(self.work)}, f"stress {self.work}"
        return SuitePlan(name, tenants, cells, settle=self.settle, window=self.window, seed=self.seed)


def run_stress(options: StressOptions, out: Path, *, progress: Progress) -> bool:
    """Run a stress test as the command line asks for it."""
    climb = StressPlan(
        options.work,
        modes=tuple(mode.strip() for mode in options.modes.split(",")),
        up_to=options.up_to,
        goal=StressGoal(options.slo_factor, options.slo_ms),
        settle=options.settle,
        window=options.window,
        seed=options.seed,
    )
    how: dict[str, Any] = {"limit": options.limit, "device": options.device, "rehearse": options.rehearse}
    return stress(climb, out, progress=progress, **how)


def stress(
    climb: StressPlan,
    out: Path,
    *,
    limit: float = 3600,
    device: str = "cuda",
    rehearse: bool = False,
    progress: Progress = print,
) -> bool:
    """Test each mode; False if the time limit was reached before the answer."""
    if not limit > 0:
        msg = f"not a time limit: {limit} s"
        raise BenchError(msg)
    device = "cpu" if rehearse else device
    until = time.monotonic() + limit
    _declare(climb, out, rehearse=rehearse, device=device)
    progress = _without_repeats(progress)

    def measured(mode: str, n: int) -> bool:
        """Measure `n` tenants; False if there is no time."""
        good = {k for k, step in steps(out, mode).items() if step.cell["status"] == "ok"}
        plan = climb.plan(mode, sorted({*good, n}))
        left = until - time.monotonic()
        how: dict[str, Any] = {"device": device, "rehearse": rehearse, "progress": progress}
        return left > 0 and not SuiteRun(plan, out, limit=left, **how).run()

    reached = [_search_mode(climb, out, mode, measured, progress) for mode in climb.modes]
    return all(reached)


def _search_mode(
    climb: StressPlan, out: Path, mode: str, measured: Callable[[str, int], bool], progress: Progress
) -> bool:
    # A mode that failed to start before may start now: nothing was measured then.
    again = [n for n, step in steps(out, mode).items() if any(f["kind"] == "mode" for f in step.failures)]
    over = all(measured(mode, n) for n in again)
    while over and (n := next_count(_reasons(climb, out, mode), climb.up_to)) is not None:
        over = measured(mode, n)
    progress(sentence(mode, _reasons(climb, out, mode), climb.up_to))
    return over


def next_count(reasons: dict[int, list[str]], up_to: int) -> int | None:
    """The next number of tenants; None when the answer is known.

    >>> [next_count(*x) for x in (({1: [], 2: [], 4: ["memory"]}, 8), ({1: [], 2: []}, 3), ({1: [], 2: []}, 2))]
    [3, 3, None]
    """
    good, bad = edges(reasons)
    if bad is None:
        return None if good == up_to else min(max(2 * good, 1), up_to)
    return (good + bad) // 2 if bad - good > 1 else None


def edges(reasons: dict[int, list[str]]) -> tuple[int, int | None]:
    """The last good number before the first bad one (0 if none), and the first bad one."""
    bad = min((n for n, why in reasons.items() if why), default=None)
    good = max((n for n, why in reasons.items() if not why and (bad is None or n < bad)), default=0)
    return good, bad


def sentence(mode: str, reasons: dict[int, list[str]], up_to: int) -> str:
    """The answer for one mode as a sentence."""
    good, bad = edges(reasons)
    if bad is None:
        done = "did not break" if good == up_to else "time limit reached, did not break"
        return f"{mode}: {done} up to {good}"
    before = f"; {good} {'is' if good == 1 else 'are'} good" if good else ""
    if bad - good > 1:
        return f"{mode}: breaks between {good} and {bad}, time limit reached: at {bad} {'; '.join(reasons[bad])}"
    return f"{mode}: breaks at {bad}: {'; '.join(reasons[bad])}{before}"


# --- files -----------------------------------------------------------------------------------------------------------


def steps(out: Path, mode: str) -> dict[int, StressStep]:
    """The measured steps of a mode by number of tenants; the last one of each number."""
    finished_cells(out)  # removes a truncated last line
    path = out / "cells.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    cells = [cell for cell in map(json.loads, lines) if cell["stage"] == mode]
    return {n: StressStep(n, cell) for cell in cells for n in [int(cell["cell"].split("/")[2].partition("x")[0])]}


def _reasons(climb: StressPlan, out: Path, mode: str) -> dict[int, list[str]]:
    about = json.loads((out / "stress.json").read_text("utf-8"))
    on_card = about["device"].startswith("cuda")
    return judge_steps(steps(out, mode).values(), climb.goal, cores=about["cores"], on_card=on_card)


def _declare(climb: StressPlan, out: Path, *, rehearse: bool, device: str) -> None:
    """Write the settings to `stress.json`; on resuming the goals may change, but nothing that was measured."""
    about = asdict(climb) | {"rehearsal": rehearse, "device": device, "cores": len(os.sched_getaffinity(0))}
    path = out / "stress.json"
    try:
        was = json.loads(path.read_text("utf-8")) if path.exists() else about
        out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as e:
        msg = f"{out}: not a stress test that can be resumed: {e}"
        raise BenchError(msg, hint="name another folder with --out") from None
    for key in ("work", "settle", "window", "seed", "rehearsal", "device"):
        if was.get(key) != about[key]:
            msg = f"{out}: contains another run: {key} {was.get(key)}, not {about[key]}"
            raise BenchError(msg, hint="name another folder with --out")
    atomic_write(path, json.dumps(about, indent=1))


def _without_repeats(progress: Progress) -> Progress:
    """Drop repeated lines: each cell is a suite that reports the same about the machine."""
    lines = set[str]()

    def say(line: str) -> None:
        if line not in lines:
            lines.add(line)
            progress(line)

    return say
