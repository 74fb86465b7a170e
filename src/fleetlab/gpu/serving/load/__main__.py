"""Send load to a server on this machine, with few packages installed: prints one JSON object on stdout.

The exit status is 0 if measured, 2 for an error, 3 if the generator was late, 130 if stopped.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from fleetlab.gpu.devices.console import print_progress, start
from fleetlab.gpu.serving.load.search import exit_status, run
from fleetlab.gpu.serving.load.settings import LoadOptions


def _run(options: LoadOptions) -> int:
    result = run(options, progress=print_progress)
    for note in result.notes:
        print_progress(f"note: {note}")
    print(json.dumps(result.to_json()))
    return exit_status(result)


main = partial(start, "fleetlab.gpu.serving.load", LoadOptions, _run, stopped="stopped before anything was measured")


if __name__ == "__main__":
    sys.exit(main())
