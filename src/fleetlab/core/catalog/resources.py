"""What a node has and an instance requests."""

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
