"""The analysis as one HTML page without scripts or external resources."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape

import polars as pl

from fleetlab.bench.analysis.result import REHEARSAL, Analysis
from fleetlab.bench.analysis.style import INK, PAPER

CSS = """
:root { color-scheme: light dark; --ink: #1b1e23; --paper: #ffffff; --rule: #d5d8dd; --soft: #5b616b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e9eb; --paper: #16181c; --rule: #3a3f47; --soft: #a4a9b2; }
}
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 62rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; color: var(--ink); }
figcaption, .soft { color: var(--soft); font-size: 0.9rem; }
.loud { background: #d55e00; color: #ffffff; font-weight: bold; padding: 0.8rem 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.82rem; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
td.long { white-space: normal; min-width: 24rem; } summary { cursor: pointer; }
"""


def page(found: Analysis, figures: list[tuple[str, str, str]]) -> str:
    """Render the page; `figures` are name, caption and SVG."""
    title = f"GPU sharing: {escape(found.facts.gathered.gpu_name)}"
    loud = f'<p class="loud">{REHEARSAL}</p>' if found.facts.gathered.rehearsal else ""
    answers = "".join(f"<h3>{escape(a.question)}</h3><ul>{_items(a.lines())}</ul>" for a in found.answers())
    drawn = "".join(
        f"<figure>{_inline(svg, name)}<figcaption>{escape(caption)}</figcaption></figure>"
        for name, caption, svg in figures
    )
    tables = "".join(_table(name, frame) for name, frame in found.tables().items() if name != "answers")
    p = found.provenance
    how = escape(f"{p.verb}, fleetlab {p.version}: {p.source}; {dict(p.settings)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{title}</title><style>{CSS}</style></head><body>'
        f"<h1>{title}</h1>{loud}<h2>Summary</h2><ul>{_items(found.headline())}</ul><h2>Six questions</h2>{answers}"
        f"<h2>Figures</h2>{drawn or '<p>none</p>'}<h2>Tables</h2>{tables}"
        f'<h2>Notes</h2><ul>{_items(found.notes)}</ul><p class="soft">{how}</p></body></html>\n'
    )


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def _inline(svg: str, name: str) -> str:
    """Embed an SVG: text color of the page, transparent background, unique ids."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}.', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}.", body)
    body = re.sub(r"<svg[^>]*>", lambda tag: re.sub(r' (width|height)="[^"]*"', "", tag.group()), body, count=1)
    return body.replace(INK, "currentColor").replace(f"fill: {PAPER}", "fill: none").strip()


def _table(name: str, frame: pl.DataFrame) -> str:
    if frame.is_empty():
        return f'<p class="soft">{escape(name)}: not measured</p>'
    head = "".join(f"<th>{escape(column)}</th>" for column in frame.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in frame.iter_rows())
    return (
        f"<details><summary>{escape(name)} ({frame.height:,} rows)</summary>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def _cell(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<td>–</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, int | float):
        return f'<td class="n">{value:,.4g}</td>' if isinstance(value, float) else f'<td class="n">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
