"""Raise the number of tenants of one kind until something breaks.

A number is judged against one tenant alone and the best throughput so far; latency and throughput count as broken only
if the whole 95 % interval does. The number is doubled, then bisected between the last good and the first bad one. Each
number is one cell of a suite with exactly that many processes, so that no others use memory. A run that is started
again resumes: existing measurements are judged again, not repeated. On a machine with few packages: `python -m
fleetlab.gpu.bench.stress WORKLOAD --out FOLDER`.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.gpu.bench.histogram import GROWTH, LOWEST, Histogram, known_percentile
from fleetlab.gpu.bench.options import StressOptions
from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.run import STOPPED, RunFolder, SuiteRun
from fleetlab.gpu.bench.workloads import BY_NAME
from fleetlab.gpu.devices.console import BenchError, Progress, print_progress, start
from fleetlab.gpu.sharing.modes import MODES
from fleetlab.stats import POSITIVE, Interval, binomial_tail, mean_of_runs, no_interval

MISS = 0.05
BUSY = 0.8  # of the cores: above it the host is the bottleneck
STARVED, AT_FIRST = 0.5, 0.25  # steps that found the GPU idle, now above and alone below: the host is the bottleneck


@dataclass(frozen=True, slots=True)
class StressGoal:
    """Limits of the P95 step time, and of the loss of total throughput."""

    factor: float = 3.0  # times the P95 of one tenant
    ms: float | None = None  # P95 limit instead of `factor`
    least: float = 0.8  # of the best throughput so far

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor > 1):
            raise BenchError(f"not a slowdown factor: {self.factor:g}", hint="above 1, such as 3")
        if self.ms is not None and not (math.isfinite(self.ms) and self.ms > 0):
            raise BenchError(f"not a step time: {self.ms:g} ms", hint="above 0")


@dataclass(frozen=True)
class StressStep:
    """The measurement of one number of tenants."""

    count: int
    cell: dict[str, Any]

    @property
    def tenants(self) -> list[dict[str, Any]]:
        """Tenants with a result."""
        rows: list[dict[str, Any]] = self.cell.get("tenants", [])
        return rows

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Tenants that failed."""
        rows: list[dict[str, Any]] = self.cell["failures"]
        return rows

    @property
    def rate(self) -> float:
        """Total items per second."""
        return float(sum(t["rate"] for t in self.tenants))

    @cached_property
    def throughput(self) -> Interval:
        """Total rate, with an interval from the tenths of the window."""
        tenths = np.asarray([t["rates"] for t in self.tenants], float)
        if not tenths.size:
            return no_interval()
        interval = mean_of_runs(tenths.sum(axis=0), POSITIVE).interval()
        return interval._replace(value=self.rate)

    @cached_property
    def times(self) -> Histogram:
        """Step times of all tenants."""
        return Histogram.sum(Histogram.from_json(t["times"]) for t in self.tenants)

    @cached_property
    def p95(self) -> Interval | None:
        """P95 in seconds; None if there are too few steps."""
        return known_percentile(self.times, 0.95)

    @property
    def cores(self) -> float:
        """Cores that the tenants keep busy."""
        return float(sum(t["cpu"] for t in self.tenants))

    @property
    def starved(self) -> float:
        """Fraction of steps that found the GPU idle."""
        shares = [t["starved"] for t in self.tenants]
        return sum(shares) / len(shares) if shares else 0.0


def judge_steps(steps: Iterable[StressStep], goal: StressGoal, *, cores: int, on_card: bool) -> dict[int, list[str]]:
    """Reasons why each number of tenants is bad; none if it is good."""
    reasons: dict[int, list[str]] = {}
    alone: StressStep | None = None
    best = 0.0
    for step in sorted(steps, key=lambda s: s.count):
        alone = step if step.count == 1 else alone
        reasons[step.count] = [
            *_failed(step),
            *(_host(step, alone, cores, on_card=on_card) if step.count > 1 else ()),
            *_slow(step, alone, goal),
            *_low_throughput(step, best, goal),
        ]
        if not reasons[step.count]:
            best = max(best, step.rate)
    return reasons


def _failed(step: StressStep) -> Iterable[str]:
    by: dict[str, list[dict[str, Any]]] = {}
    for failure in step.failures:
        by.setdefault(failure["kind"], []).append(failure)
    for kind, failures in by.items():
        detail = str(failures[0].get("detail", ""))
        if kind == "mode":
            yield f"the mode failed: {detail}"
            continue
        who = _who([f["copy"] + 1 for f in failures], step.count)
        request = re.search(r"[Tt]ried to allocate ([\d.]+ [KMGT]?i?B)", detail)
        if kind == "out-of-memory":
            yield f"out of memory ({who} requested {request[1] if request else 'more'})"
        else:
            verb = {"died": "died", "hung": "did not answer", "error": "failed"}.get(kind, kind)
            yield f"{who} {verb}" + (f" ({detail[:200]})" if detail else "")
    if not step.failures and len(step.tenants) < step.count:
        yield f"{step.count - len(step.tenants)} of {step.count} tenants did not answer"


