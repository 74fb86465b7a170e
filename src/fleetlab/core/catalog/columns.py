"""Resources, with their columns of workloads and clusters; and metrics."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: its columns in a workload (per instance) and in a cluster (per node), and its unit."""

    name: str
    title: str
    meaning: str
    unit: str
    scale: int  # of the columns: so many make one unit
    request: str  # column of a workload
    capacity: str  # column of a cluster
    divisible: bool = True  # a plain amount per node, of which instances take some; GPUs and their memory are not


RESOURCES = Catalog(
    "resource",
    (
        Resource("cpu", "CPU", "CPU cores", "cores", 1000, "cpu_milli", "cpu_milli"),
        Resource("memory", "memory", "main memory", "GiB", 1024, "memory_mib", "memory_mib"),
        Resource("gpu", "GPU", "GPUs; below 1000 milli a fraction of one", "GPUs", 1000, "gpu_milli", "gpus",
                 divisible=False),
        Resource("gpu_memory", "GPU memory", "memory of each GPU", "GiB", 1024, "gpu_memory_mib", "gpu_memory_mib",
                 divisible=False),
        Resource("rdma", "RDMA", "RDMA network cards", "cards", 1000, "rdma_milli", "rdma_milli"),
        Resource("disk", "disk", "local disk", "GiB", 1024, "disk_mib", "disk_mib"),
    ),
)  # fmt: skip
REQUESTS = tuple(r.request for r in RESOURCES)
NODE_AMOUNTS = tuple(r.capacity for r in RESOURCES if r.divisible)  # the same columns in workload and cluster
GPU_AMOUNTS = tuple(r.capacity for r in RESOURCES if not r.divisible)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its unit, the lowest possible value, and whether lower is better."""

    name: str
    meaning: str
    unit: str = ""
    column: str = ""  # of the table of jobs, where it has one value per job
    least: float = 0.0
    lower_is_better: bool = True


METRICS = Catalog(
    "metric",
    (
        Metric("wait", "time from submission to start, and in the queue after a preemption", "s", "wait"),
        Metric("JCT", "job completion time: submission to end", "s", "jct"),
        Metric("slowdown", "JCT over runtime", "", "slowdown", 1.0),
        Metric("bounded slowdown", "JCT over runtime, with a runtime of at least 10 s", "", "bounded_slowdown", 1.0),
        Metric("GPU allocation", "GPU time allocated to jobs, of the GPU time of nodes that are up", "%",
               lower_is_better=False),
        Metric("fairness", "Jain's index over users of their mean bounded slowdown", "", lower_is_better=False),
        Metric("wasted GPU time", "GPU time lost to failures, checkpoints and restarts", "GPU-h"),
        Metric("energy", "energy by the power model of the prices", "kWh"),
        Metric("cost", "cost by the prices; 1 per GPU-hour where no price is given", "GPU-h or currency"),
    ),
)  # fmt: skip
