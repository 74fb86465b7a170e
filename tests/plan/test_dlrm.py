"""The busiest moment of a real trace: thousands of instances, within 5 % of the bound."""

import pytest

import fleetlab
from fleetlab import Cluster
from fleetlab.plan import alive

NODES = """
[[node]]
count = 2600
pool = "cpu"
cpu_milli = 192000
memory_mib = 1048576
rdma_milli = 1000
disk_mib = 4194304

[[node]]
count = 600
pool = "gpu"
gpu_type = "GPU"
gpus = 8
gpu_memory_mib = 98304
cpu_milli = 128000
memory_mib = 1048576
rdma_milli = 4000
disk_mib = 4194304
"""


@pytest.mark.data
@pytest.mark.validate
def test_the_busiest_moment_of_dlrm_is_placed_within_five_percent_of_the_bound(data, tmp_path):
    (tmp_path / "nodes.toml").write_text(NODES, "utf-8")
    trace = fleetlab.read(data / "alibaba-dlrm-v2025", "dlrm2025")
    found = fleetlab.plan(alive(trace, "busiest"), Cluster.from_toml(tmp_path / "nodes.toml"), seconds=60)
    assert found.placements.height > 5000
    assert found.gap <= 0.05
