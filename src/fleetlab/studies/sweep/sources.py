"""The traces of a study as workers open them, each named after its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import polars as pl

from fleetlab.core import Progress, Provenance, Trace, TraceError
from fleetlab.core.data import Data
from fleetlab.core.words import BUILTIN, SYNTHETIC

# How a seed changes the jobs: a new synthetic trace; other arrivals of the same kind; the same, nudged; not at all.
RESAMPLINGS = ("synthesize", "blocks", "nudge", "none")


KEPT = ("eligible_logged", "events")  # of what a log tells beside the jobs


@dataclass(frozen=True, slots=True, eq=False)
class TraceSource:
    """A trace with its cluster and the estimates that scenarios need, and how seeds resample it."""

    digest: str
    trace: Trace
    resample: str
    content: Data  # its key depends on what is in the trace, not on its name

    @classmethod
    def of(
        cls, data: Data, resample: str | None, estimates: Mapping[str, pl.Series], progress: Progress
    ) -> TraceSource:
        """Open a trace; estimates are columns of seconds by name."""
        trace, cluster = data.open(progress), data.cluster
        if not len(trace.workload):
            msg = f"the trace has no jobs: {data.name or trace.workload.source}"
            raise TraceError(msg, hint="a study needs jobs to simulate")
        name = data.name or ""
        synthetic = name.split(":")[0] in SYNTHETIC and name.count(":") < 2
        resample = resample or ("synthesize" if synthetic else "blocks")
        if resample == "synthesize" and not synthetic:
            msg = f"only a built-in trace without a seed can be synthesized for each seed, not: {name}"
            raise TraceError(msg, hint='resample = "blocks" resamples parts of a log; "builtin:2000" is synthesized')
        jobs = trace.workload
        site = Trace(jobs, Provenance("sweep", jobs.source), cluster, trace.scheduler)
        content = Data(f"{BUILTIN}:{len(jobs)}" if resample == "synthesize" else site, cluster)
        job = pl.int_range(len(jobs), eager=True)
        series = {n: pl.DataFrame({"job": job, "seconds": column}).lazy() for n, column in estimates.items()}
        about = f"{resample == 'synthesize'} {len(jobs)} {sorted(content.digests.items())} {sorted(estimates)}"
        series |= {name: trace.series[name] for name in KEPT if name in trace.series}
        saved = replace(site, series=series)
        return cls(sha256(about.encode()).hexdigest()[:16], saved, resample, content)


def estimate_name(column: pl.Series) -> str:
    """Return a name for a column of estimates: the same for the same seconds."""
    return f"estimate-{sha256(column.cast(pl.Float64).to_numpy().tobytes()).hexdigest()[:16]}"
