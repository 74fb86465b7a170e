"""Alibaba's 2026 image requests and container metrics."""

import io
import shutil
import tarfile

import polars as pl
import pytest

import fleetlab


@pytest.fixture
def good(fixtures):
    return fleetlab.read(fixtures / "genai2026" / "good", "genai2026")


@pytest.fixture
def published(data):
    """One table of the published ones, or all."""
    return lambda *name: fleetlab.read(data.joinpath("alibaba-genai-v2026", *name), "genai2026")


def test_a_request_becomes_a_job(good):
    assert good.workload.frame.select("submit", "user", "group", "app").rows() == [
        (0, "G0", "TXT_2_IMG", "M0"),
        (5, "G0", "TXT_2_IMG", "M0"),
        (10, "G1", "IMG_2_IMG", "M1"),
        (70, "G1", "INPAINTING", "M1"),
        (71, "G1", "TXT_2_IMG", None),
    ]


def test_a_request_that_has_not_ended_has_no_known_service(good):
    assert good.workload.frame.select("status", "runtime").rows() == [
        ("completed", 32),
        ("completed", 20),
        ("failed", 5),
        ("running", None),
        ("waiting", None),
    ]


def test_what_a_request_asked_for_stands_by_its_job(good):
    asked = good.series["requests"].select("job", "num_images_per_prompt", "num_lora").collect()
    assert asked.rows() == [(0, 1, 0), (1, 4, 1), (2, 1, 2), (3, 1, 0), (4, None, 0)]


def test_metrics_count_from_the_first_sample_of_all(good):
    assert good.series["pod_gpu_duty_cycle"].collect().rows() == [(0, "c0", 0), (57, "c0", 50), (57, None, 10)]
    assert good.series["qps"].collect().rows() == [
        (57, None, 0.09, "API Requests"),
        (114, "c0", 0.18, "Generative Requests"),
    ]


def test_requests_without_times_are_a_series_and_no_jobs(good):
    loras = good.series["request_parameters"].collect()["lora_args"].to_list()
    assert loras == ["[]", "[{'modelVersionId': 'l0', 'scale': 1.0}, {'modelVersionId': 'l1', 'scale': 0.5}]"]


def test_each_bad_request_or_sample_is_turned_away_for_its_own_reason(fixtures):
    trace = fleetlab.read(fixtures / "genai2026" / "bad", "genai2026")
    assert trace.rejects.select("table", "line", "reason").rows() == [
        ("queue_rt", 3, "`value` is not a number of 0 or more: -5.0"),
        ("queue_rt", 4, "`value` is not a number of 0 or more: inf"),
        ("queue_rt", 5, "`value` is not a number of 0 or more: nothing"),
        ("queue_rt", 6, "`timestamp_anon` is not a Unix time in seconds: nothing"),
        ("queue_rt", 7, "`timestamp_anon` is not a Unix time in seconds: -1.0"),
        ("queue_rt", 8, "`timestamp_anon` is not a Unix time in seconds: 1662859347000.0"),
        ("queue_rt", 9, "3 columns expected, got: 2"),
        ("request_parameters", 3, "`exec_time_seconds` is not a number from 0 to 1e9: -22.0"),
        ("request_parameters", 4, "`prompt_length` is not a number from 0 to 1e9: inf"),
        ("requests", 3, "`gmt_create` is not a time: yesterday"),
        ("requests", 4, "`gmt_create` is not a time: nothing"),
        ("requests", 5, "`gmt_create` is not a time: 2024-02-30 16:57:50"),
        ("requests", 6, "`gmt_create` is not a time: 1924-11-15 16:57:50"),
        ("requests", 7, "unknown status: EXPLODED"),
        ("requests", 8, "`exec_time_seconds` is not a number from 0 to 1e9: -1.0"),
        ("requests", 9, "`exec_time_seconds` is not a number from 0 to 1e9: NaN"),
        ("requests", 10, "the request ended, but its `exec_time_seconds` is missing"),
        ("requests", 11, "`num_images_per_prompt` is not a number from 0 to 1e9: 1e+30"),
        ("requests", 12, "`exec_time_seconds` is not a number: 'soon'"),
        ("requests", 13, "11 columns expected, got: 3"),
    ]


