"""One reading of the PAI tables: the files there are, and the counter that their rows pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Peek
from fleetlab.traces.input.intake import Intake, Rule, TableSchema
from fleetlab.traces.pai2020.tables import RULES, TABLES, choose, null_for_zero, with_header

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
class PaiTables:
    """The files there are, how each is shaped, and what is worth noting."""

    intake: Intake
    files: dict[str, SourceFile]
    shapes: dict[str, TableSchema]
    notes: list[str]

    def has(self, table: TableSchema) -> bool:
        """Is there such a table?"""
        return table.name in self.files

    def whole(self, table: TableSchema) -> pl.DataFrame:
        """A table that fits in memory, sieved."""
        source = self.files[table.name]
        frame = self.intake.table(source, self.shapes[table.name])
        if "start_time" in table.columns:
            frame = null_for_zero(frame)
        return self.intake.validate(frame, table.name, source.name, RULES[table.name])

    def stage(self, table: TableSchema, select: list[pl.Expr], *, number: Number | None = None) -> list[Path]:
        """Pass a large table through in blocks and leave it on disk; with `number`, rows of no task are turned away."""
        source = self.files[table.name]
        parts: list[Path] = []
        for batch in self.intake.batches(source, self.shapes[table.name]):
            frame = null_for_zero(batch) if "start_time" in table.columns else batch
            frame = self.intake.validate(frame, table.name, source.name, RULES[table.name])
            if number is not None:
                frame = self.intake.validate(frame.with_columns(number(frame)), table.name, source.name, ORPHAN)
            if frame.height:
                parts.append(Path(self.intake.scratch.name) / f"{table.name}-{len(parts):05}.parquet")
                write_part(frame.select(select), parts[-1])
        return parts


def write_part(frame: pl.DataFrame, part: Path) -> None:
    """Put a block aside on disk."""
    try:
        frame.write_parquet(part, compression="lz4", statistics=False)
    except (OSError, pl.exceptions.PolarsError) as e:
        msg = f"cannot write temporary files in {part.parent}: {str(e).splitlines()[0]}"
        raise TraceError(msg, hint="about 1 GiB is needed; set TMPDIR to use another folder") from None


def find_tables(path: Path, intake: Intake) -> PaiTables:
    """See which of the seven tables are there."""
    there = sources(path)
    tables_ = PaiTables(intake, {}, {}, [])
    for table in TABLES:
        source, others = choose(there, table)
        if others:
            msg = f"more than one file could be {table.name}: {', '.join(s.name for s in others)}"
            raise TraceError(msg, hint="give the file itself, or keep only one in the folder")
        if source is not None:
            tables_.files[table.name] = source
            first = Peek(path).beginning(source).split("\n", 1)[0].rstrip("\r")
            tables_.shapes[table.name] = with_header(table, first)
    if not tables_.files:
        msg = f"none of the seven PAI tables found in: {path}"
        raise TraceError(msg, hint=f"they are {', '.join(t.name for t in TABLES)}, as .csv, .csv.gz or .tar.gz")
    return tables_
