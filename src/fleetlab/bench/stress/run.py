"""More and more tenants of one kind until something breaks, and what.

1, 2, 4, 8, … tenants, then halfway between the last good number and the first bad one until they are neighbours. Each
number is one cell of a suite with exactly that many processes, so that nobody else holds memory. A run that is started
again goes on: what was measured is judged anew, not measured anew. On a machine that has little installed:
`python -m fleetlab.bench.stress WORK --out FOLDER`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fleetlab.bench.plans import Cell, Plan, Seat, Tenant
from fleetlab.bench.stress.verdict import Goal, Step, judged
from fleetlab.bench.suite import Suite, finished
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import MODES

MOST = 256
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Climb:
    """What is raised, how far, and what is asked of it."""

    work: str
    modes: tuple[str, ...] = ("time-slicing", "mps")
    up_to: int = 32
    goal: Goal = field(default_factory=Goal)
    settle: float = 1.0
    window: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.work not in BY_NAME and ":" not in self.work:
            msg = f"no work by that name: `{self.work}`"
            raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name one of your own as module:Class")
        if not 1 <= self.up_to <= MOST:
            msg = f"not a number of tenants: {self.up_to}"
            raise BenchError(msg, hint=f"1 to {MOST}")
        if unknown := [mode for mode in self.modes if mode not in MODES]:
            msg = f"no sharing mode by that name: {', '.join(f'`{m}`' for m in unknown)}"
            raise BenchError(msg, hint=f"there are {', '.join(MODES)}")
        if not self.modes or len(set(self.modes)) < len(self.modes):
            msg = f"each mode once: {', '.join(self.modes) or '(none)'}"
            raise BenchError(msg, hint=f"there are {', '.join(MODES)}")

    @property
    def tenant(self) -> str:
        """What the work is called in cells."""
        return self.work.rpartition(":")[2]

    def cell(self, mode: str, n: int) -> Cell:
        """So many copies at once."""
        seats = tuple(Seat(self.tenant, k) for k in range(n))
        return Cell(mode, mode, 0, seats, label=f"{n}x{self.tenant}")

    def plan(self, mode: str, counts: Iterable[int]) -> Plan:
        """These numbers of tenants in one mode."""
        cells = tuple(self.cell(mode, n) for n in counts)
        tenants, name = {self.tenant: Tenant(self.work)}, f"stress {self.work}"
        return Plan(name, tenants, cells, settle=self.settle, window=self.window, seed=self.seed)


def stress(
    climb: Climb, out: Path, *, limit: float = 3600, device: str = "cuda", rehearse: bool = False, tell: Tell = print
) -> bool:
    """Climb in each mode; False if there was no time to find the answer."""
    if not limit > 0:
        msg = f"not a time limit: {limit} s"
        raise BenchError(msg)
    device = "cpu" if rehearse else device
    until = time.monotonic() + limit
    _declare(climb, out, rehearse=rehearse, device=device)
    tell = _once(tell)

    def measured(mode: str, n: int) -> bool:
        """Has it been, or was there no time?"""
        good = {k for k, step in steps(out, mode).items() if step.cell["status"] == "ok"}
        plan = climb.plan(mode, sorted({*good, n}))
        left = until - time.monotonic()
        how: dict[str, Any] = {"device": device, "rehearse": rehearse, "tell": tell}
        return left > 0 and not Suite(plan, out, limit=left, **how).run()

    reached = [_climbed(climb, out, mode, measured, tell) for mode in climb.modes]
    return all(reached)


def _climbed(climb: Climb, out: Path, mode: str, measured: Callable[[str, int], bool], tell: Tell) -> bool:
    # A mode that did not start the last time may start now: nothing was measured then.
    again = [n for n, step in steps(out, mode).items() if any(f["kind"] == "mode" for f in step.failures)]
    over = all(measured(mode, n) for n in again)
    while over and (n := following(_reasons(climb, out, mode), climb.up_to)) is not None:
        over = measured(mode, n)
    tell(sentence(mode, _reasons(climb, out, mode), climb.up_to))
    return over


def following(reasons: dict[int, list[str]], up_to: int) -> int | None:
    """How many tenants to try next; None when the answer is there.

    >>> following({1: [], 2: [], 4: ["out of memory"]}, 8), following({1: [], 2: []}, 3), following({1: [], 2: []}, 2)
    (3, 3, None)
    """
    good, bad = edges(reasons)
    if bad is None:
        return None if good == up_to else min(max(2 * good, 1), up_to)
    return (good + bad) // 2 if bad - good > 1 else None


def edges(reasons: dict[int, list[str]]) -> tuple[int, int | None]:
    """The first number that is bad, and the last good one before it; 0 if there is none."""
    bad = min((n for n, why in reasons.items() if why), default=None)
    good = max((n for n, why in reasons.items() if not why and (bad is None or n < bad)), default=0)
    return good, bad


def sentence(mode: str, reasons: dict[int, list[str]], up_to: int) -> str:
    """The answer for one mode."""
    good, bad = edges(reasons)
    if bad is None:
        done = "did not break" if good == up_to else "no time left, did not break"
        return f"{mode}: {done} up to {good}"
    before = f"; {good} {'is' if good == 1 else 'are'} good" if good else ""
    if bad - good > 1:
        return f"{mode}: breaks between {good} and {bad}, no time left to say where: at {bad} {'; '.join(reasons[bad])}"
    return f"{mode}: breaks at {bad}: {'; '.join(reasons[bad])}{before}"


# --- what is on disk -------------------------------------------------------------------------------------------------


def steps(out: Path, mode: str) -> dict[int, Step]:
    """What was measured in a mode, by number of tenants; of a number that was measured again, the last."""
    finished(out)  # mends a last line that was cut off
    path = out / "cells.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    cells = [cell for cell in map(json.loads, lines) if cell["stage"] == mode]
    return {n: Step(n, cell) for cell in cells for n in [int(cell["cell"].split("/")[2].partition("x")[0])]}


def _reasons(climb: Climb, out: Path, mode: str) -> dict[int, list[str]]:
    about = json.loads((out / "stress.json").read_text("utf-8"))
    on_card = about["device"].startswith("cuda")
    return judged(steps(out, mode).values(), climb.goal, cores=about["cores"], on_card=on_card)


def _declare(climb: Climb, out: Path, *, rehearse: bool, device: str) -> None:
    """Say in `stress.json` what was asked; the goal may be another the next time, what was measured may not."""
    about = asdict(climb) | {"rehearsal": rehearse, "device": device, "cores": len(os.sched_getaffinity(0))}
    path = out / "stress.json"
    try:
        was = json.loads(path.read_text("utf-8")) if path.exists() else about
        out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as e:
        msg = f"{out}: holds no stress test that can be gone on with: {e}"
        raise BenchError(msg, hint="name another folder with --out") from None
    for key in ("work", "settle", "window", "seed", "rehearsal", "device"):
        if was.get(key) != about[key]:
            msg = f"{out}: holds another run: {key} {was.get(key)}, not {about[key]}"
            raise BenchError(msg, hint="name another folder with --out")
    beside = out / ".stress.json.new"
    beside.write_text(json.dumps(about, indent=1), "utf-8")
    beside.replace(path)


def _once(tell: Tell) -> Tell:
    """Each cell is a suite of its own, and would say the same of the machine each time."""
    said = set[str]()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            tell(line)

    return say
