"""What is to be placed: files of kinds and counts, and who is alive in a trace at some time."""

import polars as pl
import pytest

from fleetlab import Provenance, Trace, Workload, WorkloadError
from fleetlab.plan import alive, demand

TOML = """
[[instance]]
count = 3
app = "ranker"
cpu_milli = 48000
max_per_node = 2

[[instance]]
gpu_milli = 300
gpu_type = ["A10", "A100"]
"""
CSV = "count,app,cpu_milli,gpu_milli,gpu_type,max_per_node\n3,ranker,48000,0,,2\n1,,,300,A10|A100,\n"


def written(tmp_path, name, text):
    (tmp_path / name).write_text(text, "utf-8")
    return tmp_path / name


def trace(**columns):
    return Trace(Workload.of(pl.DataFrame(columns), source="log"), Provenance("read", "log"))


def test_toml_and_csv_say_the_same(tmp_path):
    one, two = demand(written(tmp_path, "d.toml", TOML)), demand(written(tmp_path, "d.csv", CSV))
    assert one.frame.equals(two.frame)
    assert one.frame["instances"].to_list() == [3, 1]
    assert one.frame["gpu_types"].to_list() == [[], ["A10", "A100"]]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("d.toml", "", r"no \[\[instance\]\] entry"),
        ("d.toml", "instance = 3", r"no \[\[instance\]\] entry"),
        ("d.toml", "[[instance]", "not TOML"),
        ("d.toml", "[[instance]]\ncores = 3", "unknown key in entry 1"),
        ("d.toml", "[[instance]]\ncpu_milli = 1.5", "`cpu_milli` of entry 1 is not a whole number"),
        ("d.toml", "[[instance]]\ncount = 0", "`count` of entry 1 is not a whole number from 1"),
        ("d.toml", "[[instance]]\ncount = true", "`count` of entry 1"),
        ("d.toml", "[[instance]]\ngpu_milli = 1500", "neither a share of one GPU nor a multiple"),
        ("d.toml", "[[instance]]\ngpu_type = 3", "neither a name nor a list"),
        ("d.toml", "[[instance]]\ncpu_milli = 99999999999999999999", "not a whole number"),
        ("d.toml", "[[instance]]\ngpu_milli = 3000000000", "`gpu_milli` of entry 1 is not a whole number from 0 to"),
        ("d.toml", "[[instance]]\ncount = 3000000000", "`count` of entry 1 is not a whole number from 1 to"),
        ("d.csv", "", "no row in it"),
        ("d.csv", "count,cpu_milli\n", "no row in it"),
        ("d.csv", "count,cpu_milli\n3,nan\n", "not a whole number"),
        ("d.csv", "count,cores\n3,1\n", "unknown key"),
    ],
)
def test_a_demand_that_cannot_be_is_refused_in_words(tmp_path, name, text, words):
    with pytest.raises(WorkloadError, match=words):
        demand(written(tmp_path, name, text))


def test_lines_with_nothing_in_them_ask_for_nothing(tmp_path):
    header, *rows = CSV.splitlines()
    blank = "\n".join([header, rows[0], "", ",,,,,", rows[1], " , ,,,,", ""]) + "\n\n"
    assert demand(written(tmp_path, "d.csv", blank)).frame.equals(demand(written(tmp_path, "e.csv", CSV)).frame)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WorkloadError, match="cannot read the demand"):
        demand(tmp_path / "none.toml")


def test_alive_are_those_between_start_and_end():
    # Older than the log, seen whole, still running, waiting, and over before.
    log = trace(
        submit=[0.0, 10.0, 20.0, 25.0, 1.0],
        start=[None, 12.0, 21.0, None, 2.0],
        end=[40.0, 35.0, None, None, 5.0],
        status=["completed", "completed", "running", "waiting", "completed"],
        cpu_milli=[1, 2, 3, 4, 5],
    )
    assert sorted(alive(log, 30).frame["cpu_milli"]) == [1, 2, 3]
    assert sorted(alive(log, "35s").frame["cpu_milli"]) == [1, 3]  # at its end one is gone
    assert sorted(alive(log, 11.5).frame["cpu_milli"]) == [1]  # submitted, not started


def test_one_that_failed_and_is_older_than_the_log_lived_until_it_failed():
    log = trace(submit=[0.0, 0.0, 9.0], start=[None, None, 9.0], end=[40.0, None, 50.0],
                status=["failed", "failed", "completed"], cpu_milli=[1, 2, 3])  # fmt: skip
    assert sorted(alive(log, 10).frame["cpu_milli"]) == [1, 3]


def test_a_log_without_starts_lives_from_submission():
    log = trace(submit=[0.0, 100.0], runtime=[150.0, 50.0], gpu_milli=[500, 1000])
    assert alive(log, "2m").frame["gpu_milli"].to_list() == [500, 1000]
    assert alive(log, 50).frame["gpu_milli"].to_list() == [500]


def test_busiest_is_when_all_resources_together_are_nearest_their_peaks():
    # At 0: all CPU, half the GPU (1.5). At 10: half the CPU, all the GPU (1.5). At 5 both are held (2).
    log = trace(submit=[0.0, 5.0, 10.0], runtime=[6.0, 20.0, 20.0], cpu_milli=[100, 50, 0], gpu_milli=[0, 2000, 1000])
    assert sorted(alive(log).frame["cpu_milli"]) == [50, 100]
    assert alive(log).source == "log at 5 s"


def test_jobs_keep_the_numbers_of_the_trace():
    log = trace(submit=[0.0, 1.0, 2.0], runtime=[1.0, 50.0, 50.0], cpu_milli=[1, 1, 1])
    assert alive(log, 10).frame["job"].to_list() == [1, 2]


@pytest.mark.parametrize(("at", "words"), [("noon", "not a time"), (-3, "not a time"), (1e9, "no job runs")])
def test_a_time_that_cannot_be_is_refused(at, words):
    with pytest.raises(WorkloadError, match=words):
        alive(trace(submit=[0.0], runtime=[5.0], cpu_milli=[1]), at)


def test_an_empty_trace_has_nobody():
    with pytest.raises(WorkloadError, match="no jobs"):
        alive(Trace(Workload.of(pl.DataFrame({"submit": []}, schema={"submit": pl.Float64}), source="log"),
                    Provenance("read", "log")))  # fmt: skip
