"""A Slurm cluster's own log."""

import gzip
import json
import time
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import TraceError
from fleetlab.schedulers.slurm.reader.node_lists import MOST, expand
from fleetlab.schedulers.slurm.reader.reader import COLUMNS
from fleetlab.schedulers.slurm.reader.tres import PerGpu, demand, mebibytes, tres

HEADER = "JobID|Submit|Start|End|State|AllocTRES|NodeList\n"


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "slurm" / "good", "slurm")


@pytest.fixture
def log(tmp_path):
    """Write a log of jobs, by its rows; give the folder it lies in."""

    def write(*rows, header=HEADER, name="sacct.txt"):
        (tmp_path / name).write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
        return tmp_path

    return write


def job(name="1", submit="2024-05-01T10:00:00", start="2024-05-01T10:00:10", end="2024-05-01T10:01:00", **other):
    given = {"state": "COMPLETED", "tres": "cpu=1,node=1", "nodes": "n1"} | other
    return f"{name}|{submit}|{start}|{end}|{given['state']}|{given['tres']}|{given['nodes']}"


# -- jobs ----------------------------------------------------------------------------------------------------------


def test_a_job_is_a_gang_of_one_instance_a_node_or_where_that_does_not_divide_a_gpu(good):
    frame = good.workload.frame.select("instances", "cpu_milli", "memory_mib", "gpu_milli")
    assert frame.rows() == [
        (2, 8000, 65536, 4000),
        (3, 2334, 3414, 1000),
        (1, 2000, 500, 125),
        (1, 2000, 500, 125),
        (1, 2000, 500, 125),
        (1, 4000, 64000, 375),
        (1, 4000, 4096, 1000),
        (1, 3000, 1, 0),
        (1, 2000, 8192, 0),
    ]


def test_steps_are_part_of_their_jobs_and_nothing_is_lost(good):
    assert good.counts.rows() == [("nodes", 4, 4, 0), ("jobs", 11, 11, 0)]
    assert "3 job steps are counted with their jobs" in good.notes


def test_what_runs_has_no_end_and_what_never_ran_has_no_start(good):
    frame = good.workload.frame.select("status", "start", "end", "runtime")
    assert frame.rows() == [
        ("completed", 60, 7260, 7200),
        ("failed", 120, 720, 600),
        ("failed", 180, 240, 60),
        ("waiting", None, None, None),
        ("waiting", None, None, None),
        ("running", 130, None, None),
        ("cancelled", None, 300, None),
        ("cancelled", 300, 390, 60),  # suspended for half a minute
        ("failed", 300, 390, 60),
    ]


def test_jobs_of_an_array_and_parts_of_a_heterogeneous_job_are_one_job(good):
    names = dict(good.names.collect().iter_rows())
    jobs = good.workload.frame["parent"].to_list()
    assert [names[k] for k in (2, 3, 4, 7, 8)] == ["102_1", "102_2", "102_3", "105+0", "105+1"]
    assert (jobs[2] == jobs[3] == jobs[4], jobs[7] == jobs[8], len(set(jobs))) == (True, True, 6)


def test_a_row_of_jobs_that_wait_is_as_many_jobs_and_counts_as_one_row(good):
    assert "1 rows stand for array tasks that had not started: 2 jobs" in good.notes
    assert (len(good.workload), good.counts["kept"].to_list()) == (9, [4, 11])


def waiting(name):
    return job(name, start="Unknown", end="Unknown", state="PENDING", nodes="None assigned")


def test_jobs_of_an_array_that_have_started_since_are_taken_from_the_later_log(log):
    log(waiting("7_[1-2]"), waiting("8_[1-2]"), name="2024-04.txt")
    trace = fleetlab.read(log(job("7_1"), job("8_1"), job("8_2"), name="2024-05.txt"), "slurm")
    names = trace.names.collect()["name"].to_list()
    assert dict(zip(names, trace.workload.frame["status"], strict=True)) == {
        "7_2": "waiting",
        "7_1": "completed",
        "8_1": "completed",
        "8_2": "completed",
    }
    assert trace.rejects.rows() == [("jobs", "2024-04.txt", 3, "superseded by a later row of the same job: 8_[1-2]")]


