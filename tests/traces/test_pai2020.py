"""Alibaba's PAI tables, joined to tasks."""

import gzip
import shutil
import tarfile

import polars as pl
import pytest

import fleetlab
from fleetlab.traces.input import files


@pytest.fixture
def good(fixtures):
    return fixtures / "pai2020" / "good"


@pytest.fixture
def trace(good):
    return fleetlab.read(good, "pai2020")


def rows(trace, *columns):
    return trace.workload.frame.select(columns).rows()


def test_tasks_come_in_order_of_their_own_start_and_else_of_their_jobs(trace):
    names = trace.names.collect()["name"].to_list()
    assert names == ["job-1/ps", "job-1/worker", "job-2/tensorflow", "job-3/worker"]
    assert trace.workload.frame["submit"].to_list() == [0, 5, 505, 795]


def test_percent_becomes_milli_and_gib_becomes_mib(trace):
    found = rows(trace, "cpu_milli", "memory_mib", "gpu_milli")
    assert found == [(4000, 10240, 0), (6000, 30000, 500), (8000, 60000, 8000), (6000, 30000, 2000)]


def test_a_request_of_one_and_a_half_gpus_holds_two_and_is_noted(trace):
    assert any(note.startswith("1 jobs request a fraction above one GPU") for note in trace.notes)


def test_run_time_is_the_mean_of_the_instances_and_start_the_first_of_them(trace):
    assert rows(trace, "start", "end", "runtime") == [
        (10, 980, 970),
        (15, 945, (880 + 920) / 2),
        (705, 885, 180),
        (845, None, None),
    ]


def test_a_task_that_still_runs_is_kept_with_no_known_service(trace):
    assert rows(trace, "status", "runtime", "end")[-1] == ("running", None, None)


def test_a_task_asks_for_the_type_that_its_group_names_and_for_any_other_wise(trace):
    assert trace.workload.frame["gpu_types"].to_list() == [[], [], ["V100"], []]
    assert trace.names.collect()["gpu_type"].to_list() == ["CPU", "T4", "V100", "T4"]


def test_a_task_without_a_group_takes_its_user_for_one(trace):
    assert trace.workload.frame["group"].to_list() == ["group-x", "group-x", "group-y", "ann"]


def test_every_instance_has_a_placement_retries_and_waiting_ones_too(trace):
    placed = trace.placements.collect()
    assert placed["job"].to_list() == [1, 1, 0, 2, 2, 3, 3]
    assert placed["status"].to_list()[3:] == ["interrupted", "failed", "running", "waiting"]
    assert placed["start"].to_list()[3:] == [None, 705, 845, None]


def test_usage_meets_its_placement_by_task_and_worker(trace):
    both = trace.usage.join(trace.placements, on=["job", "worker"]).collect().sort("job")
    amounts = ["cpu_milli", "gpu_milli", "memory_mib", "max_memory_mib", "gpu_memory_mib", "max_gpu_memory_mib"]
    assert both.select("job", *amounts).rows() == [
        (0, 800.0, None, 512.0, 768.0, None, None),
        (1, 1405.0, 162.5, 1536.0, 2560.0, 1280.0, 2048.0),
    ]


def test_a_retry_that_names_no_worker_is_no_repeat(tmp_path):
    (tmp_path / "pai_instance_table.csv").write_text(
        "job-1,worker,inst-1,,id-1,Failed,100.0,340.0,machine-a\n"
        "job-1,worker,inst-1,,id-1,Terminated,400.0,800.0,machine-a\n"
        "job-1,worker,inst-1,,id-1,Terminated,400.0,800.0,machine-a\n"
    )
    trace = fleetlab.read(tmp_path, "pai2020")
    assert trace.rejects.select("line", "reason").rows() == [(3, "duplicate instance")]
    assert trace.workload.frame["runtime"].to_list() == [320]


def test_what_machines_measured_is_kept_in_the_trace_s_own_time(trace):
    metric = trace.series["machine_metric"].collect()
    assert metric.select("node", "start", "end", "cpu_usr").rows() == [
        ("machine-b", 15, 895, 31.0),
        ("machine-a", None, 695, 12.0),
    ]


def test_what_the_job_table_says_is_kept_by_parent(trace, tmp_path):
    expected = [(0, "completed", -5, 995), (1, "failed", 495, 895), (2, "running", 795, None)]
    for one in (trace, fleetlab.Trace.load(trace.save(tmp_path / "saved"))):
        assert one.series["parents"].collect().select("parent", "status", "submit", "end").rows() == expected
        assert one.names.collect()["role"].to_list() == ["ps", "worker", "tensorflow", "worker"]


def test_no_row_of_the_good_tables_is_lost_or_turned_away(trace):
    assert trace.counts.select("table", "rows", "kept", "rejected").sort("table").rows() == [
        ("pai_group_tag_table", 2, 2, 0),
        ("pai_instance_table", 7, 7, 0),
        ("pai_job_table", 3, 3, 0),
        ("pai_machine_metric", 2, 2, 0),
        ("pai_machine_spec", 3, 3, 0),
        ("pai_sensor_table", 2, 2, 0),
        ("pai_task_table", 4, 4, 0),
    ]


