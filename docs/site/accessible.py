"""What the theme's pages lack: names of menus and of the search, headings with text, long sentences that wrap."""

from __future__ import annotations

import re

SUBMENU = re.compile(r'aria-labelledby="(__nav_[\d_]+)_label"')
EMPTY_HEADING = re.compile(r"<th([^>]*)></th>")
SENTENCE = re.compile(r'<span class="go">(?=(?:(?!  )[^<\n]){81,}</span>)')  # a row of a table has gaps
SEARCH = 'data-md-component="search" role="dialog"'


def mended(html: str) -> str:
    """Return a page with what it lacks."""
    html = SUBMENU.sub(lambda m: f'aria-label="Pages of {menu_title(html, m[1])}"', html)
    html = SENTENCE.sub('<span class="go sentence">', html)
    html = html.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    return EMPTY_HEADING.sub(r"<td\1></td>", html)


def menu_title(html: str, name: str) -> str:
    """Return the title of a menu; two of the same title differ by their place."""
    title = re.search(rf'<label class="md-nav__title" for="{name}">(.*?)</label>', html, re.DOTALL)
    text = " ".join(re.sub(r"<[^>]*>", " ", title[1]).split()) if title else ""
    return f"{text}, section {name.removeprefix('__nav_').replace('_', '.')}"
