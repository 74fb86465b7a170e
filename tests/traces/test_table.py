"""Any delimited table, by a map."""

import math
import shlex
import string
import time

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.traces import table
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.table import expression

GOOD = {
    "parent": "id",
    "user": "owner",
    "submit": "`created at`",
    "start": "began",
    "end": "finished",
    "instances": "pods",
    "cpu_milli": "cores * 1000",
    "memory_mib": "mem_gb*1024",
    "gpu_milli": "gpus*1000",
    "gpu_types": "card",
    "priority": "qos",
    "status": "state",
}


@pytest.fixture
def written(tmp_path):
    """Write a table and read it."""

    def read(text, *, zone=None, since=None, **map):
        path = tmp_path / "jobs.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return fleetlab.read(path, "csv", map=map, zone=zone, since=since)

    return read


def column(trace, name):
    return trace.workload.frame[name].to_list()


# -- a whole table -------------------------------------------------------------------------------------------------


def test_a_mapped_table_is_read_in_the_house_s_units(fixtures):
    frame = fleetlab.read(fixtures / "csv" / "good" / "jobs.csv", "csv", map=GOOD).workload.frame
    assert frame["gpu_milli"].to_list() == [8000, 250, 1000, 0, 2000]
    assert frame["memory_mib"].to_list() == [524_288, 16_896, 65_536, 4096, 65_536]
    assert frame["gpu_types"].to_list() == [["A100", "H100"], ["T4"], ["A100", "H100"], [], []]
    assert frame["user"].to_list() == ["ann", "bob", "ann", None, "eve;x"]


def test_a_good_table_has_no_rejects(fixtures):
    assert fleetlab.read(fixtures / "csv" / "good", "csv", map=GOOD).rejects.is_empty()


def test_jobs_of_one_job_share_its_number(fixtures):
    frame = fleetlab.read(fixtures / "csv" / "good", "csv", map=GOOD).workload.frame
    assert frame["parent"].to_list() == [0, 1, 0, 2, 3]


def test_a_job_that_has_not_ended_is_kept_without_a_service(fixtures):
    frame = fleetlab.read(fixtures / "csv" / "good", "csv", map=GOOD).workload.frame
    assert frame["status"].to_list() == ["completed", "failed", "running", "waiting", "cancelled"]
    assert frame["runtime"].to_list() == [600, 30.5, None, None, None]


def test_an_empty_cell_is_taken_as_none_and_said_so(fixtures):
    notes = fleetlab.read(fixtures / "csv" / "good", "csv", map=GOOD).notes
    assert "empty cells of `gpu_milli` are read as 0: 1" in notes


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "csv" / "bad", "csv", map={"gpu_milli": "gpus*1000"})
    assert trace.rejects.select("line", "reason").rows() == [
        (3, "11 columns expected, got: 3"),
        (4, "`submit` is not a time: yesterday"),
        (5, "`submit` is missing"),
        (6, "`submit` is not finite: NaN"),
        (7, "`submit` is out of range for a date: 1.0000000000000001e+21"),
        (8, "`submit` is not a Unix time, unlike other rows: 12.0"),
        (9, "started before it was submitted: 1714550399.0"),
        (10, "ended before it started: 1714550409.0"),
        (11, "ended before it was submitted: 1714550399.0"),
        (12, "`runtime` is negative: -5.0"),
        (13, "`gpus` is not a number: many"),
        (14, "`instances` is below 1: 0.0"),
        (15, "neither a fraction of one GPU nor a multiple of 1000: 1500.0"),
        (16, "less than 1/1000 of a GPU: 0.00009999999999999999"),
        (17, "`cpu_milli` is negative: -1.0"),
        (18, "`instances` is too large: 9999999999.0"),
        (19, "`memory_mib` is too large: 1e+300"),
        (20, "`cpu_milli` is not finite: inf"),
        (21, "unknown status: exploded"),
        (22, "`status` is missing"),
        (23, "duplicate job: good"),
        (24, "`job` is missing"),
        (25, "`priority` is too large: 3000000000.0"),
    ]


def test_a_column_of_a_workload_s_name_needs_no_map(written):
    trace = written("submit,gpu_milli,user\n5,1000,ann\n7,500,bob\n")
    assert (column(trace, "submit"), column(trace, "gpu_milli")) == ([0, 2], [1000, 500])


