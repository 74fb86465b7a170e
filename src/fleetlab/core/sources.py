"""What a source of jobs offers: rows of a poll, from commands of the cluster that may fail or hang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from fleetlab.core.errors import TraceError
from fleetlab.core.names import lookup
from fleetlab.core.plugins import registered

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
    last_seen: float | None = None  # when it was last there, if that was not at this poll

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


@dataclass(frozen=True, slots=True)
class Missing:
    """A job that is not listed any more: its last row, and when it was last listed."""

    data: Mapping[str, Any]
    last_seen: float


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """What is gathered of a site, as `fleetlab collect` has it."""

    since: str | None = None
    until: str | None = None
    sacct_json: bool = False
    context: str | None = None
    scheduler_config: str | None = None


class Source(Protocol):
    """A running cluster. A system brings one by registering a class at the extension point `running clusters`."""

    format: ClassVar[str]  # of the reader that takes its rows
    parts: ClassVar[tuple[str, ...]]  # that answer or fail by themselves
    hint: ClassVar[str]  # what must work here
    queue: ClassVar[tuple[str, ...]]  # columns of jobs: the first that is not null is where the job waits
    team: ClassVar[str]  # the column of jobs that says whose they are

    @classmethod
    def at(cls, kubeconfig: Path | None = None, context: str | None = None) -> Self:
        """Return the cluster that this machine reaches."""

    @staticmethod
    def collect(out: Path, options: CollectOptions, say: Callable[[str], None]) -> None:
        """Gather a site's log and rules in a folder."""

    @staticmethod
    def script() -> str:
        """Return the script that gathers them where fleetlab is not installed; TraceError if there is none."""

    def name(self) -> str:
        """Return what the cluster is called; SourceError if nobody answers."""

    def poll(self, begun: float, accounted: float) -> Poll:
        """Look once, also for what ended since `accounted`, but not before the record begins; failures are named."""

    def resolve(self, poll: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Add rows of jobs that are listed no more, as far as anything tells how they ended, or nothing ever will."""

    def site(self, folder: Path) -> None:
        """Gather what the site's configuration tells; SourceError if nobody answers."""

    @staticmethod
    def job_names(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the reader may call the job of a row."""

    @staticmethod
    def write_log(rows: Iterable[Mapping[str, Any]], nodes: str, folder: Path) -> None:
        """Write rows as the files that the reader takes."""


def source_kind(system: str) -> type[Source]:
    """Return the class that reads a system which is registered."""
    kinds: dict[str, type[Source]] = {kind.format: kind for kind in registered("running clusters")}
    return kinds[lookup("system", system, tuple(kinds), error=TraceError)]


LONGEST_S = 60.0  # s that a command may take


class Ask(Protocol):
    """Something that runs commands."""

    def __call__(self, words: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        """Return what a command prints; SourceError if it fails."""


class SourceError(RuntimeError):
    """A command gave no answer; the message says why, in one line."""


def ask(words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = LONGEST_S) -> str:
    """Return what a command prints."""
    if not shutil.which(words[0]):
        raise SourceError(f"no command `{words[0]}` here")
    try:
        done = subprocess.run(
            words, env={**os.environ, "LC_ALL": "C", **(env or {})}, capture_output=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SourceError(f"no answer within {timeout:.0f} s") from None
    except OSError as e:
        raise SourceError(e.strerror or str(e)) from None
    if done.returncode:
        output = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise SourceError(output.splitlines()[0][:200] if output else f"status {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
