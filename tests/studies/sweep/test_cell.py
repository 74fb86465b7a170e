"""A cell in a worker: the jobs of its seed, the series and files that its scenario names, and its cluster."""

from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Scenario, Study, Trace
from fleetlab.core.replicas import perturbed
from fleetlab.studies.runner.shipping import Folder, Packer, Unpacker
from fleetlab.studies.sweep.cell import CellInputs
from fleetlab.studies.sweep.plan import SweepPlan

from .conftest import SERVERS, queue


def scenario_in_worker(study, folder, seed=3):
    """The scenario that a worker builds of the first cell, from traces that it maps."""
    plan = SweepPlan.of(study, lambda *_: None)
    folder.mkdir(exist_ok=True)
    packed = Packer(Folder(folder), plans=True).pack({s.digest: s.trace for s in plan.sources.values()})
    traces = Unpacker(Folder(folder)).unpack(packed)
    return CellInputs(traces).scenario(plan.question(plan.cell(study.scenarios[0], seed)))


@pytest.fixture
def estimates():
    """A trace with a series of estimates."""
    work = queue(300)
    series = work.frame.select("job", seconds=pl.col("runtime") * 2).lazy()
    return Trace(work, Provenance("made", "a queue"), Cluster.uniform(1, SERVERS), series={"requested": series})


def test_a_worker_has_the_jobs_of_the_seed_at_the_load(trace, tmp_path):
    scenario = Scenario.of(str(trace), load=1.6, order="sjf")
    built = scenario_in_worker(Study.of([scenario]), tmp_path / "sources")
    wanted = queue(300).resampled(3).at_load(1.6)
    assert built.workload.frame.select(pl.exclude("user")).equals(wanted.frame.select(pl.exclude("user")))
    assert (built.seed, built.policy, built.load) == (3, scenario.policy, 1.6)


def test_estimates_of_a_series_and_of_a_column_are_resampled_with_their_jobs(estimates, tmp_path):
    column = estimates.workload.frame["runtime"] * 2
    for estimate in ("requested", column):
        built = scenario_in_worker(Study.of([Scenario.of(estimates, estimate=estimate)]), tmp_path / "sources")
        assert built.estimate.to_list() == (built.workload.frame["runtime"] * 2).to_list()


def test_a_synthetic_trace_is_synthesized_for_each_seed_on_the_same_cluster(tmp_path):
    study = Study.of(Scenario.of("builtin:200", Cluster.uniform(40, 8), nodes="+5"))
    built = scenario_in_worker(study, tmp_path / "sources")
    made = fleetlab.synthesize("pai2020", jobs=200, seed=3).workload.frame["runtime"]
    known = made.is_not_null()
    assert built.workload.frame["runtime"].filter(known).equals(made.filter(known))
    assert built.workload.frame["runtime"].null_count() == 0 < made.null_count()
    assert len(built.cluster) == 45


def test_without_resampling_all_seeds_have_the_jobs_of_the_trace(trace, tmp_path):
    study = replace(Study.of(str(trace)), resample="none")
    built = scenario_in_worker(study, tmp_path / "sources")
    assert built.workload.frame["submit"].equals(queue(300).frame["submit"])
    assert built.seed == 3


def test_a_nudged_seed_has_the_jobs_of_a_replica_of_this_log(trace, tmp_path):
    study = replace(Study.of(str(trace)), resample="nudge")
    built = scenario_in_worker(study, tmp_path / "sources")
    replica = perturbed(Scenario.of(str(trace)), 4).workload.frame  # seed 0 is the first replica
    assert built.workload.frame.select("submit", "runtime").equals(replica.select("submit", "runtime"))
    assert not replica["submit"].equals(queue(300).frame["submit"])


def test_events_quotas_and_prices_reach_the_worker(trace, tmp_path):
    words = {"events": [{"event": "outage", "begin": 1.0, "end": 2.0, "nodes": ["node-0"]}], "quota": {"user-1": 2},
             "prices": {"per_gpu_hour": 2.0}, "recovery": {"every": 60.0}, "until": "1h"}  # fmt: skip
    scenario = Scenario.of(str(trace), **words)
    built = scenario_in_worker(Study.of([scenario]), tmp_path / "sources")
    assert (built.events, built.prices, built.until) == (scenario.events, scenario.prices, 3600)
    assert built.policy == scenario.policy