def test_a_mapped_job_gives_the_names(written):
    trace = written("id,t\nb,5\na,3\n", submit="t", job="id")
    assert trace.names.collect().rows() == [(0, "a"), (1, "b")]


def test_the_log_of_another_format_may_be_read_as_a_table(fixtures):
    path = fixtures / "openb2023" / "good" / "openb_pod_list_default.csv"
    trace = fleetlab.read(path, "csv", map={"submit": "creation_time", "gpu_milli": "num_gpu*gpu_milli"})
    assert column(trace, "gpu_milli") == [1000, 0, 460, 8000, 250]


def test_a_table_without_rows_is_a_trace_without_jobs(written):
    assert len(written("submit,gpu_milli,job,gpu_types,status\n").workload) == 0


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_the_separator_is_found_in_the_header(written, separator):
    text = separator.join(["submit", '"a,b;c"', "gpu_milli"]) + "\n" + separator.join(["0", "x", "250"]) + "\n"
    assert column(written(text), "gpu_milli") == [250]


def test_numbers_of_jobs_stay_as_they_are(written):
    assert column(written("submit,parent\n0,77\n1,12\n2,77\n"), "parent") == [77, 12, 77]


def test_a_row_that_names_no_job_is_a_job_of_its_own(written):
    assert len(set(column(written("submit,parent\n0,\n1,a\n2,\n3,a\n"), "parent"))) == 3


def test_a_quoted_word_is_the_same_in_every_row(written):
    assert column(written("submit\n0\n1\n", gpu_types="'A100;H100'"), "gpu_types") == [["A100", "H100"]] * 2


# -- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        "1714550400",
        "1714550400.0",
        "1714550400000",
        "1714550400000000",
        "1714550400000000000",
        "2024-05-01T08:00:00Z",
        "2024-05-01 08:00:00",
        "2024-05-01T08:00",
        "2024-05-01T08:00:00.000000000+00:00",
        "2024-05-01T16:00:00+08:00",
        "2024-05-01T03:30:00,0 -0430",
        "2024-05-01 09:00:00+01",
    ],
)
def test_a_moment_is_known_by_how_it_looks(written, moment):
    assert written(f'submit\n"{moment}"\n').workload.epoch == 1714550400


def test_milliseconds_are_said_in_the_notes(written):
    assert "submit: Unix time in milliseconds, judged by magnitude" in written("submit\n1714550400123\n").notes


def test_small_numbers_are_seconds_of_no_known_day(written):
    trace = written("submit,start,end\n100,110,250\n200,200,201\n")
    assert trace.workload.epoch is None
    assert column(trace, "runtime") == [140, 1]


def test_a_date_among_seconds_is_turned_away(written):
    trace = written("submit\n1\n2\n2024-05-01\n")
    assert trace.rejects["reason"].to_list() == ["`submit` is a date, but other rows have seconds: 2024-05-01T00:00:00"]


def test_dates_and_unix_times_may_stand_together(written):
    trace = written("submit\n2024-05-01T08:00:00Z\n1714550401\n1714550402000\n")
    assert column(trace, "submit") == [0, 1, 2]


def test_a_time_without_a_zone_is_by_the_clock_named(written):
    trace = written("submit\n2024-05-01 08:00:00\n", zone="Asia/Shanghai")
    assert (trace.workload.epoch, trace.workload.zone) == (1714521600, "Asia/Shanghai")


def test_a_time_without_a_zone_is_else_taken_as_utc_and_said_so(written):
    notes = written("submit\n2024-05-01 08:00:00\n").notes
    assert any("read as UTC" in note for note in notes)


def test_an_hour_that_never_was_is_turned_away_as_skipped(written):
    trace = written("submit\n2024-03-31 02:30:00\n2024-03-31 03:30:00\n", zone="Europe/Berlin")
    assert trace.rejects["reason"].to_list() == [
        "`submit` does not exist in Europe/Berlin: clocks were set forward: 2024-03-31 02:30:00"
    ]


