"""Run a setting on a real Slurm: `python -m realtest plain --jobs 1000 --repeat 3 --out build/realtest`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from realtest.everything import EVERYTHING
from realtest.lab import Lab, missing
from realtest.run import run
from realtest.settings import NODES, SETTINGS

ALL = {**SETTINGS, EVERYTHING.name: EVERYTHING}


def main() -> None:
    """Run settings, each so many times, one after the other."""
    parser = argparse.ArgumentParser(prog="realtest", description=__doc__)
    parser.add_argument("settings", nargs="*", choices=[*ALL, []], metavar="SETTING", help=", ".join(ALL))
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
            for name in given.settings or ["plain"]:
                drawn = {"seed": given.seed, "load": given.load}
                setting = replace(ALL[name], **{k: v for k, v in drawn.items() if v is not None})
                words = [name, *(f"{k}{v:g}" for k, v in drawn.items() if v is not None), str(number)]
                out = given.out / "-".join(words)
                run(setting, lab, out, given.jobs, given.nodes)
                print(out)
    finally:
        lab.down(everything=True)


if __name__ == "__main__":
    main()
