"""Run a stress test on a machine with few packages: `python -m fleetlab.bench.stress WORKLOAD --out FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fleetlab.bench.stress.run import StressPlan, stress
from fleetlab.bench.stress.verdict import StressGoal
from fleetlab.bench.workloads import BY_NAME
from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 with an answer, 3 if the time limit was reached before, 2 for an error."""
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        goal = StressGoal(options.slo_factor, options.slo_ms)
        climb = StressPlan(
            options.work,
            modes=tuple(options.modes.split(",")),
            up_to=options.up_to,
            goal=goal,
            settle=options.settle,
            window=options.window,
            seed=options.seed,
        )
        reached = stress(
            climb,
            options.out,
            limit=options.limit,
            device=options.device,
            rehearse=options.rehearse,
            progress=print_progress,
        )
    except BenchError as e:
        print_error(e)
        return 2
    except KeyboardInterrupt:
        print_progress("stopped; finished cells are kept, run the same command again to resume")
        return 130
    return 0 if reached else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.bench.stress", description=__doc__)
    parser.add_argument("work", metavar="WORKLOAD", help=f"{', '.join(BY_NAME)}, or your own as module:Class")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; an existing one is resumed")
    parser.add_argument("--modes", default="time-slicing,mps", help="sharing modes, separated by commas")
    parser.add_argument("--up-to", type=int, default=32, help="maximum number of tenants (default: 32)")
    parser.add_argument(
        "--slo-factor", type=float, default=3.0, help="P95 limit as a multiple of one tenant's (default: 3)"
    )
    parser.add_argument("--slo-ms", type=float, help="P95 limit in milliseconds")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds before a measurement (default: 1)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds of a measurement (default: 4)")
    parser.add_argument("--limit", type=float, default=500, help="time limit in seconds (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tenants' data (default: 0)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument(
        "--rehearse", action="store_true", help="run on the CPU with tiny sizes: results are meaningless"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
