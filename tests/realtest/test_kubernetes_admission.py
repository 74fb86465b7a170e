"""What a real API server admitted, and when a real Job controller tried again: recorded, and decided again by ours."""

import asyncio
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("aiohttp")
from realtest.archives import recorded_runs
from realtest.kubernetes import admit, jobs
from realtest.kubernetes.lab import missing

RUNS = recorded_runs("kubernetes")


def test_our_rules_admit_and_refuse_as_the_server_did_with_its_reasons():
    counts, wrong = admit.outcome(RUNS / "admission" / "answers.json.gz")
    assert sum(counts.values()) == 2400
    assert counts["other"] == 0
    # One pod was taken above its quota: the server's own count had lost another.
    assert wrong == [(("admitted", None), [("exceeded", ("quota-0", ("limits.cpu",)))])]


def test_the_job_controller_tries_again_after_10_20_40_and_80_seconds():
    gaps = jobs.compare(RUNS / "jobs" / "jobs.json")["gaps"]
    assert len(gaps) == 46
    assert all(abs(gap - 10 * 2**n) < 0.1 for n, gap in gaps)


def test_pods_of_jobs_under_a_quota_are_created_when_the_real_ones_were():
    found = jobs.compare(RUNS / "jobs" / "jobs.json")
    assert len(found["real"]) == 53
    assert np.abs(found["real"] - found["ours"]).max() < 1.0


def test_another_backoff_would_be_noticed(monkeypatch):
    monkeypatch.setattr(jobs, "JOB_BACKOFF", {"1.20": (1.0, 60.0)})
    found = jobs.compare(RUNS / "jobs" / "jobs.json")
    assert (np.abs(found["real"] - found["ours"]) > 1.0).sum() > 20


@pytest.mark.kubernetes
def test_a_real_server_admits_as_we_do(tmp_path):
    lacks = missing() or ("" if shutil.which("kube-controller-manager") else "kube-controller-manager")
    if lacks:
        pytest.skip(f"not built here: {lacks}")
    asyncio.run(admit.run(tmp_path, namespaces=8, pods=30, seed=7))
    counts, wrong = admit.outcome(tmp_path / "answers.json.gz")
    print(dict(counts), f"{len(wrong)} wrong")
    assert counts["admitted"] > 20
    assert counts["other"] == 0
    assert len(wrong) <= 1


def test_the_record_of_jobs_has_one_to_three_pods_each():
    kept = json.loads((RUNS / "jobs" / "jobs.json").read_text())["jobs"]
    assert {one["pods"] for one in kept} == {1, 2, 3}
