"""Logs of the Parallel Workloads Archive."""

import gzip
import random

import pytest

import fleetlab

LINE = "{job} {submit} 1 60 4 -1 -1 {processors} 120 -1 1 12 3 7 1 -1 -1 -1\n"


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "swf" / "good", "swf")


def log(folder, *lines):
    path = folder / "lab.swf"
    path.write_text("".join(lines))
    return path


def line(job=1, submit=0, processors=4):
    return LINE.format(job=job, submit=submit, processors=processors)


def test_a_processor_is_an_instance_with_one_cpu(good):
    frame = good.workload.frame.select("instances", "cpu_milli", "gpu_milli")
    assert frame.rows() == [(4, 1000, 0), (2, 1000, 0), (2, 1000, 0), (8, 1000, 0), (1, 1000, 0), (1, 0, 0)]


def test_times_follow_from_wait_and_run(good):
    frame = good.workload.frame.select("submit", "start", "end", "runtime", "status")
    assert frame.rows() == [
        (0, 10, 70, 60, "completed"),
        (5, None, None, None, "cancelled"),
        (10, 15, 35, 20, "failed"),
        (20, None, None, None, "waiting"),
        (30, 40, 70, 30, "completed"),
        (40, 41, 42.5, 1.5, "completed"),
    ]


def test_numbers_of_people_become_names_and_minus_one_nobody(good):
    frame = good.workload.frame.select("user", "group", "app")
    assert frame.rows()[::5] == [("12", "3", "7"), (None, None, None)]


def test_memory_asked_for_is_rounded_up_to_whole_mib(good):
    assert good.workload.frame["memory_mib"].to_list() == [2, 0, 1, 0, 0, 0]


def test_what_users_asked_for_in_time_is_a_series(good):
    assert good.series["requested"].collect().rows() == [(0, 120), (1, 60), (3, 600)]


def test_bursts_of_a_job_are_kept_beside_it(good):
    assert good.series["bursts"].collect().rows() == [(4, 10, 10, "continued"), (4, 5, 20, "completed")]
    assert good.counts.rows() == [("jobs", 8, 8, 0)]


def test_the_header_tells_when_it_was_and_how_large_the_machine(good):
    assert (good.workload.epoch, good.workload.zone) == (1_000_000_100, "US/Pacific")
    assert good.cluster.frame["cpu_milli"].to_list() == [3000, 3000, 2000]


def test_every_job_fits_into_the_memory_of_the_machine(good):
    memory = good.cluster.frame["memory_mib"] - good.cluster.frame["cpu_milli"] // 1000 * 2
    assert memory.to_list() == [0, 0, 0]


def test_a_machine_without_nodes_is_one_node(tmp_path):
    cluster = fleetlab.read(log(tmp_path, "; MaxProcs: 64\n", line()), "swf").cluster
    assert cluster.frame["cpu_milli"].to_list() == [64_000]


def test_a_zone_that_is_named_goes_before_that_of_the_header(tmp_path):
    path = log(tmp_path, "; UnixStartTime: 1000\n; TimeZoneString: US/Pacific\n", line())
    assert fleetlab.read(path, "swf", zone="Asia/Tokyo").workload.zone == "Asia/Tokyo"


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "swf" / "bad", "swf")
    assert trace.rejects.select("line", "reason").rows() == [
        (5, "duplicate job number: 1.0"),
        (6, "18 fields expected, got: 17"),
        (7, "`run` is not a number: long"),
        (8, "`wait` is not finite: NaN"),
        (9, "`allocated` is not a whole number: 4.5"),
        (10, "`processors` is too large: 1e+30"),
        (11, "`wait` is negative: -5.0"),
        (12, "`submit` is implausibly long: 1000000000000.0"),
        (13, "`processors` is more than any machine has: 20000000.0"),
        (14, "unknown status: 9.0"),
        (15, "no submit time"),
        (16, "a burst of a job that has no line: 12.0"),
        (17, "no job number: -1.0"),
        (18, "`memory` is more than any machine has: 10000000000000.0"),
    ]


def test_a_header_that_makes_no_sense_is_said_to_tell_nothing(fixtures):
    trace = fleetlab.read(fixtures / "swf" / "bad", "swf")
    assert (trace.cluster, trace.workload.epoch, trace.workload.zone) == (None, None, None)
    assert "the header has no known time zone: Mars/Olympus" in trace.notes


def test_a_comment_in_another_encoding_is_no_row(tmp_path):
    path = tmp_path / "lab.swf"
    path.write_bytes("; Installation: Universität\n".encode("latin-1") + line().encode())
    assert fleetlab.read(path, "swf").counts.rows() == [("jobs", 1, 1, 0)]


def test_a_packed_log_with_windows_line_ends_is_the_same_log(tmp_path, fixtures, good):
    path = tmp_path / "lab.swf.gz"
    plain = (fixtures / "swf" / "good" / "lab.swf").read_bytes()
    path.write_bytes(gzip.compress(plain.replace(b"\n", b"\r\n")))
    assert fleetlab.read(path, "swf").workload.frame.equals(good.workload.frame)


def test_a_line_without_an_end_is_turned_away_by_its_number(tmp_path):
    path = log(tmp_path, line(), "7" * 2_000_000 + "\n", line(job=2))
    trace = fleetlab.read(path, "swf")
    assert trace.rejects.select("line", "reason").rows() == [(2, "the line is longer than 1,048,576 bytes")]
    assert trace.counts.rows() == [("jobs", 3, 2, 1)]


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path, text):
    with pytest.raises(fleetlab.TraceError, match="the file is empty"):
        fleetlab.read(log(tmp_path, text), "swf")


@pytest.mark.parametrize(
    "data",
    [b"id,when\n1,2\n", random.Random(1).randbytes(100_000), b"; MaxProcs: 8\n1 2 3\n", b"7" * 2_000_000 + b"\n"],
    ids=["csv", "noise", "short", "long"],
)
def test_what_has_no_line_of_18_numbers_is_refused(tmp_path, data):
    (tmp_path / "lab.swf").write_bytes(data)
    with pytest.raises(fleetlab.TraceError, match="not a log in the Standard Workload Format"):
        fleetlab.read(tmp_path / "lab.swf", "swf")


def test_a_log_of_comments_alone_is_an_empty_trace(tmp_path):
    trace = fleetlab.read(log(tmp_path, "; MaxProcs: 64\n"), "swf")
    assert (len(trace.workload), trace.cluster.frame["cpu_milli"].to_list()) == (0, [64_000])


def test_a_log_is_known_by_its_lines(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="it looks like: swf"):
        fleetlab.read(log(tmp_path, line()), "helios")
