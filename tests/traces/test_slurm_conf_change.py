"""Lines of a new configuration over a site's own: what they change, and what stays."""

from dataclasses import replace

import polars as pl
import pytest

from fleetlab import Cluster, TraceError
from fleetlab.core.queues import Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm, Weights
from fleetlab.schedulers.slurm.reader.conf_change import change_conf

NODES = pl.DataFrame(
    {
        "node": ["n1", "n2", "n3"],
        "gpu_type": ["a100"] * 3,
        "gpus": [8] * 3,
        "cpu_milli": [64_000] * 3,
        "memory_mib": [512_000] * 3,
        "partitions": [["short", "long"], ["long"], ["long"]],
    }
)
CLUSTER = Cluster.of(NODES, source="hand")
SITE = Slurm(
    partitions=(Partition("short", default=True, max_time=3600.0, tier=2), Partition("long", max_time=86_400.0)),
    qos=(
        Qos("normal", per_user=Limits(resources={"gpu": 8.0, "cpu": 64.0})),
        Qos("high", priority=100, limits=Limits(jobs=4)),
    ),
    queues=QueueTree(
        [
            Queue("root"),
            Queue("vision", "root", shares=60.0, usage=1e6),
            Queue("vision/ann", "vision", user="ann", usage=2e5),
        ]
    ),
    priority=Priority(multifactor=True, weights=Weights(age=1000.0, fair_share=5000.0), half_life=86_400.0),
    main=MainLoop(delay=0.0),
    backfill=BackfillLoop(interval=60.0, resolution=300.0, goes_on=True),
    enforce=("associations", "limits", "qos"),
    parameters=("assoc_limit_stop",),
    prolog=3.0,
    version="22.05.8",
)


def change(*lines, site=SITE):
    return change_conf(site, CLUSTER, "\n".join((*lines, "")))


def changed(*lines):
    return [(s.name, s.was, s.becomes) for s in change(*lines).settings]


def test_a_line_takes_the_place_of_the_sites_own_and_the_rest_stays():
    made = change("PriorityWeightAge=0").scheduler
    weights = replace(SITE.priority.weights, age=0.0)
    assert made == replace(SITE, priority=replace(SITE.priority, weights=weights))


def test_scheduler_parameters_are_one_line_whose_entries_are_the_defaults_where_it_does_not_name_them():
    made = change("SchedulerParameters=bf_interval=120").scheduler
    assert made.backfill == BackfillLoop(interval=120)
    assert made.main == MainLoop()
    assert made.parameters == ()


def test_an_entry_of_the_scheduler_parameters_alone_changes_only_itself():
    made = change("bf_interval=120", "bf_continue=no", "bf_busy_nodes=yes").scheduler
    assert made == replace(SITE, backfill=replace(SITE.backfill, interval=120, goes_on=False, busy_nodes=True))


def test_what_changes_is_listed_line_by_line():
    assert changed("SchedulerParameters=bf_interval=120,bf_resolution=300,assoc_limit_stop", "PriorityWeightQOS=7") == [
        ("PriorityWeightQOS", "0", "7"),
        ("batch_sched_delay", "0", "3"),
        ("bf_interval", "60", "120"),
        ("bf_continue", "yes", "no"),
    ]
    assert changed(
        "PartitionName=short MaxTime=120 PriorityTier=1", "QOS=high GrpJobs=8", "Account=vision Shares=1"
    ) == [
        ("PartitionName=short MaxTime", "0-01:00:00", "0-02:00:00"),
        ("PartitionName=short PriorityTier", "2", "1"),
        ("QOS=high GrpJobs", "4", "8"),
        ("Account=vision Shares", "60", "1"),
    ]


def test_weights_that_had_no_effect_count_when_they_are_switched_on():
    basic = replace(SITE, priority=replace(SITE.priority, multifactor=False))
    assert change("PriorityType=priority/multifactor", site=basic).scheduler == SITE


def test_partitions_that_are_not_named_stay_and_a_partition_can_be_made():
    made = change("PartitionName=night Nodes=n[2-3] PriorityTier=9 MaxTime=UNLIMITED")
    assert made.scheduler.partitions == (*SITE.partitions, Partition("night", tier=9))
    assert made.cluster.frame["partitions"].to_list() == [["short", "long"], ["long", "night"], ["long", "night"]]


def test_a_partition_gets_other_nodes():
    made = change("PartitionName=short Nodes=n[1-2]").cluster
    assert made.frame["partitions"].to_list() == [["short", "long"], ["short", "long"], ["long"]]
    assert change("PartitionName=short Nodes=ALL").cluster.frame["partitions"][2].to_list() == ["short", "long"]
    assert change("PartitionName=short MaxTime=5").cluster is None


def test_a_partition_that_does_not_preempt_in_a_cluster_that_does():
    preempting = replace(SITE, preempt="partition", preempt_mode="requeue")
    made = change("PartitionName=long PreemptMode=OFF", site=preempting).scheduler
    assert [p.preempt_mode for p in made.partitions] == [None, "off"]


