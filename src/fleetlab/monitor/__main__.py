"""Sample GPUs on a machine with few packages: `python -m fleetlab.monitor --out FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleetlab.devices.options import start
from fleetlab.devices.progress import print_progress
from fleetlab.monitor.options import MonitorOptions
from fleetlab.monitor.run import monitor


def main(words: Sequence[str] | None = None) -> int:
    """Sample until stopped; exit status 0, or 2 if sampling or writing fails."""
    return start("fleetlab.monitor", MonitorOptions, _run, words)


def _run(options: MonitorOptions) -> int:
    run = monitor(options, stream=None if options.quiet else sys.stdout, progress=print_progress)
    late = f"; {run.late} skipped: the previous one took too long" if run.late else ""
    print_progress(f"{run.samples} samples{late}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
