"""Write any results as one HTML file, and their figures as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleetlab.core import FleetlabError, Result
from fleetlab.core.files import atomic_write
from fleetlab.core.progress import Progress, silent
from fleetlab.report.draw import Chart, svg
from fleetlab.report.markup import clean
from fleetlab.report.page import POINTS, page
from fleetlab.report.panels import FigurePanel, panels
from fleetlab.report.words import by_label, default_title

LARGEST = 10_000_000  # bytes of a page, which should fit into an e-mail
SMALLER = (1.0, 0.4, 0.15, 0.05, 0.01)  # shares of points and rows, until it fits


def report(
    results: Result | Iterable[Result] | Mapping[str, Result],
    out: Path | str,
    *,
    title: str | None = None,
    lead: Result | None = None,
    svg: Path | str | None = None,
    progress: Progress = silent,
) -> Path:
    """Write any results as one HTML file: findings, figures, tables, notes and provenance.

    Everything is made before anything is written; the same results give the same file, byte for byte.

    Parameters
    ----------
    results
        One result, or several, which may be given by name: those are compared.
    out
        The file to write.
    title
        The heading (default: the verbs and sources of the results).
    lead
        A result that the page shows first; the others are folded behind it.
    svg
        A folder for the figures as files.
    progress
        Called as figures are drawn.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    FleetlabError
        If there is no result, or too much for one page.

    Examples
    --------
    >>> import fleetlab
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     page = fleetlab.report(fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8), f"{folder}/page.html")
    ...     page.read_text("utf-8")[:15]
    '<!doctype html>'

    """
    named = by_label(results)
    if not named:
        msg = "no result to report on"
        raise FleetlabError(msg, hint="`--json` after a command prints one: fleetlab … --json > result.json")
    if wrong := [r for r in named.values() if not hasattr(r, "tables")]:
        msg = f"not a result: `{clean(wrong[0], 80)}`"
        raise FleetlabError(msg, hint="a result is what a verb returns, or `SavedResult.load` of its --json")
    heading = clean(title or default_title(named), 200)
    files: dict[Path, bytes] = {}
    if svg is not None:
        files |= _pictures(list(_charts(panels(named, most=POINTS))), Path(svg), progress)
    files[Path(out)] = _fitting(named, heading, lead)
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    return Path(out)


def _fitting(results: Mapping[str, Result], title: str, lead: Result | None) -> bytes:
    """Return the page with as many points and rows as fit."""
    for share in SMALLER:
        content = page(results, title, lead=lead, share=share).encode()
        if len(content) <= LARGEST:
            return content
    msg = f"too much for one page: at least {len(content):,} bytes"
    raise FleetlabError(msg, hint="report fewer results at once")


def _charts(panels_: list[FigurePanel]) -> Iterator[tuple[str, Chart]]:
    """Yield each chart with a name that every file system takes."""
    for k, panel in enumerate(panels_, 1):
        for heading, _, chart in panel.charts:
            several = f"-{heading}" if len(panel.charts) > 1 else ""
            yield f"{k:02d}-{_slug(panel.title + several)}", chart


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-") or "figure"


def _pictures(charts: list[tuple[str, Chart]], folder: Path, progress: Progress) -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    for k, (name, chart) in enumerate(charts, 1):
        path = folder / f"{name}.svg"
        while path in files:  # two titles may give the same name
            path = path.with_stem(f"{path.stem}-")
        files[path] = svg(chart, key="f", whole=True).encode()
        progress("drawing figures as SVG", k, k / len(charts))
    return files
