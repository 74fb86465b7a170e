"""One reading of the PAI tables: the files there are, and the counter that their rows pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import Source, sources
from fleetlab.traces.input.format import Peek
from fleetlab.traces.input.intake import Intake, Rule, Table
from fleetlab.traces.pai2020.tables import RULES, TABLES, as_found, choose, missing_for_zero

# Job and task names together; seeds keep `a, b` from meeting `b, a`.
KEY = pl.col("job_name").hash(1) ^ pl.col("task_name").hash(2)
# One row of an instance: a retry has another worker. Where no worker is named, only a row that is the same all through
# is the same row.
WHOLE_KEY = (
    KEY
    ^ pl.col("inst_name").hash(3)
    ^ pl.when(pl.col("worker_name").is_not_null())
    .then(pl.col("worker_name").hash(4))
    .otherwise(pl.struct("status", "start_time", "end_time", "machine").hash(5))
)


ORPHAN: list[Rule] = [("no such task", pl.col("job").is_null(), "job_name")]
Number = Callable[[pl.DataFrame], pl.Series]  # the task of each (job_name, task_name), null where there is none


@dataclass
class Visit:
    """The files there are, how each is shaped, and what is worth noting."""

    intake: Intake
    files: dict[str, Source]
    shapes: dict[str, Table]
    notes: list[str]

    def has(self, table: Table) -> bool:
        """Is there such a table?"""
        return table.name in self.files

    def whole(self, table: Table) -> pl.DataFrame:
        """A table that fits in memory, sieved."""
        source = self.files[table.name]
        frame = self.intake.table(source, self.shapes[table.name])
        if "start_time" in table.columns:
            frame = missing_for_zero(frame)
        return self.intake.sieve(frame, table.name, source.name, RULES[table.name])

    def stage(self, table: Table, select: list[pl.Expr], *, number: Number | None = None) -> list[Path]:
        """Pass a large table through in blocks and leave it on disk; with `number`, rows of no task are turned away."""
        source = self.files[table.name]
        parts: list[Path] = []
        for batch in self.intake.batches(source, self.shapes[table.name]):
            frame = missing_for_zero(batch) if "start_time" in table.columns else batch
            frame = self.intake.sieve(frame, table.name, source.name, RULES[table.name])
            if number is not None:
                frame = self.intake.sieve(frame.with_columns(number(frame)), table.name, source.name, ORPHAN)
            if frame.height:
                parts.append(Path(self.intake.scratch.name) / f"{table.name}-{len(parts):05}.parquet")
                leave(frame.select(select), parts[-1])
        return parts


def leave(frame: pl.DataFrame, part: Path) -> None:
    """Put a block aside on disk."""
    try:
        frame.write_parquet(part, compression="lz4", statistics=False)
    except (OSError, pl.exceptions.PolarsError) as e:
        msg = f"cannot put a large table aside in {part.parent}: {str(e).splitlines()[0]}"
        raise TraceError(msg, hint="it needs about a gigabyte there; TMPDIR names another place") from None


def look(path: Path, intake: Intake) -> Visit:
    """See which of the seven tables are there."""
    there = sources(path)
    visit = Visit(intake, {}, {}, [])
    for table in TABLES:
        source, others = choose(there, table)
        if others:
            msg = f"more than one file could be {table.name}: {', '.join(s.name for s in others)}"
            raise TraceError(msg, hint="name the file itself, or leave only one in the folder")
        if source is not None:
            visit.files[table.name] = source
            first = Peek(path).beginning(source).split("\n", 1)[0].rstrip("\r")
            visit.shapes[table.name] = as_found(table, first)
    if not visit.files:
        msg = f"none of the seven PAI tables in: {path}"
        raise TraceError(msg, hint=f"they are {', '.join(t.name for t in TABLES)}, as .csv, .csv.gz or .tar.gz")
    return visit