def _who(numbers: list[int], count: int) -> str:
    if len(numbers) == 1:
        return f"tenant {numbers[0]} of {count}"
    return f"{len(numbers)} of {count} tenants"


def _host(step: StressStep, alone: StressStep | None, cores: int, *, on_card: bool) -> Iterable[str]:
    if step.cores > BUSY * cores:
        yield f"the host, not the GPU: the tenants keep {step.cores:.1f} of {cores} cores busy"
    # On a CPU each step ends when it returns, so none is ever in flight.
    elif on_card and step.starved > STARVED and alone is not None and alone.starved < AT_FIRST:
        here, one = 100 * step.starved, 100 * alone.starved
        yield f"the host, not the GPU: {here:.0f} % of steps found the GPU idle ({one:.0f} % alone)"


def _slow(step: StressStep, alone: StressStep | None, goal: StressGoal) -> Iterable[str]:
    if not step.tenants or (limit := p95_limit(alone, goal)) is None:
        return
    if not step.times.n:
        yield "no step ended within the window"
        return
    over = count_longer(step.times, limit)
    if binomial_tail(over, step.times.n, 0.05) < MISS:
        now = f"{1000 * step.p95.value:.3g} ms" if step.p95 else f"of {step.times.n} steps {over} took longer"
        rule = f"{goal.factor:g} times that of one tenant" if goal.ms is None else "the goal"
        yield f"P95 step time above {rule}: {now}, limit {1000 * limit:.3g} ms"


def p95_limit(alone: StressStep | None, goal: StressGoal) -> float | None:
    """Limit of the P95 step time in seconds; None if unknown."""
    if goal.ms is not None:
        return goal.ms / 1000
    return goal.factor * alone.p95.value if alone is not None and alone.p95 is not None else None


def count_longer(times: Histogram, limit: float) -> int:
    """Number of times above a limit."""
    return int(times.counts[LOWEST * GROWTH ** (times.buckets + 0.5) > limit].sum())


def _low_throughput(step: StressStep, best: float, goal: StressGoal) -> Iterable[str]:
    if step.tenants and not step.failures and step.throughput.high < goal.least * best:
        yield f"throughput {step.rate:.4g}/s is below {goal.least:g} of the best, {best:.4g}/s"


# --- raise the number of tenants of one kind until something breaks --------------------------------------------------


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
            raise BenchError(f"not a number of tenants: {self.up_to}", hint=f"from 1 to {MOST}")
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
        raise BenchError(f"not a time limit: {limit} s")
    device = "cpu" if rehearse else device
    until = time.monotonic() + limit
    _declare(climb, out, rehearse=rehearse, device=device)
    progress = _without_repeats(progress)

    def measured(mode: str, n: int) -> bool:
        """Measure `n` tenants; False if there is no time."""
        good = {k for k, step in steps(out, mode).items() if step.cell["status"] == "ok"}
        plan = climb.plan(mode, sorted({*good, n}))
        remaining = until - time.monotonic()
        how: dict[str, Any] = {"device": device, "rehearse": rehearse, "progress": progress}
        return remaining > 0 and not SuiteRun(plan, out, limit=remaining, **how).run()

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
    cells = [cell for cell in RunFolder(out).records() if cell["stage"] == mode]
    return {n: StressStep(n, cell) for cell in cells for n in [int(cell["cell"].split("/")[2].partition("x")[0])]}


def _reasons(climb: StressPlan, out: Path, mode: str) -> dict[int, list[str]]:
    about = json.loads((out / "stress.json").read_text("utf-8"))
    on_card = about["device"].startswith("cuda")
    return judge_steps(steps(out, mode).values(), climb.goal, cores=about["cores"], on_card=on_card)


def _declare(climb: StressPlan, out: Path, *, rehearse: bool, device: str) -> None:
    """Write the settings to `stress.json`; on resuming the goals may change, but nothing that was measured."""
    about = asdict(climb) | {"rehearsal": rehearse, "device": device, "cores": len(os.sched_getaffinity(0))}
    folder = RunFolder(out, about="stress.json")
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder.check_same(**{key: about[key] for key in ("work", "settle", "window", "seed", "rehearsal", "device")})
    except (OSError, ValueError) as e:
        msg = f"{out}: not a stress test that can be resumed: {e}"
        raise BenchError(msg, hint="name another folder with --out") from None
    folder.declare(about)


def _without_repeats(progress: Progress) -> Progress:
    """Drop repeated lines: each cell is a suite that reports the same about the machine."""
    lines = set[str]()

    def say(line: str) -> None:
        if line not in lines:
            lines.add(line)
            progress(line)

    return say


def _run(options: StressOptions) -> int:
    if options.out is None:
        raise BenchError("no folder for the results", hint="name one with --out")
    return 0 if run_stress(options, options.out, progress=print_progress) else 3


main = partial(start, "fleetlab.gpu.bench.stress", StressOptions, _run, stopped=STOPPED)


if __name__ == "__main__":
    sys.exit(main())
