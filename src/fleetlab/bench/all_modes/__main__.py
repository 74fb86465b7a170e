"""Run all modes on a machine with few packages: `python -m fleetlab.bench.all_modes --out FOLDER --minutes 30`."""

import sys

from fleetlab.bench.all_modes.run import main

if __name__ == "__main__":
    sys.exit(main())
