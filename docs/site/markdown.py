"""Markdown as GitHub reads it, for Python-Markdown: what the two read differently is written so that both agree."""

from __future__ import annotations

import re

from docs.site import places

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TITLED = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
ITEM = re.compile(r"^(?:[-*]|\d+\.) ")
LEXERS = {".toml": "toml", ".py": "python", ".sh": "bash", ".yaml": "yaml", ".json": "json"}


def portable(text: str, name: str) -> str:
    """Return a page's Markdown as Python-Markdown takes it, with the links of the site."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [prose(text[end : fence.start()], name), TITLED.sub(titled, fence[0])]
        end = fence.end()
    return "".join([*parts, prose(text[end:], name)])


def titled(match: re.Match[str]) -> str:
    """Show the name of a file above its text, in the colors of its kind."""
    suffix = f".{match[2].rpartition('.')[2]}"
    return f'```{LEXERS.get(suffix, match[1])} title="{match[2]}"'


def prose(text: str, name: str) -> str:
    """Return text outside of fences: lists and tables as blocks of their own, links of the site."""
    lines: list[str] = []
    for line in places.relink(text, name).split("\n"):
        before = lines[-1] if lines else ""
        if before and begins_block(line, before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def begins_block(line: str, before: str) -> bool:
    """Does a list or a table begin in this line, right below a paragraph?"""
    if ITEM.match(line):
        return not ITEM.match(before) and not before.startswith(" ")
    return line.startswith("|") and not before.startswith("|")
