"""Calibration: on logs whose truth is known it finds it, and on others it says what they cannot tell."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Scenario, Trace, Workload, WorkloadError, cli
from fleetlab.core.queues import Limits, Qos
from fleetlab.core.steps import Steps
from fleetlab.schedulers.slurm.config import MainLoop, Partition, Slurm
from fleetlab.studies.calibrate.hidden import hidden_load
from fleetlab.studies.calibrate.likelihood import Choices, simulated_starts
from fleetlab.studies.calibrate.recorded import RecordedJobs, WaitErrors

from .calibration_worlds import POLICIES, named, nodes, random_jobs, recorded, world

EIGHT = nodes(8)


def spelled(policy):
    return "/".join(policy.values())


def run_command(words):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert not end.value.code


def held_out(found):
    """The recorded and the calibrated mean wait of the jobs that nothing was fitted on."""
    row = found.tables()["waits"].row(0, named=True)
    assert (row["part"], row["statistic"]) == ("held out", "mean")
    return row["recorded wait"], row["calibrated wait"]


def log_of(seed, *, cluster=EIGHT, jobs=400, load=0.9, gangs=True, **words):
    return recorded(random_jobs(seed, jobs, gpus=cluster.gpus, load=load, gangs=gangs), cluster, **words)


@pytest.fixture(scope="module")
def slow_start():
    """A log in which every job takes 45 s to start."""
    return log_of(3, order="sjf", backfill="easy", latency=45)


@pytest.fixture(scope="module")
def found(slow_start):
    return fleetlab.calibrate(slow_start, EIGHT)


# -- what is identified ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [POLICIES[k] for k in (11, 64)], ids=spelled)
def test_the_policy_that_made_a_log_is_named(policy):
    assert spelled(policy) in named(fleetlab.calibrate(*world(POLICIES.index(policy), **policy)))


@pytest.mark.validate
def test_the_policy_that_made_a_log_is_named_in_nine_of_ten_random_worlds():
    chosen = np.random.default_rng(0).permutation(len(POLICIES))[:50]
    right = [spelled(POLICIES[k]) in named(fleetlab.calibrate(*world(seed, **POLICIES[k])))
             for seed, k in enumerate(chosen)]  # fmt: skip
    assert np.mean(right) >= 0.9


def test_a_planted_latency_is_found(found):
    assert found.scenario.latency == pytest.approx(45, abs=0.1)
    assert named(found)[0] == "sjf/easy/best_fit"
    truth, calibrated = held_out(found)
    assert calibrated == pytest.approx(truth, rel=0.1)


@pytest.mark.validate
@pytest.mark.parametrize(
    "policy",
    [
        {"order": "sjf", "backfill": "easy", "placement": "best_fit"},
        {"order": "fair", "backfill": "greedy", "placement": "worst_fit"},
        {"order": "fifo", "backfill": "easy", "placement": "worst_fit"},
    ],
    ids=spelled,
)
def test_a_planted_law_of_latency_gives_the_mean_wait_back(policy):
    law = {"1 GPU": [20, 25, 30, 60], "2 GPUs or more": [60, 80, 100, 200], "other": [30, 40]}
    log = log_of(6, jobs=2000, load=0.8, latency=law, **policy)
    found = fleetlab.calibrate(log, EIGHT)
    # One run differs from the next by what each job happens to draw: the truth is the mean of several.
    truth = np.mean([held_out_wait(Scenario.of(log, EIGHT, latency=law, seed=k, **policy)) for k in range(8)])
    assert np.mean([held_out_wait(found.scenario.replace(seed=k)) for k in range(8)]) == pytest.approx(truth, rel=0.1)


def held_out_wait(scenario):
    jobs = fleetlab.simulate(scenario).jobs
    return jobs.filter(pl.col("job") >= 0.6 * len(scenario.workload))["wait"].mean()


def test_planted_hidden_nodes_are_found():
    found = fleetlab.calibrate(log_of(11, cluster=nodes(5), order="smallest", jobs=300), EIGHT)
    assert found.scenario.nodes == "V100 -3"
    truth, calibrated = held_out(found)
    assert calibrated == pytest.approx(truth, rel=0.1)


def test_the_order_shows_in_whom_the_scheduler_took_without_a_simulation():
    workload = log_of(11, cluster=nodes(5), order="sjf", jobs=800, load=1.1)
    log, runtime = RecordedJobs(workload, np.ones(800, dtype=bool)), workload.frame["runtime"].to_numpy()
    choices = Choices(log, EIGHT, 800, np.zeros(800), {"oracle": runtime})
    found, contested = choices.log_likelihoods(log.compared)
    assert contested > 50
    assert max(found, key=lambda ranking: found[ranking].sum()) == ("sjf", "oracle")


@pytest.mark.parametrize(
    "quota", [pytest.param(14, marks=pytest.mark.validate), {"u0": 12}], ids=["of all users", "of one user"]
)
def test_a_planted_quota_is_found(quota):
    found = fleetlab.calibrate(log_of(300, load=0.6, gangs=False, quota=quota, jobs=300), EIGHT)
    assert found.scenario.policy.quota == quota
    truth, calibrated = held_out(found)
    assert calibrated == pytest.approx(truth, rel=0.1)


def test_nodes_that_no_job_ever_had_are_found_by_the_recorded_nodes():
    two = Cluster.of(pl.concat([nodes(4).frame, _other(3)]), source="two types")
    log = log_of(7, cluster=nodes(4), jobs=250)
    run = fleetlab.simulate(log, nodes(4))
    places = run.placements.select("job", worker=pl.col("instance").cast(pl.UInt64), node=pl.col("node"))
    places = places.with_columns(status=pl.lit("completed"), start=pl.lit(0.0), end=pl.lit(0.0)).lazy()
    trace = Trace(log, Provenance("test", "two types"), two, placements=places)
    found = fleetlab.calibrate(trace)
    assert found.scenario.nodes == "A100 -3"
    assert dict(found.tables()["nodes"].select("GPU type", "nodes in use").iter_rows()) == {"V100": 4, "A100": 0}


def _other(count):
    return pl.DataFrame({"node": [f"a{k}" for k in range(count)], "gpu_type": "A100"}).with_columns(
        nodes(count).frame.drop("node", "gpu_type")
    ).select(nodes(1).frame.columns)  # fmt: skip


def at_a_site(planted, configured, **words):
    """Return a log that one Slurm scheduled, and whose trace says that it was another."""
    cluster = Cluster.of(nodes(4).frame.with_columns(partitions=pl.lit(["gpu"])), source="four nodes")
    jobs = random_jobs(5, 400, gpus=32, load=0.7, gangs=False)
    jobs = jobs.with_columns(
        pl.col("gpu_milli").clip(1000), limit=pl.col("runtime") * 2 + 60, partitions=pl.lit(["gpu"])
    )
    log = recorded(jobs, cluster, scheduler=planted, **words)
    return Trace(log, Provenance("test", "a site"), cluster, scheduler=configured)


SITE = Slurm(partitions=(Partition("gpu", default=True),), main=MainLoop(delay=0.0))


def test_a_limit_that_a_log_implies_is_fitted_to_the_sites_scheduler():
    few = Qos("few", per_user=Limits(resources={"gpu": 6}))
    planted = replace(SITE, partitions=(Partition("gpu", default=True, qos="few"),), qos=(few,))
    found = fleetlab.calibrate(at_a_site(planted, SITE))
    assert found.scenario.scheduler.qos[0].per_user.resources == {"gpu": 6.0}
    truth, calibrated = held_out(found)
    assert calibrated == pytest.approx(truth, rel=0.1)


def test_a_latency_is_fitted_beside_the_loops_of_the_sites_scheduler():
    found = fleetlab.calibrate(at_a_site(SITE, SITE, latency=45))
    assert np.mean(found.scenario.latency["other"]) == pytest.approx(45, abs=1)
    assert found.scenario.scheduler == SITE


def test_a_site_that_is_configured_right_stays_as_it_is():
    found = fleetlab.calibrate(at_a_site(SITE, SITE))
    assert found.scenario.scheduler == SITE
    assert dict(found.tables()["candidates"].select("candidate", "used").iter_rows())["as configured"]
    assert "policies" not in found.tables()


def test_a_policy_that_is_given_is_kept_where_nothing_is_closer(slow_start):
    found = fleetlab.calibrate(slow_start, EIGHT, order="sjf", backfill="easy")
    assert found.scenario.latency == pytest.approx(45, abs=0.1)
    assert found.scenario.policy == Scenario.of(slow_start, EIGHT, order="sjf", backfill="easy").policy


def test_estimates_by_columns_that_a_log_lacks_are_not_tried(found):
    assert not [name for name in found.tables()["policies"]["policy"] if "estimate group" in name]


def test_an_estimate_by_a_column_that_the_log_lacks_says_so(slow_start):
    found = fleetlab.calibrate(slow_start, EIGHT, order="sjf", backfill="easy", estimate="group")
    assert any(note.startswith("estimate=group: no job of the log has a group") for note in found.notes)


def test_load_that_the_log_does_not_show_is_seen_while_small_jobs_wait():
    jobs = random_jobs(5, 800, gpus=96, load=1.2, gangs=False).with_columns(gpu_milli=1000, cpu_milli=0, memory_mib=0)
    frame = recorded(jobs, nodes(4)).frame.filter(pl.col("user") != "u0").drop("job")
    frame = frame.with_columns(pl.col("submit", "start", "end") - frame["submit"][0])
    workload = Workload.of(frame, source="without one user")
    log, none = RecordedJobs(workload, np.ones(len(workload), dtype=bool)), np.zeros(len(workload))
    simulated = log.with_starts(simulated_starts(Scenario.of(workload, nodes(4))))
    found = hidden_load(log, simulated, none, 32, float(log.submit[-1]))
    of_hidden = 1 - (log.milli * log.runtime).sum() / (1000 * jobs["runtime"].sum())
    assert found.more.low > 0
    assert found.recorded.value == pytest.approx(of_hidden, abs=0.15)


# -- what is compared --------------------------------------------------------------------------------------------------


def test_the_gap_is_that_of_the_same_jobs_before_and_after(slow_start, found):
    waits = found.tables()["waits"].filter(pl.col("part") == "held out")
    starts = simulated_starts(Scenario.of(slow_start, EIGHT))
    frame = slow_start.frame.with_columns(simulated=pl.Series(starts))[int(0.8 * len(slow_start)) :].drop_nulls("start")
    mean = waits.row(0, named=True)
    assert mean["recorded wait"] == pytest.approx((frame["start"] - frame["submit"]).mean())
    assert mean["simulated wait"] == pytest.approx((frame["simulated"] - frame["submit"]).mean())
    assert mean["simulated wait error"] == pytest.approx(mean["simulated wait"] - mean["recorded wait"])
    assert waits["statistic"].to_list() == ["mean", "median", "P90", "P99"]
    for by in ("by GPU type", "by GPUs per instance", "by user", "by hour of the day"):
        assert found.tables()[by]["jobs"].sum() == mean["jobs"]


def test_the_first_line_says_of_which_jobs_it_speaks(found, slow_start):
    jobs, started = len(slow_start), len(slow_start) - slow_start.frame["start"].null_count()
    assert found.findings[0].startswith(f"{started:,} of {jobs:,} jobs are compared, ")
    assert found.findings[0].endswith(f" of the GPU-hours ({jobs - started} without a start).")
    assert "recorded" in found.findings[1]


def test_every_policy_has_its_log_likelihood_beside_the_best(found):
    table = found.tables()["policies"]
    assert table["log-likelihood"].is_sorted(descending=True)
    assert table["verdict"][0] == "best"
    assert {"fifo/greedy/best_fit", "sjf/none/best_fit", "largest/conservative/best_fit"} <= set(table["policy"])
    total = table["of starts"] + table["of choices"]
    assert (total - table["log-likelihood"]).abs().max() < 1e-6


def test_policies_that_start_every_job_at_the_same_time_are_named_together():
    found = fleetlab.calibrate(*world(1, order="fifo"))
    assert {"fifo/greedy/best_fit", "las/greedy/best_fit"} <= set(named(found))
    assert any("every job starts at the same time under" in sentence for sentence in found.findings)


# -- what a log cannot tell --------------------------------------------------------------------------------------------


def without(workload, **columns):
    return Workload.of(workload.frame.drop("job").with_columns(**columns), source="cut")


@pytest.mark.parametrize(
    ("columns", "cluster", "why"),
    [
        ({"start": pl.lit(None), "end": pl.lit(None)}, EIGHT, "the log has no start times"),
        ({"start": pl.col("submit"), "end": pl.lit(None)}, EIGHT, "every recorded start is the submission"),
        ({}, None, "the log has no cluster"),
    ],
    ids=["no starts", "no waits", "no cluster"],
)
def test_a_log_that_cannot_calibrate_says_why(slow_start, columns, cluster, why):
    found = fleetlab.calibrate(without(slow_start, **columns), cluster)
    assert found.scenario is None
    assert why in found.findings[1]
    assert set(found.tables()["what this log can tell"]["can this log tell"]) == {"no"}
    with pytest.raises(WorkloadError, match="no calibrated scenario"):
        found.save("calibrated.toml")


def test_an_empty_cluster_cannot_tell_the_policy_but_the_latency():
    log = log_of(13, load=0.1, latency=20, jobs=300, gangs=False)
    found = fleetlab.calibrate(log, nodes(40))
    told = dict(found.tables()["what this log can tell"].select("question", "can this log tell").iter_rows())
    assert (told["start-up latency"], told["queue order and backfill"]) == ("yes", "no")
    assert found.scenario.policy == Scenario.of(log).policy
    assert found.scenario.latency == pytest.approx(20, abs=0.1)
    assert "no job has to wait" in found.findings[-1]


@pytest.mark.parametrize(
    ("words", "what"),
    [({"load": 1.2}, "leave `load` out"), ({"until": 9.0}, "leave `until` out"), ({"fit": 1.5}, "between 0 and 1")],
)
def test_what_makes_no_sense_is_refused(slow_start, words, what):
    with pytest.raises(WorkloadError, match=what):
        fleetlab.calibrate(slow_start, EIGHT, **words)


# -- what becomes of it ------------------------------------------------------------------------------------------------


def test_the_calibrated_scenario_is_the_baseline_of_other_commands(slow_start, tmp_path, monkeypatch, capsys):
    trace = Trace(slow_start, Provenance("test", "slow start"), EIGHT)
    trace.save(tmp_path / "log")
    (tmp_path / "later").mkdir()
    monkeypatch.chdir(tmp_path)
    run_command(["calibrate", "log", "--fit", "0.5", "--out", "later/calibrated.toml"])
    printed = capsys.readouterr()
    assert "sjf/easy/best_fit explains the recorded starts best" in printed.out
    assert "saved in later/calibrated.toml" in printed.err
    scenario = Scenario.of("later/calibrated.toml")
    assert (scenario.latency, scenario.policy.title) == (45, "sjf/easy")
    assert fleetlab.simulate(scenario).summary()[0].value == pytest.approx(
        (slow_start.frame["start"] - slow_start.frame["submit"]).mean()
    )
    run_command(["compare", "later/calibrated.toml", "--policies", "sjf/easy,fifo"])
    assert "sjf/easy" in capsys.readouterr().out


def test_a_calibration_is_the_same_every_time(slow_start, found):
    again = fleetlab.calibrate(slow_start, EIGHT)
    assert again.findings == found.findings
    assert again.scenario == found.scenario


def test_levels_add_up_what_is_there_at_once():
    steps = Steps.of(np.array([0.0, 1.0, 1.0]), np.array([2.0, math.inf, 1.5]), np.array([1.0, 2.0, 4.0]))
    assert steps.at(np.array([-1.0, 0.0, 1.0, 1.5, 2.0, 9.0])).tolist() == [0, 1, 7, 3, 2, 2]
    assert steps.peak == 7


# -- real logs ---------------------------------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "format", "why"),
    [
        ("alibaba-dlrm-v2025", "dlrm2025", "the log has no cluster"),
        ("alibaba-pai-v2020/instance_table_tail/pai_instance_table.tail27587.full.csv.gz", "pai2020",
         "every recorded start is the submission"),
    ],
)  # fmt: skip
def test_a_real_log_says_what_it_cannot_tell(data, path, format, why):
    assert why in fleetlab.calibrate(fleetlab.read(data / path, format)).findings[1]


@pytest.mark.data
def test_the_pods_of_openb_tell_a_latency_and_no_policy(data):
    found = fleetlab.calibrate(fleetlab.read(data / "alibaba-openb-v2023", "openb2023"))
    told = dict(found.tables()["what this log can tell"].select("question", "can this log tell").iter_rows())
    assert told["start-up latency"] == "yes"
    assert told["queue order and backfill"] == told["nodes that nobody may use"] == "no"
    assert "at most 66 of 6,212 GPUs are ever wanted at once" in found.findings[-1]


@pytest.mark.data
@pytest.mark.validate
def test_nodes_of_another_partition_are_not_taken_for_hidden_ones(data):
    """Two nodes had no job: the log says that they are in a partition that no job of it asked for."""
    found = fleetlab.calibrate(fleetlab.read(data / "slurm-22.05" / "defaults", "slurm"))
    spare = dict(found.tables()["nodes"].select("GPU type", "nodes to spare").iter_rows())
    assert spare == {"a100": 0, "v100": 2}
    assert found.scenario.nodes == ""
    truth, calibrated = held_out(found)
    assert calibrated == pytest.approx(truth, rel=0.1)


SITES = ("plain1", "defaults", "parts", "deps", "site-B1", "site-B2", "site-Buser")


@pytest.mark.data
@pytest.mark.parametrize("name", SITES)
def test_no_log_of_a_real_slurm_is_simulated_worse_after_calibration(data, name):
    trace = fleetlab.read(data / "slurm-22.05" / name, "slurm")
    found = fleetlab.calibrate(trace)
    assert found.scenario.scheduler.name == trace.scheduler.name
    row = found.tables()["waits"].row(0, named=True)
    assert abs(row["calibrated wait error"]) <= abs(row["simulated wait error"]) + 0.02 * row["recorded wait"]


def test_waits_are_compared_by_partition_where_the_log_tells_them():
    frame = pl.DataFrame({"submit": np.arange(40.0), "start": np.arange(40.0) + 3.0, "runtime": np.ones(40),
                          "gpu_milli": np.full(40, 1000)})  # fmt: skip
    log = RecordedJobs(Workload.of(frame, source="forty"), np.ones(40, dtype=bool))
    starts = dict.fromkeys(("simulated", "calibrated"), np.arange(40.0) + 5.0)
    gaps = WaitErrors.of(log, np.ones(40, dtype=bool), starts)
    table = gaps.by_class(pl.Series("partition", ["big", "small"] * 20))["by partition"]
    assert table.select("partition", "jobs", "recorded mean wait", "simulated mean wait error").rows() == [
        ("big", 20, 3.0, 2.0), ("small", 20, 3.0, 2.0)
    ]  # fmt: skip
