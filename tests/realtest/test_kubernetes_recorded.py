"""Every decision of the recorded runs of a real kube-scheduler, again."""

from dataclasses import replace
from pathlib import Path

import pytest
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.replay import Run, replay
from realtest.kubernetes.report import MARKS, PAGE, tables
from realtest.report import with_tables

ROOT = Path(__file__).parents[2]
RUNS = ROOT / PAGE.parent
FOLDERS = sorted(path.parent for path in RUNS.glob("*/record.csv.gz"))


def placed(outcome, kind):
    return outcome.counts[f"placed {kind}"]


def test_a_run_of_every_profile_is_kept():
    assert {folder.name.partition("-")[0] for folder in FOLDERS} == set(PROFILES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_decision_of_the_real_one_follows_and_hardly_one_needs_the_race(folder):
    run = Run.load(folder)
    outcome = replay(run)
    assert outcome.wrong == []
    assert placed(outcome, "exact") + placed(outcome, "late") == len(run.pods)
    assert placed(outcome, "late") <= 0.01 * len(run.pods)


def test_a_wrong_weight_would_be_noticed():
    run = Run.load(RUNS / "most")
    weights = dict(run.profile.weights) | {"NodeResourcesMostAllocated": 2}
    assert len(replay(replace(run, profile=replace(run.profile, weights=weights))).wrong) > 100


def test_other_victims_would_be_noticed():
    run = Run.load(RUNS / "preempt")
    equal = {number: replace(pod, priority=0) for number, pod in run.pods.items()}
    wrong = replay(replace(run, pods=equal)).wrong
    assert sum("preempts" in line for line in wrong) >= 4


def test_the_tables_of_the_page_are_those_of_the_runs():
    page = (ROOT / PAGE).read_text("utf-8")
    assert with_tables(page, tables(RUNS), MARKS) == page
