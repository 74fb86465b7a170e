"""Write the tables of the recorded runs into their page: `python -m realtest.report`."""

from __future__ import annotations

import sys
from pathlib import Path

from realtest.archives import recorded_runs
from realtest.spread import tables

PAGE = Path("docs/measurements/slurm/README.md")
MARKS = ("<!-- tables: python -m realtest.report -->", "<!-- end of tables -->")


def with_tables(page: str, said: str, marks: tuple[str, str] = MARKS) -> str:
    """Return the page with the tables between its two marks."""
    before, _, rest = page.partition(marks[0])
    _, _, after = rest.partition(marks[1])
    return f"{before}{marks[0]}\n\n{said}\n\n{marks[1]}{after}"


if __name__ == "__main__":
    runs = Path(sys.argv[1]) if len(sys.argv) > 1 else recorded_runs("slurm")
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables(runs)), "utf-8")
