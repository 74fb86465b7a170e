"""The verb: can this simulator be trusted? Theory, papers, real logs and audits, each line with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, WorkloadError
from fleetlab.sim import simulate
from fleetlab.studies._spread import rarely_more
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
from fleetlab.studies.validate._line import TOGETHER, VERDICTS, Line, Progress, agree, each_of, table

PARTS = ("schedules", "means", "approximations", "published", "real", "audit")
HOW = (
    "a line agrees where what is expected lies in its 95 % interval, or is as near as the guide says; «by chance» is "
    f"outside that, but inside the interval in which all lines of its part lie together with {100 * TOGETHER:g} % "
    "(Bonferroni)"
)

Found = tuple[list[Line], list[str]]


@dataclass(frozen=True, slots=True)
class Validation(Result):
    """Lines by part, each with its interval and its verdict, and what they can and cannot show."""

    parts: Mapping[str, Sequence[Line]]
    provenance: Provenance
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing that counts speaks against the simulator."""
        return all(agree(lines) for lines in self.parts.values())

    def __repr__(self) -> str:
        lines = sum(len(part) for part in self.parts.values())
        return f"<Validation {lines} lines, {'passed' if self.passed else 'failed'}>"

    def summary(self) -> list[Estimate]:
        """How many lines there are, and how many of them say what."""
        verdicts = self.tables()["verdicts"]
        fails = verdicts.filter(pl.col("verdict") == "fails").height
        said = [Estimate.exact(f"lines, {word}", int(verdicts[word].sum())) for word in VERDICTS]
        return [
            Estimate.exact("parts that fail", fails), Estimate.exact("lines", int(verdicts["lines"].sum())), *said
        ]  # fmt: skip

    def tables(self) -> dict[str, pl.DataFrame]:
        """The verdict of each part, then all its lines."""
        numbers = dict.fromkeys(("lines", "that count", "chance allows to miss", *VERDICTS), pl.Int64())
        schema = {"part": pl.String()} | numbers | {"verdict": pl.String()}
        rows = [_verdict(name, lines) for name, lines in self.parts.items()]
        verdicts = pl.DataFrame(rows, schema=schema, orient="row")
        return {"verdicts": verdicts} | {name: table(lines) for name, lines in self.parts.items()}


def _verdict(name: str, lines: Sequence[Line]) -> tuple[object, ...]:
    sure = each_of(lines)
    said = [line.verdict(sure) for line in lines]
    counted = sum(line.counts for line in lines)
    by_chance = sum(line.counts and line.found.error > 0 for line in lines)  # what was counted cannot miss by chance
    each = [said.count(word) for word in VERDICTS]
    return name, len(lines), counted, rarely_more(by_chance), *each, "holds" if agree(lines) else "fails"


def validate(
    *,
    data: Path | str | None = None,
    only: Sequence[str] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> Validation:
    """Can the simulator be trusted? Beside exact theory, published results and real logs, with intervals and verdicts.

    `data` is a folder of real traces, as docs/validate.md lists them; without it, what needs one is left out, and the
    notes say so. `only` names parts: schedules, means, approximations, published, real, audit.
    """
    folder = _folder(data)
    wanted = _known(only)
    told = progress or (lambda _what, _done, _share: None)
    parts: dict[str, Sequence[Line]] = {}
    notes = [HOW]
    for name in wanted:
        lines, said = _part(name, folder, seed, told)
        notes += said
        if lines:
            parts[name] = lines
    settings = {"only": list(only)} | ({} if folder is None else {"data": folder.name})
    return Validation(parts, Provenance("validate", "fleetlab", settings, seed), tuple(notes))


def _part(name: str, data: Path | None, seed: int, progress: Progress) -> Found:
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


def _published(data: Path | None, seed: int, progress: Progress) -> Found:
    lines = [*policies.compare(seed=seed, progress=progress), *helios.compare(seed=seed, progress=progress)]
    if missing := _missing(data, fgd.PODS, fgd.RESULTS):
        return lines, [f"left out: FGD's table: {missing}"]
    assert data is not None
    return [*fgd.compare(data, seed=seed, progress=progress), *lines], []


def _real(data: Path | None, seed: int, progress: Progress) -> Found:
    """Each log that is there; a word for each that is not."""
    lines: list[Line] = []
    notes: list[str] = []
    logs = {"Philly": philly, "DLRM 2025": dlrm, "openb 2023": openb, "PAI": pai}
    for k, (word, log) in enumerate(logs.items()):
        if missing := _missing(data, log.FOLDER):
            notes.append(f"left out: {word}: {missing}")
        else:
            found, said = log.compare(data, seed=seed)
            lines, notes = lines + found, notes + said
        progress("real logs", k + 1, (k + 1) / len(logs))
    return lines, notes


def _missing(data: Path | None, *folders: str) -> str:
    """Why a comparison cannot be made; empty: it can."""
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
        raise WorkloadError(msg, hint="leave --data out: what needs one is left out then, and said")
    return folder


def _known(only: Sequence[str]) -> list[str]:
    for name in only:
        if name not in PARTS:
            near = get_close_matches(name, PARTS, 1)
            msg = f"no part of a validation by that name: `{name}`" + (f"; did you mean {near[0]}?" if near else "")
            raise WorkloadError(msg, hint=f"there are {', '.join(PARTS)}")
    return [name for name in PARTS if not only or name in only]
