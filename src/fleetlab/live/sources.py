"""What a source of jobs offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fleetlab.live.rows import Poll


@dataclass(frozen=True, slots=True)
class Missing:
    """A job that is not listed any more: its last row, and when it was last listed."""

    data: Mapping[str, Any]
    seen: float


class Source(Protocol):
    """A running cluster."""

    format: ClassVar[str]  # of the reader that takes its rows
    parts: ClassVar[tuple[str, ...]]  # that answer or fail by themselves

    def name(self) -> str:
        """Return what the cluster is called; SourceError if nobody answers."""

    def poll(self, begun: float, accounted: float) -> Poll:
        """Look once, also for what ended since `accounted`, but not before the record begins; failures are named."""

    def resolve(self, found: Poll, missing: Mapping[str, Missing], every: float) -> None:
        """Add rows of jobs that are listed no more, as far as anything tells how they ended, or nothing ever will."""

    def site(self, folder: Path) -> None:
        """Gather what the site's configuration tells; SourceError if nobody answers."""

    @staticmethod
    def job_names(row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the reader may call the job of a row."""

    @staticmethod
    def write_log(rows: Iterable[Mapping[str, Any]], nodes: str, folder: Path) -> None:
        """Write rows as the files that the reader takes."""
