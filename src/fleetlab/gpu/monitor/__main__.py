"""Sample GPUs on a machine with few packages: `python -m fleetlab.gpu.monitor --out FOLDER`.

Sample until stopped; exit status 0, or 2 if sampling or writing fails.
"""

from __future__ import annotations

import sys
from functools import partial

from fleetlab.gpu.devices.console import print_progress, start
from fleetlab.gpu.monitor.run import MonitorOptions, monitor


def _run(options: MonitorOptions) -> int:
    run = monitor(options, stream=None if options.quiet else sys.stdout, progress=print_progress)
    late = f"; {run.late} skipped: the previous one took too long" if run.late else ""
    print_progress(f"{run.samples} samples{late}")
    return 0


main = partial(start, "fleetlab.gpu.monitor", MonitorOptions, _run)


if __name__ == "__main__":
    sys.exit(main())
