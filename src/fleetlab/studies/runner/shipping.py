"""Scenarios as bytes: all that they hold, with each table written once, where every worker maps it.

A scenario is pickled as it is, so that nothing in it can be left behind: jobs, nodes, the scheduler, queues, events of
nodes, series, what ran before, and its words. Tables do not go into the pickle: they lie beside it, and so does each
trace, so that the scenarios of one trace share it in a worker too.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

import polars as pl

from fleetlab.core import Cluster, Trace
from fleetlab.core.data import Data
from fleetlab.core.provenance import code_digest
from fleetlab.core.word_spellings import spelling

SHARED = (Trace, Data, Cluster)  # written once, like tables
CANNOT = (pickle.PicklingError, AttributeError, TypeError)


class Storage(Protocol):
    """Where the parts of scenarios are that several of them have."""

    def put_table(self, table: pl.DataFrame) -> object:
        """Keep a table; return by what `table` knows it."""

    def put_bytes(self, content: bytes) -> object:
        """Keep bytes; return by what `content` knows them."""

    def table(self, key: Any) -> pl.DataFrame:  # noqa: ANN401
        """Return a table."""

    def content(self, key: Any) -> bytes:  # noqa: ANN401
        """Return bytes."""


class Folder:
    """Files that all processes of this machine map."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0

    def _next(self, kind: str) -> str:
        self._count += 1
        return f"{self._count}.{kind}"

    def put_table(self, table: pl.DataFrame) -> str:
        """Write a table, so that it can be mapped."""
        name = self._next("arrow")
        table.write_ipc(self.path / name, compression="uncompressed")
        return name

    def put_bytes(self, content: bytes) -> str:
        """Write bytes."""
        name = self._next("pickle")
        (self.path / name).write_bytes(content)
        return name

    def table(self, key: str) -> pl.DataFrame:
        """Map a table."""
        return pl.read_ipc(self.path / key)

    def content(self, key: str) -> bytes:
        """Read bytes."""
        return (self.path / key).read_bytes()


class Packer:
    """Turns values into bytes that a worker with the same storage turns back."""

    def __init__(self, storage: Storage | None, *, plans: bool) -> None:
        self._storage = storage  # None: nothing is kept, only tried
        self._plans = plans  # whether workers can read the files that lazy frames scan
        self._keys: dict[int, tuple[object, Any]] = {}  # by identity; the object too, so that it stays the same one

    def pack(self, value: object) -> bytes:
        """Return a value as bytes; what exists only in this process raises one of `CANNOT`."""
        buffer = io.BytesIO()
        _Pickler(buffer, self).dump(value)
        return buffer.getvalue()

    def key(self, value: object) -> tuple[str, Any] | None:
        """Return by what a shared value is known, keeping it the first time; None: it goes into the pickle."""
        if not isinstance(value, (pl.DataFrame, pl.LazyFrame, pl.Series, *SHARED)):
            return None
        if id(value) not in self._keys:
            self._keys[id(value)] = (value, self._store(value))
        return self._keys[id(value)][1]  # type: ignore[no-any-return]

    def _store(self, value: object) -> tuple[str, Any]:
        if isinstance(value, SHARED):
            buffer = io.BytesIO()
            _Pickler(buffer, self, inside=True).dump(_as_values(value))
            return "bytes", self._storage and self._storage.put_bytes(buffer.getvalue())
        if self._storage is None:
            return "table", None
        if isinstance(value, pl.Series):
            return "column", self._storage.put_table(value.to_frame())
        if isinstance(value, pl.LazyFrame):
            if self._plans:
                return "bytes", self._storage.put_bytes(pickle.dumps(value))
            return "lazy", self._storage.put_table(value.collect())
        assert isinstance(value, pl.DataFrame)
        return "table", self._storage.put_table(value)


def _as_values(value: object) -> object:
    """Return a trace without what keeps its files in place: they stay as long as this process works."""
    return replace(value, scratch=None) if isinstance(value, Trace) else value


class _Pickler(pickle.Pickler):
    def __init__(self, buffer: io.BytesIO, packer: Packer, *, inside: bool = False) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self._packer, self._is_first = packer, inside

    def persistent_id(self, value: object) -> tuple[str, Any] | None:
        first, self._is_first = self._is_first, False  # of what is kept itself, its fields are pickled
        return None if first else self._packer.key(value)

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401
        is_policy = isinstance(getattr(value, "rank", None), FunctionType)
        if not is_policy and not isinstance(value, (type, FunctionType)):
            return NotImplemented
        if is_policy and (name := spelling(value)) is not None:
            return _named, (name if ":" in name else f"fleetlab.sim.orders:{name}",)
        if is_policy or value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value} exists only in this process")
        return NotImplemented  # a class or function of a module, which a worker imports; another one is refused


def _named(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


class Unpacker:
    """Turns bytes back into values, each shared one once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._shared: dict[Any, object] = {}

    def unpack(self, content: bytes) -> Any:  # noqa: ANN401
        """Undo `Packer.pack`."""
        return _Unpickler(io.BytesIO(content), self).load()

    def shared(self, key: tuple[str, Any]) -> object:
        """Return a value that several have."""
        if key not in self._shared:
            self._shared[key] = self._opened(*key)
        return self._shared[key]

    def _opened(self, kind: str, key: object) -> object:
        if kind == "bytes":
            return self.unpack(self._storage.content(key))
        table = self._storage.table(key)
        return table.to_series() if kind == "column" else table.lazy() if kind == "lazy" else table


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, unpacker: Unpacker) -> None:
        super().__init__(buffer)
        self._unpacker = unpacker

    def persistent_load(self, key: tuple[str, Any]) -> object:
        return self._unpacker.shared(key)


def can_travel(*values: object) -> list[bool]:
    """Return which values a worker can have: functions of a notebook, a script or a test are in this process alone.

    >>> import json
    >>> can_travel(json.dumps, lambda s, job, now: 0.0)
    [True, False]
    """
    packer = Packer(None, plans=True)
    return [_can_pack(packer, value) for value in values]


def _can_pack(packer: Packer, value: object) -> bool:
    try:
        packer.pack(value)
    except CANNOT:
        return False
    return True


PACKAGES = ("fleetlab.core", "fleetlab.schedulers", "fleetlab.sim", "fleetlab.stats", "fleetlab.traces.synthesize")


def code_version(*modules: str) -> str:
    """Return a digest of the simulator's source text, and of some more modules: one changed line changes it."""
    return code_digest(*PACKAGES, *modules)
