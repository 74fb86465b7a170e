"""Write any results as one page that opens anywhere, and their figures as files."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fleetlab.core import FleetlabError, Result
from fleetlab.report.beside import Panel, panels
from fleetlab.report.draw import Chart, svg
from fleetlab.report.markup import clean
from fleetlab.report.page import POINTS, page
from fleetlab.report.words import labelled, titled

Progress = Callable[[str, int, float], None]
LARGEST = 10_000_000  # bytes of a page: it must go through the mail
SMALLER = (1.0, 0.4, 0.15, 0.05, 0.01)  # shares of points and rows, until it fits


def report(
    results: Result | Iterable[Result] | Mapping[str, Result],
    out: Path | str,
    *,
    title: str | None = None,
    png: Path | str | None = None,
    svg: Path | str | None = None,
    progress: Progress = lambda *_: None,
) -> Path:
    """Any results as one page that can be mailed: words, figures, tables, and how each came to be.

    Several results, which may come by name, stand beside each other. `png` and `svg` are folders for the figures.
    Everything is made before anything is written; the same results give the same page, byte for byte. `progress` hears
    what is drawn, how many, and what share of all that is.
    """
    found = labelled(results)
    if not found:
        msg = "no result to report on"
        raise FleetlabError(msg, hint="`--json` after a command prints one: fleetlab … --json > result.json")
    if strange := [r for r in found.values() if not hasattr(r, "tables")]:
        msg = f"not a result: `{clean(strange[0], 80)}`"
        raise FleetlabError(msg, hint="a result is what a verb returns, or `SavedResult.load` of its --json")
    name = clean(title or titled(found), 200)
    made: dict[Path, bytes] = {}
    if png or svg:
        drawn = list(_charts(panels(found, most=POINTS)))
        made |= _pictures(drawn, png, ".png", progress) | _pictures(drawn, svg, ".svg", progress)
    made[Path(out)] = _fitting(found, name)
    for path, content in made.items():
        _put(path, content)
    return Path(out)


def _fitting(results: Mapping[str, Result], title: str) -> bytes:
    """The page, with as many points and rows as fit."""
    for share in SMALLER:
        found = page(results, title, share=share).encode()
        if len(found) <= LARGEST:
            return found
    msg = f"too much for one page: {len(found):,} bytes at the least"
    raise FleetlabError(msg, hint="report fewer results at once")


def _charts(found: list[Panel]) -> Iterator[tuple[str, Chart]]:
    """Each chart under a name that every file system takes."""
    for k, panel in enumerate(found, 1):
        for heading, _, chart in panel.charts:
            several = f"-{heading}" if len(panel.charts) > 1 else ""
            yield f"{k:02d}-{_slug(panel.title + several)}", chart


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-") or "figure"


def _pictures(
    drawn: list[tuple[str, Chart]], folder: Path | str | None, ending: str, progress: Progress
) -> dict[Path, bytes]:
    if folder is None:
        return {}
    from fleetlab.report.draw.png import png

    made: dict[Path, bytes] = {}
    for k, (name, chart) in enumerate(drawn, 1):
        path = Path(folder) / f"{name}{ending}"
        while path in made:  # two names may be alike as far as a file's goes
            path = path.with_stem(f"{path.stem}-")
        made[path] = png(chart) if ending == ".png" else svg(chart, key="f", whole=True).encode()
        progress(f"drawing {ending[1:].upper()}", k, k / len(drawn))
    return made


def _put(path: Path, content: bytes) -> None:
    """So that a reader sees the old file or the new one, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
