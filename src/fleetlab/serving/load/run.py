"""Run a load or a search, save it, and choose the exit status."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress
from fleetlab.serving.load.settings import LoadSettings

if TYPE_CHECKING:
    from fleetlab.serving.load.report import LoadReport
    from fleetlab.serving.load.search import RateSearch

STOPPED, INVALID = 130, 3


def run(
    settings: LoadSettings,
    *,
    rates: str | None = None,
    percentile: float = 99.0,
    within: float = 0.05,
    out: Path | None = None,
    each: bool = False,
    progress: Progress,
) -> LoadReport | RateSearch:
    """Measure, or search in `rates` (`LOW:HIGH`), and save the result in `out`."""
    try:
        from fleetlab.serving.load.files import check_output, save
        from fleetlab.serving.load.measure import measure
        from fleetlab.serving.load.search import search
    except ModuleNotFoundError as e:
        msg = f"the load generator needs a package that is not installed: {e.name}"
        raise BenchError(msg, hint="`pip install fleetlab[bench]`") from None
    ends = None if rates is None else parse_rates(rates)
    check_output(out, each=each)
    result: LoadReport | RateSearch
    if ends is None:
        result = measure(settings, progress=progress)
    else:
        result = search(settings, low=ends[0], high=ends[1], percentile=percentile, within=within, progress=progress)
    if out is not None:
        save(result, out, each=each)
    return result


def parse_rates(words: str) -> tuple[float, float]:
    """Parse two rates separated by a colon.

    >>> parse_rates("10:1e3")
    (10.0, 1000.0)
    """
    low, _, high = words.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        msg = f"--search takes LOW:HIGH, not `{words}`"
        raise BenchError(msg, hint="--search 10:1000") from None


def exit_status(result: LoadReport | RateSearch) -> int:
    """0 if valid, 3 if the generator was late, 130 if stopped."""
    if result.stopped:
        return STOPPED
    return 0 if result.valid else INVALID
