"""A real kube-scheduler on this host: PROFILE=spread PODS=1000 make realtest-kubernetes."""

import os

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


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run of the profile, as it is kept."""
    if reason := missing():
        pytest.skip(f"no real kube-scheduler here, not installed: {reason}")
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