TWICE = """submit,start,end
2024-10-27T02:40:00,2024-10-27T02:50:00,2024-10-27T02:10:00
2024-10-27T02:40:00,2024-10-27T02:10:00,2024-10-27T02:30:00
2024-10-27T02:40:00,2024-10-27T02:50:00,2024-10-27T03:10:00
2024-10-27T02:40:00,,2024-10-27T02:10:30.5
"""


def test_of_an_hour_that_came_twice_the_second_is_meant_where_the_first_cannot_be(written):
    trace = written(TWICE, zone="Europe/Berlin")
    assert trace.rejects.is_empty()
    # The one without a start ran when the log began, and comes first.
    assert column(trace, "start") == [None, 600, 1800, 600]
    assert column(trace, "end") == [1830.5, 1800, 3000, 5400]


def test_a_clock_that_goes_back_half_an_hour_is_known_too(written):
    rows = "submit,start\n2024-04-07T01:50:00,2024-04-07T01:40:00\n"
    assert column(written(rows, zone="Australia/Lord_Howe"), "start") == [1200]


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ("2024-05-01T09:00:00", "2024-05-01T09:00:00"),
        ("2024-05-01T07:00:00Z", "2024-05-01T07:00:00Z"),
        ("1714546800000", "1714546800000"),
    ],
)
def test_a_time_out_of_order_is_shown_as_it_was_written(written, end, shown):
    good = "2024-05-01T10:00:00,2024-05-01T10:00:01,2024-05-01T11:00:00\n"
    text = f"submit,start,end\n{good}2024-05-01T10:00:00,2024-05-01T10:00:01,{end}\n"
    assert written(text, zone="Europe/Berlin").rejects["reason"].to_list() == [f"ended before it started: {shown}"]


def test_a_table_too_may_begin_in_the_middle(written):
    text = "submit,start,end\n0,10,2000\n0,10,500\n1500,1500,1600\n"
    trace = written(text, since="1000")
    assert trace.workload.frame.select("submit", "start", "end").rows() == [(0, None, 1000), (500, 500, 600)]
    assert trace.rejects["reason"].to_list() == ["ended before `since`: 500.0"]


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("Evicted", "cancelled"),
        ("Preempted", "cancelled"),
        ("OOMKilled", "failed"),
        ("OutOfMemory", "failed"),
        ("Out of Memory", "failed"),
        ("OUT_OF_MEMORY", "failed"),
        ("NodeFail", "failed"),
        ("NODE_FAIL", "failed"),
        ("Timeout", "failed"),
        ("timed out", "failed"),
        ("DeadlineExceeded", "failed"),
        ("CANCELLED by 1234", "cancelled"),
        ("FAILED (exit 1)", "failed"),
    ],
)
def test_a_status_is_known_by_the_words_of_common_systems(written, word, status):
    assert column(written(f"submit,status\n0,{word}\n"), "status") == [status]


def test_zero_among_unix_times_means_that_it_has_not_happened(written):
    trace = written("submit,start,end\n1714550400,1714550401,0\n1714550400,-1,0\n1714550400,1714550400,1714550409\n")
    assert column(trace, "status") == ["running", "waiting", "completed"]
    assert column(trace, "start") == [1, None, 0]


def test_service_is_reckoned_in_seconds_whatever_the_clock_counts_in(written):
    text = "submit,a,b\n1714550400000,1714550401000,1714550403500\n"
    assert column(written(text, start="a", end="b", runtime="b-a"), "runtime") == [2.5]


def test_dates_can_be_reckoned_with(written):
    text = "submit,a,b\n2024-05-01,2024-05-01 00:00:01,2024-05-02 00:00:01\n"
    assert column(written(text, runtime="(b - a)/2"), "runtime") == [43_200]


def test_a_large_amount_is_not_mistaken_for_a_time(written):
    assert column(written("submit,bytes\n0,549755813888\n", memory_mib="bytes/1048576"), "memory_mib") == [524_288]


def test_the_end_of_a_job_still_running_is_passed_over(written):
    trace = written("submit,start,end,runtime,status\n0,1,9,8,RUNNING\n")
    assert (column(trace, "runtime"), column(trace, "end")) == ([None], [None])


