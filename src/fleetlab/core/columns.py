"""Cast a table to the exact columns of a noun, or say which column cannot be cast."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core.errors import WorkloadError


def cast(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], *, source: str, noun: str) -> pl.DataFrame:
    """Cast without losing anything: what does not fit is refused, and so is a fraction where counts are asked for."""
    kinds = {name: kind for name, kind in schema.items() if name in frame.columns}
    try:
        if wrong := next((w for name, kind in kinds.items() if (w := _misfit(frame[name], kind))), None):
            raise pl.exceptions.InvalidOperationError(wrong)
        return frame.cast(kinds)  # type: ignore[arg-type]
    except pl.exceptions.PolarsError as e:
        msg = f"{source}: a column cannot be what a {noun} asks for: {str(e).splitlines()[0]}"
        hint = "amounts are whole numbers (milli, MiB, GPUs), times are seconds; DESIGN.md lists the columns"
        raise WorkloadError(msg, hint=hint) from None


def _misfit(column: pl.Series, kind: pl.DataType) -> str | None:
    """What polars would cast without a word, and lose something."""
    dtype = column.dtype
    if dtype.is_temporal() or (dtype.is_nested() and not kind.is_nested()):
        return f"`{column.name}` is of type: {dtype}"
    if dtype.is_float() and kind.is_integer():
        fractions = column.filter(column.is_finite() & (column != column.round()))
        return f"`{column.name}` is not a whole number: {fractions[0]}" if fractions.len() else None
    return None
