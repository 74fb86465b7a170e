"""Row conservation: every row of a table is kept or rejected, with file, line and reason.

Memory holds a few blocks of a file, never all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

import polars as pl

from fleetlab.core import TraceError
from fleetlab.core.progress import Progress, silent
from fleetlab.core.trace import COUNTS, REJECTS
from fleetlab.traces.input import files
from fleetlab.traces.input.delimited import Layout, ParsedBlock, TableSchema, parse, read_header
from fleetlab.traces.input.files import LONGEST, Block, SourceFile, blocks, prefetch

__all__ = ["LONGEST", "Intake", "Rule", "TableSchema"]

# A rule says what is wrong, with the expression that is true for a bad row; what comes after it
# shows the value: a column, or an expression.
Rule = tuple[str, pl.Expr] | tuple[str, pl.Expr, str | pl.Expr]


@dataclass
class Intake:
    """Count rows read and kept, collect rejected rows, and stage large tables on disk."""

    progress: Progress = silent
    rows: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    _rejects: list[pl.DataFrame] = field(default_factory=list)
    _scratch: Scratch | None = None

    # -- reading ------------------------------------------------------------------------------------------------

    def batches(self, source: SourceFile, table: TableSchema) -> Iterator[pl.DataFrame]:
        """The rows of a table, block by block, with the `line` each stands on; bad lines go to the rejects."""
        before = self.rows.setdefault(table.name, 0)
        layout: Layout | None = None
        rest: Block | None = None
        with closing(prefetch(blocks(source))) as coming:
            for block in coming:
                if layout is None:
                    layout, block = read_header(block, source, table)
                self._too_long(block, source, table)
                if not block.data:
                    continue
                rows = parse(block.after(rest), layout, ended=False)
                rest = rows.rest
                yield from self._counted(rows, source, table)
                self.progress(table.name, self.rows[table.name] - before, block.share)
        if layout is None:
            msg = f"{source.name}: the file is empty"
            raise TraceError(msg, hint="`fleetlab traces` lists what each format expects")
        if rest:
            yield from self._counted(parse(rest, layout, ended=True), source, table)

    def _counted(self, rows: ParsedBlock, source: SourceFile, table: TableSchema) -> Iterator[pl.DataFrame]:
        self.rows[table.name] += rows.frame.height + len(rows.bad)
        self.reject(table.name, source.name, rows.bad)
        if rows.frame.height:
            yield rows.frame

    def table(self, source: SourceFile, table: TableSchema) -> pl.DataFrame:
        """All rows of a table that fits in memory."""
        empty = pl.DataFrame(schema=table.columns_to_read | {"line": pl.Int64})
        return pl.concat([empty, *self.batches(source, table)])

    def _too_long(self, block: Block, source: SourceFile, table: TableSchema) -> None:
        reason = f"the line is longer than {files.LONGEST:,} bytes"
        self.rows[table.name] += len(block.too_long)
        self.reject(table.name, source.name, [(line, reason) for line in block.too_long])

    # -- rejecting ----------------------------------------------------------------------------------------------

    def validate(self, frame: pl.DataFrame, table: str, file: str, rules: Sequence[Rule]) -> pl.DataFrame:
        """Reject each row that breaks a rule, with the first rule it breaks; return the other rows."""
        if not rules or frame.is_empty():
            return frame
        broken = frame.select(pl.any_horizontal([rule[1].fill_null(value=False) for rule in rules]).alias("bad"))["bad"]
        if not broken.any():
            return frame
        reason = pl.coalesce([pl.when(rule[1].fill_null(value=False)).then(_reason(rule)) for rule in rules])
        # Said of the whole frame before it is filtered: a rule may look at other rows, as one on duplicates does.
        self._note(table, file, frame.select(pl.col("line").cast(pl.Int64), reason.alias("reason")).filter(broken))
        return frame.filter(~broken)

    def reject(self, table: str, file: str, lines: Sequence[tuple[int, str]]) -> None:
        """Reject lines by number."""
        if lines:
            self._note(table, file, pl.DataFrame(lines, schema={"line": pl.Int64, "reason": pl.String}, orient="row"))

    def _note(self, table: str, file: str, out: pl.DataFrame) -> None:
        named = out.with_columns(table=pl.lit(table), file=pl.lit(file)).select(list(REJECTS))
        self._rejects.append(named.cast(REJECTS))  # type: ignore[arg-type]

    # -- counting -----------------------------------------------------------------------------------------------

    def read(self, table: str, rows: int) -> None:
        """Count rows of a file that is not a delimited table (JSON, say)."""
        self.rows[table] = self.rows.get(table, 0) + rows

    def keep(self, table: str, rows: int) -> None:
        """Count rows that are in the trace: of what came out, not of what went in, so that a loss shows."""
        self.kept[table] = self.kept.get(table, 0) + rows

    def rejects(self) -> pl.DataFrame:
        """All rejected rows, by table, file and line."""
        rejects = pl.concat([pl.DataFrame(schema=REJECTS), *self._rejects])
        return rejects.sort("table", "file", "line", maintain_order=True)

    def counts(self) -> pl.DataFrame:
        """Rows read, kept and rejected, by table."""
        away: dict[str, int] = dict(self.rejects().group_by("table").len().iter_rows())
        # Also tables of which rows were kept or rejected but not counted: then rows and counts do not add up.
        names = dict.fromkeys([*self.rows, *self.kept, *away])
        rows = [(name, self.rows.get(name, 0), self.kept.get(name, 0), away.get(name, 0)) for name in names]
        return pl.DataFrame(rows, schema=COUNTS, orient="row")

    # -- staging ------------------------------------------------------------------------------------------------

    @property
    def scratch(self) -> Scratch:
        """A folder for what is too large for memory."""
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch


class Scratch:
    """A folder that goes, without a word, when nobody holds it any more."""

    def __init__(self) -> None:
        self.name = mkdtemp(prefix="fleetlab-")
        finalize(self, rmtree, self.name, ignore_errors=True)


def _reason(rule: Rule) -> pl.Expr:
    what = pl.lit(rule[0])
    if len(rule) == 2:
        return what
    value = pl.col(rule[2]) if isinstance(rule[2], str) else rule[2]
    text = value.cast(pl.String).str.slice(0, 80).fill_null("nothing")
    return pl.concat_str(what, pl.lit(": "), text)
