"""Validate the simulator against theory, published results, real logs and audits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.sim import simulate
from fleetlab.stats import allowed_misses
from fleetlab.studies.validate import (
    approximations,
    audits,
    dlrm,
    fgd,
    helios,
    means,
    openb,
    pai,
    philly,
    policies,
    schedules,
)
from fleetlab.studies.validate.line import JOINT, VERDICTS, Line, agree, each_of, table

PARTS = ("schedules", "means", "approximations", "published", "real", "audit")
HOW = (
    "a line agrees if the expected value is in its 95 % interval, or as near as the guide says; `within chance` is "
    f"outside, but inside the joint {100 * JOINT:g} % interval of all lines of its part (Bonferroni)"
)

LinesAndNotes = tuple[list[Line], list[str]]


@dataclass(frozen=True, slots=True, repr=False)
class Validation(Result):
    """Lines by part, each with its interval and verdict."""

    parts: Mapping[str, Sequence[Line]]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all counted lines agree."""
        return all(agree(lines) for lines in self.parts.values())

    @property
    def findings(self) -> tuple[str, ...]:
        """How many parts pass, and which fail."""
        lines = sum(len(part) for part in self.parts.values())
        failed = [name for name, part in self.parts.items() if not agree(part)]
        of = f"of {len(self.parts)} parts with {lines:,} lines"
        return (f"The validation fails: {', '.join(failed)}, {of}." if failed else f"The validation passes, {of}.",)

    def summary(self) -> list[Estimate]:
        """Return the number of lines by verdict."""
        verdicts = self.tables()["verdicts"]
        fails = verdicts.filter(pl.col("verdict") == "fails").height
        counts = [Estimate.exact(f"lines, {word}", int(verdicts[word].sum())) for word in VERDICTS]
        return [
            Estimate.exact("failed parts", fails), Estimate.exact("lines", int(verdicts["lines"].sum())), *counts
        ]  # fmt: skip

    def tables(self) -> dict[str, pl.DataFrame]:
        """Return the verdict of each part, then all its lines."""
        numbers = dict.fromkeys(("lines", "counted", "allowed misses", *VERDICTS), pl.Int64())
        schema = {"part": pl.String()} | numbers | {"verdict": pl.String()}
        rows = [_verdict(name, lines) for name, lines in self.parts.items()]
        verdicts = pl.DataFrame(rows, schema=schema, orient="row")
        return {"verdicts": verdicts} | {name: table(lines) for name, lines in self.parts.items()}


def _verdict(name: str, lines: Sequence[Line]) -> tuple[object, ...]:
    sure = each_of(lines)
    verdicts = [line.verdict(sure) for line in lines]
    counted = sum(line.counts for line in lines)
    random = sum(line.counts and line.simulated.error > 0 for line in lines)  # an exact count cannot miss by chance
    each = [verdicts.count(word) for word in VERDICTS]
    return name, len(lines), counted, allowed_misses(random), *each, "passes" if agree(lines) else "fails"


def validate(
    *,
    data: Path | str | None = None,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress = silent,
) -> Validation:
    """Compare the simulator with exact theory, published results and real logs.

    Parameters
    ----------
    data
        A folder of real traces, as docs/validate.md lists them; without one, what needs one is left out.
    only
        Names of parts: schedules, means, approximations, published, real, audit (default: all).
    seed
        Random seed of the simulations (default: 0).
    progress
        Called as lines are done.

    Returns
    -------
    Validation
        One line per comparison: what theory or the source says, what is simulated, and whether they agree.

    Raises
    ------
    WorkloadError
        If there is no part by that name.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.validate(only=["audit"])
    <Validation: The validation passes, of 1 parts with 12 lines.>

    """
    folder = _folder(data)
    wanted = _known(only)
    parts: dict[str, Sequence[Line]] = {}
    notes = [HOW]
    for name in wanted:
        lines, more = _part(name, folder, seed, progress)
        notes += more
        if lines:
            parts[name] = lines
    settings = {"only": list(only)} | ({} if folder is None else {"data": folder.name})
    return Validation(parts, Provenance("validate", "fleetlab", settings, seed), tuple(notes))


def _part(name: str, data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    theory: dict[str, Callable[..., list[Line]]] = {
        "schedules": schedules.compare, "means": means.compare, "approximations": approximations.compare,
    }  # fmt: skip
    if name in theory:
        return theory[name](simulate, seed=seed, progress=progress), []
    if name == "published":
        return _published(data, seed, progress)
    if name == "real":
        return _real(data, seed, progress)
    return audits.compare(data, seed=seed, progress=progress)


def _published(data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    lines = [*policies.compare(seed=seed, progress=progress), *helios.compare(seed=seed, progress=progress)]
    if missing := _missing(data, fgd.PODS, fgd.RESULTS):
        return lines, [f"left out: FGD's table: {missing}"]
    assert data is not None
    return [*fgd.compare(data, seed=seed, progress=progress), *lines], []


def _real(data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    """Compare with each log that is there; a note for each that is not."""
    lines: list[Line] = []
    notes: list[str] = []
    logs = {"Philly": philly, "DLRM 2025": dlrm, "openb 2023": openb, "PAI": pai}
    for k, (word, log) in enumerate(logs.items()):
        if missing := _missing(data, log.FOLDER):
            notes.append(f"left out: {word}: {missing}")
        else:
            some, more = log.compare(data, seed=seed)
            lines, notes = lines + some, notes + more
        progress("simulating real logs", k + 1, (k + 1) / len(logs))
    return lines, notes


def _missing(data: Path | None, *folders: str) -> str:
    """Return why a comparison cannot be made; empty if it can."""
    if data is None:
        return "no folder of real traces was given (--data DIR)"
    gone = [name for name in folders if not (data / name).is_dir()]
    return f"not in {data.name}: {', '.join(gone)}" if gone else ""


def _folder(data: Path | str | None) -> Path | None:
    if data is None:
        return None
    folder = Path(data)
    if not folder.is_dir():
        msg = f"no folder of real traces: {folder}"
        raise WorkloadError(msg, hint="without --data, what needs real traces is left out")
    return folder


def _known(only: Sequence[str]) -> list[str]:
    for name in only:
        lookup("part of a validation", name, PARTS, error=WorkloadError)
    return [name for name in PARTS if not only or name in only]
