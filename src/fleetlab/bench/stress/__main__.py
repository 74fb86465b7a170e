"""Run a stress test on a machine with few packages: `python -m fleetlab.bench.stress WORKLOAD --out FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleetlab.bench.options import StressOptions
from fleetlab.bench.run import STOPPED
from fleetlab.bench.stress.run import run_stress
from fleetlab.devices.errors import BenchError
from fleetlab.devices.options import start
from fleetlab.devices.progress import print_progress


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 with an answer, 3 if the time limit was reached before, 2 for an error."""
    return start("fleetlab.bench.stress", StressOptions, _run, words, stopped=STOPPED)


def _run(options: StressOptions) -> int:
    if options.out is None:
        msg = "no folder for the results"
        raise BenchError(msg, hint="name one with --out")
    return 0 if run_stress(options, options.out, progress=print_progress) else 3


if __name__ == "__main__":
    sys.exit(main())
