"""Probe isolation on a machine with few packages: `python -m fleetlab.gpu.bench.isolation --out FOLDER`.

The exit status is 0 if complete, 3 if the time limit was reached, 2 for an error.
"""

from __future__ import annotations

import sys
from functools import partial

from fleetlab.gpu.bench.isolation.run import run_isolation
from fleetlab.gpu.bench.options import IsolationOptions
from fleetlab.gpu.bench.run import STOPPED
from fleetlab.gpu.devices.console import print_progress, start


def _run(options: IsolationOptions) -> int:
    return 3 if run_isolation(options, progress=print_progress) else 0


main = partial(start, "fleetlab.gpu.bench.isolation", IsolationOptions, _run, stopped=STOPPED)


if __name__ == "__main__":
    sys.exit(main())