@pytest.mark.parametrize("jobs", ["0-99999999", "1-100001", "1-5,...", "1-5,7...", "0x3F", "5-1", "1-9:0", ""])
def test_a_row_of_too_many_or_untold_jobs_is_one_job_and_it_is_said(log, jobs):
    trace = fleetlab.read(log(waiting(f"7_[{jobs}]")), "slurm")
    assert trace.names.collect()["name"].to_list() == [f"7_[{jobs}]"]
    assert "1 rows stand for an unknown number of array tasks: each is one job here" in trace.notes


def test_all_rows_together_name_no_more_jobs_than_a_cluster_can_hold(log):
    trace = fleetlab.read(log(*(waiting(f"{k}_[1-100000]") for k in range(11))), "slurm")
    assert len(trace.workload) == 10 * 100_000 + 1


def test_what_users_asked_for_in_time_is_a_series(good):
    assert good.series["requested"].collect().rows() == [
        (0, 86_400),
        (1, 600),
        (2, 3600),
        (3, 3600),
        (4, 3600),
        (7, 1800),
    ]


def test_a_log_without_limits_has_no_such_series(log):
    assert fleetlab.read(log(job()), "slurm").series == {}


@pytest.mark.parametrize(
    ("column", "text", "seconds"),
    [
        ("Timelimit", "2-00:00:30", 172_830),
        ("Timelimit", "10:00:00", 36_000),
        ("Timelimit", "30:15", 1815),
        ("Timelimit", "1-6", 108_000),
        ("TimelimitRaw", "1440", 86_400),
    ],
)
def test_a_limit_is_read_as_slurm_writes_it(log, column, text, seconds):
    folder = log(f"7|2024-05-01T10:00:00|PENDING|{text}", header=f"JobID|Submit|State|{column}\n")
    assert fleetlab.read(folder, "slurm").series["requested"].collect().rows() == [(0, seconds)]


@pytest.mark.parametrize("text", ["soon", "-5", "nan", "1e30", "999999999-00:00:00"])
def test_a_limit_that_is_no_length_of_time_is_turned_away(log, text):
    rows = [f"7|2024-05-01T10:00:00|PENDING|{text}", "8|2024-05-01T10:00:00|PENDING|UNLIMITED"]
    trace = fleetlab.read(log(*rows, header="JobID|Submit|State|Timelimit\n"), "slurm")
    assert trace.rejects["reason"].to_list() == [f"`Timelimit` is not a length of time: {text}"]
    assert trace.series == {}


def test_the_type_of_gpu_is_the_one_asked_for_not_the_one_got(good):
    assert good.workload.frame["gpu_types"].to_list()[:2] == [["a100"], []]


def test_a_priority_beyond_what_a_column_holds_is_the_highest(good):
    assert good.workload.frame["priority"].to_list()[:2] == [2**31 - 1, 10]