@pytest.mark.parametrize(
    ("header", "note", "status"),
    [
        ("submit", "no status, start or end: all jobs are read as completed", "completed"),
        ("submit,start", "no status and no end: a job without a start is read as waiting", "waiting"),
        ("submit,end", "no status: a job without an end is read as running", "running"),
        ("submit,runtime", "no status: a job without a runtime is read as running", "running"),
        ("submit,start,end", "no status: a job without an end is read as running, or as waiting if", "waiting"),
    ],
)
def test_what_is_said_of_a_missing_status_is_what_was_done(written, header, note, status):
    trace = written(f"{header},x\n0{',' * header.count(',')},1\n")
    assert any(told.startswith(note) for told in trace.notes)
    assert column(trace, "status") == [status]


# -- slips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expression", "advice"),
    [
        ("gpus", "gpus", "--map gpu_milli=gpus*1000"),
        ("GPU count", "`GPU count`", "--map 'gpu_milli=`GPU count`*1000'"),
        ("gpus", "gpus*1", "multiply by 1000"),
    ],
)
def test_gpus_that_are_taken_for_thousandths_are_noticed(written, name, expression, advice):
    trace = written(f"submit,{name}\n0,1\n1,8\n2,0\n", gpu_milli=expression)
    assert f"gpu_milli never exceeds 8: if these are GPUs, {advice}" in trace.notes


@pytest.mark.parametrize("most", [0, 17, 1000])
def test_thousandths_that_can_be_meant_are_let_be(written, most):
    assert not any("never exceeds" in note for note in written(f"submit,gpu_milli\n0,0\n1,{most}\n").notes)


def test_partitions_queues_constraints_and_limits_are_mapped(written):
    trace = written(
        "submit,part,team,level,wants,wall\n0,a100; h100,physics,high,ib&big,60\n1,,,,,\n",
        partitions="part", queue="team", qos="level", constraint="wants", limit="wall*60",
    )  # fmt: skip
    frame = trace.workload.frame.select("partitions", "queue", "qos", "constraint", "limit")
    assert frame.rows() == [(["a100", "h100"], "physics", "high", "ib&big", 3600), ([], None, None, None, None)]


def test_a_partition_that_nobody_mapped_is_a_partition_and_the_app(written):
    frame = written("submit,partition\n0,a100\n").workload.frame
    assert frame.select("partitions", "app").rows() == [(["a100"], "a100")]


# -- columns that nobody mapped ------------------------------------------------------------------------------------


def test_gpus_that_nobody_mapped_are_requested(written):
    trace = written("submit,gpus\n0,8\n1,0.5\n")
    assert column(trace, "gpu_milli") == [8000, 500]
    assert trace.notes[0] == "columns read: submit, gpu_milli=gpus*1000"


@pytest.mark.parametrize(
    ("name", "target", "value", "read"),
    [
        *[(name, "gpu_milli", "2", 2000) for name in ("num_gpus", "GPU count", "nGPUs", "gpu_request", "AllocGPUs")],
        ("nvidia.com/gpu", "gpu_milli", "2", 2000),
        ("plan_gpu", "gpu_milli", "50", 500),
        *[(name, "cpu_milli", "4", 4000) for name in ("cpus", "NCPUS", "cpu", "cores", "req_cpus")],
        ("plan_cpu", "cpu_milli", "600", 6000),
        ("mem", "memory_mib", "64", 64),
        ("memory_gb", "memory_mib", "64", 65_536),
        ("Memory (MB)", "memory_mib", "64", 64),
        ("mem_bytes", "memory_mib", "67108864", 64),
        ("duration", "runtime", "90", 90),
        ("walltime_h", "runtime", "2", 7200),
        ("runtime_min", "runtime", "2", 120),
        ("gpu", "gpu_types", "A100", ["A100"]),
        ("gpu", "gpu_milli", "2", 2000),
        ("inst_num", "instances", "3", 3),
        ("state", "status", "NODE_FAIL", "failed"),
        ("username", "user", "ann", "ann"),
        ("jobname", "group", "train", "train"),
        ("account", "app", "physics", "physics"),
        ("Partition", "app", "a100", "a100"),
    ],
)
def test_a_column_is_known_by_the_names_of_common_logs(written, name, target, value, read):
    assert column(written(f'submit,"{name}"\n0,{value}\n'), target) == [read]


