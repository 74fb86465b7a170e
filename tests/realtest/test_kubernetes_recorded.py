"""Every decision of the recorded runs of a real kube-scheduler, again."""

from pathlib import Path

import pytest
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.replay import Run, replay

RUNS = Path(__file__).parents[2] / "docs" / "measurements" / "kubernetes"
FOLDERS = sorted(path.parent for path in RUNS.glob("*/record.csv.gz"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def test_a_run_of_every_profile_is_kept():
    assert {folder.name for folder in FOLDERS} == set(PROFILES)


def test_every_node_is_among_our_best_and_all_scores_are_equal(folder):
    run = Run.load(folder)
    outcome = replay(run)
    assert [line for line in outcome.wrong if "preempts" not in line] == []
    assert outcome.counts["placed exact"] + outcome.counts["placed late"] == len(run.pods)


def test_a_wrong_weight_would_be_noticed():
    run = Run.load(RUNS / "most")
    weights = dict(run.profile.weights) | {"NodeResourcesMostAllocated": 2}
    changed = Run(**{**vars(run), "profile": type(run.profile)(weights=weights, resources=run.profile.resources)})
    assert len(replay(changed).wrong) > 100