def pack(path, table, junk=b"attributes"):
    """Tar a table as macOS does, its attributes in a file of their own before it."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in ((f"._{table.name}", junk), (table.name, table.read_bytes())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_metrics_alone_are_read_from_their_archives(fixtures, tmp_path):
    pack(tmp_path / "qps.tar.gz", fixtures / "genai2026" / "good" / "qps.csv")
    trace = fleetlab.read(tmp_path, "genai2026")
    assert (len(trace.workload), trace.series["qps"].collect().height) == (0, 2)
    assert "no requests with times: the workload is empty" in trace.notes


def test_an_archive_that_is_cut_off_is_refused(fixtures, tmp_path):
    pack(tmp_path / "qps.tar.gz", fixtures / "genai2026" / "good" / "qps.csv")
    (tmp_path / "qps.tar.gz").write_bytes((tmp_path / "qps.tar.gz").read_bytes()[:-60])
    with pytest.raises(fleetlab.TraceError, match="truncated or damaged"):
        fleetlab.read(tmp_path, "genai2026")


def test_a_table_that_is_there_twice_is_refused(fixtures, tmp_path):
    table = fixtures / "genai2026" / "good" / "qps.csv"
    pack(tmp_path / "qps.tar.gz", table)
    shutil.copy(table, tmp_path)
    with pytest.raises(fleetlab.TraceError, match="two files for one table"):
        fleetlab.read(tmp_path, "genai2026")


def test_an_earlier_release_s_requests_without_times_are_known_by_their_columns(fixtures, tmp_path):
    shutil.copy(fixtures / "genai2026" / "good" / "data_trace_processed.csv", tmp_path / "lora_request_trace.csv")
    trace = fleetlab.read(tmp_path, "genai2026")
    assert trace.series["request_parameters"].collect().height == 2


def test_a_trace_with_series_comes_back_from_disk_as_it_was(good, tmp_path):
    again = fleetlab.Trace.load(good.save(tmp_path / "saved"))
    assert again.series.keys() == good.series.keys()
    assert again.series["qps"].collect().equals(good.series["qps"].collect())


@pytest.mark.data
def test_the_published_requests_are_read_without_loss(published):
    trace = published("lora_request_trace.csv")
    frame = trace.workload.frame
    assert (frame.height, trace.rejects.height) == (26_823, 0)
    assert (frame["user"].n_unique(), frame["app"].drop_nulls().n_unique()) == (4247, 86)
    kinds = frame["group"].value_counts(normalize=True)
    assert dict(kinds.rows()) == pytest.approx({"TXT_2_IMG": 0.911, "IMG_2_IMG": 0.082, "INPAINTING": 0.007}, abs=5e-4)
    assert (frame["status"] == "completed").mean() == pytest.approx(0.984, abs=5e-4)


@pytest.mark.data
def test_requests_arrive_as_published(published):
    gaps = published("lora_request_trace.csv").workload.frame["submit"].diff().drop_nulls()
    assert [gaps.quantile(q, "linear") for q in (0.5, 0.9)] == [15, 69]
    assert gaps.mean() == pytest.approx(74, abs=0.5)


@pytest.mark.data
def test_every_published_sample_is_in_a_series(published):
    trace = published()
    heights = {name: lazy.select(pl.len()).collect().item() for name, lazy in trace.series.items()}
    assert heights == dict(trace.counts.select("table", "rows").rows())
    assert (len(heights), sum(heights.values())) == (14, 819_165)


@pytest.mark.data
def test_gpus_are_as_idle_as_published(published):
    duty = published("pod_gpu_duty_cycle_anon.tar.gz").series["pod_gpu_duty_cycle"].collect()["value"]
    assert duty.mean() == pytest.approx(7.0, abs=0.05)
    assert (duty == 0).mean() == pytest.approx(0.668, abs=5e-4)
