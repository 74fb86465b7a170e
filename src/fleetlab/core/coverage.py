"""Coverage: of which jobs and GPU-hours of a log an answer speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from fleetlab.core.catalog.reasons import UNKNOWN_RUNTIME
from fleetlab.core.censoring import HELD, IMPUTED, RunTimes
from fleetlab.core.durations import number_text, plural
from fleetlab.core.errors import WorkloadError

HOUR = 3600.0
WHOLE = 1000  # milli of one
PARTS = ("log", "covered", "initial", "held", "imputed")


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
    left_out: Mapping[str, Part]
    unit: str = "GPU-hours"
    verb: str = "simulated"
    of_what: str = "log"

    @classmethod
    def of(cls, times: RunTimes, refused: pl.DataFrame | None = None, verb: str = "simulated") -> Coverage:
        """Return what is covered; `refused` has the jobs that the cluster cannot run, with their `reason`."""
        frame = times.workload.frame
        unit, request = ("GPU-hours", "gpu_milli") if (frame["gpu_milli"] > 0).any() else ("core-hours", "cpu_milli")
        hours = frame[request].cast(pl.Float64) * frame["instances"] / WHOLE * times.log.fill_null(0.0) / HOUR
        jobs = frame.select("job", "initial", origin=times.origin, hours=hours)
        unknown = frame.filter(pl.col("runtime").is_null()).select("job", reason=pl.lit(UNKNOWN_RUNTIME))
        reasons = unknown if refused is None else refused.select("job", "reason")
        jobs = jobs.join(reasons, on="job", how="left", maintain_order="left")
        covered = jobs.filter(pl.col("reason").is_null())
        by_reason = jobs.drop_nulls("reason").group_by("reason").agg(pl.len(), pl.col("hours").sum())
        left_out = {
            reason: Part(count, h)
            for reason, count, h in by_reason.sort("len", "reason", descending=[True, False]).iter_rows()
        }
        some = [covered.filter(c) for c in ("initial", pl.col("origin") == HELD, pl.col("origin") == IMPUTED)]
        log, replayed, initial, held, imputed = map(_part, (jobs, covered, *some))
        of_what = f"synthetic {times.of}" if times.workload.synthetic else times.of
        return cls(log, replayed, initial, held, imputed, left_out, unit, verb, of_what)

    @property
    def share(self) -> float:
        """The covered part of the hours; of the jobs, where no hours are known."""
        return self.covered.hours / self.log.hours if self.log.hours else self.covered.jobs / max(1, self.log.jobs)

    @property
    def line(self) -> str:
        """One sentence.

        >>> every = Part(3, 8.0)
        >>> Coverage(every, every, Part(0, 0), Part(1, 6.0), Part(0, 0), {}).line
        'All 3 jobs in the log are simulated, 8 GPU-hours: 1 still runs at its end and is held until then (75 %).'
        """
        log, covered = self.log, self.covered
        every, are = ("The job", "is") if log.jobs == 1 else (f"All {log.jobs:,} jobs", "are")
        which = f"{every} in the {self.of_what} {are} {self.verb}, {number_text(log.hours)} {self.unit}"
        if covered.jobs < log.jobs:
            which = (
                f"{covered.jobs:,} of {plural(log.jobs, 'job')} in the {self.of_what} are {self.verb}, "
                f"{_percent(covered.hours, log.hours)} of its {number_text(log.hours)} {self.unit}"
            )
        parts = [text for text in (self._started(), self._censored(), self._imputed()) if text]
        if self.left_out:
            reasons = ", ".join(f"{reason} ({part.jobs:,})" for reason, part in self.left_out.items())
            parts.append(f"left out: {reasons}")
        return which + (": " + "; ".join(parts) if parts else "") + "."

    def _started(self) -> str:
        count = self.initial.jobs
        return f"{count:,} {'is' if count == 1 else 'are'} there when the log begins" if count else ""

    def _censored(self) -> str:
        if not self.held.jobs:
            return ""
        runs = "runs at its end and is" if self.held.jobs == 1 else "run at its end and are"
        return f"{self.held.jobs:,} still {runs} held until then ({_percent(self.held.hours, self.log.hours)})"

    def _imputed(self) -> str:
        if not self.imputed.jobs:
            return ""
        share, runs = _percent(self.imputed.hours, self.log.hours), "runs" if self.imputed.jobs == 1 else "run"
        like = "it" if self.imputed.jobs == 1 else "them"
        return f"{self.imputed.jobs:,} of unknown runtime {runs} as long as jobs like {like} ({share})"

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per part, for a table."""
        parts = {
            "in the log": self.log, self.verb: self.covered, "there when the log begins": self.initial,
            "held to the end of the log": self.held, "runtime imputed": self.imputed,
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
        own = {"unit": self.unit, "verb": self.verb, "of_what": self.of_what, "line": self.line, "share": self.share}
        return parts | {"left_out": left_out} | own

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Coverage:
        """Undo `to_json`."""
        parts = {name: Part(**values[name]) for name in PARTS}
        left_out = {reason: Part(**part) for reason, part in values["left_out"].items()}
        return cls(**parts, left_out=left_out, unit=values["unit"], verb=values["verb"], of_what=values["of_what"])


def require(coverage: Coverage, least: float) -> None:
    """Refuse to answer where too little of a log is covered."""
    if coverage.log.jobs and coverage.share < least:
        msg = f"less than {100 * least:g} % of the {coverage.unit} in the log can be {coverage.verb}: {coverage.line}"
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