@pytest.mark.parametrize("names", [("submit_time", "start_time", "end_time"), ("queued_at", "started_at", "finished")])
def test_times_are_known_by_the_names_of_common_logs(written, names):
    trace = written(f"{','.join(names)},elapsed\n5,7,9,00:00:02\n")
    assert [column(trace, name) for name in ("submit", "start", "end", "runtime")] == [[0], [2], [4], [2]]
    assert "columns not used: elapsed" in trace.notes


def test_a_guess_is_shown_with_the_options_that_say_the_same(written):
    text = "JobID,Submit Time,gpus,mem,colour\n7,2024-05-01T08:00:00Z,2,64,red\n"
    notes = written(text).notes
    assert notes[:4] == (
        "columns read: job=JobID, submit=`Submit Time`, memory_mib=mem, gpu_milli=gpus*1000",
        "guessed from their names: submit, gpu_milli, memory_mib, job; by hand: --map 'submit=`Submit Time`' "
        "--map gpu_milli=gpus*1000 --map memory_mib=mem --map job=JobID",
        "units taken: mem in MiB",
        "columns not used: colour",
    )
    by_hand = dict(w.split("=", 1) for w in shlex.split(notes[1].rpartition("by hand: ")[2]) if w != "--map")
    assert written(text, **by_hand).workload.frame.equals(written(text).workload.frame)


def test_two_columns_that_could_be_meant_are_refused_by_name(written):
    with pytest.raises(fleetlab.TraceError) as e:
        written("submit,gpus,num_gpus\n0,1,2\n")
    assert str(e.value) == "the column for `gpu_milli` is ambiguous: `gpus` or `num_gpus`"
    assert e.value.hint == "say which: --map gpu_milli=gpus*1000 or --map gpu_milli=num_gpus*1000"


def test_a_column_that_a_map_uses_is_not_guessed_again(written):
    assert column(written("submit,gpus\n0,4\n", instances="gpus"), "gpu_milli") == [0]


def test_a_guess_can_be_refused(written):
    trace = written("submit,gpus,start,end,duration\n0,4,2,9,5\n", gpu_milli="0", end="''")
    assert [column(trace, name) for name in ("gpu_milli", "end", "runtime")] == [[0], [None], [5]]


def test_a_guessed_id_that_comes_twice_rejects_nothing(written):
    trace = written("submit,job_id\n0,a\n1,a\n2,\n")
    assert trace.names.collect()["name"].to_list() == ["a", "a", None]


# -- jobs over several nodes ---------------------------------------------------------------------------------------


def test_a_job_of_more_gpus_than_a_node_has_becomes_equal_instances(written):
    text = "submit,gpus,cpus,mem_gb,gpu_mem_gb\n0,16,33,100,40\n1,12,8,8,40\n2,8,8,8,40\n3,0.5,1,1,40\n4,24,3,3,40\n"
    trace = written(text, gpus_per_node="8")
    assert column(trace, "instances") == [2, 2, 1, 1, 3]
    assert column(trace, "gpu_milli") == [8000, 6000, 8000, 500, 8000]
    assert column(trace, "cpu_milli") == [16_500, 4000, 8000, 1000, 1000]
    assert column(trace, "memory_mib") == [51_200, 4096, 8192, 1024, 1024]
    assert set(column(trace, "gpu_memory_mib")) == {40_960}
    assert any(note.startswith("jobs of more GPUs than") and note.endswith(": 3") for note in trace.notes)


def test_instances_that_are_split_multiply(written):
    trace = written("submit,gpus,replicas,node_gpus\n0,16,3,8\n1,16,3,\n", gpus_per_node="node_gpus")
    assert (column(trace, "instances"), column(trace, "gpu_milli")) == ([6, 3], [8000, 16_000])


def test_gpus_that_no_equal_instances_have_are_rejected(written):
    trace = written("submit,gpus\n0,16\n1,9\n2,17\n", gpus_per_node="8")
    assert trace.rejects["reason"].to_list() == [
        "cannot be split equally over the fewest nodes of `gpus_per_node`: 9 GPUs on 2 nodes",
        "cannot be split equally over the fewest nodes of `gpus_per_node`: 17 GPUs on 3 nodes",
    ]