def test_each_node_of_a_job_is_a_placement(good):
    placed = good.placements.collect().filter(pl.col("job") < 2)
    assert placed.select("job", "worker", "node").rows() == [
        (0, 0, "gpu01"),
        (0, 1, "gpu02"),
        (1, 0, "gpu01"),
        (1, 1, "gpu03"),
    ]


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "slurm" / "bad", "slurm")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("jobs", 4, "10 columns expected, got: 9"),
        ("jobs", 5, "not the id of a job: what"),
        ("jobs", 6, "no submit time"),
        ("jobs", 7, "`Start` is not a time: yesterday"),
        ("jobs", 8, "`Submit` is not a time: 1e30"),
        ("jobs", 9, "unknown state: EXPLODED"),
        ("jobs", 10, "`ElapsedRaw` is not a number of seconds: -5"),
        ("jobs", 11, "`ElapsedRaw` is not a number of seconds: nan"),
        ("jobs", 12, "`Priority` is not a number: high"),
        ("jobs", 13, "starts before it was submitted: 2024-05-01T09:59:00"),
        ("jobs", 14, "ends before it starts: 2024-05-01T10:00:30"),
        ("jobs", 15, "ends before it was submitted: 2024-05-01T09:00:00"),
        ("jobs", 16, "not a list of nodes: gpu[1-"),
        ("jobs", 17, "more than 100,000 nodes in a list: n[0-999999999]"),
        ("jobs", 18, "not resources as Slurm writes them: banana"),
        ("jobs", 19, "`gpu` is not an amount: -4"),
        ("jobs", 20, "`mem` is more than any cluster has: 99999999999P"),
        ("jobs", 21, "a step of a job that is not in the trace: 216.batch"),
        ("jobs", 22, "superseded by a later row of the same job: 217"),
        ("nodes", 2, "duplicate node: gpu01"),
        ("nodes", 3, "`cpu` is not an amount: many"),
        ("nodes", 4, "`mem` is not an amount: -1"),
        ("nodes", 5, "not a list of nodes: gpu[04"),
        ("nodes", 6, "`gpu` is more than any cluster has: 99999999999"),
    ]


def test_a_job_in_two_logs_is_taken_from_the_later_one(log):
    log(job(end="Unknown", state="RUNNING"), name="2024-04.txt")
    trace = fleetlab.read(log(job(), job("2"), name="2024-05.txt"), "slurm")
    assert trace.workload.frame["status"].to_list() == ["completed", "completed"]
    assert trace.rejects.rows() == [("jobs", "2024-04.txt", 2, "superseded by a later row of the same job: 1")]


def test_a_job_that_was_put_back_is_two_jobs_of_one_job(log):
    back = job(end="2024-05-01T10:00:20", state="REQUEUED")
    again = job(submit="2024-05-01T10:00:20", start="2024-05-01T10:00:30")
    frame = fleetlab.read(log(back, again), "slurm").workload.frame
    assert frame.select("parent", "status").rows() == [(0, "cancelled"), (0, "completed")]


def test_the_form_with_a_bar_at_the_end_reads_the_same(log):
    folder = log(job() + "|", header=HEADER.replace("\n", "|\n"))
    assert len(fleetlab.read(folder, "slurm").workload) == 1


def test_a_gzipped_log_reads_the_same(tmp_path):
    (tmp_path / "sacct.txt.gz").write_bytes(gzip.compress((HEADER + job() + "\n").encode()))
    assert len(fleetlab.read(tmp_path / "sacct.txt.gz", "slurm").workload) == 1


def test_a_log_that_is_cut_off_says_so(tmp_path):
    (tmp_path / "sacct.gz").write_bytes(gzip.compress((HEADER + job() + "\n").encode())[:40])
    with pytest.raises(TraceError, match="truncated or damaged"):
        fleetlab.read(tmp_path, "slurm")


