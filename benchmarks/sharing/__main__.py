"""`python -m benchmarks.sharing` prints all tables; with --write it puts them into docs/measurements/sharing.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from benchmarks.sharing import analyzed, raw, users
from fleetlab.core.files import folder_at

PAGE = Path("docs/measurements/sharing.md")
CELLS = Path("measurements/gpu-sharing.tar.gz")
BEGIN, END = "<!-- {}: python -m benchmarks.sharing -->", "<!-- end -->"


def tables(root: Path) -> Iterator[tuple[str, str]]:
    """The name of each table, and its text."""
    for name, make in {**analyzed.TABLES, **raw.TABLES, **users.TABLES}.items():
        text = StringIO()
        with redirect_stdout(text):
            make(root)
        yield name, text.getvalue().strip()


def filled(page: str, made: dict[str, str]) -> str:
    """The page with these tables between their marks; a table without marks is an error."""
    for name, text in made.items():
        begin = BEGIN.format(name)
        place = re.compile(re.escape(begin) + r"\n.*?" + re.escape(END), re.DOTALL)
        if not place.search(page):
            msg = f"no place for the table `{name}` in the page"
            raise ValueError(msg)
        page = place.sub(lambda _, b=begin, t=text: f"{b}\n\n{t}\n\n{END}", page)
    return page


def main(words: list[str]) -> None:
    """Print, or write."""
    made = dict(tables(folder_at(CELLS)))
    if "--write" in words:
        PAGE.write_text(filled(PAGE.read_text("utf-8"), made), "utf-8")
        return
    for name, text in made.items():
        print(f"### {name}\n\n{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
