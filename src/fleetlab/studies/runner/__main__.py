"""A process that answers questions, started by `Processes`."""

import sys

from fleetlab.studies.runner.backends import main

if __name__ == "__main__":
    main(*sys.argv[1:])
