"""What a reader expects, and how its files are recognized."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Cluster, Estimate, Provenance, Result, Trace, TraceError, Workload
from fleetlab.core.workload import older
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.intake import Intake

PEEK = 65_536


@dataclass(frozen=True)
class Peek:
    """A first look at a path: the files there and the beginning of each."""

    path: Path

    @cached_property
    def files(self) -> dict[str, SourceFile]:
        """Files by their stems: `pai_task_table`, whatever it is packed in."""
        return {source.stem: source for source in sources(self.path)}

    def beginning(self, source: SourceFile) -> str:
        """The first characters of a file, unpacked; empty if it cannot be read."""
        try:
            with source.open() as stream:
                return stream.read(PEEK).decode("utf-8", "replace")
        except TraceError:
            return ""

    @cached_property
    def first_lines(self) -> list[str]:
        """The first line of every file."""
        return [self.beginning(s).lstrip("\ufeff").split("\n", 1)[0].rstrip("\r") for s in self.files.values()]

    def has_columns(self, *names: str, separator: str = ",") -> bool:
        """Does the first line of any file name all these columns?"""
        return any(set(names) <= {c.strip() for c in line.split(separator)} for line in self.first_lines)


@dataclass(frozen=True)
class Format:
    """A reader and what `fleetlab traces` prints of it."""

    name: str
    title: str
    expects: str
    licence: str
    origin: str
    read: Callable[..., Trace]  # (path, intake) and, by keyword, what `options` names
    fits: Callable[[Peek], bool]
    options: frozenset[str] = frozenset()  # of `map`, `zone`, `since`
    unpacks: bool = False  # takes an archive of several files as the folder that it is of
    only: frozenset[str] = frozenset()  # files of that archive, without their endings; none: all
    any_table: bool = False  # takes what other formats would take too, if it is named

    @classmethod
    def of(
        cls,
        name: str,
        read: Callable[..., Trace],
        fits: Callable[[Peek], bool] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> Format:
        """Build one that `formats.toml` describes; without `fits` it is recognized by the columns there."""
        about = dict(_descriptions()[name])
        columns = about.pop("columns", [])

        def by_columns(peek: Peek) -> bool:
            return any(peek.has_columns(*names) for names in columns)

        return cls(name, **about, read=read, fits=fits or by_columns, **more)


@cache
def _descriptions() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("fleetlab.traces").joinpath("formats.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Formats(Result):
    """What can be read: the result of asking for it."""

    formats: tuple[Format, ...]
    fetched: frozenset[str]
    provenance: Provenance = field(default_factory=lambda: Provenance("traces", "fleetlab"))

    def summary(self) -> list[Estimate]:
        """How many formats there are."""
        return [Estimate.exact("formats", len(self.formats))]

    def tables(self) -> dict[str, pl.DataFrame]:
        """One row a format."""
        words = ("title", "expects", "licence", "origin")
        rows = [
            {
                "format": f.name,
                **{word: getattr(f, word) for word in words},
                "options": ", ".join(sorted(f.options)) or None,
                "fetch": f"fleetlab fetch {f.name} --into DIR" if f.name in self.fetched else None,
            }
            for f in self.formats
        ]
        return {"formats": pl.DataFrame(rows)}


def finish(
    intake: Intake,
    workload: Workload,
    *,
    source: str | None = None,
    cluster: Cluster | None = None,
    notes: tuple[str, ...] = (),
    settings: dict[str, object] | None = None,
    **tables: object,
) -> Trace:
    """Close the counter and make the trace: all that every reader ends with."""
    return Trace(
        workload,
        Provenance("read", source or workload.source, json.loads(json.dumps(settings or {}, default=str))),
        cluster=cluster,
        rejects=intake.rejects(),
        counts=intake.counts(),
        notes=notes,
        scratch=intake._scratch,
        **tables,  # type: ignore[arg-type]
    )


def relative_to_first(frame: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """Count `submit`, `start` and `end` from the first submission, in the order of a workload; give that moment too."""
    zero = frame["submit"].min() if frame.height else 0.0
    assert isinstance(zero, float)
    shifted = frame.with_columns(pl.col(c) - zero for c in ("submit", "eligible", "start", "end") if c in frame.columns)
    if "initial" not in frame.columns and {"start", "end", "status", "runtime"} <= set(frame.columns):
        shifted = shifted.with_columns(initial=older(shifted))
    later = [pl.col("initial").not_()] if "initial" in shifted.columns else []
    return shifted.sort(*later, "submit", maintain_order=True), zero
