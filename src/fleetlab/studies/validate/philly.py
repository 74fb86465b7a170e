"""Philly (Microsoft 2017): jobs replayed on their virtual clusters, compared with the active nodes per minute.

It can show whether the simulated cluster is busy when the real one was. It cannot show by how many nodes: the job list
is a conversion with a part of the jobs (82,248 of 117,325), it does not say which nodes a job had, and 420 nodes were
counted where the virtual clusters have 352.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.sim import simulate
from fleetlab.stats import BlockBootstrap, Floats, Statistic, divide, mean_of_runs
from fleetlab.studies.validate.busy_nodes import allocations, busy_nodes
from fleetlab.studies.validate.line import Line

FOLDER = "philly"
GPUS = 8  # of a node
DAY = 1440  # minutes
WARM = 7 * 86_400.0  # seconds: jobs older than the list are missing: its first days are too empty
CAN = (
    "Philly: the list has a part of the jobs and no nodes. It shows whether the simulated cluster is busy when the "
    "real one was, not by how many nodes; the number of active nodes depends on placement"
)


def compare(data: Path, *, seed: int) -> tuple[list[Line], list[str]]:
    """Compare simulated and recorded active nodes per minute: their mean, and their correlation."""
    records, cluster, left = _read(data / FOLDER)
    log = pl.read_csv(data / FOLDER / "philly_node_sequence.csv", try_parse_dates=True).sort("time")
    zero = records["timestamp"].min()
    workload = Workload.of(_jobs(records), source="philly_sia_82k")
    seconds = (log["time"] - zero).dt.total_seconds().to_numpy().astype(np.float64)
    kept = seconds >= WARM
    recorded = log["active"].cast(pl.Float64).to_numpy()[kept]
    lines = []
    for placement in ("best_fit", "spread"):
        active = busy_nodes(allocations(simulate(workload, cluster, placement=placement)), seconds[kept])
        lines += _lines(placement, recorded, active)
    return lines, [CAN, f"Philly: {left} jobs are left out: damaged rows, or virtual clusters of unknown size"]


def _read(folder: Path) -> tuple[pl.DataFrame, Cluster, int]:
    sizes = pl.read_csv(folder / "philly_vc.csv")
    raw = pl.read_csv(folder / "philly_sia_82k.csv", try_parse_dates=True)
    records = raw.drop_nulls().filter(pl.col("cluster").is_in(sizes["vc"].to_list())).sort("timestamp")
    # A virtual cluster is modeled as a GPU type that its jobs request.
    nodes = [
        {"node": f"{vc}-{k}", "pool": vc, "gpu_type": vc, "gpus": GPUS}
        for vc, count in sizes.iter_rows()
        for k in range(count)
    ]
    return records, Cluster.of(pl.DataFrame(nodes), source="philly_vc"), raw.height - records.height


def _jobs(records: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs; more GPUs than a node has are a gang of whole nodes, or of single GPUs."""
    count = pl.col("num_gpus")
    whole = (count > GPUS) & (count % GPUS == 0)
    each = pl.when(whole).then(GPUS).when(count > GPUS).then(1).otherwise(count)
    return records.select(
        submit=(pl.col("timestamp") - pl.col("timestamp").min()).dt.total_seconds().cast(pl.Float64),
        runtime="duration",
        instances=(count // each).cast(pl.Int32),
        gpu_milli=(each * 1000).cast(pl.Int32),
        gpu_types=pl.concat_list("cluster"),
    )


def _lines(placement: str, recorded: Floats, active: Floats) -> list[Line]:
    case = f"Philly, {placement}"
    whole = len(recorded) // DAY * DAY
    days = [x[:whole].reshape(-1, DAY).mean(axis=1) for x in (recorded, active)]
    level = replace(mean_of_runs(_weeks(days[1] - days[0])), value=float(active.mean()))
    why = "a part of the jobs, on nodes that the list does not name"
    return [
        Line(case, "active nodes, mean", float(recorded.mean()), level, why=why, counts=False),
        Line(case, "daily means, correlation", 1.0, _correlation(days[0], days[1]), why=why, counts=False),
    ]


def _weeks(days: Floats) -> Floats:
    """Return means of seven days, because consecutive days are autocorrelated."""
    whole = len(days) // 7 * 7
    return np.asarray(days[:whole].reshape(-1, 7).mean(axis=1))


def _correlation(one: Floats, other: Floats) -> Statistic:
    """Return Pearson's correlation, with a bootstrap over weeks."""
    weeks = BlockBootstrap.of_units(np.arange(len(one)) // 7, -(-len(one) // 7))
    n, x, y, xx, yy, xy = (
        weeks.totals(weeks.sums(v)) for v in (np.ones(len(one)), one, other, one**2, other**2, one * other)
    )
    spread = np.sqrt(np.maximum((n * xx - x**2) * (n * yy - y**2), 0.0))
    return weeks.replicates(divide(n * xy - x * y, spread)).statistic((-1.0, 1.0))
