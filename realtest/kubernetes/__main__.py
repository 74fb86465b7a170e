"""Run profiles on a real kube-scheduler: `python -m realtest.kubernetes default most --pods 5000`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from realtest.kubernetes.lab import missing
from realtest.kubernetes.objects import RATE
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.run import run_profile


def main() -> None:
    """Run profiles one after the other."""
    parser = argparse.ArgumentParser(prog="realtest.kubernetes", description=__doc__)
    parser.add_argument("profiles", nargs="*", choices=[*PROFILES, []], metavar="PROFILE", help=", ".join(PROFILES))
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=RATE, help="pods a second")
    parser.add_argument("--out", type=Path, default=Path("build/realtest-kubernetes"))
    given = parser.parse_args()
    if reason := missing():
        sys.exit(f"no real kube-scheduler here, not installed: {reason}")
    for name in given.profiles or PROFILES:
        print(f"{name}: {PROFILES[name].summary}", flush=True)
        run_profile(PROFILES[name], given.out / name, given.pods, given.rate)


if __name__ == "__main__":
    main()
