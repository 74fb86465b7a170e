"""Run one workload on a machine with few packages: `python -m fleetlab.bench.single NAME` prints one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleetlab.bench.options import WorkloadOptions
from fleetlab.bench.single import run_workload
from fleetlab.devices.options import start
from fleetlab.devices.progress import print_progress


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 if finished, 2 for an error, 3 if the loss was not a number, 130 if stopped."""
    return start("fleetlab.bench.single", WorkloadOptions, _run, words, stopped="stopped before any result")


def _run(options: WorkloadOptions) -> int:
    report = run_workload(options, progress=print_progress)
    print(report.to_json())
    return report.status


if __name__ == "__main__":
    sys.exit(main())
