"""A notebook as a page: its text, its code, and what the code showed when it was run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in parts(cell)) + "\n"


def parts(cell: dict[str, Any]) -> list[str]:
    """Return a cell and its outputs as Markdown."""
    text = source(cell["source"])
    if cell["cell_type"] != "code":
        return [text]
    return [fence("python", text), *filter(None, map(output, cell["outputs"]))]


def output(item: dict[str, Any]) -> str:
    """Return an output: a picture, a table or text, the richest that there is."""
    data = item.get("data", {})
    if svg := data.get("image/svg+xml"):
        return html(source(svg))
    if png := data.get("image/png"):
        return html(f'<img alt="Output of the code above" src="data:image/png;base64,{source(png).strip()}">')
    if table := data.get("text/html"):
        return html(source(table))
    text = source(item.get("text") or data.get("text/plain") or item.get("traceback") or "")
    return fence("text", COLORS.sub("", text)) if text.strip() else ""


def source(text: str | list[str]) -> str:
    """Return text that a notebook may keep in lines."""
    return text if isinstance(text, str) else "".join(text)


def html(text: str) -> str:
    """Return markup as a block of Markdown: without empty lines, which would end it."""
    lines = (line for line in text.splitlines() if line.strip())
    return '<div class="notebook-output">\n' + "\n".join(lines) + "\n</div>"


def fence(kind: str, text: str) -> str:
    """Return a block of code."""
    return f"````{kind}\n{text.rstrip()}\n````"
