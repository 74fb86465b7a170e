"""Run a stress test on a machine that has little installed: `python -m fleetlab.bench.stress WORK --out FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fleetlab.bench.stress.run import Climb, stress
from fleetlab.bench.stress.verdict import Goal
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError


def main(words: Sequence[str] | None = None) -> int:
    """0 with the answer, 3 if time ran out before it, 2 if it cannot be."""
    asked = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        goal = Goal(asked.slo_factor, asked.slo_ms)
        climb = Climb(
            asked.work,
            modes=tuple(asked.modes.split(",")),
            up_to=asked.up_to,
            goal=goal,
            settle=asked.settle,
            window=asked.window,
            seed=asked.seed,
        )
        reached = stress(climb, asked.out, limit=asked.limit, device=asked.device, rehearse=asked.rehearse, tell=_tell)
    except BenchError as e:
        _tell(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""))
        return 2
    except KeyboardInterrupt:
        _tell("stopped; finished cells are kept, and the same command goes on")
        return 130
    return 0 if reached else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.stress", description=__doc__)
    parser.add_argument("work", help=f"{', '.join(BY_NAME)}, or one of your own as module:Class")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results; one that is there goes on")
    parser.add_argument("--modes", default="time-slicing,mps", help="of sharing, with commas between")
    parser.add_argument("--up-to", type=int, default=32, help="tenants at once (32)")
    parser.add_argument("--slo-factor", type=float, default=3.0, help="P95 of a step over that alone (3)")
    parser.add_argument("--slo-ms", type=float, help="P95 of a step, whatever it is alone")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds that a cell runs before it is measured (1)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds that a cell is measured (4)")
    parser.add_argument("--limit", type=float, default=500, help="seconds after which no cell is begun (500)")
    parser.add_argument("--seed", type=int, default=0, help="of the tenants' data (0)")
    parser.add_argument("--device", default="cuda", help="where the tenants run (cuda)")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, tiny: the same code, no meaning")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
