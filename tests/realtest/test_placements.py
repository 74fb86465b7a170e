"""Decisions of a real Slurm, made again by our rule in the state that each was made in."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from realtest.placements import CLUSTERS, held_by, site

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def agreement():
    """Return by cluster how many decisions agree and how many there are: of all, and of those with several nodes."""
    words = [sys.executable, "-m", "realtest.placements", *CLUSTERS, "--recorded"]
    # Compiled code runs as plain Python too; to compile the rule alone would take longer.
    env = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    lines = re.findall(r"^(\w+): (\d+) of (\d+), of several nodes (\d+) of (\d+)$", done.stdout, re.MULTILINE)
    return {name: tuple(map(int, counts)) for name, *counts in lines}


def test_at_least_95_percent_of_2000_jobs_are_on_the_nodes_that_the_daemon_chose(agreement):
    same, made = (sum(counts[k] for counts in agreement.values()) for k in (0, 1))
    assert made >= 2000
    assert same >= 0.95 * made


@pytest.mark.parametrize("name", CLUSTERS)
def test_on_every_cluster_also_those_of_several_nodes(agreement, name):
    same, made, same_of_several, several = agreement[name]
    assert same >= 0.95 * made
    assert several >= 100
    assert same_of_several >= 0.9 * several


def test_nodes_of_a_list_hold_the_same():
    shown = "JobId=7 Nodes=n[1-2],v1 CPU_IDs=0 Mem=8192 GRES= MinCPUsNode=1"
    assert held_by(shown) == {"n1": [1, 8192, 0], "n2": [1, 8192, 0], "v1": [1, 8192, 0]}


def test_clusters_have_nodes_of_other_weights_features_and_sizes():
    frames = [site(name)[0].frame for name in CLUSTERS]
    assert max(frame["weight"].n_unique() for frame in frames) == 3
    assert max(frame["gpus"].n_unique() for frame in frames) == 3
    assert all(frame["partitions"].list.len().max() >= 2 for frame in frames)
