"""Measure on a machine that has little installed: `python -m fleetlab.bench.run PLAN --out FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

from fleetlab.bench.plan_file import read_plan
from fleetlab.bench.plans import BY_NAME, Plan
from fleetlab.bench.suite import Suite
from fleetlab.devices.errors import BenchError


def main(words: list[str] | None = None) -> int:
    """Run the plan; 0 if all of it was measured, 3 if time ran out, 2 if it cannot be."""
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        if asked.plan == "probe":
            from fleetlab.bench.probe import probe

            probe(asked.out, tell=_tell, rehearse=asked.rehearse)
            return 0
        plan = planned(
            asked.plan,
            blocks=asked.blocks,
            settle=asked.settle,
            window=asked.window,
            seed=asked.seed,
            rehearse=asked.rehearse,
        )
        skipped = Suite(
            plan, asked.out, limit=asked.limit, device=asked.device, rehearse=asked.rehearse, tell=_tell
        ).run()
    except BenchError as e:
        print(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; finished cells are kept, and the same command goes on", file=sys.stderr)
        return 130
    return 3 if skipped else 0


def planned(
    plan: str,
    *,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: int = 0,
    rehearse: bool = False,
) -> Plan:
    """The plan by that name, or in that TOML file, with what is to be different about it."""
    if blocks is not None and blocks < 1:
        msg = f"not a number of blocks: {blocks}"
        raise BenchError(msg)
    if plan.endswith(".toml"):
        made = read_plan(Path(plan), seed=seed, blocks=blocks)
    elif plan in BY_NAME:
        made = BY_NAME[plan](seed=seed, **({} if blocks is None else {"blocks": blocks}))
    else:
        msg = f"no plan by that name: `{plan}`"
        raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name a TOML file")
    if rehearse:
        made = replace(made, settle=0.1, window=0.3)
    settle = made.settle if settle is None else settle
    window = made.window if window is None else window
    return replace(made, settle=settle, window=window)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.run", description=__doc__)
    parser.add_argument("plan", help=f"probe, {', '.join(BY_NAME)}, or a TOML file")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; one that is there goes on")
    parser.add_argument("--limit", type=float, default=500, help="seconds after which no cell is begun (500)")
    parser.add_argument("--blocks", type=int, help="how often each cell is measured")
    parser.add_argument("--window", type=float, help="seconds that a cell is measured")
    parser.add_argument("--settle", type=float, help="seconds that it runs before")
    parser.add_argument("--seed", type=int, default=0, help="of the order of cells (0)")
    parser.add_argument("--device", default="cuda", help="where the tenants run (cuda)")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, tiny and short: same code, no meaning")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _terminated(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
