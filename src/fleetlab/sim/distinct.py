"""The distinct rows of a frame, and which of them each row is: of a million jobs a few thousand differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from fleetlab.sim.layout import Ints

MOST = 1 << 62  # values of one key


def distinct_rows(frame: pl.DataFrame, columns: Sequence[str] | None = None) -> tuple[pl.DataFrame, Ints]:
    """Return the distinct rows, in order of appearance, and the number of each row's; of all columns, or of some.

    Rows of several columns are compared much more slowly than numbers: columns with one value are left out, and those
    of whole numbers and flags become one key, as far as their ranges allow.

    >>> distinct, number = distinct_rows(pl.DataFrame({"a": [5, 5, 7, 5], "b": [1, 2, 1, 1]}))
    >>> distinct.rows(), number.tolist()
    ([(5, 1), (5, 2), (7, 1)], [0, 1, 2, 0])
    """
    rows = frame if columns is None else frame.select(columns)
    others, key, size = list[pl.Series](), np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.with_columns(pl.col(pl.Boolean).cast(pl.Int8)):
        low, high = (column.min(), column.max()) if column.dtype.is_integer() and not column.has_nulls() else (0, MOST)
        span = int(high) - int(low) + 1 if len(rows) else 1  # type: ignore[arg-type]
        if span == 1:
            continue
        if size * span < MOST:
            size *= span
            key = key * span + (column.to_numpy().astype(np.int64) - low)  # type: ignore[operator, assignment]
        else:
            others.append(column)
    keys = pl.DataFrame([*others, pl.Series("", key)] if size > 1 or not others else others)
    numbered = keys.with_row_index(" row").unique(keys.columns, keep="first", maintain_order=True)
    number = keys.join(
        numbered.drop(" row").with_row_index(" number"),
        on=keys.columns, how="left", maintain_order="left", nulls_equal=True,
    )[" number"]  # fmt: skip
    return rows[numbered[" row"]], number.to_numpy().astype(np.int64)
