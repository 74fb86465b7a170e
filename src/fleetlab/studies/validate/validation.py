"""Validate the simulator against theory and published results, and audit its schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Trace, Workload, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.trace import PLACEMENTS
from fleetlab.sim import SimResult, simulate
from fleetlab.stats import NORMAL, Statistic, allowed_misses
from fleetlab.studies.audit import Audit, audit
from fleetlab.studies.validate import means, published, schedules
from fleetlab.studies.validate.line import JOINT, VERDICTS, Line, agree, each_of, exactly, table
from fleetlab.traces import synthesize

# -- audits ------------------------------------------------------------------------------------------------------------

AUDITED_JOBS = 20_000
PLACEMENTS_AUDITED = ("best_fit", "worst_fit", "fgd")
SAMPLED = "its waits are sampled from published quantiles, not from a schedule"


def compare_audits(*, seed: int, progress: Progress) -> list[Line]:
    """Count the violations of simulated schedules, and of the built-in trace, whose waits are compared, too."""
    synthetic = synthesize("pai2020", jobs=AUDITED_JOBS, seed=seed)
    assert synthetic.cluster is not None
    lines = []
    for k, placement in enumerate(PLACEMENTS_AUDITED):
        schedule = simulate(synthetic.workload, synthetic.cluster, placement=placement, warm_up="none")
        result = audit(as_trace(schedule), placement=placement)
        lines += [_violations(f"simulated by {placement}", result), *_again(f"simulated by {placement}", result)]
        progress("auditing schedules", k + 1, (k + 1) / (len(PLACEMENTS_AUDITED) + 1))
    lines += log_lines("built-in", audit(synthetic), SAMPLED)
    progress("auditing schedules", len(PLACEMENTS_AUDITED) + 1, 1.0)
    return lines


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


def log_lines(name: str, result: Audit, why: str) -> list[Line]:
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

PARTS: dict[str, Callable[..., list[Line]]] = {
    "schedules": partial(schedules.compare_schedules, simulate),
    "means": partial(means.compare_means, simulate),
    "published": published.compare,
    "audit": compare_audits,
}
HOW = (
    "a line agrees if the expected value is in its 95 % interval, or as near as the guide says; `within chance` is "
    f"outside, but inside the joint {100 * JOINT:g} % interval of all lines of its part (Bonferroni)"
)


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


def validate(*, only: Sequence[str] = (), seed: int = 0, progress: Progress = silent) -> Validation:
    """Compare the simulator with exact theory and published results, and audit its schedules.

    Parameters
    ----------
    only
        Names of parts: schedules, means, published, audit (default: all).
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
    for name in only:
        lookup("part of a validation", name, PARTS, error=WorkloadError)
    parts = {name: PARTS[name](seed=seed, progress=progress) for name in PARTS if not only or name in only}
    return Validation(parts, Provenance("validate", "fleetlab", {"only": list(only)}, seed), (HOW,))
