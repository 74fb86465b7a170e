"""Measure on a machine with few packages: `python -m fleetlab.bench.run PLAN --out FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from fleetlab.bench.plan_file import read_plan
from fleetlab.bench.plans import BY_NAME, SuitePlan
from fleetlab.bench.suite import SuiteRun
from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress


def main(words: list[str] | None = None) -> int:
    """Run a plan; exit status 0 if complete, 3 if the time limit was reached, 2 for an error."""
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if options.plan == "probe":
            from fleetlab.bench.probe import probe

            probe(options.out, progress=print_progress, rehearse=options.rehearse)
            return 0
        plan = make_plan(
            options.plan,
            blocks=options.blocks,
            settle=options.settle,
            window=options.window,
            seed=options.seed,
            rehearse=options.rehearse,
        )
        skipped = SuiteRun(
            plan,
            options.out,
            limit=options.limit,
            device=options.device,
            rehearse=options.rehearse,
            progress=print_progress,
        ).run()
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print("stopped; finished cells are kept, run the same command again to resume", file=sys.stderr)
        return 130
    return 3 if skipped else 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.run", description=__doc__)
    parser.add_argument("plan", help=f"probe, {', '.join(BY_NAME)}, or a TOML file")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; an existing one is resumed")
    parser.add_argument("--limit", type=float, default=500, help="time limit in seconds (default: 500)")
    parser.add_argument("--blocks", type=int, help="measurements of each cell")
    parser.add_argument("--window", type=float, help="seconds of a measurement")
    parser.add_argument("--settle", type=float, help="seconds before a measurement")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order of cells (default: 0)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument(
        "--rehearse", action="store_true", help="run on the CPU with tiny sizes: results are meaningless"
    )
    return parser


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
