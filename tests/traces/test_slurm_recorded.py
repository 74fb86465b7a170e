"""Runs of a real Slurm 22.05 that were once misread, each for one reason; and the same log as text and as JSON."""

import polars as pl
import pytest

import fleetlab
from fleetlab.studies.audit import _checks

pytestmark = pytest.mark.data
MINIMAL = ("aftercorr", "het", "names", "resized", "same-node", "split", "split-live")
RUNS = ("plain1", "defaults", "deps", "parts", "everything")


@pytest.fixture(scope="module")
def read():
    cache = {}

    def of(path):
        if path not in cache:
            cache[path] = fleetlab.read(path, "slurm")
        return cache[path]

    return of


@pytest.fixture
def slurm(data):
    return data / "slurm-22.05"


def jobs(trace):
    return trace.names.collect().join(trace.workload.frame, on="job")


def placed(trace, job):
    rows = trace.placements.collect().filter(pl.col("job") == job)
    return rows["node"].cast(pl.String).value_counts().sort("node").rows()


def test_a_resized_job_ends_and_holds_its_gpus_once(slurm, read):
    frame = read(slurm / "minimal" / "resized").workload.frame
    assert frame.select("submit", "start", "end", "instances", "gpu_milli", "status").rows() == [
        (0, 11, 40, 2, 2000, "completed"),
        (40, 40, 72, 1, 2000, "completed"),
    ]


def test_gpus_are_on_the_nodes_where_the_batch_step_says(slurm, read):
    split, live = read(slurm / "minimal" / "split"), read(slurm / "minimal" / "split-live")
    assert jobs(split).select("name", "instances", "gpu_milli", "distinct_nodes").rows() == [
        ("189", 2, 4000, True),
        ("243", 12, 1000, False),
    ]
    assert placed(split, 1) == [("n3", 4), ("n5", 8)]
    assert placed(live, 2) == [("n1", 1), ("n2", 7)]


def test_parts_of_a_heterogeneous_job_have_one_gang(slurm, read):
    gangs = jobs(read(slurm / "minimal" / "het")).group_by("gang", maintain_order=True).agg("name")["name"].to_list()
    assert gangs == [["108+0", "108+1"], ["254+0", "254+1"]]


def test_names_with_a_separator_and_a_line_end(slurm, read):
    trace = read(slurm / "minimal" / "names")
    assert trace.workload.frame["group"].to_list() == ["two\nlines", "a|b"]
    assert trace.counts.row(1) == ("jobs", 4, 4, 0)


def test_two_nodes_that_were_asked_for_are_distinct(slurm, read):
    frame = jobs(read(slurm / "minimal" / "same-node"))
    assert frame.select("instances", "distinct_nodes").rows() == [(1, False), (1, False), (2, True), (2, True)]


def test_tasks_of_an_array_are_on_as_many_nodes_as_slurm_chose(slurm, read):
    frame = jobs(read(slurm / "minimal" / "aftercorr"))
    assert frame.filter(pl.col("name") == "299_5").select("instances", "gpu_milli").rows() == [(4, 1000)]


@pytest.mark.parametrize("name", [*RUNS, *(f"minimal/{name}" for name in MINIMAL if name != "same-node")])
def test_no_node_is_accused_of_what_slurm_did(slurm, read, name):
    trace = read(slurm / name)
    assert [check.name for check in _checks(trace, trace.cluster) if check.violations.height] == []


@pytest.mark.parametrize("name", RUNS)
def test_a_folder_gives_the_site_of_the_run(slurm, read, name):
    trace = read(slurm / name)
    assert trace.rejects["reason"].str.starts_with("superseded by a later row").all()
    assert trace.scheduler.queues["vision/ann"].parent == "vision"
    assert {p.name for p in trace.scheduler.partitions} == set(trace.cluster.frame["partitions"].explode().drop_nulls())
    assert trace.scheduler.select == "cons_tres"


def test_everything_that_a_log_can_contain(slurm, read):
    trace = read(slurm / "everything")
    frame = jobs(trace)
    throttles = frame.filter(pl.col("array_limit") > 0).group_by("parent").agg(pl.col("array_limit").max())
    assert sorted(throttles["array_limit"].to_list()) == [2, 2, 3, 4, 5]
    attempts = trace.series["attempts"].collect()
    assert attempts["resized"].sum() == 2
    assert attempts.filter(~pl.col("resized"), pl.col("of") > 1)["name"].n_unique() == 15
    assert trace.series["suspended"].collect().height == 3
    assert trace.series["events"].collect().select("node", "state").rows() == [
        ("n6", "DRAIN"), ("n5", "DOWN*"), ("n4", "DOWN")
    ]  # fmt: skip


def test_a_schedule_has_the_numbers_of_the_log_though_runs_of_requeued_jobs_were_joined(slurm, read):
    trace = read(slurm / "everything")
    scheduled = fleetlab.simulate(trace, until=60.0).schedule().select("job", "name")
    numbers = trace.names.select("job", name=pl.col("name").cast(pl.String)).collect()
    assert scheduled.height == numbers.height - 6  # runs that ended with a preemption or a node
    assert scheduled["job"].is_sorted()
    assert scheduled.join(numbers, on=["job", "name"]).height == scheduled.height


def test_text_and_json_give_the_same_jobs(slurm, read):
    text, other = (jobs(read(slurm / "everything" / log)) for log in ("sacct-more.txt", "sacct.json.gz"))
    order = ["submit", "name", "start"]
    text, other = text.sort(order), other.sort(order)
    for column in set(text.columns) - {"job", "parent", "array", "gang", "depends_on"}:
        both = [
            frame[column] if frame[column].dtype == pl.List else frame[column].cast(pl.String)
            for frame in (text, other)
        ]
        assert both[0].to_list() == both[1].to_list(), column
