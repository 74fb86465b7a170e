"""Every decision of the recorded runs of a real kube-scheduler, again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from realtest.archives import recorded_runs
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.replay import Run, replay
from realtest.kubernetes.report import MARKS, PAGE, tables
from realtest.kubernetes.starts import starts
from realtest.kubernetes.turns import turns
from realtest.report import with_tables

from fleetlab.schedulers.kubernetes.config import CONTROLLER

ROOT = Path(__file__).parents[2]
RUNS = recorded_runs("kubernetes")
FOLDERS = sorted(path.parent for path in RUNS.glob("*/record.csv.gz"))
LARGE = [folder for folder in FOLDERS if folder.name.endswith("-5000")]
SMALL = [folder for folder in FOLDERS if folder not in LARGE]
BY_SIZE = [*SMALL, *(pytest.param(folder, marks=pytest.mark.validate) for folder in LARGE)]


def placed(outcome, kind):
    return outcome.counts[f"placed {kind}"]


def test_a_run_of_every_profile_is_kept():
    assert {folder.name.partition("-")[0] for folder in FOLDERS} == set(PROFILES)


@pytest.mark.parametrize("folder", BY_SIZE, ids=lambda folder: folder.name)
def test_every_decision_of_the_real_one_follows_and_hardly_one_needs_the_race(folder):
    run = Run.load(folder)
    outcome = replay(run)
    assert outcome.wrong == []
    assert placed(outcome, "exact") + placed(outcome, "late") + placed(outcome, "among best") == len(run.pods)
    assert placed(outcome, "among best") <= 1
    assert placed(outcome, "late") <= 0.01 * len(run.pods)


def test_five_profiles_have_runs_of_five_thousand_pods():
    assert len([folder for folder in LARGE if json.loads((folder / "site.json").read_text())["pods"] == 5000]) >= 5


@pytest.mark.validate
@pytest.mark.parametrize("folder", LARGE, ids=lambda folder: folder.name)
def test_every_attempt_came_when_our_queue_has_it_but_for_stalls_of_the_host(folder):
    found = turns(Run.load(folder))
    attempts = found.counts["in turn"] + found.counts["late"]
    assert found.counts["out of turn"] == 0
    assert found.counts["early"] <= 0.001 * attempts
    assert found.counts["late"] <= 0.005 * attempts


@pytest.mark.validate
def test_a_queue_that_forgets_the_status_of_pods_would_be_noticed():
    run = Run.load(RUNS / "default-5000")
    silent = run.record.filter(run.record["what"] != "patched")
    assert turns(replace(run, record=silent)).counts["early"] > 200


@pytest.mark.validate
def test_budgets_decide_who_is_evicted():
    run = Run.load(RUNS / "budgets-5000")
    assert replay(replace(run, budgets=[])).counts["preempts wrong"] > 50


@pytest.mark.validate
def test_other_reasons_would_be_noticed():
    run = Run.load(RUNS / "most-5000")
    more = {n: replace(pod, requests=dict(pod.requests) | {"cpu": 60_000}) for n, pod in run.pods.items()}
    assert replay(replace(run, pods=more)).counts["unfit wrong"] > 100


@pytest.mark.parametrize("name", ["controllers", "listed"])
def test_without_default_spreading_many_decisions_would_not_follow(name):
    run = Run.load(RUNS / name)
    own = {n: replace(pod, spread=() if is_default(pod) else pod.spread) for n, pod in run.pods.items()}
    outcome = replay(replace(run, pods=own))
    assert placed(outcome, "wrong") + placed(outcome, "among best") > 60


def is_default(pod):
    return any(one.key == CONTROLLER for constraint in pod.spread for one in constraint.selector.labels)


def test_a_wrong_weight_would_be_noticed():
    run = Run.load(RUNS / "most")
    weights = dict(run.profile.weights) | {"NodeResourcesMostAllocated": 2}
    outcome = replay(replace(run, profile=replace(run.profile, weights=weights)))
    assert outcome.wrong
    assert placed(outcome, "wrong") + placed(outcome, "among best") > 200


def test_other_victims_would_be_noticed():
    run = Run.load(RUNS / "preempt")
    equal = {number: replace(pod, priority=0) for number, pod in run.pods.items()}
    wrong = replay(replace(run, pods=equal)).wrong
    assert sum("preempts" in line for line in wrong) >= 4


@pytest.mark.validate
def test_the_tables_of_the_page_are_those_of_the_runs():
    page = (ROOT / PAGE).read_text("utf-8")
    assert with_tables(page, tables(RUNS), MARKS) == page


@pytest.mark.validate
def test_as_many_pods_are_evicted_in_a_loop_of_our_own():
    found = starts(Run.load(RUNS / "budgets-5000"), seed=2)
    assert found.preempted[1] == pytest.approx(found.preempted[0], rel=0.1)


@pytest.mark.validate
@pytest.mark.parametrize("name", ["default-5000", "mix-5000", "neighbors-5000"])
def test_as_many_pods_wait_for_room_but_for_stalls_of_the_host(name):
    """Who was placed at the first attempt, though after a second, waited for the host."""
    run = Run.load(RUNS / name)
    attempts = run.record.filter(run.record["what"] == "attempt").group_by("pod").len().sort("pod")["len"].to_numpy()
    found = starts(run)
    waited = ((found.real > 1) & (attempts > 1)).sum()
    assert (found.ours > 1).sum() == pytest.approx(waited, rel=0.15)
