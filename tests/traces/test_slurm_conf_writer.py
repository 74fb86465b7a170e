"""A cluster and its Slurm, written as Slurm reads them."""

import math

import polars as pl
import pytest
from realtest.lab import gres_conf

from fleetlab.core.cluster import Cluster
from fleetlab.core.queues import JobLimits, Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Priority, Slurm, Weights
from fleetlab.schedulers.slurm.reader.conf_writer import accounts, scheduler_parameters, slurm_conf

NODES = pl.DataFrame(
    {
        "node": ["a1", "a2", "c1"],
        "gpu_type": ["A100", "A100", None],
        "gpus": [8, 1, 0],
        "cpu_milli": [64_000, 8_000, 32_000],
        "memory_mib": [512_000, 64_000, 128_000],
        "partitions": [["gpu", "all"], ["gpu", "all"], ["all"]],
        "features": [["ib", "fast"], [], []],
        "weight": [1, 5, 1],
    }
)
CLUSTER = Cluster.of(NODES, source="test")


def lines(slurm, **more):
    return slurm_conf(CLUSTER, slurm, **more).splitlines()


def test_defaults_are_not_written():
    assert scheduler_parameters(Slurm()) == []
    assert lines(Slurm())[:4] == [
        "SchedulerType=sched/backfill",
        "SelectType=select/cons_tres",
        "KillWait=30",
        "PriorityType=priority/basic",
    ]


@pytest.mark.parametrize(
    ("slurm", "words"),
    [
        (Slurm(main=MainLoop(delay=0, depth=50)), ["default_queue_depth=50", "batch_sched_delay=0"]),
        (Slurm(main=MainLoop(defer=True, min_interval=0.5)), ["sched_min_interval=500000", "defer"]),
        (Slurm(backfill=BackfillLoop(interval=1, window=7200)), ["bf_interval=1", "bf_window=120"]),
        (Slurm(backfill=BackfillLoop(goes_on=True, yield_sleep=0.1)), ["bf_yield_sleep=100000", "bf_continue"]),
        (Slurm(parameters=("nohold_on_prolog_fail", "kill_invalid_depend")), ["nohold_on_prolog_fail"]),
    ],
)
def test_a_loop_is_written_in_slurms_words_and_units(slurm, words):
    assert scheduler_parameters(slurm) == words


def test_what_becomes_of_dependencies_has_a_line_of_its_own():
    assert "DependencyParameters=kill_invalid_depend" in lines(Slurm(parameters=("kill_invalid_depend",)))


def test_a_node_is_written_with_its_gpus_features_and_weight():
    written = [line for line in lines(Slurm(), node_words={"c1": "Port=7"}) if line.startswith("NodeName")]
    assert written == [
        "NodeName=a1 CPUs=64 RealMemory=512000 Gres=gpu:A100:8 Feature=ib,fast",
        "NodeName=a2 CPUs=8 RealMemory=64000 Gres=gpu:A100:1 Weight=5",
        "NodeName=c1 CPUs=32 RealMemory=128000 Port=7",
    ]


def test_gpus_are_devices_by_number():
    assert gres_conf(CLUSTER).splitlines() == [
        "AutoDetect=off",
        "NodeName=a1 Name=gpu Type=A100 File=/dev/nvidia[0-7]",
        "NodeName=a2 Name=gpu Type=A100 File=/dev/nvidia0",
    ]


def test_a_partition_is_written_with_its_nodes_and_only_what_it_states():
    slurm = Slurm(partitions=(Partition("gpu", default=True, max_time=3600, tier=3), Partition("all", oversubscribe=0)))
    assert lines(slurm)[-2:] == [
        "PartitionName=gpu Nodes=a1,a2 Default=YES State=UP MaxTime=0-01:00:00 PriorityTier=3 PriorityJobFactor=1",
        "PartitionName=all Nodes=a1,a2,c1 Default=NO State=UP MaxTime=UNLIMITED PriorityTier=1 PriorityJobFactor=1"
        " OverSubscribe=EXCLUSIVE",
    ]


def test_weights_are_written_where_priorities_have_several_factors():
    priority = Priority(multifactor=True, weights=Weights(age=10, tres={"gpu": 3, "memory": 1}), half_life=300)
    written = "\n".join(lines(Slurm(priority=priority)))
    for word in ("PriorityWeightAge=10", "PriorityWeightTRES=gres/gpu=3,mem=1", "PriorityDecayHalfLife=0-00:05:00"):
        assert word in written
    assert "PriorityWeightQOS" not in written


def test_preemption_is_written_by_its_plugin():
    assert "PreemptType=preempt/partition_prio" in lines(Slurm(preempt="partition", preempt_mode="suspend", gang=True))
    assert "PreemptMode=SUSPEND,GANG" in lines(Slurm(preempt="partition", preempt_mode="suspend", gang=True))


def test_a_class_is_there_before_another_preempts_it():
    high = Qos("high", priority=9, preempts=("low",), per_user=Limits(jobs=2, resources={"gpu": 4}))
    low = Qos("low", preempt_mode="cancel", limits=Limits(resources={"gpu:A100": 8}), job=JobLimits(wall=600))
    assert accounts(Slurm(qos=(high, low))) == [
        ["add", "qos", "high"],
        ["add", "qos", "low"],
        ["modify", "qos", "high", "set", "priority=9", "preempt=low", "maxjobspu=2", "maxtrespu=gres/gpu=4"],
        ["modify", "qos", "low", "set", "priority=0", "preemptmode=cancel", "grptres=gres/gpu:A100=8", "maxwall=10"],
    ]


def test_accounts_come_before_their_users_and_the_root_is_there():
    tree = QueueTree(
        [
            Queue("root"),
            Queue("lab/ann", "lab", user="ann", shares=None),
            Queue("lab", "root", shares=3, limits=Limits(jobs=5), qos=("normal", "high"), default_qos="normal"),
        ]
    )
    assert accounts(Slurm(queues=tree)) == [
        ["add", "account", "lab", "parent=root", "fairshare=3", "qos=normal,high", "defaultqos=normal", "grpjobs=5"],
        ["add", "user", "ann", "account=lab", "fairshare=parent"],
    ]


def test_a_limit_of_no_time_is_unlimited():
    assert "MaxTime=UNLIMITED" in lines(Slurm(partitions=(Partition("gpu", max_time=math.inf),)))[-1]
