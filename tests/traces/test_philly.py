"""Microsoft's training jobs and machines."""

import io
import json
import tarfile

import pytest

import fleetlab

JOB = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": [], "submitted_time": "2017-10-07 01:00:00", "user": "u"}


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "philly" / "good", "philly")


def log(folder, *jobs):
    path = folder / "cluster_job_log"
    path.write_text(json.dumps([JOB | job for job in jobs]))
    return path


def attempt(start, end, **gpus):
    detail = [{"ip": ip, "gpus": [f"gpu{k}" for k in range(n)]} for ip, n in gpus.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def test_the_virtual_cluster_is_a_queue_and_no_partition(tmp_path):
    frame = fleetlab.read(log(tmp_path, {"vc": "11cb48"}), "philly").workload.frame
    assert frame.select("queue", "app", "partitions").rows() == [("11cb48", "11cb48", [])]


def test_a_job_that_was_tried_again_runs_as_long_as_all_its_attempts(good):
    first = good.workload.frame.row(0, named=True)
    assert (first["start"], first["end"], first["runtime"]) == (30, 3720, 60 + 3600)


def test_an_instance_is_a_machine_s_part_or_one_gpu_where_the_parts_differ(good):
    frame = good.workload.frame.select("instances", "gpu_milli")
    assert frame.rows() == [(1, 2000), (2, 4000), (4, 1000), (1, 0), (1, 1000), (1, 1000)]


def test_a_job_whose_last_attempt_has_no_end_is_running_whatever_its_status_says(good):
    frame = good.workload.frame.select("status", "runtime")
    assert frame.rows() == [
        ("completed", 3660),
        ("cancelled", 100),
        ("failed", 60),
        ("cancelled", None),
        ("running", None),
        ("completed", 60),  # its first attempt held nothing
    ]


def test_each_attempt_is_placed_on_each_of_its_machines(good):
    assert good.placements.collect().select("job", "node", "status", "start", "end").rows() == [
        (0, "m1", None, 30, 90),
        (0, "m2", "completed", 120, 3720),
        (1, "m1", "cancelled", 600, 700),
        (1, "m2", "cancelled", 600, 700),
        (2, "m1", "failed", 1260, 1320),
        (2, "m2", "failed", 1260, 1320),
        (4, "m3", "running", 2460, None),
        (5, "m3", "completed", 3060, 3120),
    ]


def test_machines_are_told_apart_by_the_memory_of_their_gpus(good):
    assert good.cluster.frame.select("node", "gpu_type", "gpus", "gpu_memory_mib").rows() == [
        ("m1", "GPU-24GB", 8, 24576),
        ("m2", "GPU-24GB", 8, 24576),
        ("m3", "GPU-12GB", 2, 12288),
    ]


@pytest.mark.parametrize("lacking", [attempt("None", "None", m1=1), attempt("2017-10-07 02:00:00", "None", m1=1)])
def test_a_job_with_an_attempt_that_ran_for_an_unknown_time_has_an_unknown_service(tmp_path, lacking):
    tried = [lacking, attempt("2017-10-07 03:00:00", "2017-10-07 03:10:00", m1=1)]
    trace = fleetlab.read(log(tmp_path, {"attempts": tried}), "philly")
    assert trace.workload.frame.select("end", "runtime").rows() == [(7800, None)]
    assert "ended jobs with a missing time of an attempt, whose `runtime` is unknown: 1" in trace.notes


def test_what_the_log_cannot_tell_is_counted_in_the_notes(good):
    assert [note for note in good.notes if note.rsplit(": ", 1)[-1].isdigit()] == [
        "jobs with several attempts, whose `runtime` is the sum over attempts: 2",
        "jobs that never had a GPU, whose GPU request is unknown and set to 0: 1",
    ]


def test_each_bad_record_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "philly" / "bad", "philly")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("jobs", 3, "duplicate jobid: a"),
        ("jobs", 4, "not a job: 17.0"),
        ("jobs", 5, "the job has no: attempts, user"),
        ("jobs", 6, "`jobid` is not a text: 1e+32"),
        ("jobs", 7, "unknown status: Lost"),
        ("jobs", 8, "no submitted_time"),
        ("jobs", 9, "`submitted_time` is not a time: last week"),
        ("jobs", 10, "a time of an attempt is not a time: 2017-10-07 25:00:00"),
        ("jobs", 11, "an attempt ends before it starts: 2017-10-07 01:01:00"),
        ("jobs", 12, "started before it was submitted: 2017-10-07 00:59:00"),
        ("jobs", 13, "the last attempt ends before the first starts: 2017-10-07 02:01:00"),
        ("jobs", 14, "`attempts` is not a list: 'none'"),
        ("jobs", 15, "not an attempt: 7.0"),
        ("jobs", 16, "`start_time` is not a text: 1507366800.0"),
        ("jobs", 17, "not a machine with its GPUs: {'ip': 'm1', 'gpus': 8.0}"),
        ("jobs", 18, "`detail` is not a list: {'ip': 'm1'}"),
        ("jobs", 19, "`jobid` is not a text: 'o\\ud800'"),
        ("jobs", 20, "`vc` is not a text: ['v']"),
        ("machines", 3, "duplicate name: m1"),
        ("machines", 4, "`number of GPUs` is not from 0 to 1024: -1"),
        ("machines", 5, "`single GPU mem` is not a number of GB:  much"),
        ("machines", 6, "no name"),
        ("machines", 7, "`number of GPUs` is not a number: 'many'"),
        ("machines", 8, "3 columns expected, got: 2"),
    ]


