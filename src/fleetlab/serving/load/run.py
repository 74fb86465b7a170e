"""One load or one search by the words of a command, and the status to leave with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.settings import Asked

if TYPE_CHECKING:
    from fleetlab.serving.load.report import Load
    from fleetlab.serving.load.search import Found

STOPPED, INVALID = 130, 3


def run(
    asked: Asked,
    *,
    rates: str | None = None,
    percentile: float = 99.0,
    within: float = 0.05,
    out: Path | None = None,
    each: bool = False,
    tell: Callable[[str], None],
) -> Load | Found:
    """Measure, or search among `rates` (`LOW:HIGH`), and keep it in `out`."""
    try:
        from fleetlab.serving.load.files import keep, may_keep
        from fleetlab.serving.load.measure import measure
        from fleetlab.serving.load.search import search
    except ModuleNotFoundError as e:
        msg = f"the load needs a package that is not installed: {e.name}"
        raise BenchError(msg, hint="`pip install fleetlab[bench]`") from None
    ends = None if rates is None else rates_of(rates)
    may_keep(out, each=each)
    result: Load | Found
    if ends is None:
        result = measure(asked, tell=tell)
    else:
        result = search(asked, low=ends[0], high=ends[1], percentile=percentile, within=within, tell=tell)
    if out is not None:
        keep(result, out, each=each)
    return result


def rates_of(words: str) -> tuple[float, float]:
    """Two rates with a colon between.

    >>> rates_of("10:1e3")
    (10.0, 1000.0)
    """
    low, _, high = words.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        msg = f"a search takes LOW:HIGH, not: `{words}`"
        raise BenchError(msg, hint="--search 10:1000") from None


def exit_status(result: Load | Found) -> int:
    """0 if it may be believed, 3 if the generator fell behind, 130 if it was stopped."""
    if result.stopped:
        return STOPPED
    return 0 if result.valid else INVALID
