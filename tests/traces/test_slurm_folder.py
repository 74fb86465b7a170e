"""A folder of what Slurm tells: runs and pieces of jobs, nodes and their events, reservations, the clock."""

import polars as pl
import pytest

import fleetlab
from fleetlab.core.events import Drain, Outage
from fleetlab.schedulers.slurm.reader.attempts import folded
from fleetlab.schedulers.slurm.reader.conf import read_site
from fleetlab.schedulers.slurm.reader.events import node_events
from fleetlab.schedulers.slurm.reader.site import with_site

HEADER = "JobID|User|Account|Submit|Eligible|Start|End|State|ReqTRES|AllocTRES|NodeList|ElapsedRaw|Flags|Reason"
NODES = "\n".join(
    f"NodeName=n{k} CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 ActiveFeatures=ib,fast Weight=3 Partitions=gpu"
    for k in (1, 2, 3)
)


def at(second):
    return "Unknown" if second is None else f"2024-05-01T10:{second // 60:02d}:{second % 60:02d}"


def row(name, submit, start, end, state="COMPLETED", gpus=1, nodes="n1", **other):
    count = {"n1": 1, "n2": 1}.get(nodes, 2)
    held = other.get("held", f"cpu={count},gres/gpu={gpus},node={count}")
    times = "|".join(at(t) for t in (submit, other.get("eligible", submit), start, end))
    elapsed = other.get("elapsed", "")
    return f"{name}|ann|vision|{times}|{state}|{other.get('req', held)}|{held}|{nodes}|{elapsed}|SchedBackfill|Priority"