def test_times_are_those_of_the_clock_at_redmond_unless_another_is_named(tmp_path):
    path = log(tmp_path, {})
    here, there = fleetlab.read(path, "philly"), fleetlab.read(path, "philly", zone="UTC")
    assert (here.workload.zone, here.workload.epoch - there.workload.epoch) == ("America/Los_Angeles", 7 * 3600)


def test_an_end_in_the_hour_that_comes_twice_is_after_its_start(tmp_path):
    tried = attempt("2017-11-05 01:50:00", "2017-11-05 01:10:00", m1=1)
    path = log(tmp_path, {"submitted_time": "2017-11-05 01:40:00", "attempts": [tried]})
    assert fleetlab.read(path, "philly").workload.frame["runtime"].to_list() == [20 * 60]


def test_a_job_whose_first_attempt_has_no_times_starts_with_the_next(tmp_path):
    tried = [attempt("None", "None"), attempt("2017-10-07 03:00:00", "2017-10-07 03:10:00", m1=1)]
    frame = fleetlab.read(log(tmp_path, {"attempts": tried}), "philly").workload.frame
    assert frame.select("start", "end", "runtime").rows() == [(7200, 7800, 600)]


def test_jobs_on_one_line_keep_their_own_attempts(tmp_path):
    tried = [[attempt("2017-10-07 03:00:00", f"2017-10-07 03:{m}:00", m1=1)] for m in (10, 20)]
    path = log(tmp_path, {"jobid": "a", "attempts": tried[0]}, {"jobid": "b", "attempts": tried[1]}, {"status": "?"})
    trace = fleetlab.read(path, "philly")
    assert trace.workload.frame["runtime"].to_list() == [600, 1200]
    assert trace.rejects["line"].to_list() == [1]


def test_a_zone_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="unknown time zone: `Mars/Olympus`"):
        fleetlab.read(log(tmp_path, {}), "philly", zone="Mars/Olympus")


def test_the_archive_as_published_is_read_as_its_folder(tmp_path, fixtures, good):
    path = tmp_path / "trace-data.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        other = b"time,machine_id,cpu_util\n2017-11-27 00:04:00 PST,m1,31.845\n"
        entry = tarfile.TarInfo("trace-data/cluster_cpu_util")
        entry.size = len(other)
        tar.addfile(entry, io.BytesIO(other))
        for name in ("cluster_job_log", "cluster_machine_list"):
            tar.add(fixtures / "philly" / "good" / name, f"trace-data/{name}")
    trace = fleetlab.read(path, "philly")
    assert trace.workload.frame.equals(good.workload.frame)
    assert trace.cluster.frame.equals(good.cluster.frame)


def test_an_archive_that_is_cut_off_is_refused(tmp_path, fixtures):
    path = tmp_path / "trace-data.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(fixtures / "philly" / "good" / "cluster_job_log", "cluster_job_log")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(fleetlab.TraceError, match="truncated or damaged"):
        fleetlab.read(path, "philly")


def test_an_archive_that_would_write_elsewhere_is_refused(tmp_path, fixtures):
    path = tmp_path / "trace-data.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(fixtures / "philly" / "good" / "cluster_job_log", "cluster_job_log")
        tar.add(fixtures / "philly" / "good" / "cluster_job_log", "../cluster_machine_list")
    with pytest.raises(fleetlab.TraceError, match="points outside the archive"):
        fleetlab.read(path, "philly")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'[{"status": "Pass", "vc"', "not JSON, or truncated, at line 1, column 25"),
        (b"", "not JSON, or truncated, at line 1, column 1"),
        (b'{"jobs": []}', "not a list of jobs but: dict"),
        (b"[" * 100_000, "nested too deep"),
        (b"[] []", "more than one list"),
        (b'["\xff\xfe"]', "not UTF-8 at byte: 2"),
    ],
)
def test_what_is_not_a_list_of_jobs_is_refused_with_its_place(tmp_path, text, error):
    path = tmp_path / "cluster_job_log"
    path.write_bytes(text)
    with pytest.raises(fleetlab.TraceError, match=error):
        fleetlab.read(path, "philly")


def test_a_number_of_a_million_digits_costs_one_record(tmp_path):
    path = tmp_path / "cluster_job_log"
    path.write_text(f"[{'9' * 1_000_000}, {json.dumps(JOB)}]")
    trace = fleetlab.read(path, "philly")
    assert (len(trace.workload), trace.rejects.rows()) == (1, [("jobs", "cluster_job_log", 1, "not a job: inf")])


def test_a_folder_without_a_job_log_is_refused(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="not one cluster_job_log"):
        fleetlab.read(tmp_path, "philly")
