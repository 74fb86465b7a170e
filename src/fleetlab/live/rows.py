"""What a poll sees of one job, and how sure that is."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# How much a row knows, ascending: of two rows of one job the one that knows more counts, of equals the later.
PRESENT, UNSEEN, ENDED, RECORDED = range(4)
#   PRESENT: it waits or runs; UNSEEN: it is gone, and nobody tells when it ended; ENDED: the scheduler says how it
#   ended; RECORDED: so does the accounting, which is complete


def mark_of(*values: object) -> str:
    """Return a short text that differs where one of the values does."""
    return f"{zlib.crc32(repr(values).encode('utf-8', 'backslashreplace')):08x}"


@dataclass(frozen=True, slots=True)
class Row:
    """A job as one command reports it: `data` is what the format's own reader reads."""

    key: str  # of one run of one job, for good
    rank: int
    data: Mapping[str, Any]
    mark: str = ""  # changes when the job does: a row with the same mark is not written again
    reason: str = ""  # why it waits
    seen: float | None = None  # when it was last there, if that was not at this poll

    def text(self) -> str:
        """Return the data in one line."""
        return json.dumps(self.data, separators=(",", ":"), ensure_ascii=True)


# Whether a node takes jobs: up; drained: no new ones; down: none at all.
UP, DRAINED, DOWN = "up", "drained", "down"


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What is allocated on a node."""

    gpu_milli: int
    cpu_milli: int


@dataclass(slots=True)
class Poll:
    """All that one look at the cluster gave."""

    at: float
    rows: dict[str, Row] = field(default_factory=dict)
    listed: bool = False  # whether every job that waits or runs is among the rows
    accounted: float | None = None  # up to when all that ended is known to be here
    nodes: str = ""  # as the reader of the format takes it
    nodes_mark: str = ""  # changes when there are other nodes
    used: dict[str, NodeUse] | None = None  # None: to be counted from where jobs run
    states: dict[str, str] = field(default_factory=dict)  # of nodes, by name: UP, DRAINED or DOWN
    failures: dict[str, str] = field(default_factory=dict)  # by command, why it failed

    def add(self, row: Row) -> None:
        """Keep the row that knows more of its job."""
        before = self.rows.get(row.key)
        if before is None or before.rank <= row.rank:
            self.rows[row.key] = row