def test_a_folder_without_a_log_says_how_to_make_one(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(TraceError, match="no job log") as caught:
        fleetlab.read(tmp_path, "slurm")
    assert "sacct -a -D -P" in caught.value.hint


@pytest.mark.parametrize("nodes", ["NodeName=n1 CPUTot=2 RealMemory=100\n", "NODELIST CPUS MEMORY\nn1 2 100\n"])
def test_a_list_of_nodes_alone_is_known_as_slurm_s_and_said_to_lack_its_log(tmp_path, nodes):
    (tmp_path / "nodes.txt").write_text(nodes)
    with pytest.raises(TraceError, match="it looks like: slurm"):
        fleetlab.read(tmp_path / "nodes.txt", "helios")
    with pytest.raises(TraceError, match="a list of nodes but no job log"):
        fleetlab.read(tmp_path / "nodes.txt", "slurm")


def test_a_log_with_no_row_is_an_empty_trace(log):
    assert len(fleetlab.read(log(), "slurm").workload) == 0


def test_the_fewest_columns_are_enough(log):
    folder = log("7|2024-05-01T10:00:00|PENDING", header="JobID|Submit|State\n")
    frame = fleetlab.read(folder, "slurm").workload.frame
    assert frame.select("status", "instances", "gpu_milli").rows() == [("waiting", 1, 0)]


# -- clocks --------------------------------------------------------------------------------------------------------


def test_times_are_those_of_the_zone_that_is_named(log):
    folder = log(job())
    assert fleetlab.read(folder, "slurm", zone="Europe/Berlin").workload.epoch == 1_714_550_400  # 08:00 in UTC
    assert fleetlab.read(folder, "slurm").workload.epoch == 1_714_557_600


def test_a_log_whose_clock_is_not_named_says_that_it_is_read_as_utc(log):
    assert "UTC" in fleetlab.read(log(job()), "slurm").notes[0]


def test_counted_seconds_and_stamps_with_an_offset_need_no_zone(log):
    row = job(submit="1714557600", start="2024-05-01T12:00:10+0200", end="1714557660")
    trace = fleetlab.read(log(row), "slurm", zone="Asia/Tokyo")
    assert trace.workload.frame.select("start", "end").rows() == [(10, 60)]


def test_a_job_over_the_hour_that_comes_twice_ends_after_it_starts(log):
    row = job(submit="2024-10-27T02:40:00", start="2024-10-27T02:50:00", end="2024-10-27T02:10:00")
    frame = fleetlab.read(log(row), "slurm", zone="Europe/Berlin").workload.frame
    assert frame.select("start", "runtime").rows() == [(600, 1200)]


def test_of_an_hour_that_never_came_it_is_said_that_the_clock_skipped_it(log):
    row = job(submit="2024-03-31T02:30:00", start="2024-03-31T03:00:00", end="2024-03-31T04:00:00")
    trace = fleetlab.read(log(row, job()), "slurm", zone="Europe/Berlin")
    assert trace.rejects["reason"].to_list() == [
        "`Submit` does not exist in Europe/Berlin: clocks were set forward: 2024-03-31T02:30:00"
    ]


def test_a_job_cancelled_in_the_queue_over_the_hour_that_comes_twice_ends_after_it_was_submitted(log):
    row = job(submit="2024-10-27T02:40:00", start="Unknown", end="2024-10-27T02:10:00", state="CANCELLED", nodes="")
    frame = fleetlab.read(log(row), "slurm", zone="Europe/Berlin").workload.frame
    assert frame.select("start", "end").rows() == [(None, 1800)]


# -- a log that begins in the middle -------------------------------------------------------------------------------


def in_may(k):
    return job(str(k), submit=f"2024-05-01T10:{k:02d}:00", start=f"2024-05-01T10:{k:02d}:10", end="2024-05-01T12:00:00")


OLD = job("99", submit="2024-04-01T00:00:00", start="2024-04-02T00:00:00", end="2024-05-01T10:30:00")
QUEUED = job("98", submit="2024-04-01T00:00:00", start="2024-05-01T10:00:20", end="2024-05-01T10:30:00")


def test_a_job_much_older_than_all_others_is_said_to_stretch_the_span(log):
    told = [n for n in fleetlab.read(log(OLD, *map(in_may, range(59))), "slurm").notes if "span" in n]
    assert [n[:48] for n in told] == ["the first 99 % of the span has 1 of 60 jobs; if "]


def test_of_a_log_that_comes_evenly_nothing_is_said_of_its_span(log):
    assert not any("span" in note for note in fleetlab.read(log(*map(in_may, range(59))), "slurm").notes)


def test_what_is_older_than_the_log_is_submitted_as_it_begins_and_what_ran_by_then_has_no_start(log):
    trace = fleetlab.read(log(OLD, QUEUED, in_may(0)), "slurm", since="2024-05-01T09:00:00")
    assert trace.workload.frame.select("submit", "start", "end", "runtime").rows() == [
        (0, 3620, 5400, 1780),  # jobs of one second are in the order of their numbers
        (0, None, 5400, None),
        (3600, 3610, 10_800, 7190),
    ]
    assert trace.workload.epoch == 1_714_554_000
    assert any(
        n.startswith("2 jobs were submitted before `since`") and "1 of them had started" in n for n in trace.notes
    )
    assert trace.placements.collect()["job"].to_list() == [0, 1, 2]


def test_what_ended_before_the_log_begins_is_turned_away(log):
    trace = fleetlab.read(log(OLD, in_may(0)), "slurm", since="2024-05-01T11:00:00")
    assert trace.rejects["reason"].to_list() == ["ended before `since`: 2024-05-01T10:30:00"]


@pytest.mark.parametrize("since", ["soon", "", "nan", "1e300"])
def test_a_beginning_that_is_no_moment_is_refused(log, since):
    with pytest.raises(TraceError, match="`since` is not a date or time"):
        fleetlab.read(log(job()), "slurm", since=since)


# -- partitions, and jobs that are held ----------------------------------------------------------------------------


PARTITIONS = """NODELIST PARTITION CPUS MEMORY GRES STATE
n1 train 64 1000 gpu:a100:8 idle
n2 infer 64 1000 gpu:a100:8 drained*
n[1-2] all* 64 1000 gpu:a100:8 idle
c1 cpu 64 1000 (null) down
"""


def test_jobs_and_nodes_have_the_partitions_that_the_log_names(log):
    rows = [f"{k}|2024-05-01T10:00:00|PENDING|gres/gpu=8|{p}" for k, p in enumerate(["train", "train,infer", ""])]
    folder = log(*rows, header="JobID|Submit|State|ReqTRES|Partition\n")
    (folder / "sinfo.txt").write_text(PARTITIONS)
    trace = fleetlab.read(folder, "slurm")
    assert trace.workload.frame["partitions"].to_list() == [["train"], ["train", "infer"], []]
    assert trace.cluster.frame["partitions"].to_list() == [["train", "all"], ["infer", "all"], ["cpu"]]


def test_nodes_that_are_down_or_drained_are_counted(log):
    folder = log(job())
    (folder / "sinfo.txt").write_text(PARTITIONS)
    trace = fleetlab.read(folder, "slurm")
    assert len(trace.cluster) == 3
    assert "2 nodes were down or drained when the list was made: counted as available" in trace.notes
    assert "2 nodes are in several partitions: the first one is their pool" in trace.notes


def test_nodes_that_scontrol_or_json_call_drained_are_counted(good, log):
    folder = log(job())
    (folder / "nodes.json").write_text(json.dumps({"nodes": [SCONTROL_JSON | {"state": ["IDLE", "DRAIN"]}]}))
    for trace in (good, fleetlab.read(folder, "slurm")):
        assert any(note.startswith("1 nodes were down or drained") for note in trace.notes)


def test_the_usual_sinfo_tells_no_resources_and_is_no_list_of_nodes(log):
    folder = log(job())
    (folder / "sinfo.txt").write_text("PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu* up infinite 1 idle n1\n")
    assert fleetlab.read(folder, "slurm").cluster is None


def test_jobs_held_before_they_could_start_are_counted_as_waiting_and_it_is_said(log):
    rows = [f"{k}|2024-05-01T10:00:00|2024-05-01T{at}|PENDING" for k, at in enumerate(["10:00:01", "11:00:00"])]
    trace = fleetlab.read(log(*rows, header="JobID|Submit|Eligible|State\n"), "slurm")
    assert [note[:21] for note in trace.notes if "dependency" in note] == ["1 jobs became eligibl"]


def test_a_log_that_does_not_tell_when_jobs_could_start_says_so(log):
    assert any(note.startswith("no column Eligible") for note in fleetlab.read(log(job()), "slurm").notes)


def test_the_guide_asks_for_every_column_worth_asking_for():
    guide = Path(__file__).parents[2] / "docs" / "your-own-log.md"
    assert f"-o {COLUMNS} >" in guide.read_text(encoding="utf-8")


@pytest.mark.parametrize("zone", ["Mars/Phobos", " ", "../etc/passwd", "\0"])
def test_a_zone_that_is_none_is_refused(log, zone):
    with pytest.raises(TraceError, match="unknown time zone"):
        fleetlab.read(log(job()), "slurm", zone=zone)


# -- nodes ---------------------------------------------------------------------------------------------------------


def test_blocks_and_lines_of_scontrol_are_nodes(good):
    columns = ("node", "pool", "gpu_type", "gpus", "cpu_milli", "memory_mib", "disk_mib")
    assert good.cluster.frame.select(columns).rows() == [
        ("gpu01", "gpu", "a100", 8, 62_000, 1_031_000, 900_000),
        ("gpu02", "gpu", "a100", 8, 64_000, 1_031_000, 0),
        ("gpu03", "gpu", "v100", 4, 32_000, 257_000, 0),
        ("cpu1", "cpu", None, 0, 32_000, 257_000, 0),
    ]


SINFO = """Wed May 01 10:00:00 2024
NODELIST   NODES PARTITION  CPUS MEMORY  GRES                STATE
gpu[1-2]       2      gpu*    64 1031000 gpu:a100:8(S:0-1)   mixed
gpu1           1       all    64 1031000 gpu:a100:8(S:0-1)   mixed
cpu1           1       all   32+ 257000+ (null)              idle
"""


def test_a_table_of_sinfo_is_read_and_a_node_in_two_partitions_is_one(log):
    folder = log(job())
    (folder / "sinfo.txt").write_text(SINFO)
    trace = fleetlab.read(folder / "sacct.txt", "slurm")
    assert trace.cluster.frame.select("node", "pool", "gpus", "memory_mib").rows() == [
        ("gpu1", "gpu", 8, 1_031_000),
        ("gpu2", "gpu", 8, 1_031_000),
        ("cpu1", "all", 0, 257_000),
    ]
    assert trace.counts.row(0) == ("nodes", 3, 3, 0)


SCONTROL_JSON = {"name": "g1", "cpus": 64, "real_memory": 1000, "gres": "gpu:h100:4(S:0)", "partitions": ["gpu", "all"]}
SINFO_JSON = {
    "nodes": {"nodes": ["g1"]},
    "cpus": {"minimum": 64, "maximum": 64, "total": 64},
    "memory": {"minimum": 1000},
    "gres": {"total": "gpu:h100:4"},
    "partition": {"name": "gpu"},
}


@pytest.mark.parametrize("about", [{"nodes": [SCONTROL_JSON]}, {"sinfo": [SINFO_JSON]}])
def test_nodes_may_be_json(log, about):
    folder = log(job())
    (folder / "nodes.json").write_text(json.dumps(about))
    frame = fleetlab.read(folder, "slurm").cluster.frame
    assert frame.select("node", "pool", "gpu_type", "gpus", "cpu_milli").rows() == [("g1", "gpu", "h100", 4, 64_000)]


def test_a_node_in_json_is_turned_away_by_the_line_it_begins_on(log):
    folder = log(job())
    nodes = [SCONTROL_JSON, SCONTROL_JSON | {"name": "g2", "cpus": "many"}]
    (folder / "nodes.json").write_text('{"nodes": [\n' + ",\n".join(map(json.dumps, nodes)) + "\n]}")
    rejects = fleetlab.read(folder, "slurm").rejects
    assert rejects.select("line", "reason").rows() == [(3, "`cpu` is not an amount: many")]


@pytest.mark.parametrize("text", ['{"nodes": [', '{"nodes": []} x', '{"nodes": ' + "[" * 100_000, '{"nodes": 7}'])
def test_nodes_in_broken_json_are_a_trace_error(log, text):
    folder = log(job())
    (folder / "nodes.json").write_text(text)
    with pytest.raises(TraceError, match=r"nodes\.json"):
        fleetlab.read(folder, "slurm")


def test_scontrol_is_believed_before_sinfo(log):
    folder = log(job())
    (folder / "a.txt").write_text(SINFO)
    (folder / "b.txt").write_text("NodeName=only CPUTot=2 RealMemory=100\n")
    trace = fleetlab.read(folder, "slurm")
    assert trace.cluster.frame["node"].to_list() == ["only"]
    assert "not read: a.txt" in trace.notes


def test_shards_without_nodes_count_as_whole_gpus_and_it_is_said(log):
    trace = fleetlab.read(log(job(tres="cpu=1,gres/shard=2,node=1")), "slurm")
    assert trace.workload.frame["gpu_milli"].to_list() == [1000]
    assert any("unknown size" in note and "would give" in note for note in trace.notes)


def test_shares_of_unknown_size_are_named_and_prove_no_schedule_wrong(log):
    rows = [job(name, tres="cpu=1,gres/shard=1,node=1") for name in ("1", "2")]
    folder = log(*rows, job("3", submit="2024-05-02T10:00:00", start="Unknown", end="Unknown", state="PENDING"))
    (folder / "nodes.txt").write_text("NodeName=n1 CPUTot=2 RealMemory=100 Gres=gpu:a100:1\n")
    trace = fleetlab.read(folder, "slurm")
    assert trace.series["unsized"].collect()["job"].to_list() == [0, 1]
    assert any("unknown size" in note and "does not give it" in note for note in trace.notes)
    assert fleetlab.audit(trace).feasible


# -- lists of nodes, and resources ---------------------------------------------------------------------------------


names = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True)
spans = st.tuples(st.integers(0, 99_000), st.integers(0, 50), st.integers(1, 6))


