"""The only way from text to markup: names from a log are cleaned and escaped here, and nothing else makes tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any

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
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{joined([value if isinstance(value, str) else str(value)])}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    if name in SHAPES:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Join parts; those that are not markup yet are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def data(value: Any) -> Markup:  # noqa: ANN401
    """Return plain values for the script of the page, as JSON in which no tag can begin or end."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(f'<script type="application/json">{text}</script>')
