"""The one way from text to markup: what a log brought in is cleaned and escaped here, and nothing else makes tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

LONGEST = 2000  # characters of a text; a name of ten thousand is no name
VOID = frozenset({"meta", "br"})
SHAPES = frozenset({"path", "line", "rect"})
# What a screen obeys rather than shows: controls, marks that turn the direction of text, what is no character at all.
OBEYED = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
SPACES = re.compile(r"[\t\n\r]+")


class Markup(str):
    """Text that is markup already, and safe."""

    __slots__ = ()


def clean(value: object, widest: int = LONGEST) -> str:
    r"""Text that says what it is and does nothing, cut where nobody reads on.

    >>> clean("a\u202eb\x00")
    'a\ufffdb\ufffd'
    >>> clean("abcdef", 4)
    'abc…'
    """
    # Cut first: what is left out need not be looked at.
    said = str(value)[: widest + 1]
    said = OBEYED.sub("\ufffd", SPACES.sub(" ", said))
    return said if len(said) <= widest else said[: widest - 1] + "…"


def text(value: object, widest: int = LONGEST) -> Markup:
    """Anything as text of a page.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    return Markup(escape(clean(value, widest)))


def tag(name: str, /, *inside: str, **attributes: str | float | None) -> Markup:
    """One element; `class_` is class, `aria_label` is aria-label, and an attribute that is None is left out.

    >>> tag("b", "1 < 2", class_="x")
    '<b class="x">1 &lt; 2</b>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{joined([value if isinstance(value, str) else str(value)])}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{said}>")
    if name in SHAPES:
        return Markup(f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """One after the other; what is not markup yet becomes text."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def data(value: Any) -> Markup:  # noqa: ANN401
    """Plain values for the script of the page, as JSON in which no tag can begin or end."""
    said = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        said = said.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json">{said}</script>')