def spelt(span):
    first, more, width = span
    return [f"{n:0{width}d}" for n in range(first, first + more + 1)]


@given(st.lists(st.tuples(names, st.lists(spans, max_size=4), st.sampled_from(["", "-ib"])), min_size=1, max_size=5))
def test_a_list_of_nodes_names_what_it_was_made_of(parts):
    written, meant = [], []
    for name, ranges, ending in parts:
        inside = [spelt(span) for span in ranges]
        texts = [f"{s[0]}-{s[-1]}" if len(s) > 1 else s[0] for s in inside]
        written.append(f"{name}[{','.join(texts)}]{ending}" if ranges else f"{name}{ending}")
        meant += [f"{name}{n}{ending}" for s in inside for n in s] if ranges else [f"{name}{ending}"]
    assert expand(",".join(written)) == meant


@given(st.text(alphabet="n0189[]-,| \n", max_size=40))
def test_any_text_is_a_bounded_list_of_nodes_or_a_value_error(text):
    try:
        found = expand(text)
    except ValueError:
        return
    assert len(found) <= MOST


def test_brackets_multiply():
    assert expand("r[0-1]n[08-09]") == ["r0n08", "r0n09", "r1n08", "r1n09"]


@pytest.mark.parametrize(
    ("text", "mib"),
    [("1024K", 1), ("500M", 500), ("62.50G", 64_000), ("2T", 2**21), ("1P", 2**30), ("7", 7), ("1K", 1), ("0", 0)],
)
def test_sizes_are_binary_and_in_mebibytes(text, mib):
    assert mebibytes("mem", text) == mib


