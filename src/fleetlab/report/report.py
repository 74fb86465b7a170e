"""Write any results as one HTML file, and their figures as files.

A page has findings, figures, tables, notes and provenance. It opens without a network: its content security policy
allows its own script and style, by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fleetlab.core import Estimate, FleetlabError, Result
from fleetlab.core.display import UNKNOWN
from fleetlab.core.figure import LARGEST, TimelineFigure
from fleetlab.core.files import atomic_write
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import amount
from fleetlab.report.draw import Chart, scale, svg
from fleetlab.report.figures import FigurePanel, cell, figures, panels, summaries, table
from fleetlab.report.markup import (
    Markup,
    by_label,
    clean,
    data,
    default_title,
    difference,
    joined,
    prose,
    provenance_line,
    tag,
)

LARGEST_PAGE = 10_000_000  # bytes of a page, which should fit into an e-mail
SMALLER = (1.0, 0.4, 0.15, 0.05, 0.01)  # shares of points and rows, until it fits


class Card(NamedTuple):
    """An action: what it is, what it does in a few large letters, what else to know, and a line to copy."""

    title: str
    effect: str
    text: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """What a page begins with: runs on one axis of time, the first of them above, actions, and notes."""

    about: str
    runs: Mapping[str, Result]
    cards: tuple[Card, ...] = ()
    notes: tuple[str, ...] = ()


def report(
    results: Result | Iterable[Result] | Mapping[str, Result],
    out: Path | str,
    *,
    title: str | None = None,
    lead: Lead | None = None,
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
        What the page shows first; the results are folded behind it.
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
        raise FleetlabError(msg, hint="`fleetlab diagnose sample --json > result.json` writes one")
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


def _fitting(results: Mapping[str, Result], title: str, lead: Lead | None) -> bytes:
    """Return the page with as many points and rows as fit."""
    for share in SMALLER:
        content = page(results, title, lead=lead, share=share).encode()
        if len(content) <= LARGEST_PAGE:
            return content
    raise FleetlabError(f"too much for one page: at least {len(content):,} bytes", hint="report fewer results at once")


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


# -- the page --------------------------------------------------------------------------------------------------------


LINES = 60  # findings, notes or numbers of a result
POINTS = 80_000  # of all figures together
CELLS = 60_000  # of all tables together


def page(results: Mapping[str, Result], title: str, *, lead: Lead | None = None, share: float = 1.0) -> str:
    """Return the page; `share` below 1 leaves out points and rows.

    With a `lead` the page begins with that in short, and all else is folded.
    """
    over_time = timelines(results, share)
    scripted = bool(over_time) or lead is not None
    sections = {
        "Summary": _summary(results),
        "Timeline": joined(over_time),
        "Figures": _figures(results, share),
        "Tables": _tables(results, share),
        "Notes": _notes(results),
        "Provenance": _provenance(results),
    }
    present = {name: inside for name, inside in sections.items() if inside}
    links = [tag("li", tag("a", name, href=f"#{_anchor(name)}")) for name in present]
    contents = tag("nav", tag("ul", *links), aria_label="Contents")
    everything = [_section(name, inside) for name, inside in present.items()]
    if lead is not None:
        counted = ", ".join(name for name in results)
        summary = tag("summary", tag("b", "Everything that was computed"), tag("span", f" ({counted})", class_="soft"))
        everything = [_in_short(lead, share), tag("details", summary, contents, *everything, class_="rest")]
    body = [
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", tag("h1", title), *([] if lead is not None else [contents])),
        tag("main", *everything, id="main"),
        tag("script", script()),
        *([tag("script", timeline_script())] if scripted else []),
    ]
    head = _head(title, has_timeline=scripted)
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def _in_short(lead: Lead, share: float) -> Markup:
    """Return what a reader sees first."""
    most = int(LARGEST * share / max(1, len(lead.runs)))
    drawn = {label: figure for label, run in lead.runs.items() if (figure := run.cluster_timeline(most)) is not None}
    parts = [tag("p", lead.about, class_="soft")]
    if drawn:
        # The page draws the last of them first: it is what is looked at, beside what was before.
        parts.append(_element(dict(reversed(drawn.items())), "", ""))
    cards = [
        tag("li", tag("h3", card.title), tag("p", tag("b", card.effect)), tag("p", card.text),
            *([tag("code", card.line)] if card.line else []))
        for card in lead.cards
    ]  # fmt: skip
    parts += [tag("ul", *cards, class_="cards")] if cards else []
    parts += [tag("p", prose(note), class_="check") for note in lead.notes]
    return tag("section", *parts, id="in-short")


def _head(title: str, *, has_timeline: bool) -> Markup:
    scripts, styles = [script()], [style()]
    if has_timeline:
        scripts.append(timeline_script())
        styles.append(timeline_style())
    run, dress = (" ".join(f"'{_hash(text)}'" for text in texts) for texts in (scripts, styles))
    policy = (
        f"default-src 'none'; script-src {run}; style-src {dress}; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        *(tag("style", text) for text in styles),
    )


@cache
def style() -> Markup:
    """Return the style sheet: light and dark, phone and paper."""
    return Markup(scale.style() + _file("style.css"))


@cache
def script() -> Markup:
    """Return the script; a page can be read without it."""
    return Markup(_file("script.js"))


def _file(name: str) -> str:
    return files("fleetlab.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _section(name: str, inside: Markup) -> Markup:
    return tag("section", tag("h2", name), inside, id=_anchor(name))


# --- summary -----------------------------------------------------------------------------------------------------


def _summary(results: Mapping[str, Result]) -> Markup:
    parts = list[Markup]()
    for label, result in results.items():
        if len(results) > 1 and (result.findings or result.coverage is not None):
            parts.append(tag("h3", label))
        covered = [result.coverage.line] if result.coverage is not None else []
        parts.append(_list([*covered, *result.findings], "findings"))
    if len(results) > 1:
        parts.append(_compared(results))
    else:
        parts += [_numbers(result.summary()) for result in results.values()]
    return joined(parts)


def _list(lines: list[str], name: str) -> Markup:
    more = [tag("li", f"… and {len(lines) - LINES:,} more", class_="soft")] if len(lines) > LINES else []
    return tag("ul", *(tag("li", prose(line)) for line in lines[:LINES]), *more, class_=name) if lines else Markup()


def _numbers(estimates: list[Estimate]) -> Markup:
    """Return each number under its name."""
    items = [tag("div", tag("dt", clean(e.metric, 120)), tag("dd", *_value(e))) for e in estimates[:LINES]]
    if len(estimates) > LINES:
        items.append(tag("div", tag("dt", "and more"), tag("dd", f"{len(estimates) - LINES:,}")))
    return tag("dl", *items, class_="numbers") if items else Markup()


def _value(e: Estimate) -> list[Markup]:
    value, bracket, interval = amount(e).partition(" (")
    return [tag("b", value), *([tag("span", f" ({interval}", class_="soft")] if bracket else [])]


def _compared(results: Mapping[str, Result]) -> Markup:
    """Return a table of metrics by result, with differences from the first result that has numbers."""
    by_metric = summaries(results)
    labels = [label for label in results if any(label in by for by in by_metric.values())]
    heads = ["metric", *labels[:1], *(part for label in labels[1:] for part in (label, "difference"))]
    head = tag("tr", *(tag("th", h, scope="col") for h in heads))
    rows = [tag("tr", tag("th", clean(m, 120), scope="row"), *_across(by, labels)) for m, by in by_metric.items()]
    body = tag("table", tag("thead", head), tag("tbody", *rows[: 2 * LINES]))
    text = f"Differences are from {labels[0]}; they are not paired and have no interval." if len(labels) > 1 else ""
    wide = tag("div", body, class_="scroll compared", tabindex=0, role="region", aria_label="results side by side")
    return joined([wide, tag("p", text, class_="soft")]) if rows else Markup()


def _across(by: Mapping[str, Estimate], labels: list[str]) -> list[Markup]:
    first = by.get(labels[0])
    cells = [_estimate(first)]
    for label in labels[1:]:
        other = by.get(label)
        cells += [_estimate(other), tag("td", difference(first, other) if first and other else "–", class_="soft")]
    return cells


def _estimate(e: Estimate | None) -> Markup:
    return (
        cell(UNKNOWN) if e is None else tag("td", *_value(e), data_v=f"{e.value:.9g}" if e.value == e.value else None)
    )


def _figures(results: Mapping[str, Result], share: float) -> Markup:
    elements = list(figures(results, most=int(POINTS * share)))
    return tag("div", *elements, class_="figures") if elements else Markup()


# --- tables, notes, provenance -----------------------------------------------------------------------------------


def _tables(results: Mapping[str, Result], share: float) -> Markup:
    by_name: dict[str, dict[str, pl.DataFrame]] = {}
    for label, result in results.items():
        for name, frame in result.tables().items():
            if not frame.height:
                continue
            by_name.setdefault(str(name), {})[label] = frame
    width = sum(f.width for by in by_name.values() for f in by.values())
    rows = int(max(8, min(200, CELLS * share / max(1, width))))
    return joined(
        table(name, frame, rows=rows, label=label if len(results) > 1 else "")
        for name, by in by_name.items()
        for label, frame in by.items()
    )


def _notes(results: Mapping[str, Result]) -> Markup:
    parts = list[Markup]()
    for label, result in results.items():
        if notes := [str(note) for note in result.notes]:
            parts += [tag("h3", label)] if len(results) > 1 else []
            parts.append(_list(notes, "notes"))
    return joined(parts)


def _provenance(results: Mapping[str, Result]) -> Markup:
    lines = [(label, provenance_line({label: r.provenance}, widest=8000)) for label, r in results.items()]
    return tag("ul", *(tag("li", *([tag("b", f"{k}: ")] if len(lines) > 1 else []), line) for k, line in lines))


# -- timelines -------------------------------------------------------------------------------------------------------


MOST = 4  # timelines in one page
PARTS = ("vendor/uplot.js", "timeline.js")
STYLES = ("vendor/uplot.css", "timeline.css")


@cache
def timeline_script() -> Markup:
    """Return the library and the script that draw timelines."""
    return Markup("\n".join(_file(name) for name in PARTS))


@cache
def timeline_style() -> Markup:
    """Return the style sheet of timelines."""
    return Markup("\n".join(_file(name) for name in STYLES))


def timelines(results: Mapping[str, Result], share: float) -> list[Markup]:
    """Draw the timelines of results; several share the space."""
    able = list(results.items())[:MOST]
    most = int(LARGEST * share / max(1, len(able)))
    figures = {label: figure for label, result in able if (figure := result.cluster_timeline(most)) is not None}
    return [
        _element({"": figure}, label if len(figures) > 1 else "", provenance_line({label: results[label].provenance}))
        for label, figure in figures.items()
    ]


def _element(figures: Mapping[str, TimelineFigure], heading: str, how: str) -> Markup:
    """Return one figure of one run or several on one axis; the script fills it."""
    values = [
        {"about": _cleaned(dict(figure.about) | ({"label": label} if label else {})),
         "tiles": {name: b64encode(content).decode() for name, content in figure.tiles.items()}}
        for label, figure in figures.items()
    ]  # fmt: skip
    alts = [f"{label}: {figure.alt}" if label else figure.alt for label, figure in figures.items()]
    caption = [*(tag("p", alt, class_="soft") for alt in alts), *([tag("p", how, class_="provenance")] if how else [])]
    above = [tag("h3", heading)] if heading else []
    return tag("div", *above, tag("div", class_="timeline"), *caption, data(values), class_="cluster-timeline")


def _cleaned(value: object) -> object:
    """Return plain values whose texts are printable."""
    if isinstance(value, str):
        return clean(value, 200)
    if isinstance(value, Mapping):
        return {clean(key, 200): _cleaned(inside) for key, inside in value.items()}
    return [_cleaned(inside) for inside in value] if isinstance(value, list | tuple) else value
