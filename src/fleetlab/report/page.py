"""One page of any results: findings, figures, tables, notes and provenance.

It opens without a network: its content security policy allows its own script and style, by their hashes, and no
request at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import polars as pl

from fleetlab.core import Estimate, Result
from fleetlab.core.display import UNKNOWN, shown
from fleetlab.core.result import amount
from fleetlab.report import timelines as timeline_parts
from fleetlab.report.draw import palette
from fleetlab.report.figures import figures
from fleetlab.report.markup import Markup, clean, joined, prose, tag
from fleetlab.report.panels import summaries
from fleetlab.report.tables import cell, grid, table
from fleetlab.report.words import difference, provenance_line

SAID_FIRST = 2  # notes above the findings: what this is, and what was simulated
LINES = 60  # findings, notes or numbers of a result
POINTS = 80_000  # of all figures together
CELLS = 60_000  # of all tables together


def page(results: Mapping[str, Result], title: str, *, lead: Result | None = None, share: float = 1.0) -> str:
    """Return the page; `share` below 1 leaves out points and rows.

    With a `lead` the page begins with that in short, and all else is folded.
    """
    over_time = timeline_parts.timelines(results, share)
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
        everything = [_in_short(lead), tag("details", summary, contents, *everything, class_="rest")]
    body = [
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", tag("h1", title), *([] if lead is not None else [contents])),
        tag("main", *everything, id="main"),
        tag("script", script()),
        *([tag("script", timeline_parts.script())] if over_time else []),
    ]
    head = _head(title, timelines=bool(over_time))
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def _in_short(lead: Result) -> Markup:
    """Return what a reader sees first: what this is, the findings, few figures and one table."""
    parts = [tag("p", prose(note)) for note in lead.notes[:SAID_FIRST]]
    parts.append(tag("ol", *(tag("li", prose(finding)) for finding in lead.findings), class_="findings"))
    parts.append(tag("div", *figures({"in short": lead}, most=POINTS // 10, prefix="s"), class_="figures short"))
    for name, frame in lead.tables().items():
        parts += [tag("h2", name[0].upper() + name[1:]), grid(shown(frame), name)]
    parts += [tag("p", prose(note), class_="soft") for note in lead.notes[SAID_FIRST:]]
    return tag("section", *parts, id="in-short")


def _head(title: str, *, timelines: bool) -> Markup:
    scripts, styles = [script()], [style()]
    if timelines:
        scripts.append(timeline_parts.script())
        styles.append(timeline_parts.style())
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
    return Markup(palette.style() + _file("style.css"))


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
