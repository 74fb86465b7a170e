"""Send load to a server on this machine, with few packages installed: prints one JSON object on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from fleetlab.devices.options import start
from fleetlab.devices.progress import print_progress
from fleetlab.serving.load.run import exit_status, run
from fleetlab.serving.load.settings import LoadOptions


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0 if measured, 2 for an error, 3 if the generator was late, 130 if stopped."""
    return start("fleetlab.serving.load", LoadOptions, _run, words, stopped="stopped before anything was measured")


def _run(options: LoadOptions) -> int:
    result = run(options, progress=print_progress)
    for note in result.notes:
        print_progress(f"note: {note}")
    print(json.dumps(result.to_json()))
    return exit_status(result)


if __name__ == "__main__":
    sys.exit(main())
