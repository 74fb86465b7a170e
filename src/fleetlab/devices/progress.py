"""Progress lines and errors on stderr, for programs without the command line's packages."""

from __future__ import annotations

import sys
from collections.abc import Callable

from fleetlab.devices.errors import BenchError

Progress = Callable[[str], None]  # receives one line


def print_progress(line: str) -> None:
    """Print a line on stderr: stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def print_error(e: BenchError) -> None:
    """Print an error and its hint on stderr."""
    print_progress(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""))


def silent(line: str) -> None:
    """Print nothing."""
