"""Audits: what is planted is found, with time, node and jobs; what is sound is left alone; what is absent is said."""

import json
from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Trace, Workload
from fleetlab.core.queues import QueueTree
from fleetlab.core.trace import PLACEMENTS
from fleetlab.schedulers.slurm.config import Priority, Weights
from fleetlab.studies.audit import _agreement, _of_accounts, overcommitted
from fleetlab.studies.validate.validation import as_trace

TWO = Cluster.of(
    pl.DataFrame(
        {
            "node": ["a", "b"], "gpu_type": ["T4", "V100"], "gpus": [2, 2],
            "cpu_milli": [8000, 8000], "memory_mib": [1000, 1000],
        }
    ),
    source="by hand",
)  # fmt: skip


def trace(rows, placed=None, cluster=TWO):
    """Jobs as (submit, start, end, GPU milli, types), and where they ran as (job, node)."""
    schema = {"submit": pl.Float64, "start": pl.Float64, "end": pl.Float64, "gpu_milli": pl.Int32,
              "gpu_types": pl.List(pl.String)}  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    workload = Workload.of(frame.with_columns(runtime=pl.col("end") - pl.col("start")), source="by hand")
    placements = None
    if placed is not None:
        spots = [(job, k, node, "completed", rows[job][1], rows[job][2]) for k, (job, node) in enumerate(placed)]
        placements = pl.DataFrame(spots, schema=PLACEMENTS, orient="row").lazy()
    return Trace(workload, Provenance("test", "by hand"), cluster=cluster, placements=placements)


def broken(found):
    return found.violations.select("check", "where", "from", "until", "jobs").rows()


def test_a_schedule_that_fits_has_no_violation():
    rows = [(0.0, 0.0, 10.0, 1000, ["T4"]), (0.0, 0.0, 10.0, 1000, ["T4"]), (1.0, 10.0, 20.0, 2000, ["T4"])]
    assert fleetlab.audit(trace(rows, [(0, "a"), (1, "a"), (2, "a")])).feasible


def test_at_one_instant_ends_come_before_starts():
    held = pl.DataFrame({"where": "a", "start": [0.0, 5.0], "end": [5.0, 9.0], "amount": [2, 2]})
    assert overcommitted(held, pl.DataFrame({"where": ["a"], "capacity": [2]})).is_empty()


def test_a_spell_of_too_much_is_one_violation_from_its_first_instant_to_its_last():
    held = pl.DataFrame({"where": "a", "start": [0.0, 2.0, 3.0], "end": [8.0, 6.0, 4.0], "amount": [2, 1, 1]})
    (row,) = overcommitted(held, pl.DataFrame({"where": ["a"], "capacity": [2]})).iter_rows(named=True)
    assert (row["from"], row["until"], row["allocated"], row["at"]) == (2.0, 6.0, 4.0, 3.0)


def test_a_node_that_holds_too_many_gpus_is_named_with_time_and_jobs():
    rows = [(0.0, 0.0, 10.0, 1000, []), (0.0, 4.0, 12.0, 2000, []), (0.0, 0.0, 5.0, 1000, [])]
    found = fleetlab.audit(trace(rows, [(0, "a"), (1, "a"), (2, "b")]))
    assert broken(found) == [("more milli-GPU than the node has", "a", 4.0, 10.0, [0, 1])]


def test_a_gpu_type_that_holds_too_much_is_found_without_placements():
    rows = [(0.0, 0.0, 10.0, 2000, ["T4"]), (0.0, 4.0, 12.0, 1000, ["T4"]), (0.0, 0.0, 5.0, 1000, [])]
    assert broken(fleetlab.audit(trace(rows))) == [("more milli-GPU than the cluster has", "T4", 4.0, 10.0, [0, 1])]


def test_jobs_that_may_take_one_of_two_types_count_against_both_together():
    both = ["T4", "V100"]
    rows = [(0.0, 0.0, 9.0, 2000, ["T4"]), (0.0, 0.0, 9.0, 2000, both), (0.0, 1.0, 9.0, 1000, both)]
    found = broken(fleetlab.audit(trace(rows)))
    assert ("more milli-GPU than the cluster has", "T4|V100", 1.0, 9.0, [0, 1, 2]) in found
    assert not any(where == "T4" for _, where, *_ in found)


def test_a_node_of_the_wrong_type_and_a_node_that_is_none_are_found():
    rows = [(0.0, 0.0, 5.0, 1000, ["T4"]), (0.0, 0.0, 5.0, 1000, [])]
    assert broken(fleetlab.audit(trace(rows, [(0, "b"), (1, "c")]))) == [
        ("node of another GPU type", "b", 0.0, 5.0, [0]), ("no such node", "c", 0.0, 5.0, [1]),
    ]  # fmt: skip


def test_a_start_before_the_submission_is_found():
    rows = [(0.0, 0.0, 5.0, 1000, []), (3.0, 1.0, 5.0, 1000, [])]
    assert broken(fleetlab.audit(trace(rows))) == [("start before submit", None, 1.0, 3.0, [1])]


def test_a_type_that_the_cluster_lacks_is_found():
    found = fleetlab.audit(trace([(0.0, 0.0, 5.0, 1000, ["H100"])]))
    assert ("no node of its GPU types", "H100", 0.0, None, [0]) in broken(found)


def test_a_job_without_an_end_speaks_neither_for_nor_against():
    rows = [(0.0, 0.0, None, 2000, ["T4"]), (0.0, 1.0, 5.0, 2000, ["T4"])]
    found = fleetlab.audit(trace(rows, [(0, "a"), (1, "a")]))
    assert found.feasible
    assert found.checks.filter(pl.col("remark").str.contains("1 job without a start or an end")).height > 0


