"""DLRM (Alibaba 2025): instances of recommendation services, by role and hour, and their placement delays.

It can show that the simulation has as many instances as the log, hour by hour, and which delays of the log are not due
to a lack of capacity on an assumed cluster of the size of its peak. It cannot show waiting for nodes, as none are
published.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.sim import simulate
from fleetlab.stats import BlockBootstrap, Floats, Statistic
from fleetlab.studies.validate.busy_nodes import running
from fleetlab.studies.validate.line import Line, paired
from fleetlab.traces import read

FOLDER = "alibaba-dlrm-v2025"
FILE = "disaggregated_DLRM_trace.csv"
HOUR, MINUTE = 3600.0, 60.0
SPARE = 1.1  # of the peak, in nodes: rules about instances of one runtime on a node cost some room
CAN = (
    "DLRM 2025: no nodes are published; the replay is on an assumed cluster of 110 % of the peak. It shows "
    "concurrency, and which delays are not due to capacity; it cannot show waiting for nodes"
)


def compare(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare instances per hour by role, and mean delays by role and by placement rule."""
    trace = read(data / FOLDER / FILE, "dlrm2025")
    log = trace.workload.frame
    horizon = float(pl.concat([log["start"], log["end"]]).max())  # type: ignore[arg-type]
    jobs = _alive(log, horizon)
    played = simulate(trace, _cluster(jobs)).jobs.select("job", "wait", simulated="start", until="end")
    both = jobs.join(played, on="job", maintain_order="left")
    hours = np.arange(HOUR, horizon, HOUR)
    lines = [line for role in ("CN", "HN") for line in _concurrency(role, both, hours)]
    known = both.filter(pl.col("start").is_not_null() & ~pl.col("initial"))
    rules = [("role", pl.col("group").cast(pl.String)), ("rule", _rule())]
    for what, key in rules:
        parts = known.with_columns(key=key).partition_by("key", as_dict=True)
        lines += [line for (name,), part in sorted(parts.items()) for line in _delay(f"{what} {name}", part)]
    return lines, [CAN]


def _alive(log: pl.DataFrame, horizon: float) -> pl.DataFrame:
    """Instances with a life inside the log: those that are older begin with it, those that outlive it end with it."""
    frame = log.filter(pl.col("start").is_not_null() | pl.col("initial"))
    return frame.with_columns(begin=pl.col("start").fill_null(0.0), stop=pl.col("end").fill_null(horizon))


def _cluster(jobs: pl.DataFrame) -> Cluster:
    """Nodes for each role, as many as its peak needs of its scarcest resource, with some to spare."""
    frames = []
    for role, gpus in (("CN", 0), ("HN", 8)):
        mine = jobs.filter(pl.col("group").cast(pl.String) == role)
        node = {c: _largest(mine, c) * 8 for c in ("cpu_milli", "memory_mib", "disk_mib", "rdma_milli")}
        most = max(_peak(mine, c) / size for c, size in node.items() if size)
        count = int(np.ceil(SPARE * max(most, _peak(mine, "gpu_milli") / (1000 * gpus) if gpus else 0.0)))
        row = {"pool": role, "gpu_type": "GPU" if gpus else None, "gpus": gpus, **node}
        frames += [
            pl.DataFrame({"node": f"{role}-{k}", **row}, schema_overrides={"gpu_type": pl.String}) for k in range(count)
        ]
    return Cluster.of(pl.concat(frames), source="110 % of the peak")


def _largest(jobs: pl.DataFrame, column: str) -> int:
    return int(jobs[column].quantile(0.9, "higher") or 0)


def _peak(jobs: pl.DataFrame, column: str) -> float:
    change = pl.concat([
        jobs.select(time="begin", amount=pl.col(column).cast(pl.Float64)),
        jobs.select(time="stop", amount=-pl.col(column).cast(pl.Float64)),
    ])  # fmt: skip
    return float(change.group_by("time").agg(pl.col("amount").sum()).sort("time")["amount"].cum_sum().max() or 0.0)  # type: ignore[arg-type]


def _concurrency(role: str, both: pl.DataFrame, hours: Floats) -> list[Line]:
    """Instances at each full hour, recorded and simulated."""
    mine = both.filter(pl.col("group").cast(pl.String) == role)
    recorded = running(mine.select(start="begin", end="stop"), hours)
    simulated = running(mine.select(start="simulated", end="until"), hours)
    name = f"DLRM 2025, {role}"
    return [Line(name, "instances at a full hour", float(recorded.mean()), paired(simulated, recorded), near=0.01)]


def _delay(name: str, part: pl.DataFrame) -> list[Line]:
    """Compare simulated delays with those of the log, of the same instances; ten instances have half of all delay."""
    both = (part["start"] - part["submit"]).to_numpy(), part["wait"].to_numpy()
    long = tuple((delay > MINUTE).astype(np.float64) for delay in both)
    why = "the assumed cluster has free capacity: delays are the scheduler's latency, or missing nodes"
    lines = []
    for metric, (recorded, simulated) in (("mean delay, s", both), ("share that waits over a minute", long)):
        mean = replace(_by_service(part, simulated - recorded), value=float(simulated.mean()))
        lines.append(Line(f"DLRM 2025, {name}", metric, float(recorded.mean()), mean, why=why, counts=False))
    return lines


def _by_service(part: pl.DataFrame, delay: Floats) -> Statistic:
    """Return a mean by a bootstrap over services, within which instances are correlated."""
    services, index = np.unique(part["app"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    return BlockBootstrap.of_units(index, len(services)).mean(delay)


def _rule() -> pl.Expr:
    most = pl.col("max_per_node")
    return pl.when(most == 0).then(pl.lit("no limit")).otherwise(most.cast(pl.String) + " a node")
