"""Pages of words, names and columns, made from the catalogs that the code itself uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from docs.site import columns
from docs.site.records import FILES, RESULTS, SHARED, Described, without_mark

from fleetlab.core import catalog
from fleetlab.core.words import WORDS

NOUNS = {"policy": "Policy", "scenario": "Scenario", "data": "Data"}
CATALOGS = (
    ("Queue orders", catalog.ORDERS), ("Backfill rules", catalog.BACKFILLS), ("Placements", catalog.PLACEMENTS),
    ("Runtime estimates", catalog.ESTIMATES), ("Sharing modes", catalog.SHARINGS), ("Speed profiles", catalog.SPEEDS),
    ("Metrics", catalog.METRICS), ("Wait reasons", catalog.REASONS),
    ("Holders", catalog.HOLDERS), ("Resources", catalog.RESOURCES),
)  # fmt: skip
COLUMNS = {
    "Jobs": ("`Workload.frame`, `workload.parquet`: one row per job.", columns.JOBS),
    "Nodes": ("`Cluster.frame`, `cluster.parquet`: one row per node.", columns.NODES),
    "Instances": ("`Trace.placements`, `placements.parquet`: where the log saw each instance run.", columns.INSTANCES),
    "Rejects": ("`Trace.rejects`: rows of the log that could not be kept.", columns.REJECTS),
    "Counts": ("`Trace.counts`: every row is kept or rejected.", columns.COUNTS),
    "Schedule": ("`SimResult.jobs`, `SimResult.schedule()`, `simulate --out`: one row per job.", columns.SCHEDULE),
}


def pages() -> dict[str, str]:
    """Return the pages of words and names."""
    return {
        "reference/words.md": words_page(),
        "reference/names.md": names_page(),
        "reference/columns.md": columns_page(),
        "reference/tables.md": tables_page(),
    }


def words_page() -> str:
    """Return the words of a scenario."""
    parts = [
        "# The words of a scenario",
        "A scenario is a trace on a cluster under a policy. Each word below is a keyword argument in Python, an option "
        "on the command line (`--warm-up` for `warm_up`), a key of a study or scenario file, and a part of the "
        "address of the page, everywhere with the same name, default and meaning.",
    ]
    for noun, title in NOUNS.items():
        rows = [(f"`{w.name}`", f"`{w.default!r}`", w.help) for w in WORDS.values() if w.noun == noun]
        parts += [f"## {title}", table(("word", "default", "meaning"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def names_page() -> str:
    """Return the names that a word, a table or a finding may have, with what each means."""
    parts = [
        "# Names",
        "What a word of a scenario may be, and what tables and findings name: one record each in the code.",
    ]
    for title, entries in CATALOGS:
        parts += [f"## {title}", table(("name", "meaning"), [(f"`{e.name}`", e.meaning) for e in entries])]
    return "\n\n".join(parts) + "\n"


def columns_page() -> str:
    """Return what each column means, table by table."""
    parts = [
        "# Columns",
        "Times are seconds, amounts whole numbers: the columns of traces and schedules. Files of a trace are in [file "
        "formats](formats.md); what results and other files have is in [tables](tables.md).",
    ]
    for title, (where, entries) in COLUMNS.items():
        rows = [(f"`{c.name}`", c.unit, c.meaning) for c in entries]
        parts += [f"## {title}", where, table(("column", "unit", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def tables_page() -> str:
    """Return the tables of every result and of files that commands write: what a row is, and what columns mean."""
    parts = [
        "# Tables",
        "## Results",
        "`Result.tables()`, `to_polars(NAME)` and `--json` have these tables; times are seconds. `X` ± is three "
        "columns: `X`, and the ends of its 95 % interval, `X low` and `X high` (`X_low` and `X_high` where names have "
        "no spaces), which are null where there are too few values for one. `X change` is the difference to the "
        "baseline. A column in parentheses is left out where it does not apply; `{…}` stands for a name that differs.",
    ]
    for one in RESULTS:
        parts += described(one)
    parts += ["## Files", "Rows of files that commands write beside their results."]
    for one in FILES:
        parts += described(one)
    return "\n\n".join(parts) + "\n"


def described(one: Described) -> list[str]:
    """Return the tables of a result, then its columns, each once."""
    tables = [(f"`{t.name}`", t.row, ", ".join(map(written, t.parts()))) for t in one.tables]
    found = {}
    for t in one.tables:
        for name in map(without_mark, t.parts()):
            column = one.column(t.name, name, SHARED)
            own = f"{t.name}: {name}" in one.columns
            found[t.name if own else "", name] = (f"`{name}`" + (f" of `{t.name}`" if own else ""), column)
    rows = [(name, column.unit, column.meaning) for name, column in found.values()]
    return [
        f"### {one.name}",
        table(("table", "a row is", "columns"), tables),
        table(("column", "unit", "meaning"), rows),
    ]


def written(part: str) -> str:
    """Return a column of a table as the page has it."""
    name = f"`{without_mark(part)}`" + (" ±" if "±" in part else "")
    return f"({name})" if part.endswith("?") else name


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