def test_of_what_a_cluster_has_nothing_nothing_can_be_held():
    bare = Cluster.of(pl.DataFrame({"node": ["a"], "cpu_milli": [8000]}), source="no GPUs")
    found = fleetlab.audit(trace([(0.0, 0.0, 5.0, 1000, [])], [(0, "a")], cluster=bare))
    assert "no node has any" in found.checks["remark"].to_list()
    assert broken(found) == [
        ("more milli-GPU than the node has", "a", 0.0, 5.0, [0]),
        ("more milli-GPU than the cluster has", "all", 0.0, 5.0, [0]),
    ]


def test_without_a_cluster_it_says_what_it_could_not_look_at():
    found = fleetlab.audit(trace([(0.0, 0.0, 5.0, 1000, [])], cluster=None))
    assert found.checks.filter(pl.col("remark").str.contains("has no cluster")).height == 1
    assert found.waits.is_empty()
    assert "no cluster" in found.notes[0]


@pytest.mark.parametrize("rows", [[], [(0.0, None, None, 1000, [])], [(0.0, 0.0, 5.0, 9000, [])]])
def test_a_log_of_nothing_or_of_what_cannot_run_is_no_mistake(rows):
    assert fleetlab.audit(trace(rows)).waits.is_empty()


def test_a_simulated_schedule_is_feasible_and_comes_out_again():
    made = fleetlab.synthesize("pai2020", jobs=3000, seed=5)
    few = Cluster.of(made.cluster.frame[::8], source="an eighth")
    found = fleetlab.audit(as_trace(fleetlab.simulate(made.workload, few, warm_up="none")))
    assert found.feasible
    assert found.waits["wait change"].to_list() == [0.0] * found.waits.height
    assert found.waits["recorded wait"].max() > 0


def test_a_simulated_schedule_does_not_fit_a_smaller_cluster():
    made = fleetlab.synthesize("pai2020", jobs=3000, seed=5)
    run = as_trace(fleetlab.simulate(made.workload, made.cluster))
    less = made.cluster.frame.with_columns(gpus=pl.col("gpus") // 2)
    smaller = Trace(run.workload, run.provenance, cluster=Cluster.of(less, source="half"), placements=run.placements)
    found = fleetlab.audit(smaller)
    assert not found.feasible
    assert found.violations["jobs"].list.len().min() > 0


def test_what_a_difference_of_waits_is_stands_beside_its_interval():
    made = fleetlab.synthesize("pai2020", jobs=4000, seed=1)
    row = fleetlab.audit(made).waits.row(0, named=True)
    assert row["wait change"] == pytest.approx(row["simulated wait"] - row["recorded wait"])
    assert row["wait change low"] < row["wait change"] < row["wait change high"]


def test_the_command_prints_checks_violations_and_waits(tmp_path, command):
    rows = [(0.0, 0.0, 10.0, 2000, ["T4"]), (0.0, 4.0, 12.0, 1000, ["T4"])]
    trace(rows, [(0, "a"), (1, "a")]).save(tmp_path / "t")
    found = json.loads(command("audit", tmp_path / "t", "--json").stdout)
    assert {"checks", "violations", "waits"} <= set(found["tables"])
    assert found["summary"][0]["value"] == 2
    assert found["tables"]["violations"][0]["jobs"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "error"), [(["nowhere"], "no saved trace"), (["builtin:50", "--order", "fivo"], "fifo")]
)
def test_a_mistake_is_an_error_and_a_hint(words, error, command):
    done = command("audit", *words)
    assert done.returncode == 2
    assert error in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.data
def test_the_pods_of_openb_fit_their_cluster(data):
    pods = fleetlab.read(data / "alibaba-openb-v2023" / "openb_pod_list_default.csv", "openb2023")
    found = fleetlab.audit(pods)
    assert found.feasible
    assert found.waits.row(0, named=True)["simulated wait"] == 0.0


def test_a_site_that_ranks_by_fair_share_without_a_tree_of_accounts_says_so_at_the_number():
    trace = fleetlab.Scenario.of("sample").trace
    weights = Weights(fair_share=1000.0)
    site = replace(trace.scheduler, queues=QueueTree(), priority=Priority(multifactor=True, weights=weights))
    agreement = pl.DataFrame({"of": ["all"], "correlation": [0.9]})
    said = _of_accounts(fleetlab.Scenario.of(replace(trace, scheduler=site)), agreement)
    assert said[0] == "Job by job, recorded and simulated waits have a correlation of 0.90."
    assert "no tree of accounts" in said[1]
    named = replace(site, queues=trace.scheduler.queues)
    assert len(_of_accounts(fleetlab.Scenario.of(replace(trace, scheduler=named)), agreement)) == 1


def test_waits_agree_by_partition_and_account_where_there_are_enough_jobs():
    where = {"partitions": [["a"]] * 40 + [["b"]] * 40, "queue": ["x"] * 70 + ["y"] * 10}
    jobs = pl.DataFrame({"submit": [0.0] * 80, **where})
    scenario = fleetlab.Scenario.of(fleetlab.Workload.of(jobs, source="made"), fleetlab.Cluster.uniform(1, 4))
    both = pl.DataFrame({"job": range(80)}).with_columns(recorded=pl.col("job") * 1.0, simulated=pl.col("job") * 2.0)
    rows = {row["of"]: row for row in _agreement(both, scenario).iter_rows(named=True)}
    assert set(rows) == {"all", "partition a", "partition b", "account x"}
    assert rows["all"]["ratio"] == pytest.approx(2.0)
    assert rows["all"]["correlation"] == pytest.approx(1.0)
