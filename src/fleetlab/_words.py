"""What the commands of several rooms share: options with one meaning, examples, and how they speak and fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter, validators

import fleetlab

Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]
Json = Annotated[bool, Parameter(negative=(), help="Print one JSON object, for machines.")]


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  {line}" for line in lines)


@contextmanager
def on_the_bench() -> Iterator[None]:
    """Errors of the bench as errors of the house."""
    # The bench runs where the hall's frames are not installed, so its errors are its own until they come here.
    from fleetlab.bench.errors import BenchError

    try:
        yield
    except BenchError as e:
        raise fleetlab.DeviceError(str(e), hint=e.hint) from None


def talk(line: str) -> None:
    """On stderr: stdout is for what was asked for."""
    print(line, file=sys.stderr, flush=True)
