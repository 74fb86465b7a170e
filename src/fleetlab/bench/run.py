"""Measure on a machine with few packages: `python -m fleetlab.bench.run PLAN --out FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fleetlab.bench.built_in_plans import BY_NAME
from fleetlab.bench.options import SuiteOptions
from fleetlab.bench.plan_file import read_plan
from fleetlab.bench.plans import SuitePlan
from fleetlab.bench.suite import SuiteRun
from fleetlab.devices.errors import BenchError
from fleetlab.devices.options import start
from fleetlab.devices.progress import Progress, print_progress

STOPPED = "stopped; finished cells are kept, run the same command again to resume"


def main(words: Sequence[str] | None = None) -> int:
    """Run a plan; exit status 0 if complete, 3 if the time limit was reached, 2 for an error."""
    return start("fleetlab.bench.run", SuiteOptions, _run, words, stopped=STOPPED)


def _run(options: SuiteOptions) -> int:
    return 3 if run_suite(options, progress=print_progress) else 0


def run_suite(options: SuiteOptions, *, progress: Progress) -> list[str]:
    """Measure a plan; returns the names of cells that were skipped for lack of time."""
    plan = make_plan(
        options.plan,
        blocks=options.blocks,
        settle=options.settle,
        window=options.window,
        seed=options.seed,
        rehearse=options.rehearse,
    )
    run = SuiteRun(
        plan,
        options.out,
        limit=options.limit,
        device=options.device,
        rehearse=options.rehearse,
        allow_mig=options.allow_mig,
        progress=progress,
    )
    return run.run()


def make_plan(
    plan: str,
    *,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: int = 0,
    rehearse: bool = False,
) -> SuitePlan:
    """Look up a plan by name or TOML file, and override its settings."""
    if blocks is not None and blocks < 1:
        msg = f"not a number of blocks: {blocks}"
        raise BenchError(msg)
    if plan.endswith(".toml"):
        made = read_plan(Path(plan), seed=seed, blocks=blocks)
    elif plan in BY_NAME:
        made = BY_NAME[plan](seed=seed, **({} if blocks is None else {"blocks": blocks}))
    else:
        msg = f"unknown plan: `{plan}`"
        raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name a TOML file")
    if rehearse:
        made = replace(made, settle=0.1, window=0.3)
    settle = made.settle if settle is None else settle
    window = made.window if window is None else window
    return replace(made, settle=settle, window=window)


if __name__ == "__main__":
    sys.exit(main())