@pytest.mark.parametrize(("size", "reason"), [("0", "is below 1"), ("7.5", "is not a whole number"), ("1e12", "large")])
def test_a_node_without_gpus_splits_nothing(written, size, reason):
    with pytest.raises(fleetlab.TraceError, match=reason):
        written("submit,gpus\n0,16\n", gpus_per_node=size)


def test_more_instances_than_there_can_be_are_rejected(written):
    trace = written("submit,gpus,instances\n0,2000,2000000000\n1,8,1\n", gpus_per_node="8")
    assert trace.rejects["reason"].to_list() == ["`instances` is too large once split: 2000000000"]


def test_without_gpus_there_is_nothing_to_split(written):
    with pytest.raises(fleetlab.TraceError, match="there are no GPUs to split"):
        written("submit\n0\n", gpus_per_node="8")


def test_the_same_split_can_be_said_with_functions(written):
    trace = written("submit,g\n0,16\n1,4\n", gpu_milli="min(g,8)*1000", instances="ceil(g/8)")
    assert (column(trace, "gpu_milli"), column(trace, "instances")) == ([8000, 4000], [2, 1])


@pytest.mark.parametrize("name", ["instances", "max_per_node", "priority"])
def test_a_part_of_what_has_no_parts_is_rejected(written, name):
    trace = written("submit,x\n0,1.6\n1,2\n2,3.0000000001\n", **{name: "x"})
    assert trace.rejects["reason"].to_list() == [f"`{name}` is not a whole number: 1.6"]
    assert column(trace, name) == [2, 3]


# -- bad maps, bad files -------------------------------------------------------------------------------------------


def test_a_division_by_zero_turns_the_row_away(written):
    trace = written("submit,a,b\n0,1,0\n0,4,2\n", runtime="a/b")
    assert trace.rejects["reason"].to_list() == ["`runtime` is not finite: inf"]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("gpus*(1000", "map of `gpu_milli`: a parenthesis is opened here and not closed\n  gpus*(1000\n       ^"),
        ("gpus 1000", "map of `gpu_milli`: a sign + - * / is missing\n  gpus 1000\n       ^"),
        ("gpus * ", "map of `gpu_milli`: it ends too early\n  gpus * \n         ^"),
        ("gpus $ 2", "map of `gpu_milli`: no such sign in an expression: $\n  gpus $ 2\n       ^"),
        ("abs(gpus)", "map of `gpu_milli`: no such function: abs; there are floor, ceil, min, max\n  abs(gpus)\n  ^"),
        ("floor(1,2)", "map of `gpu_milli`: 1 expected in these parentheses, got: 2\n  floor(1,2)\n       ^"),
        ("min(gpus)", "map of `gpu_milli`: 2 expected in these parentheses, got: 1\n  min(gpus)\n     ^"),
        ("max(gpus,)", "map of `gpu_milli`: a column or a number is missing\n  max(gpus,)\n           ^"),
        ("min(gpus,8", "map of `gpu_milli`: a parenthesis is opened here and not closed\n  min(gpus,8\n     ^"),
        ("max(gpus,'x')", "map of `gpu_milli`: a quoted word cannot be reckoned with\n  max(gpus,'x')\n  ^"),
        ("gpus,8", "map of `gpu_milli`: a sign + - * / is missing\n  gpus,8\n      ^"),
        ("'x'*2", "map of `gpu_milli`: a quoted word cannot be reckoned with\n  'x'*2\n  ^"),
        ("'x'", "map of `gpu_milli`: `gpu_milli` is a number, not a word\n  'x'\n  ^"),
        ("`gpus", "map of `gpu_milli`: a quote is opened and not closed\n  `gpus\n  ^"),
        ("GPU", "no column of the file for `gpu_milli` by that name: `GPU`; did you mean gpus?"),
    ],
)
def test_a_bad_map_is_shown_where_it_fails(written, expression, what):
    with pytest.raises(fleetlab.TraceError) as e:
        written("submit,gpus\n0,1\n", gpu_milli=expression)
    assert str(e.value) == what


@pytest.mark.parametrize(
    "expression",
    ["(" * 10_000 + "1" + ")" * 10_000, "-" * 400 + "1", "1" + "+1" * 10_000, "ceil(" * 70 + "1" + ")" * 70],
)
def test_a_map_too_large_is_refused(written, expression):
    with pytest.raises(fleetlab.TraceError, match=r"longer than|inside one another"):
        written("submit\n0\n", runtime=expression)


