"""A site's configuration of Slurm."""

import json
import math
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab.core import FleetlabError, TraceError
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.reader.accounts import queue_tree, read_accounts, read_dump, read_qos, read_shares
from fleetlab.schedulers.slurm.reader.conf import read_conf, weights_of
from fleetlab.schedulers.slurm.reader.conf_keys import backfill_loop, left_over, main_loop

CONF = """# a small site
ClusterName=lab
SelectType=select/cons_tres   # not the default
schedulertype=sched/backfill
include /etc/slurm-of-nobody/sched.conf
NodeName=DEFAULT CPUs=64 RealMemory=512000
NodeName=n[1-2] Gres=gpu:a100:8 Feature=nvlink,a100
NodeName=n3 Gres=gpu:a100:8 \\
    Weight=10
PartitionName=DEFAULT MaxTime=1:00:00 State=UP
PartitionName=gpu Nodes=n[1-2] Default=YES DefaultTime=5 TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu=2.0"
PartitionName=long Nodes=ALL MaxTime=2-0 PriorityTier=3 OverSubscribe=EXCLUSIVE AllowAccounts=a,b QOS=part
"""
SCHED = "PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityMaxAge=0-1\nPriorityCalcPeriod=1\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "sched.conf").write_text(SCHED)
    return tmp_path


def test_an_included_file_is_found_beside_the_configuration(folder):
    slurm = read_conf(folder / "slurm.conf")
    assert (slurm.priority.multifactor, slurm.priority.weights.age) == (True, 1000)
    assert (slurm.priority.max_age, slurm.priority.calc_period) == (3600, 60)


def test_partitions_take_the_defaults_that_stand_before_them(folder):
    gpu, long = read_conf(folder / "slurm.conf").partitions
    assert (gpu.name, gpu.default, gpu.max_time, gpu.default_time, gpu.tier) == ("gpu", True, 3600, 300, 1)
    assert (long.max_time, long.tier, long.oversubscribe, long.qos) == (172_800, 3, 0, "part")
    assert long.allow_accounts == ("a", "b")
    assert gpu.billing == {"cpu": 1.0, "memory": 0.25 / 1024, "gpu": 2.0}


def test_a_site_comes_back_from_the_tables_that_a_trace_keeps_of_it(folder):
    slurm = read_conf(folder)
    assert Slurm.from_values(json.loads(json.dumps(slurm.to_values()))) == slurm


