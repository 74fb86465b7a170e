"""Run a setting, or any trace in compressed time, on a real Slurm: `python -m realtest plain --repeat 3`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import fleetlab
from realtest.everything import ALL
from realtest.lab import Lab, missing
from realtest.run import run_setting, run_trace
from realtest.settings import NODES


def main() -> None:
    """Run settings, each so many times, one after the other."""
    parser = argparse.ArgumentParser(prog="realtest", description=__doc__)
    parser.add_argument("settings", nargs="*", choices=[*ALL, []], metavar="SETTING", help=", ".join(ALL))
    parser.add_argument("--trace", help="run the first jobs of a trace with its cluster instead of a setting")
    parser.add_argument("--speed", type=float, default=60.0, help="how many seconds of the trace a second is")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first repetition")
    parser.add_argument("--seed", type=int, help="draw other jobs")
    parser.add_argument("--load", type=float, help="offered GPU-seconds over those the cluster has while jobs come")
    parser.add_argument("--out", type=Path, default=Path("build/realtest"), help="a folder for each run goes here")
    parser.add_argument("--lab", type=Path, default=Path("build/slurm-lab"), help="what the daemons write")
    parser.add_argument("--port", type=int, default=16_817, help="the first of about 130 ports")
    given = parser.parse_args()
    if reason := missing():
        sys.exit(f"no real Slurm here: {reason}")
    lab = Lab(given.lab.resolve(), given.port)
    try:
        for number in range(given.first, given.first + given.repeat):
            _play(given, lab, number)
    finally:
        lab.down(everything=True)


def _play(given: argparse.Namespace, lab: Lab, number: int) -> None:
    if given.trace:
        run_trace(fleetlab.Trace.load(given.trace), given.speed, lab, given.out / f"trace-{number}", given.jobs)
        return
    drawn = {name: value for name in ("seed", "load") if (value := getattr(given, name)) is not None}
    for name in given.settings or ["plain"]:
        words = [name, *(f"{k}{v:g}" for k, v in drawn.items()), str(number)]
        run_setting(replace(ALL[name], **drawn), lab, given.out / "-".join(words), given.jobs, given.nodes)
        print(words[0], number, flush=True)


if __name__ == "__main__":
    main()