def test_each_bad_row_is_turned_away_for_its_own_reason(fixtures):
    found = fleetlab.read(fixtures / "pai2020" / "bad", "pai2020").rejects
    assert found.select(pl.col("table").str.strip_prefix("pai_"), "line", "reason").rows() == [
        ("group_tag_table", 2, "duplicate inst_id: id-1"),
        ("group_tag_table", 3, "no job with this inst_id: id-7"),
        ("group_tag_table", 4, "no `inst_id`"),
        ("instance_table", 2, "duplicate instance"),
        ("instance_table", 3, "no such task"),
        ("instance_table", 4, "ends before it starts: 1900.0"),
        ("instance_table", 5, "unknown status: Gone"),
        ("instance_table", 6, "9 columns expected, got: 7"),
        ("job_table", 2, "duplicate job: job-1"),
        ("job_table", 3, "ends before it starts: 1400.0"),
        ("job_table", 4, "a job without tasks: job-9"),
        ("machine_metric", 2, "no `machine`"),
        ("machine_metric", 3, "ends before it starts: 900.0"),
        ("machine_spec", 2, "duplicate machine: machine-a"),
        ("machine_spec", 3, "GPUs of no type"),
        ("machine_spec", 4, "`cap_gpu` is negative: -2.0"),
        ("machine_spec", 5, "`cap_gpu` is not a number of GPUs: 1.5"),
        ("machine_spec", 6, "`cap_cpu` is not finite: inf"),
        ("machine_spec", 7, "5 columns expected, got: 3"),
        ("sensor_table", 2, "`cpu_usage` is negative: -140.5"),
        ("sensor_table", 3, "no such task: job-8"),
        ("task_table", 2, "duplicate task: job-1"),
        ("task_table", 3, "`inst_num` is not a number of instances: 0.0"),
        ("task_table", 4, "`inst_num` is not a number of instances: 1.5"),
        ("task_table", 5, "unknown status: Exploded"),
        ("task_table", 6, "ends before it starts: 2000.0"),
        ("task_table", 7, "`start_time` is negative: -5.0"),
        ("task_table", 8, "`start_time` is not finite: NaN"),
        ("task_table", 9, "`plan_gpu` is negative: -50.0"),
        ("task_table", 10, "`plan_gpu` is implausibly large: 1e+30"),
        ("task_table", 11, "no `job_name`"),
    ]


def packed(good, folder, how):
    for csv in good.glob("*.csv"):
        if how == "gz":
            (folder / f"{csv.name}.gz").write_bytes(gzip.compress(csv.read_bytes()))
        else:
            with tarfile.open(folder / f"{csv.stem}.tar.gz", "w:gz") as tar:
                tar.add(csv, arcname=csv.name)
    return folder


@pytest.mark.parametrize("how", ["gz", "tar"])
def test_packed_tables_read_as_the_plain_ones_do(good, trace, tmp_path, how):
    other = fleetlab.read(packed(good, tmp_path, how), "pai2020")
    assert other.workload.frame.equals(trace.workload.frame)
    assert other.placements.collect().equals(trace.placements.collect())
    assert other.usage.collect().equals(trace.usage.collect())


def test_a_table_that_lies_there_twice_is_read_once_unpacked(good, trace, tmp_path):
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    assert fleetlab.read(packed(good, tmp_path, "tar"), "pai2020").counts.equals(trace.counts)


def test_blocks_of_any_size_give_the_same_trace(good, trace, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 97)
    other = fleetlab.read(good, "pai2020")
    assert other.workload.frame.equals(trace.workload.frame)
    assert other.placements.collect().equals(trace.placements.collect())
    assert other.usage.collect().equals(trace.usage.collect())


def test_a_copy_with_a_header_row_does_not_count_it(good, trace, tmp_path):
    text = (good / "pai_machine_spec.csv").read_text()
    (tmp_path / "pai_machine_spec.csv").write_text("machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n" + text)
    other = fleetlab.read(tmp_path, "pai2020")
    assert other.cluster.frame.equals(trace.cluster.frame)
    assert other.rejects.is_empty()


@pytest.mark.parametrize(
    "left_out", ["job", "group_tag", "task", "instance", "sensor", "machine_spec", "machine_metric"]
)
def test_any_table_may_be_missing(good, tmp_path, left_out):
    for csv in good.glob("*.csv"):
        if csv.stem.removeprefix("pai_").removesuffix("_table") != left_out:
            shutil.copy(csv, tmp_path)
    trace = fleetlab.read(tmp_path, "pai2020")
    assert trace.counts.height == 6
    assert len(trace.workload) == 4


def test_two_files_that_could_be_the_same_table_are_not_guessed_at(good, tmp_path):
    for name in ("pai_task_table.one.csv", "pai_task_table.two.csv"):
        shutil.copy(good / "pai_task_table.csv", tmp_path / name)
    with pytest.raises(fleetlab.TraceError, match="more than one file could be pai_task_table"):
        fleetlab.read(tmp_path, "pai2020")


def test_an_archive_cut_off_in_the_middle_says_so(good, tmp_path):
    whole = packed(good, tmp_path, "tar") / "pai_instance_table.tar.gz"
    whole.write_bytes(whole.read_bytes()[:-30])
    with pytest.raises(fleetlab.TraceError, match=r"pai_instance_table.tar.gz: the archive is truncated or damaged"):
        fleetlab.read(tmp_path, "pai2020")


@pytest.mark.data
def test_the_published_machine_table_has_1897_nodes_and_6742_gpus(data):
    trace = fleetlab.read(data / "alibaba-pai-v2020" / "pai_machine_spec.csv", "pai2020")
    assert (len(trace.cluster), trace.cluster.gpus, trace.rejects.height) == (1897, 6742, 0)


@pytest.mark.data
def test_the_tail_of_the_instance_table_is_kept_to_the_last_row(data):
    folder = data / "alibaba-pai-v2020" / "instance_table_tail"
    trace = fleetlab.read(folder / "pai_instance_table.tail27587.full.csv.gz", "pai2020")
    assert trace.counts.rows() == [("pai_instance_table", 27587, 27587, 0)]
    assert dict(trace.placements.collect()["status"].value_counts().iter_rows()) == {
        "completed": 19012,
        "failed": 2570,
        "interrupted": 2519,
        "running": 2489,
        "waiting": 997,
    }
