"""What is free on a cluster right now, and how much of it the jobs at hand cannot use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Workload
from fleetlab.sim.layout import WHOLE, NodeView
from fleetlab.sim.schedule_check import SAMPLE, sample
from fleetlab.sim.world import world

Used = Mapping[str, tuple[int, int, bool]]  # by node: GPU milli and CPU milli that are allocated; whether it is up


def free_gpus(workload: Workload, cluster: Cluster, used: Used) -> pl.DataFrame:
    """Return GPUs by type: how many there are, are up, allocated, and fragmented: free, but of no use to these jobs.

    Fragmentation is that of the FGD paper: what each shape of job cannot use on each node, weighed by how frequent it
    is among the jobs of `workload`. Of a node's GPUs, the first are taken to be the allocated ones.
    """
    frame = workload.frame.filter(pl.col("gpu_milli") > 0).with_columns(runtime=pl.lit(1.0), eligible="submit")
    tables = world(replace(workload, frame=frame.with_columns(depends_on=[], dependency=[])), cluster)
    nodes, gpus = tables.nodes.copy(), tables.gpus.copy()
    for row, name in enumerate(cluster.frame["node"]):
        milli, cpu, up = used.get(name, (0, 0, True))
        node = nodes[row]
        count = int(node.end_gpu - node.first_gpu)
        taken = np.clip(min(milli, count * WHOLE) - WHOLE * np.arange(count), 0, WHOLE)
        gpus.free[node.first_gpu : node.end_gpu] = WHOLE - taken
        nodes.up[row] = up
        nodes.free_cpu[row] = max(0, int(node.free_cpu) - cpu)
    types = cluster.frame["gpu_type"].fill_null("").to_list()
    names = sorted({name for name, count in zip(types, cluster.frame["gpus"], strict=True) if count})
    column = np.array([names.index(name) if name in names else 0 for name in types], dtype=np.int64)
    out = np.zeros((max(1, len(names)), len(SAMPLE)))
    sample(NodeView(nodes, gpus, tables.apps), column, tables.typical, out)
    by_type = cluster.frame.filter(pl.col("gpus") > 0).group_by(pl.col("gpu_type").fill_null(""))
    amounts = pl.DataFrame({"gpu_type": names, **{n: out[: len(names), k] / WHOLE for k, n in enumerate(SAMPLE)}})
    total = by_type.agg(pl.col("gpus").sum())
    return amounts.join(total, on="gpu_type", how="left").select("gpu_type", "gpus", "up", "allocated", "fragmented")
