"""Compare a synthetic trace with the published numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, Trace, TraceError
from fleetlab.traces.synthesize.joint_law import LAWS

from .columns import TraceColumns
from .demand import demand
from .submissions import rhythm
from .target import Target

# Published numbers that contradict others, and why the others were used; see docs/measurements/synthesize.md.
CONFLICTS: dict[str, str] = {
    "instances per job": "7.5 million instances count retries; the law of sizes and the singles counted give 5.46",
    "instances in jobs of more than 100 GPUs": (
        "13.2 % of instances are in gangs of more than 100, and 1.4 % of those with a GPU request more than one: "
        "together less than 15 %"
    ),
    "allocated GPUs, with sharing": (
        "74 % of the GPUs of MISC nodes and 49 % of those of V100 nodes were allocated: 2,595 without T4 and P100"
    ),
    "allocated GPUs, without sharing": (
        "twice the 1,700 allocated with sharing, contradicted by 2,595 allocated on MISC and V100 nodes"
    ),
    "instances that the group's mean, or else the user's, predicts within 25%": (
        "by the published recurrence a quarter of all jobs are the first of their group: no mean of earlier ones "
        "predicts those"
    ),
}

LEAST = 10_000  # jobs: with fewer, nearly every number would be within its sampling error
VERDICTS = ("met", "missed", "conflict", "too few")


@dataclass(frozen=True, slots=True)
class Check(Result):
    """Each published number, what the trace has, and the verdict."""

    frame: pl.DataFrame
    provenance: Provenance

    def __repr__(self) -> str:
        count = Counter(self.frame["verdict"])
        return f"<Check {', '.join(f'{count[v]} {v}' for v in VERDICTS)}>"

    @property
    def passed(self) -> bool:
        """Is no number missed?"""
        return "missed" not in set(self.frame["verdict"])

    def summary(self) -> list[Estimate]:
        """How many there are of each verdict."""
        count = Counter(self.frame["verdict"])
        return [Estimate.exact(f"targets {v}", count[v]) for v in VERDICTS]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every target."""
        return {"targets": self.frame}


def check(trace: Trace) -> Check:
    """Hold a trace that `synthesize` made against what was published; each row says how sure its number is."""
    if trace.provenance.verb != "synthesize" or trace.usage is None or trace.cluster is None:
        msg = f"not a trace from `synthesize`: {trace.workload.source}"
        raise TraceError(msg, hint="the published numbers describe one cluster only")
    if len(trace.workload) < LEAST:
        msg = f"too few jobs to compare with published numbers: {len(trace.workload):,}"
        raise TraceError(msg, hint=f"use {LEAST:,} jobs or more")
    view = TraceColumns.of(trace)
    rows = [_row(t, len(trace.workload)) for t in (*demand(trace, view), *rhythm(view))]
    made = trace.provenance
    return Check(
        pl.DataFrame(rows, infer_schema_length=None), Provenance("check", made.source, made.settings, made.seed)
    )


def _row(t: Target, jobs: int) -> dict[str, object]:
    verdict = _verdict(t, jobs)
    return {
        "target": t.target,
        "published": float(t.published),
        "achieved": float(t.achieved),
        "at least": float(t.low),
        "at most": float(t.high),
        "tolerance": t.tolerance,
        "source": LAWS["sources"][t.source],
        "verdict": verdict,
        "why": CONFLICTS[t.target] if verdict == "conflict" else _short_of(t, jobs) or t.level,
    }


def _verdict(t: Target, jobs: int) -> str:
    if _short_of(t, jobs):
        return "too few"
    if t.low <= t.achieved <= t.high or t.level:
        return "met"
    return "conflict" if t.target in CONFLICTS else "missed"


def _short_of(t: Target, jobs: int) -> str | None:
    if jobs < t.needs:
        return f"needs {t.needs:,} jobs"
    return t.few