def test_a_configuration_without_a_selection_gives_whole_nodes(tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=a\n")
    assert read_conf(tmp_path).select == "linear"


def test_what_was_running_counts_before_what_stands_in_the_file(folder):
    shown = (
        "Configuration data as of 2026-11-16T18:19:33\nKillWait = 5 sec\nPriorityWeightAge = 7\nPreemptMode = (null)\n"
    )
    (folder / "config.txt").write_text(shown + "SLURM_VERSION = 22.05.8\nPriorityMaxAge = 7-00:00:00\n")
    slurm = read_conf(folder)
    assert (slurm.kill_wait, slurm.priority.weights.age, slurm.priority.max_age) == (5, 7, 604_800)
    assert (slurm.version, slurm.preempt_mode) == ("22.05.8", "off")


SHOWN = """PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-3]
   PriorityJobFactor=10 PriorityTier=2 RootOnly=NO ReqResv=NO OverSubscribe=FORCE:2
   OverTimeLimit=NONE PreemptMode=OFF
   State=DRAIN TotalCPUs=192 TotalNodes=3 SelectTypeParameters=NONE
"""


def test_partitions_as_scontrol_prints_them(tmp_path):
    (tmp_path / "partitions.txt").write_text(SHOWN)
    (gpu,) = read_conf(tmp_path).partitions
    assert (gpu.max_time, gpu.default_time, gpu.factor, gpu.tier, gpu.state) == (math.inf, None, 10, 2, "drain")
    assert (gpu.oversubscribe, gpu.preempt_mode, gpu.qos) == (2, None, None)  # its mode is the cluster's


def test_reservations_as_scontrol_prints_them(tmp_path):
    text = """ReservationName=night StartTime=1970-01-02T00:00:00 EndTime=1970-01-02T01:00:00 Duration=01:00:00
   Nodes=n[1-2] NodeCnt=2 CoreCnt=128 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES
   Users=ann,bob Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
"""
    (tmp_path / "reservations.txt").write_text(text)
    (night,) = read_conf(tmp_path).reservations
    assert (night.begin, night.end, night.nodes) == (86_400, 90_000, ("n1", "n2"))
    assert (night.users, night.accounts, night.flags) == (("ann", "bob"), (), ("MAINT", "SPEC_NODES"))


def test_settings_of_the_two_loops_and_what_no_field_holds():
    text = "bf_continue,bf_interval=60,bf_window=2880,bf_max_job_user=20,default_queue_depth=7,defer,max_rpc_cnt=150"
    assert (backfill_loop(text).interval, backfill_loop(text).window, backfill_loop(text).goes_on) == (
        60,
        172_800,
        True,
    )
    assert (backfill_loop(text).max_jobs_user, main_loop(text).depth, main_loop(text).defer) == (20, 7, True)
    assert left_over(text) == ("max_rpc_cnt=150",)
    assert not backfill_loop("bf_interval=-1").on


ASSOC = """Cluster|Account|User|Partition|Share|GrpTRES|GrpSubmit|MaxJobs|MaxTRES|MaxWall|QOS|Def QOS|GrpTRESRunMins
lab|root|||1||||||normal||
lab|vision|||60|gres/gpu=32||4|gres/gpu=8|1-00:00:00|normal,high|normal|cpu=1000
lab|vision|ann||parent||9|2|||normal||
lab|vision|ann|short|7||||||||
"""


def test_accounts_are_queues_and_their_users_leaves():
    queues = {queue.name: queue for queue in queue_tree(read_accounts(ASSOC))}
    assert list(queues) == ["root", "vision", "vision/ann"]
    vision, ann = queues["vision"], queues["vision/ann"]
    assert (vision.parent, vision.shares, vision.limits.resources) == ("root", 60, {"gpu": 32})
    assert (vision.per_user.jobs, vision.job.resources, vision.job.wall) == (4, {"gpu": 8}, 86_400)
    assert (vision.limits.running_minutes, vision.qos, vision.default_qos) == (
        {"cpu": 1000},
        ("normal", "high"),
        "normal",
    )
    assert (ann.parent, ann.user, ann.shares) == ("vision", "ann", None)
    assert (ann.per_user.jobs, ann.limits.submitted) == (2, 9)


SSHARE = """Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare
root|||0.000000|5151|1.000000|
 science||30|0.3|982|0.19|
  vision||30|0.3|982|0.19|
   vision|ann|1|0.5|732|0.74|0.71
"""


def test_sshare_gives_the_tree_by_its_indentation_and_the_usage():
    queues = {queue.name: queue for queue in queue_tree([], read_shares(SSHARE))}
    assert [(q.name, q.parent) for q in queues.values()] == [
        ("root", None), ("science", "root"), ("vision", "science"), ("vision/ann", "vision")
    ]  # fmt: skip
    assert (queues["vision/ann"].usage, queues["vision/ann"].shares, queues["science"].shares) == (732, 1, 30)


def test_a_dump_gives_the_tree_by_its_parents():
    text = """# To edit this file start with a cluster line for the new cluster
Cluster - 'lab':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'science':Description='s':Organization='s':Fairshare=30:GrpTRES=gres/gpu:a100=8,mem=1024
Parent - 'science'
Account - 'vision':Description='v':Organization='v':Fairshare=2147483647
Parent - 'vision'
User - 'ann':DefaultAccount='vision':Fairshare=5:MaxJobs=3
"""
    queues = {queue.name: queue for queue in queue_tree(read_dump(text))}
    assert (queues["vision"].parent, queues["vision"].shares) == ("science", None)
    assert queues["science"].limits.resources == {"gpu:a100": 8, "memory": 1024}
    assert (queues["vision/ann"].shares, queues["vision/ann"].per_user.jobs) == (5, 3)


def test_classes_of_service():
    text = """
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|MaxTRES|MaxWall|MaxTRESPU|MaxJobsPU|MinTRES
high|100|00:01:00|scav,low|cluster|DenyOnLimit,NoReserve|2.000000|cpu=9|gres/gpu=4|01:00:00|gres/gpu=8|5|node=2
"""
    (high,) = read_qos(text)
    assert (high.priority, high.preempts, high.preempt_mode, high.grace) == (100, ("scav", "low"), None, 60)
    assert (high.flags, high.usage_factor, high.limits.resources) == (("DenyOnLimit", "NoReserve"), 2, {"cpu": 9})
    assert (high.job.resources, high.job.wall, high.job.at_least) == ({"gpu": 4}, 3600, {"node": 2})
    assert (high.per_user.resources, high.per_user.jobs) == ({"gpu": 8}, 5)


def test_modes_of_preemption_stand_together_in_any_order(tmp_path):
    (tmp_path / "slurm.conf").write_text("PreemptType=preempt/qos\nPreemptMode=GANG,SUSPEND,WITHIN\nJobRequeue=0\n")
    read = read_conf(tmp_path / "slurm.conf")
    assert (read.preempt_mode, read.gang, read.within, read.requeue) == ("suspend", True, True, False)


def test_a_class_that_preempts_within_itself_has_a_mode_too():
    (qos,) = read_qos("Name|Priority|PreemptMode|GraceTime\nlow|0|requeue,within|00:00:30\n")
    assert (qos.preempt_mode, qos.within, qos.grace) == ("requeue", True, 30.0)


def test_weights_of_memory_are_of_a_mebibyte():
    assert weights_of("Mem=0.5G,cpu=2", per_mib=True) == {"memory": 0.5 / 1024, "cpu": 2.0}


def test_a_folder_without_a_configuration_says_what_it_would_be(tmp_path):
    with pytest.raises(TraceError, match="no configuration of Slurm"):
        read_conf(tmp_path)


@pytest.mark.data
def test_the_sites_of_the_recorded_runs(data):
    folder = data / "slurm-22.05"
    shared = (folder / "slurm.conf", folder / "assoc.txt", folder / "qos.txt")
    plain, full = read_conf(*shared, folder / "plain1"), read_conf(*shared, folder / "everything")
    assert (plain.backfill.interval, plain.backfill.resolution, plain.main.delay) == (1, 1, 0)
    assert [(p.name, p.tier, p.factor) for p in full.partitions] == [
        ("gpu", 1, 10), ("v100", 1, 10), ("cpu", 1, 1), ("short", 10, 20)
    ]  # fmt: skip
    assert (full.preempt, full.preempt_mode, full.priority.half_life) == ("qos", "requeue", 300)
    assert full.queues["lang"].shares == 30
    assert full.queues["lang/cyd"].usage == 732


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qos.txt", "Name|Priority|GraceTime|Preempt|MaxTRESPU\na|1|||banana\n"),
        ("slurm.conf", "ClusterName=a\nKillWait=soon\n"),
        ("slurm.conf", "PartitionName=a OverSubscribe=FORCE:many\n"),
        ("slurm.conf", "ClusterName=a\ninclude slurm.conf\n"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_with_a_hint(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError) as caught:
        read_conf(tmp_path)
    assert caught.value.hint


@given(st.text(alphabet='NodeName=PartitonClusterDEFAULT []123-,\n\\#"|:', max_size=200))
def test_any_text_is_a_configuration_or_an_error_of_ours(text):
    with TemporaryDirectory() as folder:
        (Path(folder) / "slurm.conf").write_text("ClusterName=a\n" + text)
        with suppress(FleetlabError):
            read_conf(folder)