amounts = st.integers(0, 4000)


@given(gpus=amounts, cpus=amounts, memory=amounts, nodes=st.integers(1, 64), order=st.randoms())
def test_a_gang_asks_for_what_its_job_did(gpus, cpus, memory, nodes, order):
    parts = [f"gres/gpu={gpus}", f"gres/gpu:a100={gpus}", f"cpu={cpus}", f"mem={memory}G", f"node={nodes}", "billing=9"]
    order.shuffle(parts)
    found = demand(defaultdict(str, AllocTRES=",".join(parts)), 0, PerGpu())
    assert found.instances * found.gpu_milli == 1000 * gpus
    assert 0 <= found.instances * found.cpu_milli - 1000 * cpus < found.instances
    assert 0 <= found.instances * found.memory_mib - 1024 * memory < found.instances


@given(st.text(alphabet="cpumem=gres/:,0129.GK-node", max_size=40))
def test_any_text_is_a_demand_or_a_value_error(text):
    try:
        found = demand(defaultdict(str, AllocTRES=text, ReqMem=text), 0, PerGpu())
    except ValueError:
        return
    assert (found.instances >= 1, found.gpu_milli % 1000 == 0 or found.gpu_milli < 1000) == (True, True)


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "mem", "gres/gpu:a100", "node"]), st.from_regex("[0-9]{1,4}G?", fullmatch=True)
    )
)
def test_resources_come_apart_as_they_were_put_together(parts):
    assert tres(",".join(f"{name}={value}" for name, value in parts.items())) == parts


