"""Run a load or a search, save it, and choose the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlab.devices.errors import BenchError
from fleetlab.devices.options import STOPPED
from fleetlab.devices.progress import Progress
from fleetlab.serving.load.settings import LoadOptions

if TYPE_CHECKING:
    from fleetlab.serving.load.report import LoadReport
    from fleetlab.serving.load.search import RateSearch

INVALID = 3


def run(options: LoadOptions, *, times: tuple[float, ...] | None = None, progress: Progress) -> LoadReport | RateSearch:
    """Measure, or search a rate, and save the result; `times` of a trace are replayed."""
    try:
        from fleetlab.serving.load.files import check_output, save
        from fleetlab.serving.load.measure import measure
        from fleetlab.serving.load.search import search
    except ModuleNotFoundError as e:
        msg = f"the load generator needs a package that is not installed: {e.name}"
        raise BenchError(msg, hint="`pip install 'fleetlab[bench]'`") from None
    settings = options.settings(times)
    ends = None if options.search is None else parse_rates(options.search)
    check_output(options.out, each=options.each)
    result: LoadReport | RateSearch
    if ends is None:
        result = measure(settings, progress=progress)
    else:
        goal = {"percentile": options.percentile, "within": options.within}
        result = search(settings, low=ends[0], high=ends[1], **goal, progress=progress)
    if options.out is not None:
        save(result, options.out, each=options.each)
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
