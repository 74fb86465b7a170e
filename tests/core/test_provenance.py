"""Provenance: digests of the jobs, the nodes, the policy with its helpers, and the code that made a result."""

import importlib
import json
import pickle
import sys

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, SavedResult, Scenario, Workload

JOBS = pl.DataFrame({"submit": [0.0, 0.0, 1.0], "runtime": [9.0, 40.0, 5.0], "gpu_milli": [1000] * 3})
SCENARIO = Scenario.of(Workload.of(JOBS, source="three jobs"), Cluster.uniform(1, 1), warm_up="none")


def digests(scenario):
    return scenario.provenance("simulate").digests


def test_each_digest_follows_from_what_it_is_of_and_from_nothing_else():
    other_jobs = SCENARIO.on(Workload.of(JOBS.with_columns(runtime=pl.lit(7.0)), source="three jobs"))
    other_nodes, other_order = SCENARIO.replace(cluster=Cluster.uniform(2, 1)), SCENARIO.replace(order="sjf")
    base = digests(SCENARIO)
    for other, name in ((other_jobs, "trace"), (other_nodes, "cluster"), (other_order, "policy")):
        assert {key for key, value in digests(other).items() if value != base[key]} == {name}


def test_a_saved_trace_has_the_digest_of_its_jobs_whatever_its_folder_is_called(tmp_path):
    trace = fleetlab.synthesize(jobs=50)
    for name in ("one", "two"):
        trace.save(tmp_path / name)
    one, two = (digests(Scenario.of(str(tmp_path / name))) for name in ("one", "two"))
    assert one == two
    assert one["trace"] == fleetlab.describe(trace).provenance.digests["trace"]


def test_the_digest_of_a_policy_covers_its_helpers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_policy.py").write_text(
        "from a_helper import of\n\ndef mine(s, job, now):\n    return of(s.submit[job])\n"
    )
    found = []
    for factor in (1, -1, -1):
        (tmp_path / "a_helper.py").write_text(f"def of(x):\n    return {factor} * x\n")
        importlib.invalidate_caches()
        found.append(digests(SCENARIO.replace(order="a_policy:mine")))
        for name in ("a_helper", "a_policy"):
            del sys.modules[name]
    assert found[0]["policy"] != found[1]["policy"] == found[2]["policy"]
    assert found[0]["trace"] == found[1]["trace"]


@pytest.mark.parametrize("verb", ["simulate", "compare", "diagnose", "explain", "capacity"])
def test_results_of_simulations_have_all_four(verb):
    own = {
        "compare": {"policies": ["fifo", "sjf"], "workers": 0}, "diagnose": {"changes": ["nothing"], "workers": 0},
        "explain": {"job": 2}, "capacity": {"slo": "mean wait < 1h"},
    }  # fmt: skip
    result = getattr(fleetlab, verb)(SCENARIO, **own.get(verb, {}))
    assert result.provenance.digests.keys() == {"code", "trace", "cluster", "policy"}
    saved = SavedResult.from_json(json.loads(json.dumps(result.to_json(), default=str)))
    assert saved.provenance.digests == result.provenance.digests


def test_a_provenance_that_was_written_before_or_elsewhere_is_read():
    assert Provenance.from_json({"verb": "simulate", "source": "mine", "settings": {}, "seed": 0, "version": "0.1"})
    mine = SCENARIO.provenance("simulate")
    assert pickle.loads(pickle.dumps(mine)).digests == mine.digests