def test_the_longest_map_is_still_reckoned(written):
    assert column(written("submit\n0\n", runtime="1" + "+1" * 249), "runtime") == [250]


def test_a_column_that_no_workload_has_is_refused_with_the_nearest(written):
    with pytest.raises(
        fleetlab.TraceError, match=r"no column of a workload by that name: `gpu_mili`; did you mean gpu_milli\?"
    ):
        written("submit\n0\n", gpu_mili="1")


def test_a_table_without_submit_says_which_columns_look_like_times(written):
    with pytest.raises(fleetlab.TraceError) as e:
        written("name,when,gpus\na,2024-05-01T08:00:00Z,1\n")
    assert e.value.hint == "it has name, when, gpus; likely times: when; --map submit=when"


@pytest.mark.parametrize("name", ["sent off", "1st seen", "a,b", "seen it's", "zeit_für"])
def test_a_hint_that_is_followed_works(written, name):
    text = f'"{name}",gpus\n2024-05-01T08:00:00Z,1\n'
    with pytest.raises(fleetlab.TraceError) as e:
        written(text)
    option, given = shlex.split(e.value.hint.rpartition("; ")[2])
    target, _, expression = given.partition("=")
    assert (option, len(written(text, **{target: expression}).workload)) == ("--map", 1)


@pytest.mark.parametrize(
    "text", ['{"kind": "List"}', "{\n", '[{"a": 1}]', "[\n", "[1, 2]", "<html>", '<?xml version="1.0"?>']
)
def test_json_and_pages_are_said_to_be_no_tables(written, text):
    with pytest.raises(fleetlab.TraceError, match="not a delimited table"):
        written(text, submit="0")


def test_names_in_brackets_are_names(written):
    assert column(written("[id],[t]\n7,1\n8,3\n", submit="`[t]`"), "submit") == [0, 2]


@pytest.mark.parametrize("text", [b"", b"\n", b"\xff\xfe\x00submit\n1\n", b"submit,submit\n1,2\n", b"PK\x03\x04\x00"])
def test_what_is_no_table_is_refused(written, text):
    with pytest.raises(fleetlab.TraceError):
        written(text, submit="0")


def test_an_unknown_zone_is_refused(written):
    with pytest.raises(fleetlab.TraceError, match="unknown time zone: `Mars/Base`"):
        written("submit\n0\n", zone="Mars/Base")


def test_a_folder_of_several_files_is_refused(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("submit\n0\n")
    with pytest.raises(fleetlab.TraceError, match="not one file, but 2"):
        fleetlab.read(tmp_path, "csv")


CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1e30", "nan", "inf", "1714550400", "9" * 25, "2024-05-01", "0001-01-01T00:00:00Z"]
    ),
    st.floats().map(str),
    st.integers().map(str),
    st.text(string.printable + "é\0", max_size=8),
)
HEADER = ["submit", "start", "end", "runtime", "gpu_milli", "instances", "parent", "job", "status", "gpu_types", "user"]


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.lists(CELLS, min_size=len(HEADER), max_size=len(HEADER)), max_size=6))
def test_whatever_stands_in_a_table_every_row_is_kept_or_turned_away(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any") / "any.csv"
    path.write_text("\n".join(",".join(row) for row in [HEADER, *rows]), "utf-8", newline="")
    trace = table.read(path, Intake())  # a row lost, or an error of another kind, would raise
    assert trace.counts.row(0)[1] == len(trace.workload) + trace.rejects.height


# -- the little language ------------------------------------------------------------------------------------------

VALUES = {"a": 3.5, "b c": -2.0, "zero": 0.0, "big": 1e300}


def expressions():
    leaves = st.one_of(
        st.sampled_from(["a", "`b c`", "zero", "big"]).map(lambda n: (n, ("column", n.strip("`")))),
        st.floats(0, 1e6).map(lambda x: (repr(x), ("number", x))),
    )

    def grown(inner):
        signs = st.sampled_from("+-*/")
        joined = st.tuples(inner, signs, inner).map(
            lambda t: (f"({t[0][0]}) {t[1]}({t[2][0]})", (t[1], t[0][1], t[2][1]))
        )
        minus = inner.map(lambda t: (f"-({t[0]})", ("minus", t[1])))
        rounded = st.tuples(st.sampled_from(["floor", "ceil"]), inner).map(
            lambda t: (f"{t[0]}({t[1][0]})", (t[0], t[1][1]))
        )
        chosen = st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: (f"{t[0]}({t[1][0]}, {t[2][0]})", (t[0], t[1][1], t[2][1]))
        )
        return st.one_of(joined, minus, rounded, chosen)

    return st.recursive(leaves, grown, max_leaves=12)


