"""A catalog: the records of one kind, in a fixed order, looked up by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fleetlab.core.names import lookup


class Entry(Protocol):
    """What every record of a catalog has."""

    @property
    def name(self) -> str:
        """As columns, flags, files and addresses spell it."""

    @property
    def meaning(self) -> str:
        """One line of help."""


E = TypeVar("E", bound=Entry)


@dataclass(frozen=True)
class Catalog(Generic[E]):
    """Records of one kind. The position of a record is its number in compiled code: append, never reorder."""

    kind: str
    entries: tuple[E, ...]

    def __getitem__(self, name: str) -> E:
        """Return the record by its name, or refuse the name with the closest match."""
        return self.entries[self.index(name)]

    def __iter__(self) -> Iterator[E]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(entry.name for entry in self.entries)

    def index(self, name: str) -> int:
        """Return the position of a record: its number in compiled code."""
        return self.names.index(lookup(self.kind, name, self.names))

    def where(self, flag: str) -> tuple[str, ...]:
        """Return the names of the records for which a flag is set."""
        return tuple(entry.name for entry in self.entries if getattr(entry, flag))

    def meanings(self) -> dict[str, str]:
        """Return the meaning by name: menus, and tables of the guides."""
        return {entry.name: entry.meaning for entry in self.entries}

    def help(self) -> str:
        """Return one line that lists the names with their meanings."""
        return "; ".join(f"{entry.name} ({entry.meaning})" for entry in self.entries)
