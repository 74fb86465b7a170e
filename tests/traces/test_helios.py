"""SenseTime's jobs."""

import polars as pl
import pytest

import fleetlab


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "helios" / "good", "helios")


def test_gpus_are_a_node_s_part_or_one_each_where_they_do_not_divide(good):
    frame = good.workload.frame.select("instances", "gpu_milli", "cpu_milli")
    assert frame.rows()[:3] == [(1, 1000, 1000), (2, 8000, 32000), (3, 1000, 2333)]


def test_a_job_without_gpus_is_kept(good):
    frame = good.workload.frame.select("instances", "gpu_milli", "cpu_milli")
    assert frame.row(3) == (1, 0, 4000)


def test_states_of_slurm_become_those_of_the_house(good):
    frame = good.workload.frame.select("status", "start", "end", "runtime")
    assert frame.rows() == [
        ("completed", 10, 130, 120),
        ("failed", 60, 90, 30),
        ("failed", 120, 3720, 3600),
        ("failed", 180, 185, 5),
        ("cancelled", None, 540, None),
        ("running", 360, None, None),
        ("waiting", None, None, None),
    ]


@pytest.mark.parametrize("format", ["helios", "slurm"])
def test_a_job_that_was_preempted_is_cancelled_in_every_log_of_slurm_s(tmp_path, format):
    jobs = {
        "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time\n"
        "1,u,v,1,1,1,PREEMPTED,2020-06-09 18:41:00,2020-06-09 18:41:10,2020-06-09 18:43:10\n",
        "slurm": "JobID|Submit|Start|End|State\n"
        "1|2020-06-09T18:41:00|2020-06-09T18:41:10|2020-06-09T18:43:10|PREEMPTED\n",
    }
    (tmp_path / "cluster_log.csv").write_text(jobs[format])
    assert fleetlab.read(tmp_path, format).workload.frame["status"].to_list() == ["cancelled"]


def test_the_first_submission_has_its_hour_in_shanghai(good):
    assert (good.workload.epoch, good.workload.zone) == (1_591_699_260, "Asia/Shanghai")  # 18:41 on 9 June 2020 there


def test_the_virtual_cluster_is_the_app_and_its_gpus_are_told_by_day(good):
    assert good.workload.frame["app"].cast(str).unique().sort().to_list() == ["vcJkd", "vchbv", "vcpDC"]
    midnight = -(18 * 3600 + 41 * 60)
    assert good.series["vc_gpus"].collect().rows() == [
        (midnight, "vcJkd", 8),
        (midnight, "vchbv", 16),
        (midnight, "vcpDC", 8),
        (midnight + 86_400, "vcJkd", 8),
        (midnight + 86_400, "vchbv", 24),
        (midnight + 86_400, "vcpDC", 0),
    ]


def test_a_virtual_cluster_is_a_partition_with_nodes_of_its_own(good, tmp_path, fixtures):
    frame = good.workload.frame
    assert frame["partitions"].list.first().to_list() == frame["queue"].cast(str).to_list()
    nodes = good.cluster.frame.group_by(pl.col("partitions").list.first()).agg(pl.col("gpus").sum())
    assert dict(nodes.sort("partitions").iter_rows()) == {"vcJkd": 8, "vchbv": 24, "vcpDC": 8}  # the most on any day
    (tmp_path / "cluster_log.csv").write_bytes((fixtures / "helios" / "good" / "cluster_log.csv").read_bytes())
    assert fleetlab.read(tmp_path, "helios").cluster is None


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "helios" / "bad", "helios")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("jobs", 3, "duplicate job_id: 101"),
        ("jobs", 4, "no job_id"),
        ("jobs", 5, "`gpu_num` is missing"),
        ("jobs", 6, "`gpu_num` is not a whole number: NaN"),
        ("jobs", 7, "`cpu_num` is not a whole number: 1.5"),
        ("jobs", 8, "`gpu_num` is negative: -8.0"),
        ("jobs", 9, "`gpu_num` is more than any cluster has: 1e+30"),
        ("jobs", 10, "unknown state: EXPLODED"),
        ("jobs", 11, "no submit_time"),
        ("jobs", 12, "`submit_time` is not a time: yesterday"),
        ("jobs", 13, "started before it was submitted: 2020-06-09 18:40:00"),
        ("jobs", 14, "ended before it was started: 2020-06-09 18:41:05"),
        ("jobs", 15, "ended before it was submitted: 2020-06-09 18:40:00"),
        ("jobs", 16, "`start_time` is not a time: 1970-01-01 08:00:00"),
        ("jobs", 17, "`gpu_num` is not a number: 'eight'"),
        ("jobs", 18, "12 columns expected, got: 8"),
        ("vc_gpus", 3, "duplicate day: 2020-06-09"),
        ("vc_gpus", 4, "`date` is not a day: someday"),
        ("vc_gpus", 5, "`vcJkd` is missing or negative: -8"),
        ("vc_gpus", 6, "`vcJkd` is missing or negative: nothing"),
    ]


def test_a_folder_of_clusters_is_refused_with_a_word_on_which_to_name(tmp_path, fixtures):
    (tmp_path / "Venus").mkdir()
    with pytest.raises(fleetlab.TraceError, match="not one cluster_log") as e:
        fleetlab.read(tmp_path, "helios")
    assert "Venus" in e.value.hint


def test_sizes_alone_are_known_as_helios_and_said_to_lack_their_log(fixtures):
    path = fixtures / "helios" / "good" / "cluster_gpu_number.csv"
    with pytest.raises(fleetlab.TraceError, match="it looks like: helios"):
        fleetlab.read(path, "slurm")
    with pytest.raises(fleetlab.TraceError, match="no job log"):
        fleetlab.read(path, "helios")


def test_a_list_of_sizes_without_virtual_clusters_is_refused(tmp_path, fixtures):
    (tmp_path / "cluster_log.csv").write_bytes((fixtures / "helios" / "good" / "cluster_log.csv").read_bytes())
    (tmp_path / "cluster_gpu_number.csv").write_text("date,total\n2020-06-09,8\n")
    with pytest.raises(fleetlab.TraceError, match="no column of a virtual cluster"):
        fleetlab.read(tmp_path, "helios")