def plain(tree):
    """What the expression is, reckoned with Python's own floats."""
    if tree[0] == "column":
        return VALUES[tree[1]]
    if tree[0] == "number":
        return tree[1]
    if tree[0] == "minus":
        return -plain(tree[1])
    if tree[0] in ("floor", "ceil"):
        number = plain(tree[1])
        return float(getattr(math, tree[0])(number)) if math.isfinite(number) else number
    left, right = plain(tree[1]), plain(tree[2])
    if tree[0] in ("min", "max"):
        return math.nan if math.isnan(left + right) else {"min": min, "max": max}[tree[0]](left, right)
    if tree[0] == "/":
        return _divided(left, right)
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]]


def _divided(left, right):
    if right:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_an_expression_is_reckoned_as_floats_are(made):
    text, tree = made
    if len(text) > expression.LONGEST:
        return
    found = expression.evaluate(expression.parse(text), lambda name: pl.Series([VALUES[name]]), 1)
    assert found[0] == pytest.approx(plain(tree), rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "value"), [("1+2*3", 7), ("8/4/2", 1), ("1-2-3", -4), ("-2*-3", 6), ("2*(1+3)", 8), ("1e3+.5", 1000.5)]
)
def test_signs_bind_as_on_paper(text, value):
    assert expression.evaluate(expression.parse(text), pl.Series, 1)[0] == value


# -- real tables --------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_a_published_request_log_is_read_by_a_map(data):
    path = data / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv"
    trace = table.read(path, Intake(), map={"submit": "TIMESTAMP", "gpu_milli": "1000"})
    assert (len(trace.workload), trace.rejects.height) == (8819, 0)  # as its README counts them


@pytest.mark.data
def test_a_published_sample_of_jobs_is_read_by_a_map(data):
    path = data / "alibaba-pai-v2020" / "task_sample_60105" / "alibaba_trace_sub.csv"
    map = {"job": "job_id", "submit": "arrival_s", "runtime": "service_sec", "gpu_milli": "gpu_count*1000"}
    trace = table.read(path, Intake(), map=map)
    assert len(trace.workload) + trace.rejects.height == 60_105
    assert trace.rejects.is_empty()


def test_a_column_of_estimates_becomes_a_series_that_policies_may_order_by(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("id,submit,runtime,gpus,guess\na,0,10,1,10\nb,1,8,1,8\nc,2,2,1,90\nd,3,1,1,\n")
    trace = fleetlab.read(file, "csv", map={"estimate": "guess", "gpu_milli": "gpus*1000", "job": "id"})
    assert trace.series["estimate"].collect().rows() == [(0, 10.0), (1, 8.0), (2, 90.0)]
    run = fleetlab.simulate(trace, fleetlab.Cluster.uniform(1, 1), order="sjf", estimate="estimate")
    # Believed to be long, c goes last; of d nothing is known, and its true runtime is taken.
    assert run.jobs["start"].to_list() == [0.0, 11.0, 19.0, 10.0]


def test_an_estimate_below_zero_is_turned_away(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("submit,runtime,estimate\n0,10,-1\n1,8,8\n")
    trace = fleetlab.read(file, "csv")
    assert len(trace.workload) == 1
    assert trace.rejects["reason"].to_list() == ["`estimate` is negative: -1.0"]


def test_a_first_line_of_a_million_columns_is_refused_at_once(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("submit,runtime" + ",c" * 1_000_000 + "\n")
    began = time.process_time()
    with pytest.raises(fleetlab.TraceError, match=r"wide.csv: .*,\d+ columns in its first line"):
        fleetlab.read(path, "csv")
    assert time.process_time() - began < 5
