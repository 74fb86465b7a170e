"""Alibaba's 2023 pods and nodes."""

import polars as pl
import pytest

import fleetlab


def test_a_pod_becomes_a_job_in_the_house_s_units(fixtures):
    frame = fleetlab.read(fixtures / "openb2023" / "good", "openb2023").workload.frame
    assert frame["gpu_milli"].to_list() == [1000, 0, 460, 8000, 250]
    assert frame["gpu_types"].to_list() == [[], [], ["V100M16", "V100M32"], ["G2"], ["T4"]]
    assert frame["submit"].to_list() == [0, 50, 60, 100, 200]


def test_a_pod_that_is_alive_at_the_end_has_no_known_service(fixtures):
    frame = fleetlab.read(fixtures / "openb2023" / "good", "openb2023").workload.frame
    assert frame["status"].to_list() == ["running", "completed", "completed", "failed", "cancelled"]
    assert frame["runtime"].to_list() == [None, 549, 230, 30, None]


def test_each_bad_line_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "openb2023" / "bad", "openb2023")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("nodes", 3, "duplicate name: node-0"),
        ("nodes", 4, "GPUs of no model"),
        ("nodes", 5, "`memory_mib` is missing or negative: nothing"),
        ("pods", 3, "duplicate name: pod-0"),
        ("pods", 4, "11 columns expected, got: 9"),
        ("pods", 5, "`cpu_milli` is not a number: 'many'"),
        ("pods", 6, "`memory_mib` is negative: -1"),
        ("pods", 7, "a fraction of more than one GPU: 460"),
        ("pods", 8, "deleted before it was scheduled: 90.0"),
        ("pods", 9, "unknown phase: Exploded"),
        ("pods", 10, "`creation_time` is not finite: NaN"),
    ]


@pytest.mark.data
def test_the_published_list_is_read_without_loss(data):
    trace = fleetlab.read(data / "alibaba-openb-v2023", "openb2023")
    assert (len(trace.workload), len(trace.cluster), trace.cluster.gpus) == (8152, 1523, 6212)
    assert trace.rejects.is_empty()


@pytest.mark.data
def test_delays_are_those_of_the_published_pods(data):
    frame = fleetlab.read(data / "alibaba-openb-v2023", "openb2023").workload.frame
    wait = frame.select((pl.col("start") - pl.col("submit")).drop_nulls())["start"]
    found = [wait.quantile(q, "linear") for q in (0.5, 0.75, 0.9, 0.95, 0.99)]
    assert found == pytest.approx([2, 35, 106, 241, 890], rel=0.02)  # FACTS, section 2, rounded there
