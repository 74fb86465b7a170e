"""Serve on a machine with few packages: `python -m fleetlab.serving.server WORKLOAD --port 8000`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fleetlab.devices.options import start
from fleetlab.serving.server.limits import ServeOptions
from fleetlab.serving.server.server import serve


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 after an orderly stop, 2 for an error."""
    return start("fleetlab.serving.server", ServeOptions, _run, words)


def _run(options: ServeOptions) -> int:
    serve(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
