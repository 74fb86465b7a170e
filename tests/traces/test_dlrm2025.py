"""Alibaba's 2025 instances of recommendation models."""

import polars as pl
import pytest

import fleetlab


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "dlrm2025" / "good", "dlrm2025")


@pytest.fixture
def published(data):
    return fleetlab.read(data / "alibaba-dlrm-v2025", "dlrm2025")


def by_name(trace, *columns):
    frame = trace.names.collect().join(trace.workload.frame, on="job")
    return frame.sort("name").select(columns).rows()


def test_an_instance_becomes_a_job_in_the_house_s_units(good):
    demand = by_name(good, "cpu_milli", "gpu_milli", "rdma_milli", "memory_mib", "disk_mib", "max_per_node")
    assert demand[:3] == [
        (12_000, 1000, 250, 122_880, 696_320, 8),
        (64_000, 0, 10, 960_000, 261_120, 0),
        (48_000, 0, 10, 245_760, 81_920, 2),
    ]


def test_a_role_is_the_group_and_a_service_the_app(good):
    assert by_name(good, "group", "app")[:3] == [("HN", "app-0"), ("CN", "app-0"), ("CN", "app-1")]


def test_what_the_trace_did_not_see_of_an_instance_is_unknown(good):
    assert by_name(good, "submit", "start", "end", "runtime", "status") == [
        (0, None, None, None, "running"),  # older than the trace, and alive at its end
        (0, None, 500, None, "completed"),
        (100, 100, 160, 60, "completed"),
        (90, 130, None, None, "running"),
        (0, 20, None, None, "running"),  # created before the trace, scheduled in it
        (200, None, None, None, "waiting"),
        (200, None, 210, None, "cancelled"),
    ]


def test_limits_are_kept_beside_the_requests(good):
    limits = good.names.join(good.series["limits"], on="job").sort("name").collect()
    assert limits["disk_mib"].to_list() == [819_200, 307_200, 102_400, 102_400, 102_400, None, None]


def test_each_bad_instance_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "dlrm2025" / "bad", "dlrm2025")
    assert trace.rejects.select("line", "reason").rows() == [
        (3, "duplicate name: i-0"),
        (4, "no name"),
        (5, "unknown role: GPU"),
        (6, "17 columns expected, got: 4"),
        (7, "`cpu_request` is not a number: 'many'"),
        (8, "`cpu_request` is missing"),
        (9, "`cpu_request` is not a number of 0 or more: -12.0"),
        (10, "`memory_request` is more than any node has: 1e+30"),
        (11, "`rdma_request` is more than any node has: 125.0"),
        (12, "neither a fraction of one GPU nor whole GPUs: 1.5"),
        (13, "`disk_request` is above its limit: 900.0"),
        (14, "`max_instance_per_node` is neither -1 nor a number from 1 on: 0.0"),
        (15, "`creation_time` is not a number of 0 or more: -1.0"),
        (16, "`deletion_time` is not a number of 0 or more: inf"),
        (17, "`deletion_time` is too far away: 1e+30"),
        (18, "scheduled before it was created: 4.0"),
        (19, "deleted before it was scheduled: 4.0"),
        (20, "deleted before it was created: 4.0"),
    ]


def test_a_folder_without_the_list_is_refused(tmp_path):
    with pytest.raises(fleetlab.TraceError, match="not one list of instances"):
        fleetlab.read(tmp_path, "dlrm2025")


def test_a_table_of_other_columns_is_refused(tmp_path):
    (tmp_path / "disaggregated_DLRM_trace.csv").write_text("instance_sn,role\ni-0,HN\n")
    with pytest.raises(fleetlab.TraceError, match="missing columns in its first line"):
        fleetlab.read(tmp_path, "dlrm2025")


@pytest.mark.data
def test_the_published_instances_are_read_without_loss(published):
    frame = published.workload.frame
    complete = frame.filter(pl.col("runtime").is_not_null())
    assert (frame.height, published.rejects.height, complete.height) == (23_871, 0, 12_390)
    assert frame["group"].value_counts(sort=True).rows() == [("CN", 16_485), ("HN", 7386)]
    assert frame["app"].n_unique() == 156


@pytest.mark.data
def test_instances_that_outlive_the_trace_on_either_side_are_kept(published):
    started, ended = pl.col("start").is_not_null(), pl.col("end").is_not_null()
    frame = published.workload.frame
    assert [frame.filter(c).height for c in (~started, ~ended, started & ~ended)] == [7280, 8878, 4201]
    assert frame.filter(~ended)["status"].unique().to_list() == ["running"]


@pytest.mark.data
def test_delays_are_those_of_the_published_instances(published):
    frame = published.workload.frame.with_columns(delay=pl.col("start") - pl.col("submit"))
    delay, complete = frame["delay"].drop_nulls(), frame.filter(pl.col("runtime").is_not_null())["delay"]
    assert len(delay) == 16_591
    assert (delay.mean(), complete.mean()) == pytest.approx((187.9, 119.9), abs=0.05)
    assert (delay == 0).mean() == pytest.approx(0.655, abs=5e-4)
    roles = dict(frame.group_by("group").agg(pl.col("delay").mean()).rows())
    assert roles == pytest.approx({"HN": 505, "CN": 78}, abs=0.5)


@pytest.mark.data
def test_run_times_are_those_of_the_published_instances(published):
    hours = published.workload.frame["runtime"].mean() / 3600
    assert hours == pytest.approx(28 + 28 / 60, abs=1 / 60)


@pytest.mark.data
def test_disk_requests_are_below_their_limits_as_published(published):
    limits = published.series["limits"].collect()["disk_mib"]
    assert (published.workload.frame["disk_mib"] / limits).mean() == pytest.approx(0.847, abs=5e-4)
