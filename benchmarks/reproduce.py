"""Write the tables of docs/reproduce from what `fleetlab reproduce NAME --json` printed.

`python -m benchmarks.reproduce nsdi22.json fgd-atc23.json dlrm2025.json gpu-sharing.json` fills the pages of these
studies, and then the page of all published numbers from the pages.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetlab.reproduce.item import VERDICTS

PAGES = Path("docs/reproduce")
STUDIES = ("nsdi22", "fgd-atc23", "dlrm2025", "gpu-sharing")
COLUMNS = ("item", "what", "published", "ours", "on", "verdict", "why", "source")
SHORT = ("item", "what", "published", "ours", "verdict")
BEGIN, END = "<!-- {}: fleetlab reproduce -->", "<!-- end -->"


def markdown(rows: Sequence[Mapping[str, str]], columns: Sequence[str] = COLUMNS) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join((*lines, *("| " + " | ".join(_cell(row[c]) for c in columns) + " |" for row in rows)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def rows_of(page: str) -> list[dict[str, str]]:
    """Return the rows of the table of a study's page."""
    text = section(page, "published numbers")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[1:]]
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells]


def section(page: str, name: str) -> str:
    """Return what stands between the marks of a name."""
    return page.split(BEGIN.format(name))[1].split(END)[0].strip()


def filled(page: str, name: str, text: str) -> str:
    """Return the page with this text between its marks."""
    before, rest = page.split(BEGIN.format(name))
    return f"{before}{BEGIN.format(name)}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}"


def counts(rows: Sequence[Mapping[str, str]]) -> str:
    """Return how many rows there are of each verdict, as a line."""
    count = Counter(row["verdict"] for row in rows)
    return f"{len(rows):,} rows: " + ", ".join(f"{count[v]:,} {v}" for v in VERDICTS if count[v]) + "."


def write_study(result: Mapping[str, Any]) -> None:
    """Fill the page of one study."""
    path = PAGES / f"{result['provenance']['settings']['name']}.md"
    rows = result["tables"]["published numbers"]
    page = filled(path.read_text("utf-8"), "published numbers", f"{counts(rows)}\n\n{markdown(rows)}")
    rules = markdown(result["tables"]["rules"], ("rule", "a number is reproduced if it is"))
    path.write_text(filled(page, "rules", rules), "utf-8")


def all_numbers(pages: Mapping[str, str]) -> str:
    """Return the text of the page of all published numbers, from the pages of the studies."""
    found = {name: rows_of(page) for name, page in pages.items()}
    table = [{"study": f"[{name}]({name}.md)"} | _counted(rows) for name, rows in found.items()]
    head = markdown(table, ("study", "rows", *VERDICTS))
    parts = [f"### {name}\n\n{markdown([_plain(r) for r in rows], SHORT)}" for name, rows in found.items()]
    return "\n\n".join((head, *parts))


def _plain(row: Mapping[str, str]) -> dict[str, str]:
    """A row as it was before it was escaped for its page."""
    return {key: text.replace("\\|", "|").replace("&lt;", "<") for key, text in row.items()}


def _counted(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    count = Counter(row["verdict"] for row in rows)
    return {"rows": f"{len(rows):,}"} | {v: f"{count[v]:,}" for v in VERDICTS}


def write_all() -> None:
    """Fill the page of all published numbers."""
    path = PAGES / "README.md"
    pages = {name: (PAGES / f"{name}.md").read_text("utf-8") for name in STUDIES}
    path.write_text(filled(path.read_text("utf-8"), "all numbers", all_numbers(pages)), "utf-8")


if __name__ == "__main__":
    for file in sys.argv[1:]:
        write_study(json.loads(Path(file).read_text("utf-8")))
    write_all()
