"""Text of a report: the only way from text to markup, and how numbers, differences and provenance are written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.core.durations import number, readable_unit

LONGEST = 2000  # characters of a text
VOID = frozenset({"meta", "br"})
SHAPES = frozenset({"path", "line", "rect"})
# Control characters, marks that change the direction of text, and code points that are no characters.
CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
SPACES = re.compile(r"[\t\n\r]+")


class Markup(str):
    """Text that is safe markup already."""

    __slots__ = ()


def clean(value: object, widest: int = LONGEST) -> str:
    r"""Return printable text of limited length.

    >>> clean("a\u202eb\x00")
    'a\ufffdb\ufffd'
    >>> clean("abcdef", 4)
    'abc…'
    """
    text = str(value)[: widest + 1]
    text = CONTROL.sub("\ufffd", SPACES.sub(" ", text))
    return text if len(text) <= widest else text[: widest - 1] + "…"


def text(value: object, widest: int = LONGEST) -> Markup:
    """Return anything as escaped text.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return Markup(escape(clean(value, widest)))


def prose(sentence: str) -> Markup:
    """Return a sentence in which what stands between backticks is code.

    >>> prose("most is `cpu`")
    'most is <code>cpu</code>'
    """
    parts = clean(sentence).split("`")
    if len(parts) % 2 == 0:  # a name with a backtick of its own
        return text(sentence)
    return joined(tag("code", part) if k % 2 else part for k, part in enumerate(parts))


def tag(name: str, /, *inside: str, **attributes: str | float | None) -> Markup:
    """Return one element; `class_` is class, `aria_label` is aria-label, and an attribute that is None is left out.

    >>> tag("b", "1 < 2", class_="x")
    '<b class="x">1 &lt; 2</b>'
    """
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{joined([value if isinstance(value, str) else str(value)])}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{attributes_text}>")
    if name in SHAPES:
        return Markup(f"<{name}{attributes_text}/>")
    return Markup(f"<{name}{attributes_text}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Join parts; those that are not markup yet are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def data(value: Any) -> Markup:  # noqa: ANN401
    """Return plain values for the script of the page, as JSON in which no tag can begin or end."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json">{text}</script>')


LABEL = 44  # characters of the name of a result
SETTING = 400  # characters of one setting


def difference(first: Estimate, other: Estimate) -> str:
    """Return how far `other` is from `first`, without an interval: two results alone do not tell how sure it is.

    >>> difference(Estimate("wait", 10, 9, 11, "s"), Estimate("wait", 5, 4, 6, "s"))
    '−5 s (−50 %)'
    """
    by = other.value - first.value
    if not math.isfinite(by):
        return "–"
    if by == 0:
        return "same"
    percent = f" ({_signed(100 * by / abs(first.value))} %)" if first.value and abs(by / first.value) < 100 else ""
    if first.unit == other.unit == "%":
        return f"{_signed(by)} points"
    unit, length = readable_unit(by) if other.unit == "s" else (other.unit, 1.0)
    return f"{_signed(by / length)}{' ' + unit if unit else ''}{percent}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"


# --- provenance ----------------------------------------------------------------------------------------------------


def provenance_line(by: Mapping[str, Provenance], *, widest: int = 600) -> str:
    """Return one line: verb, source, settings, seed and version; of several results, what differs by name.

    >>> provenance_line({"a": Provenance("simulate", "mine", {"order": "fifo", "placement": "random"}, 1, "0.1")})
    'simulate · mine · order fifo, placement random · seed 1 · fleetlab 0.1'
    """
    rows = {label: _row(p) for label, p in by.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    different = [key for key in keys if len({row.get(key) for row in rows.values()}) > 1]
    same = _line({key: text for key, text in next(iter(rows.values())).items() if key not in different})
    own = [f"{label}: {_line({key: row[key] for key in different if key in row})}" for label, row in rows.items()]
    return clean("; ".join([same, *own] if different else [same]), widest)


def _row(p: Provenance) -> dict[str, str]:
    """Return a provenance as text by what it is."""
    settings = {f"set {name}": f"{name} {_setting(value)}" for name, value in dict(p.settings).items()}
    seed = {} if p.seed is None else {"seed": f"seed {p.seed}"}
    return {"verb": str(p.verb), "source": str(p.source), **settings, **seed, "version": f"fleetlab {p.version}"}


def _line(row: Mapping[str, str]) -> str:
    settings = ", ".join(text for key, text in row.items() if key.startswith("set "))
    first = [row[key] for key in ("verb", "source") if key in row]
    last = [row[key] for key in ("seed", "version") if key in row]
    return " · ".join([*first, *([settings] if settings else []), *last])


def _setting(value: Any) -> str:  # noqa: ANN401
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else "–" if value is None else str(value)
    return clean(text, SETTING)


def by_label(results: Result | Iterable[Result] | Mapping[str, Result]) -> dict[str, Result]:
    """Return results by a short name each: the given one, else what tells it from the others."""
    if isinstance(results, Mapping):
        names = [str(name) for name in results]
        values = list(results.values())
    else:
        values = [results] if hasattr(results, "provenance") or isinstance(results, str | Path) else list(results)
        names = _differences([r.provenance for r in values if hasattr(r, "provenance")])
        names += ["result"] * (len(values) - len(names))
    names = [clean(name, LABEL) or "result" for name in names]
    # Two names may be equal, or equal after they are cut.
    ordinals = [names[: k + 1].count(name) for k, name in enumerate(names)]
    labels = [f"{name} ({n})" if names.count(name) > 1 else name for name, n in zip(names, ordinals, strict=True)]
    return dict(zip(labels, values, strict=True))


def _differences(provenances: Sequence[Provenance]) -> list[str]:
    """Return for each, of verb, source, settings and seed, those in which they differ."""
    rows = [_row(p) for p in provenances]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    differ = [key for key in keys if len({row.get(key) for row in rows}) > 1] or ["verb"]
    return [", ".join(row[key] for key in differ if key in row) for row in rows]


def default_title(results: Mapping[str, Result]) -> str:
    """Return the verbs and sources of the results."""
    verbs = list(dict.fromkeys(str(r.provenance.verb) for r in results.values()))
    sources = list(dict.fromkeys(str(r.provenance.source) for r in results.values()))
    count = f", {len(results)} results" if len(results) > 1 else ""
    return clean(f"{', '.join(verbs)}: {', '.join(sources)}{count}", 160)
