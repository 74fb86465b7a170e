"""A table as plain arrays: files that every worker of a machine maps, or an object store that every node shares.

Frames read from a file are copied into the memory of each process; arrays that are mapped are not. Names become codes
with a vocabulary, what is missing becomes nan or -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

ABOUT = "columns.json"
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Columns by name; `words` are what the codes of a column mean, for those that have codes."""

    columns: Mapping[str, NDArray[Any]]
    words: Mapping[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Packed:
        """Pack a frame of numbers, names and lists of names.

        >>> Packed.of(pl.DataFrame({"a": [1.5, None], "b": ["x", None], "c": [[], ["y"]]})).frame().rows()
        [(1.5, 'x', []), (None, None, ['y'])]
        """
        columns: dict[str, NDArray[Any]] = {}
        words: dict[str, list[Any]] = {}
        for column in frame.get_columns():
            if column.dtype.is_numeric():
                columns[column.name] = np.ascontiguousarray(column.to_numpy())
            else:
                columns[column.name], words[column.name] = _coded(column)
        return cls(columns, words)

    def frame(self, rows: Rows | None = None) -> pl.DataFrame:
        """The table again, or some of its rows."""
        found = {}
        for name, values in self.columns.items():
            some = np.asarray(values) if rows is None else values[rows]
            found[name] = _decoded(some, self.words[name]) if name in self.words else pl.Series(some, nan_to_null=True)
        return pl.DataFrame(found)

    def digest(self) -> str:
        """A name for what is in it."""
        found = sha256(json.dumps([list(self.columns), self.words], sort_keys=True).encode())
        for values in self.columns.values():
            found.update(f"{values.dtype} {len(values)}\n".encode())
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()[:32]

    def save(self, folder: Path) -> None:
        """Write a file a column."""
        folder.mkdir(parents=True)
        for k, values in enumerate(self.columns.values()):
            np.save(folder / f"{k}.npy", values)
        (folder / ABOUT).write_text(json.dumps({"columns": list(self.columns), "words": self.words}), "utf-8")

    @classmethod
    def mapped(cls, folder: Path) -> Packed:
        """What `save` wrote, mapped: all processes of a machine share it."""
        about = json.loads((folder / ABOUT).read_text("utf-8"))
        arrays = {name: np.load(folder / f"{k}.npy", mmap_mode="r") for k, name in enumerate(about["columns"])}
        return cls(arrays, about["words"])


def _coded(column: pl.Series) -> tuple[NDArray[Any], list[Any]]:
    """A code for each value, and what codes mean; missing: -1."""
    lists = isinstance(column.dtype, pl.List)
    values = [None if v is None else tuple(v) for v in column.to_list()] if lists else column.cast(pl.String).to_list()
    words = sorted({v for v in values if v is not None})
    code = {word: k for k, word in enumerate(words)}
    codes = np.fromiter((-1 if v is None else code[v] for v in values), dtype=np.int32, count=len(values))
    return codes, [list(word) for word in words] if lists else words


def _decoded(codes: NDArray[Any], words: list[Any]) -> pl.Series:
    kind = pl.List(pl.String) if words and isinstance(words[0], list) else pl.String
    known = pl.Series(words, dtype=kind)
    at = pl.Series(codes)
    return known.gather(at.set(at < 0, None))
