"""Configurations of one site compared on its own jobs, and a search among its settings."""

import json
from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Trace, TraceError, Workload, WorkloadError
from fleetlab.core.queues import Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm, Weights
from fleetlab.studies.compare.configurations import who
from fleetlab.studies.tune.site_settings import values_of

SITE = Slurm(
    partitions=(Partition("gpu", default=True),),
    qos=(Qos("normal"), Qos("high", priority=100)),
    queues=QueueTree([Queue("root"), Queue("lang", "root"), Queue("vision", "root", shares=3.0)]),
    priority=Priority(multifactor=True, weights=Weights(age=10.0)),
    main=MainLoop(delay=0.0),
    backfill=BackfillLoop(interval=1.0, resolution=1.0),
    enforce=("associations", "limits", "qos"),
)


def site(jobs):
    """A node of two GPUs, on which every third job is of QOS high, and every second one of vision."""
    frame = pl.DataFrame({"k": range(jobs)}).select(
        submit=pl.col("k") * 10.0,
        runtime=20.0 + pl.col("k") * 7 % 11,
        gpu_milli=pl.lit(1000),
        cpu_milli=pl.lit(1000),
        limit=pl.lit(60.0),
        partitions=pl.lit(["gpu"]),
        user=pl.when(pl.col("k") % 2 == 0).then(pl.lit("ann")).otherwise(pl.lit("bob")),
        queue=pl.when(pl.col("k") % 2 == 0).then(pl.lit("vision")).otherwise(pl.lit("lang")),
        qos=pl.when(pl.col("k") % 3 == 0).then(pl.lit("high")).otherwise(pl.lit("normal")),
    )
    nodes = pl.DataFrame({"node": ["n1"], "gpu_type": "a100", "gpus": 2, "cpu_milli": 8000, "partitions": [["gpu"]]})
    workload = Workload.of(frame, source="hand")
    return Trace(workload, Provenance("of", "hand"), Cluster.of(nodes, source="hand"), SITE)


@pytest.fixture(scope="module")
def trace():
    return site(450)


@pytest.fixture(scope="module")
def by_qos(trace):
    return fleetlab.compare(trace, conf=["PriorityWeightQOS=100000", "bf_interval=5"], replicas=5)


def test_the_baseline_is_the_site_as_it_is_configured(by_qos, trace):
    rows = by_qos.tables()["configurations"]
    assert rows["configuration"].to_list() == ["as configured", "PriorityWeightQOS=100000", "bf_interval=5"]
    alone = fleetlab.simulate(trace, scheduler="site").completed["wait"].mean()
    assert rows["mean wait low"][0] < alone < rows["mean wait high"][0]
    assert rows["mean wait change"][0] == 0


def test_who_gains_and_who_loses_is_told_by_qos_and_team(by_qos):
    qos = by_qos.tables()["by QOS"].filter(configuration="PriorityWeightQOS=100000")
    assert dict(qos.select("QOS", "verdict").iter_rows()) == {"high": "gains", "normal": "loses"}
    assert qos.filter(QOS="high")["mean wait change"].item() < 0
    low, value, high = qos.filter(QOS="normal").select(
        "mean wait change low", "mean wait change", "mean wait change high"
    ).row(0)  # fmt: skip
    assert 0 < low < value < high
    assert qos["jobs"].to_list() == [300, 150]
    assert set(by_qos.tables()["by team"]["team"]) == {"lang", "vision"}
    assert "by partition" not in by_qos.tables()  # there is one


def test_the_differences_of_the_parts_add_up_to_that_of_all(by_qos):
    for table in ("by QOS", "by team"):
        rows = by_qos.tables()[table].filter(configuration="PriorityWeightQOS=100000")
        total = (rows["mean wait change"] * rows["jobs"]).sum() / rows["jobs"].sum()
        assert total == pytest.approx(by_qos.tables()["configurations"]["mean wait change"][1])


def test_the_first_sentence_is_the_difference_and_the_lines_that_change_are_listed(by_qos):
    first = by_qos.records[0]
    assert (first.subject, first.verdict) == ("PriorityWeightQOS=100000", "no difference")
    assert first.population == "the 450 jobs that complete under every configuration"
    assert by_qos.tables()["changes"].rows() == [
        ("PriorityWeightQOS=100000", "PriorityWeightQOS", "0", "100000"),
        ("bf_interval=5", "bf_interval", "1", "5"),
    ]
    assert any("wait shorter: QOS high" in line for line in by_qos.findings)


def test_processes_of_their_own_give_the_same(by_qos, trace):
    again = fleetlab.compare(trace, conf=["PriorityWeightQOS=100000", "bf_interval=5"], replicas=5, workers=1)
    assert again.tables()["by QOS"].equals(by_qos.tables()["by QOS"])


def test_a_partition_with_fewer_nodes_is_another_cluster():
    small = site(40)
    nodes = pl.concat([small.cluster.frame, small.cluster.frame.with_columns(node=pl.lit("n2"))])
    both = replace(small, cluster=Cluster.of(nodes, source="hand"))
    rows = fleetlab.compare(both, conf=["PartitionName=gpu Nodes=n1"]).tables()["configurations"]
    assert rows["mean wait"][0] < 1  # whole seconds of Slurm's loops
    assert rows["mean wait"][1] > 10


def test_a_trace_that_does_not_tell_its_configuration_is_refused(trace):
    with pytest.raises(TraceError, match="does not tell how its cluster is configured"):
        fleetlab.compare(replace(trace, scheduler=None), conf=["bf_interval=5"])


