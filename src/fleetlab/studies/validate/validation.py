"""Validate the simulator against theory, published results, real logs and audits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Trace, Workload, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.trace import PLACEMENTS
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import NORMAL, Statistic, allowed_misses
from fleetlab.studies.audit import Audit, audit
from fleetlab.studies.validate import logs, means, published, schedules
from fleetlab.studies.validate.line import JOINT, VERDICTS, Line, agree, each_of, exactly, table
from fleetlab.traces import read, synthesize

# -- audits ------------------------------------------------------------------------------------------------------------

AUDITED_JOBS = 20_000
PLACEMENTS_AUDITED = ("best_fit", "worst_fit", "fgd")
SAMPLED = "its waits are sampled from published quantiles, not from a schedule"


def compare_audits(data: Path | None, *, seed: int, progress: Progress) -> tuple[list[Line], list[str]]:
    """Count the violations of each schedule, and compare recorded with simulated waits where a trace has both."""
    synthetic = synthesize("pai2020", jobs=AUDITED_JOBS, seed=seed)
    assert synthetic.cluster is not None
    lines = []
    for k, placement in enumerate(PLACEMENTS_AUDITED):
        schedule = simulate(synthetic.workload, synthetic.cluster, placement=placement, warm_up="none")
        result = audit(as_trace(schedule), placement=placement)
        lines += [_violations(f"simulated by {placement}", result), *_again(f"simulated by {placement}", result)]
        progress("auditing schedules", k + 1, (k + 1) / (len(PLACEMENTS_AUDITED) + 3))
    lines += _log("built-in", audit(synthetic), SAMPLED)
    if data is None:
        return lines, ["left out: audits of real logs: no folder of real traces was given (--data DIR)"]
    notes = []
    if (data / logs.OPENB_FOLDER).is_dir():
        pods = read(data / logs.OPENB_FOLDER / logs.OPENB_PODS, "openb2023")
        lines += _log("openb 2023", audit(pods), "the waits of pods are the scheduler's latency")
    else:
        notes.append(f"left out: audit of openb 2023: not in {data.name}: {logs.OPENB_FOLDER}")
    if (data / logs.PAI_FOLDER).is_dir():
        tail = read(data / logs.PAI_FOLDER / logs.PAI_TAIL, "pai2020")
        machines = read(data / logs.PAI_FOLDER / logs.PAI_MACHINES, "pai2020").cluster
        lines += _log("PAI, tail of instances", audit(replace(tail, cluster=machines)), "")
        notes.append("audit of PAI: the tail of the instance table has no requests: only nodes can be checked")
    else:
        notes.append(f"left out: audit of PAI: not in {data.name}: {logs.PAI_FOLDER}")
    progress("auditing schedules", len(PLACEMENTS_AUDITED) + 3, 1.0)
    return lines, notes


def as_trace(result: SimResult) -> Trace:
    """Return a simulated schedule as a trace, as if a log had recorded it."""
    times = result.jobs.select("job", "start", "end")
    frame = (
        result.world.frame[result.world.measured]
        .drop("start", "end")
        .join(times, on="job", how="left", maintain_order="left")
    )
    placed = result.placements.join(times, on="job", maintain_order="left")
    rows = placed.select("job", pl.int_range(pl.len()).alias("worker"), "node", pl.lit("completed").alias("status"),
                         "start", "end")  # fmt: skip
    workload = Workload.of(frame.drop("job"), source="simulated")
    numbers = frame.select("job", number=pl.int_range(pl.len(), dtype=pl.Int64))
    rows = rows.join(numbers, on="job", maintain_order="left").with_columns(job="number").drop("number")
    return Trace(workload, Provenance("simulate", "simulated"), cluster=result.cluster,
                 placements=rows.cast(PLACEMENTS).lazy())  # type: ignore[arg-type]  # fmt: skip


def _violations(name: str, result: Audit) -> Line:
    return exactly(name, "violations", 0, result.violations.height)


def _again(name: str, result: Audit) -> list[Line]:
    """Compare a schedule with its simulation under the same policy: they are equal."""
    rows = result.waits.filter(pl.col("class") == "all").iter_rows(named=True)
    return [
        exactly(name, "mean wait when simulated again, s", row["recorded wait"], row["simulated wait"]) for row in rows
    ]


def _log(name: str, result: Audit, why: str) -> list[Line]:
    """Return lines about a log, which do not count for or against the simulator."""
    count = replace(exactly(name, "violations", 0, result.violations.height, why), counts=False)
    waits = []
    for row in result.waits.iter_rows(named=True):
        # The interval is that of the difference: both waits are of the same jobs.
        error = (row["wait change high"] - row["wait change"]) / NORMAL
        mean = Statistic.symmetric(row["simulated wait"], error, math.inf)
        waits.append(Line(name, f"mean wait, {row['class']}, s", row["recorded wait"], mean, why=why, counts=False))
    return [count, *waits]


# -- the validation ----------------------------------------------------------------------------------------------------

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
    parts_to_run = _parts(only)
    parts: dict[str, Sequence[Line]] = {}
    notes = [HOW]
    for name in parts_to_run:
        lines, more = _part(name, folder, seed, progress)
        notes += more
        if lines:
            parts[name] = lines
    settings = {"only": list(only)} | ({} if folder is None else {"data": folder.name})
    return Validation(parts, Provenance("validate", "fleetlab", settings, seed), tuple(notes))


def _part(name: str, data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    theory: dict[str, Callable[..., list[Line]]] = {
        "schedules": schedules.compare_schedules, "means": means.compare_means,
        "approximations": means.compare_approximations,
    }  # fmt: skip
    if name in theory:
        return theory[name](simulate, seed=seed, progress=progress), []
    if name == "published":
        return _published(data, seed, progress)
    if name == "real":
        return _real(data, seed, progress)
    return compare_audits(data, seed=seed, progress=progress)


def _published(data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    lines = [
        *published.compare_policies(seed=seed, progress=progress),
        *published.compare_helios(seed=seed, progress=progress),
    ]
    if missing := _missing(data, published.FGD_PODS, published.FGD_RESULTS):
        return lines, [f"left out: FGD's table: {missing}"]
    assert data is not None
    return [*published.compare_fgd(data, seed=seed, progress=progress), *lines], []


def _real(data: Path | None, seed: int, progress: Progress) -> LinesAndNotes:
    """Compare with each log that is there; a note for each that is not."""
    lines: list[Line] = []
    notes: list[str] = []
    for k, (name, (folder, compare)) in enumerate(logs.LOGS.items()):
        if missing := _missing(data, folder):
            notes.append(f"left out: {name}: {missing}")
        else:
            assert data is not None
            more_lines, more_notes = compare(data, seed=seed)
            lines, notes = lines + more_lines, notes + more_notes
        progress("simulating real logs", k + 1, (k + 1) / len(logs.LOGS))
    return lines, notes


def _missing(data: Path | None, *folders: str) -> str:
    """Return why a comparison cannot be made; empty if it can."""
    if data is None:
        return "no folder of real traces was given (--data DIR)"
    absent = [name for name in folders if not (data / name).is_dir()]
    return f"not in {data.name}: {', '.join(absent)}" if absent else ""


def _folder(data: Path | str | None) -> Path | None:
    if data is None:
        return None
    folder = Path(data)
    if not folder.is_dir():
        msg = f"no folder of real traces: {folder}"
        raise WorkloadError(msg, hint="without --data, what needs real traces is left out")
    return folder


def _parts(only: Sequence[str]) -> list[str]:
    for name in only:
        lookup("part of a validation", name, PARTS, error=WorkloadError)
    return [name for name in PARTS if not only or name in only]
