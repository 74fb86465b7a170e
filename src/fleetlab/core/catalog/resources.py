"""What a node has and an instance requests."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: its columns in a workload (per instance) and in a cluster (per node)."""

    name: str
    meaning: str
    unit: str
    request: str  # column of a workload
    capacity: str  # column of a cluster
    divisible: bool = True  # a plain amount per node, of which instances take some; GPUs and their memory are not


RESOURCES = Catalog(
    "resource",
    (
        Resource("cpu", "CPU cores", "milli-cores", "cpu_milli", "cpu_milli"),
        Resource("memory", "main memory", "MiB", "memory_mib", "memory_mib"),
        Resource("rdma", "RDMA network bandwidth", "milli", "rdma_milli", "rdma_milli"),
        Resource("disk", "local disk", "MiB", "disk_mib", "disk_mib"),
        Resource("gpu", "GPUs; below 1000 milli a fraction of one", "milli-GPU", "gpu_milli", "gpus", divisible=False),
        Resource("gpu_memory", "memory of each GPU", "MiB", "gpu_memory_mib", "gpu_memory_mib", divisible=False),
    ),
)
NODE_AMOUNTS = tuple(r.capacity for r in RESOURCES if r.divisible)  # the same columns in workload and cluster
