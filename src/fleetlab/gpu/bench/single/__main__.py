"""Run a workload on a machine with few packages: `python -m fleetlab.gpu.bench.single NAME` prints a JSON object.

The exit status is 0 if finished, 2 for an error, 3 if the loss was not a number, 130 if stopped.
"""

from __future__ import annotations

import sys
from functools import partial

from fleetlab.gpu.bench.options import WorkloadOptions
from fleetlab.gpu.bench.single import run_workload
from fleetlab.gpu.devices.console import print_progress, start


def _run(options: WorkloadOptions) -> int:
    report = run_workload(options, progress=print_progress)
    print(report.to_json())
    return report.status


main = partial(start, "fleetlab.gpu.bench.single", WorkloadOptions, _run, stopped="stopped before any result")


if __name__ == "__main__":
    sys.exit(main())