def test_a_configuration_that_changes_nothing_and_policies_beside_one_are_refused(trace):
    with pytest.raises(WorkloadError, match="nothing changes how the site schedules"):
        fleetlab.compare(trace, conf=["bf_interval=1"])
    with pytest.raises(WorkloadError, match="leave `policies` out"):
        fleetlab.compare(trace, conf=["bf_interval=5"], policies=["fifo"])


def test_the_command_takes_files_and_lines(trace, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    site(40).save(tmp_path / "trace")
    (tmp_path / "new.conf").write_text("PriorityWeightQOS=100000\nSlurmUser=root\n")
    done = command("compare", "trace", "--conf", "new.conf", "--conf", "bf_interval=5", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [row["configuration"] for row in told["tables"]["configurations"]] == [
        "as configured", "new.conf", "bf_interval=5",
    ]  # fmt: skip
    assert told["provenance"]["settings"]["conf"] == ["new.conf", "bf_interval=5"]
    assert "new.conf: settings that change nothing here: slurmuser" in told["notes"]
    wrong = command("compare", "trace", "--conf", "bf_interval=x")
    assert (wrong.returncode, wrong.stderr.startswith("error: ")) == (2, True)


# -- a search --------------------------------------------------------------------------------------------------------


def test_all_combinations_are_ranked_by_the_first_half_and_judged_by_the_second(trace):
    found = fleetlab.tune_conf(trace, conf_range=["bf_interval=1,30", "PriorityWeightJobSize=0,5"], replicas=1)
    rows = found.tables()["settings"]
    assert rows.height == 4  # one of them is the site as it is configured
    assert rows["training mean wait"].is_sorted()
    runs = [fleetlab.simulate(trace, scheduler=SITE).completed["wait"]]
    own = rows.filter(bf_interval="as configured")
    assert own["training mean wait"].item() == pytest.approx(runs[0][:225].mean())
    assert own["mean wait"].item() == pytest.approx(runs[0][225:].mean())
    assert found.findings[0].startswith(("Mean wait ", "None of 3 settings"))


def test_settings_that_never_run_some_jobs_are_last():
    jobs = (
        site(40)
        .workload.frame.drop("job")
        .with_columns(gpu_milli=pl.when(pl.col("qos") == "high").then(2000).otherwise(1000))
    )
    wide = replace(site(40), workload=Workload.of(jobs, source="hand"))
    found = fleetlab.tune_conf(wide, conf_range=["QOS=high MaxTRESPerUser=gres/gpu=1,gres/gpu=2"])
    rows = found.tables()["settings"]
    assert rows["QOS=high MaxTRESPerUser"].to_list()[-1] == "gres/gpu=1"
    assert rows["jobs not run"].to_list()[-1] == 14
    assert "1 settings never run some jobs" in found.findings[1]


def test_of_more_combinations_than_trials_some_are_drawn(trace):
    found = fleetlab.tune_conf(site(40), conf_range=["bf_interval=2,3,4,5,6", "KillWait=1,2,3"], trials=3, replicas=1)
    assert found.tables()["settings"].height == 4
    assert "3 of 15 combinations, drawn at random" in found.notes


def test_values_with_commas_of_their_own_are_separated_by_bars():
    assert values_of("PriorityWeightTRES=cpu=1,gres/gpu=2|cpu=0") == [
        "PriorityWeightTRES=cpu=1,gres/gpu=2", "PriorityWeightTRES=cpu=0",
    ]  # fmt: skip


@pytest.mark.parametrize("ranges", [["bf_interval"], ["bf_interval=1"], ["bf_interval=x,y"], ["QOS=none GrpJobs=1,2"]])
def test_a_range_that_is_none_is_refused(ranges):
    with pytest.raises((WorkloadError, TraceError)):
        fleetlab.tune_conf(site(5), conf_range=ranges)


def test_the_command_writes_the_lines_of_the_best(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slow = replace(site(60), scheduler=replace(SITE, main=replace(SITE.main, depth=1), backfill=BackfillLoop(on=False)))
    slow.save(tmp_path / "trace")
    done = command(
        "tune", "trace", "--conf-range", "KillWait=10,20", "--conf-range", "batch_sched_delay=0,30", "--out", "o"
    )
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "o" / "tuned.json").read_text())
    assert saved["tables"]["settings"][0]["rank"] == 1
    assert (tmp_path / "o" / "tuned.conf").read_text().startswith("# Settings")
    wrong = command("tune", "trace", "--conf-range", "KillWait=10,20", "--held-out", "2")
    assert wrong.returncode == 2


def of_partitions(*rows):
    columns = ("partition", "jobs", "configured mean wait", "mean wait change", "verdict")
    rows = [dict(zip(columns, row, strict=True)) | {"configuration": "flat tiers"} for row in rows]
    return {"partition": pl.DataFrame(rows)}


def test_who_waits_longer_is_named_also_where_few_jobs_decide_nothing():
    """As in a real site whose tiers were made flat: batch gained, prod lost 42 s and quick 8 s of a wait of 1 s."""
    whom = of_partitions(
        ("batch", 300, 190.0, -20.0, "gains"), ("prod", 40, 90.0, 33.0, "not decided"),
        ("quick", 20, 1.1, 7.6, "not decided"), ("large", 20, 200.0, 4.0, "not decided"),
    )  # fmt: skip
    said = who("flat tiers", whom)
    assert "wait shorter: partition batch" in said
    assert "Longer on average, but not decided: partition prod (mean wait +33 s, 40 jobs), partition quick" in said
    assert "large" not in said  # 2 % of its wait
