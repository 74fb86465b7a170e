"""What `fleetlab watch` prints: the cluster at the last poll."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from fleetlab.core import Estimate, Provenance
from fleetlab.core.durations import plural
from fleetlab.core.result import FieldsResult
from fleetlab.live.present import Present


class Watched(FieldsResult):
    """A running cluster at one moment."""


def watched(system: str, name: str, present: Present) -> Watched:
    """Return the tables of a present."""
    waiting, running, gpus = present.waiting, present.running, present.gpus
    free = float(gpus["up"].sum()) - float(gpus["allocated"].sum())
    at = f"{datetime.fromtimestamp(present.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    jobs, runs = int(waiting["jobs"].sum()), int(running["jobs"].sum())
    estimates = [
        Estimate.exact("jobs that wait", jobs),
        Estimate.exact("GPUs that they request", float(waiting["gpus"].sum())),
        Estimate.exact("jobs that run", runs),
        Estimate.exact("GPUs", int(gpus["gpus"].sum())),
        Estimate.exact("GPUs free", free),
    ]
    frames = {
        "waiting": waiting.rename({"gpus": "GPUs", "longest": "longest wait, s"}),
        "running": running.rename({"gpus": "GPUs"}),
        "gpus": gpus.select(
            "gpu_type", GPUs="gpus", allocated="allocated", free=pl.col("up") - pl.col("allocated"),
            fragmented="fragmented", unavailable=pl.col("gpus") - pl.col("up"),
        ),
    }  # fmt: skip
    finding = f"{name} at {at}: {plural(jobs, 'job')} wait, {runs:,} run, {free:,g} GPUs are free."
    notes = (
        "waits are by the reason that the scheduler gives",
        "fragmented: free GPUs that the jobs at hand cannot use, weighed by how frequent these are",
    )
    provenance = Provenance("watch", f"{system}:{name}", {"at": present.at})
    return Watched(provenance, (finding,), tuple(estimates), frames, {}, notes)
