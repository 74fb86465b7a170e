"""A real kube-scheduler on this host: PROFILE=spread PODS=1000 make realtest-kubernetes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
from realtest.kubernetes.keep import keep
from realtest.kubernetes.lab import missing
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
