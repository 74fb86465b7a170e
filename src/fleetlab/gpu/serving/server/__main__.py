"""Serve on a machine with few packages: `python -m fleetlab.gpu.serving.server WORKLOAD --port 8000`.

The exit status is 0 after an orderly stop, 2 for an error.
"""

from __future__ import annotations

import sys
from functools import partial

from fleetlab.gpu.devices.console import start
from fleetlab.gpu.serving.server.limits import ServeOptions
from fleetlab.gpu.serving.server.server import serve


def _run(options: ServeOptions) -> int:
    serve(options)
    return 0


main = partial(start, "fleetlab.gpu.serving.server", ServeOptions, _run)


if __name__ == "__main__":
    sys.exit(main())
