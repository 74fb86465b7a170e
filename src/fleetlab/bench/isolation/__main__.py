"""Probe isolation on a machine with few packages: `python -m fleetlab.bench.isolation --out FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleetlab.bench.isolation.run import run_isolation
from fleetlab.bench.options import IsolationOptions
from fleetlab.bench.run import STOPPED
from fleetlab.devices.options import start
from fleetlab.devices.progress import print_progress


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 if complete, 3 if the time limit was reached, 2 for an error."""
    return start("fleetlab.bench.isolation", IsolationOptions, _run, words, stopped=STOPPED)


def _run(options: IsolationOptions) -> int:
    return 3 if run_isolation(options, progress=print_progress) else 0


if __name__ == "__main__":
    sys.exit(main())