@pytest.fixture
def folder(tmp_path):
    def write(*rows, **files):
        (tmp_path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
        (tmp_path / "nodes.txt").write_text(NODES + "\n")
        for name, text in files.items():
            (tmp_path / name.replace("__", ".").replace("_", "-")).write_text(text)
        return tmp_path

    return write


def read(folder, **options):
    trace = fleetlab.read(folder, "slurm", **options)
    assert trace.rejects.is_empty()
    return trace


def test_the_configuration_tells_when_the_daemon_started(folder):
    said = "Configuration data as of 2024-05-01T11:00:00\nBOOT_TIME               = 2024-05-01T09:59:40\n"
    assert read(folder(row("7", 0, 1, 2), config__txt=said)).scheduler.boot == -20


def test_a_daemon_registers_its_cluster_when_it_starts(folder):
    rows = ["NodeName|TimeStart|TimeEnd|State|Reason"]
    rows += [f"|2024-05-01T{t}|Unknown||Cluster Registered TRES" for t in ("08:00:00", "09:59:30", "10:00:30")]
    told = folder(row("7", 0, 1, 2), events__txt="\n".join(rows), slurm__conf="ClusterName=lab\n")
    assert read(told).scheduler.boot == -30


# -- runs and pieces -------------------------------------------------------------------------------------------------


def test_a_resized_job_is_a_job_for_each_size_one_after_the_other(folder):
    first = row("7", 0, 11, 40, "RESIZING", 4, "n[1-2]")
    then = row("7", 40, 11, 72, gpus=2, elapsed="61", eligible=40)
    trace = read(folder(first, then, row("8", 41, 41, 50, gpus=6, nodes="n2")))
    frame = trace.workload.frame.select("status", "submit", "start", "end", "runtime", "depends_on")
    assert frame.rows()[:2] == [("completed", 0, 11, 40, 29, []), ("completed", 40, 40, 72, 32, [0])]
    assert trace.series["attempts"].collect().select("job", "attempt", "resized").rows() == [(0, 1, True), (1, 2, True)]
    assert fleetlab.audit(trace).feasible


def test_runs_of_a_job_are_jobs_and_those_that_others_ended_can_be_left_out(folder):
    rows = [
        row("7", 0, 5, 20, "PREEMPTED"), row("7", 20, 60, 70, "NODE_FAIL", eligible=50),
        row("7", 70, 80, 95, "REQUEUED"), row("7", 95, 100, 140), row("8", 1, 2, 3, "PREEMPTED"),
    ]  # fmt: skip
    trace = read(folder(*rows))
    frame = trace.workload.frame
    assert frame["depends_on"].to_list() == [[], [], [0], [2], [3]]
    assert frame["parent"].n_unique() == 2
    whole = folded(trace).workload.frame
    assert whole.select("submit", "start", "runtime", "runtime_at_least", "status").rows() == [
        (0, 80, 15, None, "cancelled"),
        (1, 2, None, 1, "cancelled"),  # how long it would have run is not known
        (95, 100, 40, None, "completed"),
    ]
    assert whole["depends_on"].to_list() == [[], [], [0]]


def test_time_that_a_job_was_suspended_is_not_run_time(folder):
    trace = read(folder(row("7", 0, 10, 70, elapsed="40")))
    assert trace.workload.frame["runtime"].to_list() == [40]
    assert trace.series["suspended"].collect().rows() == [(0, 20)]


def test_a_job_cancelled_while_it_waited_keeps_when(folder):
    trace = read(folder(row("6", 0, 0, 9), row("7", 0, None, 30, "CANCELLED by 0", held="", nodes="None assigned")))
    assert trace.workload.frame.select("status", "start", "end", "runtime").row(1) == ("cancelled", None, 30, None)


def test_which_loop_started_a_job_and_why_it_waited_are_series(folder):
    trace = read(folder(row("7", 0, 10, 70)))
    assert trace.series["started_by"].collect().rows() == [(0, "backfill")]
    assert trace.series["reason"].collect().rows() == [(0, "Priority")]


def test_jobs_of_one_second_are_in_the_order_of_their_numbers(folder):
    trace = read(folder(row("10", 0, 1, 2), row("9_10", 0, 1, 2), row("9_9", 0, 1, 2), row("8", 0, 1, 2)))
    assert trace.names.collect()["name"].to_list() == ["8", "9_9", "9_10", "10"]


def test_the_same_job_in_two_logs_is_taken_from_the_one_that_saw_it_end_or_tells_more(folder):
    log = folder(row("7", 0, 10, 70), row("8", 0, 10, None, "RUNNING"))
    (log / "more.txt").write_text(HEADER + "|QOS\n" + row("7", 0, 10, 70) + "|high\n" + row("8", 0, 10, 50) + "|low\n")
    trace = fleetlab.read(log, "slurm")
    assert trace.workload.frame.select("status", "qos").rows() == [("completed", "high"), ("completed", "low")]
    assert trace.rejects["file"].to_list() == ["sacct.txt", "sacct.txt"]


# -- GPUs over nodes -------------------------------------------------------------------------------------------------


def batch(name, start, end, held):
    return f"{name}.batch|||{at(start)}|{at(start)}|{at(start)}|{at(end)}|COMPLETED||{held}|n1|||"


def test_the_batch_step_tells_how_many_gpus_were_on_each_of_two_nodes(folder):
    uneven = row("7", 0, 10, 70, gpus=8, nodes="n[1-2]", req="gres/gpu=8,node=1")
    trace = read(folder(uneven, batch("7", 10, 70, "cpu=1,gres/gpu=1"), row("8", 0, 10, 70, gpus=7)))
    placed = trace.placements.collect().filter(pl.col("job") == 0)
    assert placed["node"].cast(pl.String).to_list() == ["n1"] + ["n2"] * 7
    assert placed["worker"].to_list() == list(range(8))
    assert fleetlab.audit(trace).feasible


def test_a_split_that_is_not_known_accuses_no_node(folder):
    unknown = row("7", 0, 10, 70, gpus=12, nodes="n[1-2]")
    trace = read(folder(unknown, row("8", 0, 10, 70, gpus=4), row("9", 0, 10, 70, gpus=0, nodes="n2")))
    assert trace.series["unsplit"].collect()["job"].to_list() == [0]
    assert fleetlab.audit(trace).feasible


def test_what_the_other_nodes_of_a_job_cannot_have_given_is_evidence(folder):
    full = row("7", 0, 10, 70, gpus=16, nodes="n[1-2]")
    trace = read(folder(full, row("8", 0, 10, 70, gpus=1)))
    assert fleetlab.audit(trace).violations["where"].to_list() == ["n1"]


# -- beside the log --------------------------------------------------------------------------------------------------


EVENTS = """NodeName|TimeStart|TimeEnd|State|Reason|User
|2024-05-01T09:00:00|Unknown||Cluster Registered TRES|
n1|2024-05-01T10:01:00|2024-05-01T10:02:00|DOWN*|Not responding|root
n2|2024-05-01T10:00:10|Unknown|DRAIN|test|root
n3|2024-05-01T10:00:30|2024-05-01T10:00:30|DOWN|test|root
n3|2024-05-01T10:00:00|2024-05-01T10:00:01|UNK|cold-start|root
"""


def test_events_of_nodes_are_a_series_and_events_of_a_scenario(folder):
    trace = read(folder(row("7", 0, 10, 200), events__txt=EVENTS))
    assert trace.series["events"].collect().select("node", "start", "end").rows() == [
        ("n3", 0, 1), ("n2", 10, None), ("n3", 30, 30), ("n1", 60, 120)
    ]  # fmt: skip
    assert node_events(trace) == (Drain(10, 200, ["n2"]), Outage(30, 31, ["n3"]), Outage(60, 120, ["n1"]))


def test_reservations_that_are_over_name_users_by_their_association(folder):
    assoc = "Cluster|Account|User|Partition|Share|ParentName|ID\n"
    assoc += "lab|root|||1||1\nlab|vision|||1|root|2\nlab|vision|ann||1||3\n"
    log = "Name|TimeStart|TimeEnd|NodeName|Flags|Assocs|TRES|ID\n"
    log += "class|2024-05-01T10:01:00|2024-05-01T10:03:00|n[1-2]|SPEC_NODES|3|cpu=128|1\n"
    trace = read(folder(row("7", 0, 10, 200), assoc__txt=assoc, reservation_log__txt=log))
    (reserved,) = trace.scheduler.reservations
    assert (reserved.begin, reserved.end, reserved.nodes) == (60, 180, ("n1", "n2"))
    assert reserved.users == ("ann",)


def test_the_clock_and_the_beginning_are_those_that_the_collecting_script_wrote(folder):
    told = "collected=2024-05-01T12:00:00+0200\nsince=2024-05-01T10:00:05\nuntil=now\nzone=Europe/Berlin\nuser=ann\n"
    trace = read(folder(row("7", 0, 3, 200), row("8", 8, 9, 20), collected__txt=told))
    assert trace.workload.zone == "Europe/Berlin"
    assert trace.workload.frame["initial"].to_list() == [True, False]
    assert not any("UTC" in note for note in trace.notes)


def test_usage_counts_where_it_was_listed_when_the_log_began(folder):
    listed = (
        "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\nroot|||0.0|{0}|1.0|\n vision||1|1|{0}|1|\n"
    )
    late = read(folder(row("7", 0, 10, 200), sshare__txt=listed.format(99)))
    assert late.scheduler.queues["vision"].usage == 0
    early = read(folder(row("7", 0, 10, 200), sshare_begin__txt="1714557600.0\n" + listed.format(7)))
    assert early.scheduler.queues["vision"].usage == 7


def test_nodes_have_features_and_weights_and_may_come_from_the_configuration(folder):
    log = folder(row("7", 0, 10, 200))
    assert read(log).cluster.frame.select("features", "weight").row(0) == (["ib", "fast"], 3)
    (log / "nodes.txt").unlink()
    conf = (
        "ClusterName=a\nNodeName=DEFAULT Sockets=2 CoresPerSocket=16 RealMemory=1000\nNodeName=n[1-3] Gres=gpu:a100:8"
    )
    (log / "slurm.conf").write_text(conf + " Feature=ib Weight=7\nPartitionName=gpu Nodes=n[2-3] Default=YES\n")
    frame = read(log).cluster.frame.select("node", "gpus", "cpu_milli", "features", "weight", "partitions")
    assert frame.rows() == [
        ("n1", 8, 32_000, ["ib"], 7, []),
        ("n2", 8, 32_000, ["ib"], 7, ["gpu"]),
        ("n3", 8, 32_000, ["ib"], 7, ["gpu"]),
    ]


def test_a_configuration_above_the_folder_is_taken_where_it_includes_what_lies_here(tmp_path, folder):
    log = tmp_path / "run"
    log.mkdir()
    (log / "sacct.txt").write_text(HEADER + "\n" + row("7", 0, 10, 200) + "\n")
    (log / "sched.conf").write_text("PriorityType=priority/multifactor\n")
    (tmp_path / "slurm.conf").write_text("ClusterName=a\nKillWait=7\ninclude /etc/slurm-of-nobody/sched.conf\n")
    trace = read(log)
    assert (trace.scheduler.kill_wait, trace.scheduler.priority.multifactor) == (7, True)
    (tmp_path / "slurm.conf").write_text("ClusterName=another\nKillWait=7\n")
    assert read(log).scheduler.kill_wait == 30


def test_a_trace_keeps_the_site_when_it_is_saved(folder, tmp_path):
    trace = read(folder(row("7", 0, 10, 200), slurm__conf="ClusterName=a\nPartitionName=gpu Nodes=ALL MaxTime=60\n"))
    again = fleetlab.Trace.load(trace.save(tmp_path / "saved"))
    assert again.scheduler == trace.scheduler
    assert again.cluster.frame["partitions"].to_list() == [["gpu"]] * 3


def test_the_partitions_of_another_configuration(folder, tmp_path):
    trace = read(folder(row("7", 0, 10, 200)))
    (tmp_path / "new.conf").write_text("PartitionName=a Nodes=n1\nPartitionName=b Nodes=ALL\n")
    changed = with_site(trace.cluster, read_site(tmp_path / "new.conf"))
    assert changed.frame["partitions"].to_list() == [["a", "b"], ["b"], ["b"]]


JOBCOMP = (
    "JobId=7 UserId=ann(1001) GroupId=users(100) Name=my own job JobState=COMPLETED Partition=gpu TimeLimit=60 "
    "StartTime=2024-05-01T10:00:10 EndTime=2024-05-01T10:01:00 NodeList=n[1-2] NodeCnt=2 ProcCnt=4 WorkDir=/home/a b "
    "ReservationName= Tres=cpu=4,mem=2G,node=2,gres/gpu=8 Account=vision QOS=high WcKey= Cluster=lab "
    "SubmitTime=2024-05-01T10:00:00 EligibleTime=2024-05-01T10:00:05 ArrayJobId=6 ArrayTaskId=3 DerivedExitCode=0:0 "
    "ExitCode=0:0 \n"
)


def test_a_log_of_jobcomp(tmp_path):
    (tmp_path / "jobcomp.log").write_text(
        JOBCOMP + JOBCOMP.replace("JobId=7", "JobId=8").replace("TaskId=3", "TaskId=4")
    )
    trace = read(tmp_path)
    assert trace.names.collect()["name"].to_list() == ["6_3", "6_4"]
    frame = trace.workload.frame
    assert frame.select("user", "group", "queue", "qos", "limit", "eligible", "start", "end").row(0) == (
        "ann", "my own job", "vision", "high", 3600, 5, 10, 60
    )  # fmt: skip
    assert frame.select("instances", "gpu_milli", "cpu_milli").row(0) == (2, 4000, 2000)
    assert trace.counts.rows() == [("jobs", 2, 2, 0)]
