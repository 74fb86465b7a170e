"""Shanghai AI Lab's jobs in Seren and Kalos."""

import shutil

import pytest

import fleetlab


def test_a_job_s_gpus_are_spread_over_its_nodes(fixtures):
    frame = fleetlab.read(fixtures / "acme" / "good", "acme").workload.frame
    assert frame.select("instances", "gpu_milli", "cpu_milli").rows() == [
        (1, 8000, 128_000),
        (4, 8000, 128_000),
        (1, 0, 4000),
    ]


def test_the_type_of_a_job_is_its_group(fixtures):
    frame = fleetlab.read(fixtures / "acme" / "good", "acme").workload.frame
    assert frame["group"].to_list() == ["Other", "Pretrain", "Eval"]


def test_the_run_time_of_kalos_is_end_less_start_and_not_its_duration(fixtures):
    frame = fleetlab.read(fixtures / "acme" / "kalos", "acme").workload.frame
    assert frame["runtime"].to_list() == [8, 60, None]


def test_a_pod_s_memory_is_shared_out_where_an_instance_is_one_gpu(fixtures):
    frame = fleetlab.read(fixtures / "acme" / "kalos", "acme").workload.frame
    assert frame.select("instances", "memory_mib").rows() == [(8, 1000 * 1024), (3, 2 * 90 * 1024 // 3), (1, 0)]


@pytest.mark.parametrize(("folder", "epoch"), [("good", 1_677_601_102), ("kalos", 1_684_321_258)])
def test_stamps_are_read_by_the_offset_they_carry(fixtures, folder, epoch):
    workload = fleetlab.read(fixtures / "acme" / folder, "acme").workload
    assert (workload.epoch, workload.zone) == (epoch, "Asia/Shanghai")


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "acme" / "bad", "acme")
    assert trace.rejects.select("line", "reason").rows() == [
        (3, "`mem_per_pod_GB` is negative: -1.0"),
        (4, "`mem_per_pod_GB` is not finite: inf"),
        (5, "`mem_per_pod_GB` is more than any node has: 1e+30"),
        (6, "`submit_time` is not a time: 2023-05-17 11:00:58"),
        (7, "ended before it was started: 2023-05-17 11:01:00+00:00"),
    ]


def test_of_two_clusters_one_must_be_named(tmp_path, fixtures):
    shutil.copy(fixtures / "acme" / "good" / "trace_seren.csv", tmp_path)
    shutil.copy(fixtures / "acme" / "kalos" / "trace_kalos.csv", tmp_path)
    with pytest.raises(fleetlab.TraceError, match="read one at a time"):
        fleetlab.read(tmp_path, "acme")
    assert len(fleetlab.read(tmp_path / "trace_kalos.csv", "acme").workload) == 3


def test_a_folder_with_neither_is_refused(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="neither trace_seren"):
        fleetlab.read(tmp_path, "acme")
