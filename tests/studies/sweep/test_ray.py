"""On a Ray cluster of two nodes: the same numbers bit for bit, though a node is lost on the way."""

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

import fleetlab

from .conftest import records, saved, started, written

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]

STUDY = """
trace = "trace"
load = [1.0, 1.5]
seeds = 12
order = ["fifo", "sjf", "our_order:mine"]
"""
OWN = "from fleetlab import order\n\n\n@order\ndef mine(s, job, now):\n    return -s.submit[job]\n"
# Since Ray 2.59 every process needs the same token, from its start.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2, "RAY_USAGE_STATS_ENABLED": "0"}
# Without clusters of more than one machine, Ray stays on the loopback address.
TOKEN |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Two nodes of one core each on this machine, with small object stores; a word on stdin takes the second one away.
NODES = """
import sys
from ray.cluster_utils import Cluster
words = {"num_cpus": 1, "object_store_memory": 10**8}
cluster = Cluster(initialize_head=True, head_node_args={**words, "include_dashboard": False})
second = cluster.add_node(**words)
cluster.wait_for_nodes()
print("ready", cluster.address, flush=True)
try:
    if sys.stdin.readline():
        cluster.remove_node(second, allow_graceful=False)
        sys.stdin.readline()
finally:
    cluster.shutdown()
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    saved(folder / "trace", 5000)
    (folder / "our_order.py").write_text(OWN)
    return written(folder, STUDY)


@pytest.fixture
def cluster():
    """The process that holds the nodes, and their address."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", NODES], env=os.environ | TOKEN, **pipes) as nodes:
        said = next(line for line in nodes.stdout if line.startswith("ready"))
        yield nodes, said.split()[1]
        nodes.communicate()


def test_a_lost_node_loses_no_cell_and_the_numbers_are_the_same(study, cluster, tmp_path, monkeypatch):
    nodes, address = cluster
    monkeypatch.chdir(study.parent)
    for name, value in TOKEN.items():
        monkeypatch.setenv(name, value)
    store = tmp_path / "ray"
    sweep = started("sweep", study, "--store", store, "--engine", "ray", "--address", address, "--json")
    while len(records(store)) < 15 and sweep.poll() is None:
        time.sleep(0.05)
    nodes.stdin.write("lose the second\n")
    nodes.stdin.flush()
    said, talk = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, talk
    far, near = json.loads(said), fleetlab.sweep(study, store=tmp_path / "local")
    assert records(store) == records(tmp_path / "local")
    assert len(records(store)) == 72
    assert far["tables"]["scenarios"] == near.tables()["scenarios"].to_dicts()
    assert fleetlab.runs(store).cells["engine"].unique().to_list() == ["ray"]


def test_a_cluster_that_is_not_there_is_said_to_be_none(study, tmp_path, monkeypatch):
    monkeypatch.chdir(study.parent)
    sweep = started("sweep", study, "--store", tmp_path, "--engine", "ray", "--address", "127.0.0.1:1")
    _, said = sweep.communicate(timeout=120)
    assert sweep.returncode == 2
    assert "error: cannot reach the Ray cluster: 127.0.0.1:1: Connection refused" in said