def test_a_limit_of_a_qos_is_that_of_the_resources_it_names():
    (normal, high) = change("QOS=normal MaxTRESPerUser=gres/gpu=4").scheduler.qos
    assert normal.per_user.resources == {"gpu": 4.0, "cpu": 64.0}
    assert high == SITE.qos[1]
    assert change("QOS=normal MaxTRESPU=gres/gpu=-1").scheduler.qos[0].per_user.resources == {"cpu": 64.0}
    assert change("QOS=high GrpJobs=-1").scheduler.qos[1].limits == Limits()


def test_shares_and_limits_of_accounts_change_and_their_usage_stays():
    queues = change(
        "Account=vision Fairshare=10 GrpTRES=gres/gpu=16", "Account=vision User=ann MaxJobs=2"
    ).scheduler.queues
    assert queues["vision"] == replace(SITE.queues["vision"], shares=10.0, limits=Limits(resources={"gpu": 16.0}))
    assert queues["vision/ann"] == replace(SITE.queues["vision/ann"], per_user=Limits(jobs=2))


def test_a_file_is_read_with_what_it_includes_and_what_it_says_beside_is_noted(tmp_path):
    (tmp_path / "weights.conf").write_text("PriorityWeightAge=5\n")
    (tmp_path / "new.conf").write_text(
        "ClusterName=lab\ninclude weights.conf\nNodeName=n[1-3] Gres=gpu:8\nSlurmctldPort=6817\nbf_window=60 # min\n"
    )
    made = change_conf(SITE, CLUSTER, tmp_path / "new.conf")
    assert [(s.name, s.was, s.becomes) for s in made.settings] == [
        ("PriorityWeightAge", "1000", "5"),
        ("bf_window", "1440", "60"),
    ]
    assert made.name == "new.conf"
    assert made.notes == (
        "lines of nodes are passed over: they stay those of the trace",
        "settings that change nothing here: clustername, slurmctldport",
    )


def test_a_name_of_a_file_that_may_be_misspelled_is_noted_with_the_one_that_may_be_meant(tmp_path):
    (tmp_path / "new.conf").write_text("SchedulerParametres=x\nSchedulerParameters=bf_intervall=5\n")
    (said,) = change_conf(SITE, CLUSTER, tmp_path / "new.conf").notes
    assert said.endswith("bf_intervall (bf_interval?), schedulerparametres (SchedulerParameters?)")


@pytest.mark.parametrize(("line", "message"), [
    ("PartitionName=nosuch MaxTime=4", "no partition by that name: `nosuch`"), ("", "an empty name"), (" ", "an empty"),
])  # fmt: skip
def test_a_partition_that_is_not_there_and_an_empty_name_are_refused(line, message):
    with pytest.raises(TraceError, match=message):
        change(line)


def test_what_the_site_has_already_changes_nothing():
    made = change("PriorityWeightAge=1000", "PartitionName=short MaxTime=01:00:00", "QOS=high Priority=100")
    assert made.settings == ()
    assert made.scheduler == SITE


@pytest.mark.parametrize(
    ("line", "error", "hint"),
    [
        ("bf_interval=often", "not a value of bf_interval: `often`", "whole number"),
        ("SchedulerParameters=bf_window=1.5", "not a value of bf_window: `1.5`", "whole number"),
        ("PriorityWeightAge=-3", "PriorityWeightAge", "a number, not below 0"),
        ("PriorityMaxAge=week", "PriorityMaxAge", "a time"),
        ("PreemptType=preempt/all", "PreemptType", "preempt/qos"),
        ("PartitionName=short State=CLOSED", "State", "DRAIN"),
        ("QOS=normal MaxTRESPU=8", "MaxTRESPU", "gres/gpu=8"),
        ("QOS=hihg GrpJobs=1", "no QOS by that name: `hihg`; did you mean high?", "normal, high"),
        ("Account=visoin Shares=1", "did you mean vision?", "vision"),
        ("bf_intervall=3", "no setting by that name: `bf_intervall`; did you mean bf_interval?", "bf_window"),
        ("=", "not a line of slurm.conf", "bf_interval=60"),
    ],
)
def test_a_mistake_is_an_error_with_a_hint(line, error, hint):
    with pytest.raises(TraceError) as raised:
        change(line)
    assert error in str(raised.value)
    assert hint in str(raised.value.hint)


def test_a_file_that_is_not_there_or_says_nothing(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        change_conf(SITE, CLUSTER, tmp_path / "none.conf")
    (tmp_path / "empty.conf").write_text("# nothing\n")
    with pytest.raises(TraceError, match=r"no line of slurm\.conf"):
        change_conf(SITE, CLUSTER, tmp_path / "empty.conf")


@pytest.mark.parametrize(("word", "which"), [("NO", "no"), ("YES", "all"), ("ANY", "any")])
def test_limits_of_partitions_are_enforced_for_none_any_or_all_of_them(word, which):
    assert change(f"EnforcePartLimits={word}").scheduler.enforce_partitions == which
