"""Alibaba's 2026 high-priority and spot jobs."""

import shutil

import pytest

import fleetlab


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "spot2026" / "good", "spot2026")


def test_a_job_becomes_a_gang_in_the_house_s_units(good):
    demand = ("instances", "cpu_milli", "gpu_milli", "gpu_types", "user")
    assert good.workload.frame.select(demand).rows() == [
        (1, 20_000, 1000, ["A10"], "13"),
        (1, 8_000, 250, ["A10"], "13"),
        (2, 184_000, 8000, ["A100-SXM4-80GB"], "57"),
        (1, 4_000, 0, [], "57"),
        (16, 15_000, 8000, ["A100-SXM4-80GB"], "57"),
    ]


def test_high_priority_goes_before_spot(good):
    assert good.workload.frame["priority"].to_list() == [1, 1, 1, 0, 0]


def test_a_job_that_ends_with_the_log_is_still_running(good):
    assert good.workload.frame["runtime"].to_list() == [2_764_799, None, 60, 0, 41_060]
    assert good.workload.frame["status"].to_list() == ["completed", "running", "completed", "completed", "completed"]


def test_names_follow_their_jobs_into_arrival_order(good):
    assert good.names.collect()["name"].to_list() == ["100", "101", "103", "104", "102"]


def test_nodes_become_the_cluster(good):
    assert good.cluster.frame.select("node", "gpu_type", "gpus", "cpu_milli").rows() == [
        ("0", "GPU-series-1", 4, 192_000),
        ("1", "A10", 1, 128_000),
        ("2", "A100-SXM4-80GB", 8, 128_000),
    ]


def test_each_bad_job_or_node_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "spot2026" / "bad", "spot2026")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("jobs", 3, "duplicate name: 100"),
        ("jobs", 4, "no name"),
        ("jobs", 5, "9 columns expected, got: 8"),
        ("jobs", 6, "`worker_num` is not a number: 'one'"),
        ("jobs", 7, "neither a fraction of one GPU nor whole GPUs: 1.5"),
        ("jobs", 8, "neither a fraction of one GPU nor whole GPUs: 0.0001"),
        ("jobs", 9, "not a number of workers: 0.0"),
        ("jobs", 10, "not a number of workers: 1.5"),
        ("jobs", 11, "`submit_time` is not a number of 0 or more: -5.0"),
        ("jobs", 12, "`duration` is not a number of 0 or more: NaN"),
        ("jobs", 13, "`duration` is missing"),
        ("jobs", 14, "`gpu_request` is too large: 1e+30"),
        ("jobs", 15, "no such job type: Best"),
        ("jobs", 16, "no such job type: nothing"),
        ("nodes", 3, "duplicate name: 0"),
        ("nodes", 4, "GPUs of no model"),
        ("nodes", 5, "`gpu_capacity_num` is not a whole number from 0 to 1,024: 1.5"),
        ("nodes", 6, "`cpu_num` is not a whole number from 0 to 1,000,000: 1e+30"),
        ("nodes", 7, "`cpu_num` is not a whole number from 0 to 1,000,000: nothing"),
        ("nodes", 8, "no name"),
    ]


def test_jobs_without_nodes_have_no_cluster(fixtures, tmp_path):
    shutil.copy(fixtures / "spot2026" / "good" / "job_info_df.csv", tmp_path)
    trace = fleetlab.read(tmp_path, "spot2026")
    assert (len(trace.workload), trace.cluster) == (5, None)


def test_nodes_that_are_all_turned_away_make_no_cluster(fixtures, tmp_path):
    shutil.copy(fixtures / "spot2026" / "good" / "job_info_df.csv", tmp_path)
    (tmp_path / "node_info_df.csv").write_text("gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,-1,128,0\n")
    assert fleetlab.Trace.load(fleetlab.read(tmp_path, "spot2026").save(tmp_path / "saved")).cluster is None


def test_nodes_are_found_beside_the_jobs(fixtures):
    trace = fleetlab.read(fixtures / "spot2026" / "good" / "job_info_df.csv", "spot2026")
    assert (len(trace.workload), len(trace.cluster)) == (5, 3)


def test_a_folder_with_neither_table_is_refused(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="not one table each"):
        fleetlab.read(tmp_path, "spot2026")


@pytest.mark.data
def test_the_published_nodes_are_a_cluster_without_jobs(data):
    trace = fleetlab.read(data / "alibaba-spot-v2026", "spot2026")
    assert (len(trace.workload), len(trace.cluster), trace.cluster.gpus) == (0, 4278, 10_412)
    assert "no table of jobs (job_info_df.csv) here: the workload is empty" in trace.notes
