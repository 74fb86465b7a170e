"""A real kube-scheduler on this host: PROFILE=spread PODS=1000 make realtest-kubernetes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
from realtest.kubernetes.client import PODS as PODS_PATH
from realtest.kubernetes.client import Client
from realtest.kubernetes.keep import keep
from realtest.kubernetes.lab import Lab, kubeconfig, missing
from realtest.kubernetes.objects import Load, nodes_of, pods_of
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.replay import Run, replay
from realtest.kubernetes.run import run_profile

import fleetlab

pytestmark = pytest.mark.kubernetes
PROFILE = os.environ.get("PROFILE", "default")
PODS = int(os.environ.get("PODS", "300"))
STAND = """
import sys, time
from pathlib import Path
from realtest.kubernetes.lab import Lab
with Lab(Path(sys.argv[1])) as lab:
    print(*(process.pid for process in lab._running), flush=True)
    time.sleep(300)
"""


@pytest.fixture(scope="module", autouse=True)
def programs():
    if reason := missing():
        pytest.skip(f"no real kube-scheduler here, not installed: {reason}")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run of the profile, as it is kept."""
    folder = tmp_path_factory.mktemp("kubernetes")
    run_profile(PROFILES[PROFILE], folder / "run", PODS)
    keep(folder / "run", folder / "kept")
    return folder / "kept"


def test_every_decision_of_the_real_one_follows(kept):
    outcome = replay(Run.load(kept))
    print("\n", dict(outcome.counts))
    assert outcome.wrong == []
    assert sum(n for what, n in outcome.counts.items() if what.startswith("placed")) == PODS


def test_the_run_reads_as_a_trace_with_every_pod(kept):
    trace = fleetlab.read(kept, "kubernetes")
    assert trace.rejects.height == 0
    assert trace.workload.instances == PODS


def test_sigterm_ends_the_servers(tmp_path):
    words = [sys.executable, "-c", STAND, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as lab:
        servers = lab.stdout.readline().split()
        lab.send_signal(signal.SIGTERM)
        status = lab.wait(60)
    assert len(servers) == 2
    assert status == 128 + signal.SIGTERM
    assert [pid for pid in servers if Path(f"/proc/{pid}").exists()] == []


def test_collect_gathers_from_a_real_api_server_what_read_takes(tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    load = Load()
    with Lab(tmp_path / "lab") as lab:
        config = tmp_path / "kubeconfig"
        config.write_text(json.dumps(kubeconfig(lab.url)))
        asyncio.run(submit(lab.url, nodes_of(3, load), pods_of(5, 1, load)))
        words = [sys.executable, "-m", "fleetlab", "collect", "kubernetes", "--out", str(tmp_path / "site")]
        done = subprocess.run(words, env=os.environ | {"KUBECONFIG": str(config)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    trace = fleetlab.read(tmp_path / "site", "kubernetes")
    assert (len(trace.workload), len(trace.cluster), trace.rejects.height) == (5, 3, 0)


async def submit(url, nodes, pods):
    async with Client(url) as client:
        for node in nodes:
            await client.create("/api/v1/nodes", node)
        for pod in pods:
            await client.create(PODS_PATH, pod)
