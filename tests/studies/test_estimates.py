"""A series of the trace, or a column, as the estimate: every study and every worker process uses it."""

import json

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, PolicyError, Trace, Workload, cli
from fleetlab.core import resample

# At 0 a job of 10 s starts; the last, of 2 s, is estimated to be long: then it starts after the one of 8 s.
WORK = pl.DataFrame({"submit": [0.0, 1.0, 2.0], "runtime": [10.0, 8.0, 2.0]}).with_columns(gpu_milli=pl.lit(1000))
ESTIMATES = [10.0, 8.0, 90.0]
ORACLE, REQUESTED = (0 + 11 + 8) / 3, (0 + 9 + 16) / 3


@pytest.fixture
def three():
    return Workload.of(WORK, source="three")


@pytest.fixture
def saved(three, tmp_path):
    series = {"requested": pl.DataFrame({"job": [0, 1, 2], "seconds": ESTIMATES}).lazy()}
    made = Trace(three, cluster=Cluster.uniform(1, 1), provenance=fleetlab.Provenance("make", "three"), series=series)
    return str(made.save(tmp_path / "trace"))


def run(capsys, *words):
    with pytest.raises(SystemExit, match="0"):
        cli.main([*words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("estimate", "wait"), [("oracle", ORACLE), ("requested", REQUESTED)])
def test_diagnose_takes_a_series_and_every_change_has_it(capsys, saved, estimate, wait):
    words = ["--order", "sjf", "--estimate", estimate, "--changes", "nothing", "--replicas", "1"]
    found = run(capsys, "diagnose", saved, *words)
    assert found["summary"][0]["value"] == pytest.approx(wait)
    same = next(row for row in found["tables"]["changes"] if row["change"] == "nothing")
    assert same["mean wait change"] == 0


@pytest.mark.parametrize(("estimate", "nodes"), [("oracle", 1), ("requested", 2)])
def test_capacity_takes_a_series(capsys, saved, estimate, nodes):
    words = ["--slo", "mean wait < 7", "--order", "sjf", "--estimate", estimate, "--replicas", "1"]
    assert run(capsys, "capacity", saved, *words)["summary"][0]["value"] == nodes


@pytest.mark.parametrize("workers", [0, 1])
def test_gangs_that_are_split_keep_their_estimates(three, workers):
    # The gang of two is estimated to be long: it goes last, also when its instances start one by one.
    gang = Workload.of(three.frame.drop("job").with_columns(instances=pl.Series([1, 1, 2])), source="gang")
    words = {"estimate": pl.Series(ESTIMATES), "order": "sjf", "changes": ["gangs"], "workers": workers, "replicas": 1}
    found = fleetlab.diagnose(gang, Cluster.uniform(2, 1), **words).tables()["changes"]
    alone = gang.frame.drop("job", "parent")[[0, 1, 2, 2]].with_columns(instances=1)
    waits = fleetlab.simulate(
        Workload.of(alone, source="split"), Cluster.uniform(2, 1), order="sjf", estimate=[*ESTIMATES, ESTIMATES[2]]
    ).jobs["wait"]
    assert found["mean wait"][0] == pytest.approx((waits[0] + waits[1] + max(waits[2], waits[3])) / 3)


def test_the_true_run_times_as_a_column_are_the_oracle_however_much_jobs_grow():
    trace = fleetlab.synthesize("pai2020", jobs=600, seed=1)
    jobs = trace.workload.frame.drop("job", "start", "end", "gpu_types").drop_nulls("runtime")
    work = Workload.of(jobs.with_columns(submit=pl.col("submit") - jobs["submit"][0], instances=1), source="known")
    words = {"slo": "mean wait < 20000", "order": "sjf", "growth": 1.3, "replicas": 1, "workers": 0}
    cluster = Cluster.uniform(4, 8, gpu_type="MISC")
    tables = [
        fleetlab.capacity(work, cluster, **words, estimate=estimate).tables()["curve"]
        for estimate in ("oracle", work.frame["runtime"])
    ]
    assert tables[0].equals(tables[1])


def test_it_is_known_where_a_job_of_a_grown_workload_comes_from():
    work = fleetlab.synthesize("pai2020", jobs=2000, seed=1).workload
    for growth in (0.6, 1.0, 2.3):
        rows, _ = resample.user_days(work.frame, growth, 3)
        columns = ["runtime", "user", "cpu_milli", "gpu_milli"]
        assert work.grown(growth, 3).frame.select(columns).equals(work.frame.select(columns)[rows])


@pytest.mark.parametrize("verb", ["diagnose", "capacity"])
def test_a_column_that_is_too_short_is_refused(three, verb):
    goal = {"slo": "mean wait < 7"} if verb == "capacity" else {}
    with pytest.raises(PolicyError, match="2 values for 3 jobs"):
        getattr(fleetlab, verb)(three, Cluster.uniform(1, 1), estimate=pl.Series([1.0, 2.0]), **goal)
