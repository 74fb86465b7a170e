"""Coverage: of which jobs and GPU-hours of a log an answer speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core.catalog.reasons import FITS_NOWHERE, UNKNOWN_RUNTIME
from fleetlab.core.censoring import HELD, IMPUTED, RunTimes
from fleetlab.core.durations import duration, number_text, plural
from fleetlab.core.errors import WorkloadError

HOUR = 3600.0
WHOLE = 1000  # milli of one
PARTS = ("log", "covered", "initial", "held", "imputed", "longer")
SPLIT_HINT = "If they ran on several nodes, read the table with --map gpus_per_node=8, which splits them."
MUCH = 0.2  # of the hours, in jobs that run longer than the log is: the state that it begins with decides


class Part(NamedTuple):
    """Some jobs of a log, and the hours of GPUs (of CPU cores, where no job asks for GPUs) that they hold."""

    jobs: int
    hours: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which jobs and GPU-hours of a log an answer speaks of, and which it leaves out, by reason."""

    log: Part
    covered: Part
    initial: Part  # of the covered: there when the log begins
    held: Part  # of the covered: still running when the log ends, and held until then
    imputed: Part  # of the covered: their run time is drawn from jobs like them
    longer: Part  # of the covered: they run longer than jobs are submitted
    left_out: Mapping[str, Part]
    span: float  # seconds from the first submission to the last
    unit: str = "GPU-hours"
    verb: str = "simulated"
    of_what: str = "log"
    hint: str = ""  # how to keep jobs that fit on no node

    @classmethod
    def of(cls, times: RunTimes, refused: pl.DataFrame | None = None, verb: str = "simulated") -> Coverage:
        """Return what is covered; `refused` has the jobs that the cluster cannot run, with their `reason`."""
        frame = times.workload.frame
        unit, request = ("GPU-hours", "gpu_milli") if (frame["gpu_milli"] > 0).any() else ("core-hours", "cpu_milli")
        hours = frame[request].cast(pl.Float64) * frame["instances"] / WHOLE * times.log.fill_null(0.0) / HOUR
        came = frame["submit"].filter(~frame["initial"]).to_numpy()
        span = float(np.ptp(came)) if len(came) else 0.0
        jobs = frame.select(
            "job", "initial", origin=times.origin, hours=hours, longer=(pl.col("runtime") > span) & (span > 0)
        )
        unknown = frame.filter(pl.col("runtime").is_null()).select("job", reason=pl.lit(UNKNOWN_RUNTIME))
        reasons = unknown if refused is None else refused.select("job", "reason")
        jobs = jobs.join(reasons, on="job", how="left", maintain_order="left")
        covered = jobs.filter(pl.col("reason").is_null())
        by_reason = jobs.drop_nulls("reason").group_by("reason").agg(pl.len(), pl.col("hours").sum())
        left_out = {
            reason: Part(count, h)
            for reason, count, h in by_reason.sort("len", "reason", descending=[True, False]).iter_rows()
        }
        origin = pl.col("origin")
        some = [covered.filter(c) for c in ("initial", origin == HELD, origin == IMPUTED, "longer")]
        parts = {name: _part(rows) for name, rows in zip(PARTS, (jobs, covered, *some), strict=True)}
        of_what = f"synthetic {times.of}" if times.workload.synthetic else times.of
        hint = SPLIT_HINT if times.workload.source.startswith("csv:") else ""
        return cls(**parts, left_out=left_out, span=span, unit=unit, verb=verb, of_what=of_what, hint=hint)

    @property
    def share(self) -> float:
        """The covered part of the hours; of the jobs, where no hours are known."""
        return self.covered.hours / self.log.hours if self.log.hours else self.covered.jobs / max(1, self.log.jobs)

    @property
    def line(self) -> str:
        """Which jobs, after a first sentence where much is held by jobs that run longer than the log is.

        >>> every, none = Part(3, 8.0), Part(0, 0)
        >>> Coverage(every, every, none, Part(1, 6.0), none, none, {}, 7200.0).line
        'Simulated all 3 jobs in the log (8 GPU-hours). 1 still runs at its end and is held until then (75 %).'
        """
        return self._too_short() + self.population

    @property
    def population(self) -> str:
        """Which jobs, and which not, a sentence each."""
        log, covered, verb = self.log, self.covered, self.verb.capitalize()
        every = "the job" if log.jobs == 1 else f"all {log.jobs:,} jobs"
        which = f"{verb} {every} in the {self.of_what} ({number_text(log.hours)} {self.unit})."
        if covered.jobs < log.jobs:
            which = (
                f"{verb} {covered.jobs:,} of {plural(log.jobs, 'job')} in the {self.of_what}, "
                f"{_percent(covered.hours, log.hours)} of its {number_text(log.hours)} {self.unit}."
            )
        skipped = [f"Left out: {reason} ({part.jobs:,})." for reason, part in self.left_out.items()]
        hint = [self.hint] if self.hint and FITS_NOWHERE in self.left_out else []
        return " ".join(filter(None, (which, self._started(), self._censored(), self._imputed(), *skipped, *hint)))

    def _too_short(self) -> str:
        tells_its_state = self.initial.jobs or self.of_what.endswith("window")
        if self.verb != "simulated" or tells_its_state or self.longer.hours <= MUCH * self.covered.hours:
            return ""
        share = _percent(self.longer.hours, self.covered.hours)
        return (
            f"The {self.of_what} is too short: jobs that run longer than its {duration(self.span)} hold {share} of the "
            f"{self.unit}, and waits depend on which of them run when it begins. "
        )

    def _started(self) -> str:
        count = self.initial.jobs
        return f"{count:,} {'was' if count == 1 else 'were'} there when the log begins." if count else ""

    def _censored(self) -> str:
        if not self.held.jobs:
            return ""
        runs = "runs at its end and is" if self.held.jobs == 1 else "run at its end and are"
        return f"{self.held.jobs:,} still {runs} held until then ({_percent(self.held.hours, self.log.hours)})."

    def _imputed(self) -> str:
        if not self.imputed.jobs:
            return ""
        share, their = _percent(self.imputed.hours, self.log.hours), "its" if self.imputed.jobs == 1 else "their"
        return f"{self.imputed.jobs:,} had no end time; {their} runtime was estimated ({share})."

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per part, for a table."""
        parts = {
            "in the log": self.log, self.verb: self.covered, "there when the log begins": self.initial,
            "held to the end of the log": self.held, "runtime imputed": self.imputed,
            "run longer than it": self.longer,
            **{f"left out: {reason}": part for reason, part in self.left_out.items()},
        }  # fmt: skip
        return [
            {"part": name, "jobs": part.jobs, "share of jobs": part.jobs / max(1, self.log.jobs),
             self.unit: part.hours, f"share of {self.unit}": part.hours / (self.log.hours or 1.0)}
            for name, part in parts.items() if part.jobs
        ]  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        parts = {name: getattr(self, name)._asdict() for name in PARTS}
        left_out = {reason: part._asdict() for reason, part in self.left_out.items()}
        own = {
            "unit": self.unit, "verb": self.verb, "of_what": self.of_what, "line": self.line, "share": self.share,
            "span": self.span, "hint": self.hint,
        }  # fmt: skip
        return parts | {"left_out": left_out} | own

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Coverage:
        """Undo `to_json`."""
        parts: dict[str, Any] = {name: Part(**values[name]) for name in PARTS}
        left_out = {reason: Part(**part) for reason, part in values["left_out"].items()}
        unit, verb, of_what = (str(values[name]) for name in ("unit", "verb", "of_what"))
        more: dict[str, Any] = {"unit": unit, "verb": verb, "of_what": of_what, "hint": str(values.get("hint", ""))}
        return cls(**parts, left_out=left_out, span=values["span"], **more)


def require(coverage: Coverage, least: float) -> None:
    """Refuse to answer where too little of a log is covered."""
    if coverage.log.jobs and coverage.share < least:
        text = coverage.population
        msg = f"less than {100 * least:g} % of the {coverage.unit} in the log can be {coverage.verb}: {text}"
        first = next(iter(coverage.left_out), "")
        unknown = first == UNKNOWN_RUNTIME
        needed = "starts and ends, or run times, of these jobs" if unknown else "a cluster on which these jobs fit"
        if first.startswith("refused"):
            needed = "quotas and limits that allow these jobs"
        hint = f"{needed}; or min_coverage=0 for an answer about the others"
        raise WorkloadError(msg, hint=hint)


def _part(jobs: pl.DataFrame) -> Part:
    return Part(jobs.height, float(jobs["hours"].sum()))


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g} %" if whole else "0 %"