@pytest.mark.parametrize(
    ("mps", "per_gpu", "milli"), [(25, None, 250), (25, 200, 125), (100, None, 1000), (150, None, 2000)]
)
def test_mps_is_a_share_in_percent_unless_nodes_say_otherwise(mps, per_gpu, milli):
    found = demand(defaultdict(str, AllocTRES=f"gres/mps={mps},node=1"), 0, PerGpu(mps=per_gpu))
    assert found.gpu_milli == milli


@pytest.mark.parametrize(("memory", "mib"), [("4Gn", 4096), ("4Gc", 8192), ("4G", 2048), ("4000M", 2000)])
def test_memory_may_be_of_a_node_or_a_cpu_or_the_job(memory, mib):
    assert demand(defaultdict(str, ReqMem=memory, ReqCPUS="4", NNodes="2"), 0, PerGpu()).memory_mib == mib


@pytest.mark.parametrize(
    ("columns", "nodes"),
    [
        ({"AllocNodes": "2", "NNodes": "3", "ReqNodes": "4"}, 2),
        ({"AllocNodes": "0", "NNodes": "3", "ReqNodes": "4"}, 3),
        ({"AllocNodes": "", "NNodes": "", "ReqNodes": "4"}, 4),
    ],
)
def test_what_a_job_got_counts_before_what_it_asked_for(columns, nodes):
    cpus = {name.replace("Nodes", "CPUS").replace("NNCPUS", "NCPUS"): n for name, n in columns.items()}
    found = demand(defaultdict(str, columns | cpus), 0, PerGpu())
    assert (found.instances, found.instances * found.cpu_milli) == (nodes, 1000 * nodes)


def test_gpus_of_before_they_were_tracked_count_too():
    found = demand(defaultdict(str, ReqGRES="gpu:v100:2", NNodes="2"), 0, PerGpu())
    assert (found.instances, found.gpu_milli, found.gpu_types) == (2, 2000, ("v100",))


def test_lists_of_89_million_nodes_are_counted_and_not_written_out(tmp_path):
    path = tmp_path / "sacct.txt"
    row = "{0}|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|COMPLETED|n{0}-[1-99000]|cpu=1,node=99000\n"
    path.write_text("JobID|Submit|Start|End|State|NodeList|AllocTRES\n" + "".join(row.format(k) for k in range(900)))
    began = time.process_time()
    trace = fleetlab.read(path, "slurm")
    assert time.process_time() - began < 5
    assert len(trace.workload) == 900
    assert "the node lists are too long to keep: no placements" in trace.notes
