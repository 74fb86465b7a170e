"""The workload: what it takes, what it refuses, and in which order it comes out."""

import datetime
import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlab.core import Workload, WorkloadError
from fleetlab.core.workload import SCHEMA, STATUS

DESIGN = [
    "job",
    "parent",
    "user",
    "group",
    "app",
    "submit",
    "eligible",
    "runtime",
    "runtime_at_least",
    "instances",
    "cpu_milli",
    "memory_mib",
    "gpu_milli",
    "gpu_memory_mib",
    "rdma_milli",
    "disk_mib",
    "gpu_types",
    "partitions",
    "constraint",
    "reservation",
    "max_per_node",
    "distinct_nodes",
    "exclusive",
    "requeue",
    "queue",
    "qos",
    "priority",
    "nice",
    "limit",
    "depends_on",
    "dependency",
    "gang",
    "array",
    "array_limit",
    "status",
    "start",
    "end",
    "initial",
]


def of(**columns: list[object]) -> Workload:
    return Workload.of(pl.DataFrame({"submit": [0.0], **columns}, strict=False), source="by hand")


# -- what comes out ----------------------------------------------------------------------------------------------


def test_the_columns_are_those_of_the_design_in_its_order():
    assert of().frame.columns == DESIGN


def test_a_log_that_says_nothing_means_one_plain_instance():
    assert of().frame.row(0, named=True) == {
        **dict.fromkeys(("user", "group", "app", "eligible", "runtime", "runtime_at_least", "start", "end")),
        **dict.fromkeys(("job", "parent", "submit", "cpu_milli", "memory_mib", "gpu_milli", "gpu_memory_mib"), 0),
        **dict.fromkeys(("rdma_milli", "disk_mib", "max_per_node", "priority", "nice", "array_limit"), 0),
        **dict.fromkeys(("constraint", "reservation", "requeue", "queue", "qos", "limit", "gang", "array")),
        **dict.fromkeys(("distinct_nodes", "exclusive"), False),
        "instances": 1,
        **{name: [] for name in ("gpu_types", "partitions", "depends_on", "dependency")},
        "status": "completed",
        "initial": False,
    }


def test_jobs_are_numbered_by_submission_and_ties_keep_the_order_of_the_source():
    w = of(submit=[5.0, 0.0, 5.0, 0.0], parent=[3, 1, 2, 0])
    assert w.frame.select("job", "parent").rows() == [(0, 1), (1, 0), (2, 3), (3, 2)]


def test_dependencies_follow_the_numbers_of_jobs():
    w = of(submit=[5.0, 0.0, 7.0], depends_on=[[1], [], [0, 1]], dependency=[["afterok"], [], ["after", "afterany"]])
    assert w.frame["depends_on"].to_list() == [[], [0], [1, 0]]
    cut = w.window(5.0, 9.0)
    assert cut.frame.select("job", "depends_on", "dependency").rows() == [(0, [], []), (1, [0], ["after"])]
    with pytest.raises(WorkloadError, match="not a rule"):
        of(submit=[0.0, 1.0], depends_on=[[], [0]], dependency=[[], ["later"]])


def test_without_jobs_each_job_is_its_own():
    assert of(submit=[1.0, 0.0]).frame["parent"].to_list() == [1, 0]


def test_no_jobs_are_a_workload_too():
    assert repr(of(submit=[])) == "<Workload 0 jobs, 0 instances, by hand>"


def test_instances_are_added_up_beyond_32_bits():
    assert of(submit=[0.0] * 3, instances=[2**31 - 1] * 3).instances == 3 * (2**31 - 1)


AMOUNT = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
SECONDS = st.floats(0, 1e12)
NAME = st.none() | st.text(max_size=3)
GPUS = st.integers(0, 999) | st.integers(0, 2_000_000).map(lambda n: n * 1000)
ROW = st.fixed_dictionaries(
    {
        "parent": st.integers(-(2**63), 2**63 - 1),
        "user": NAME,
        "group": NAME,
        "app": NAME,
        "submit": SECONDS,
        "eligible": SECONDS,
        "runtime": st.none() | SECONDS,
        "instances": st.integers(1, 2**31 - 1),
        "cpu_milli": AMOUNT,
        "memory_mib": AMOUNT,
        "gpu_milli": GPUS,
        "gpu_memory_mib": AMOUNT,
        "rdma_milli": AMOUNT,
        "disk_mib": AMOUNT,
        "gpu_types": st.lists(st.text(max_size=2), max_size=2),
        "partitions": st.lists(st.text(max_size=2), max_size=2),
        **dict.fromkeys(("constraint", "reservation", "queue", "qos"), st.none() | st.text(max_size=2)),
        "max_per_node": SMALL,
        **dict.fromkeys(("distinct_nodes", "exclusive"), st.booleans()),
        "requeue": st.none() | st.booleans(),
        "nice": SMALL,
        "limit": st.none() | SECONDS,
        **dict.fromkeys(("depends_on", "dependency"), st.just([])),
        **dict.fromkeys(("gang", "array"), st.none() | SMALL),
        "array_limit": SMALL,
        "priority": st.integers(-(2**31), 2**31 - 1),
        "status": st.sampled_from(STATUS.categories.to_list()),
        "start": st.none() | st.floats(-1e9, 1e12),
        "runtime_at_least": st.none() | SECONDS,
        "initial": st.just(value=False),
    }
)
FED = {k: (pl.String() if k in ("user", "group", "app", "queue", "qos", "status") else v) for k, v in SCHEMA.items()}
often = settings(max_examples=60, deadline=None, derandomize=True)


def counted_from_zero(rows: list[dict[str, object]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema={k: FED[k] for k in FED if k not in ("job", "end")})
    submit = pl.col("submit") - pl.col("submit").min()
    return frame.with_columns(submit=submit, eligible=submit + pl.col("eligible"), end=pl.col("start") + 1.0)


@often
@given(st.lists(ROW, max_size=6), st.randoms(use_true_random=False))
def test_any_jobs_in_range_are_taken_as_they_are_and_sorted(rows, random):
    frame = counted_from_zero(rows)
    frame = frame.select(random.sample(frame.columns, len(frame.columns)))
    out = Workload.of(frame, source="s").frame
    expected = frame.sort("submit", maintain_order=True).select(DESIGN[1:]).rows()
    assert out["job"].to_list() == list(range(len(rows)))
    assert out.drop("job").rows() == expected


WHOLE = ["parent", "instances", "cpu_milli", "memory_mib", "gpu_milli", "gpu_memory_mib", "rdma_milli", "disk_mib"]
WHOLE += ["max_per_node", "priority"]
TIMES = ["submit", "runtime", "start", "end"]
WRONG: list[tuple[str, object]] = [
    *[(name, math.nan) for name in TIMES + WHOLE],
    *[(name, math.inf) for name in TIMES + WHOLE],
    *[(name, -math.inf) for name in TIMES + WHOLE],
    *[(name, "many") for name in TIMES + WHOLE],
    *[(name, 0.5) for name in WHOLE],
    *[(name, 1e30) for name in WHOLE],
    *[(name, 10**30) for name in WHOLE],
    *[(name, None) for name in ["submit", "gpu_types", "status", *WHOLE]],
    *[(name, {"a": 1}) for name in TIMES + WHOLE + ["user", "gpu_types", "status"]],
    *[(name, [1.0]) for name in TIMES + WHOLE + ["user", "status"]],
    *[(name, datetime.timedelta(seconds=0)) for name in TIMES + WHOLE + ["user"]],
    *[(name, datetime.datetime(1970, 1, 1)) for name in TIMES + WHOLE],
    *[(name, object()) for name in SCHEMA if name != "job"],
    *[(name, -1) for name in WHOLE if name not in ("parent", "priority")],
    *[("submit", -1.0), ("runtime", -1.0), ("submit", 1.0)],
    *[
        ("instances", 0),
        ("instances", 2**31),
        ("gpu_milli", 1500),
        ("gpu_milli", 1001),
        ("gpu_milli", 2**31 - 648 + 1000),
    ],
    *[
        ("status", "exploded"),
        ("status", 0),
        ("gpu_types", [None]),
        ("gpu_types", "T4"),
        ("user", 5),
        ("colour", "red"),
    ],
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda x: str(x)[:20])
def test_one_bad_value_is_refused_with_a_hint(name, value):
    kind = {"dtype": pl.Object} if type(value) is object else {"strict": False}
    frame = pl.DataFrame({"submit": [0.0], "start": [0.0], "end": [1.0]}).with_columns(pl.Series(name, [value], **kind))
    with pytest.raises(WorkloadError) as refused:
        Workload.of(frame, source="s")
    assert refused.value.hint


@pytest.mark.parametrize("frame", [pl.DataFrame(), pl.DataFrame({"parent": [1]})], ids=["nothing", "no submit"])
def test_a_table_without_submissions_is_refused(frame):
    with pytest.raises(WorkloadError, match="needs the column: `submit`"):
        Workload.of(frame, source="s")


def test_an_end_before_its_start_is_refused_and_shown():
    with pytest.raises(WorkloadError, match=r"`end` is before its start in 1 jobs, first in job 1: 1\.0"):
        of(submit=[0.0, 1.0], start=[0.0, 2.0], end=[0.0, 1.0])


def test_whole_numbers_may_come_as_floats():
    assert of(gpu_milli=[2000.0]).frame["gpu_milli"].to_list() == [2000]


@pytest.mark.parametrize("zone", ["Mars/Phobos", "../etc/passwd", "/etc/passwd", "America", " ", "a\0b"])
def test_a_clock_that_nobody_lives_by_is_refused(zone):
    with pytest.raises(WorkloadError, match="no time zone by that name"):
        Workload.of(pl.DataFrame({"submit": [0.0]}), source="s", zone=zone)


@pytest.mark.parametrize("epoch", [math.nan, math.inf])
def test_a_beginning_that_is_no_moment_is_refused(epoch):
    with pytest.raises(WorkloadError, match="not finite"):
        Workload.of(pl.DataFrame({"submit": [0.0]}), source="s", epoch=epoch)


def test_a_table_of_pandas_is_the_same_workload():
    pandas = pytest.importorskip("pandas")
    columns = {
        "submit": [0.0, 5.0, 5.0], "runtime": [60.0, None, 30.0], "gpu_milli": [500, 1000, 8000],
        "user": ["ann", None, "bob"], "gpu_types": [["T4"], [], ["V100", "T4"]],
    }  # fmt: skip
    table = pandas.DataFrame(columns, index=[7, 8, 9])
    ours = Workload.of(pl.DataFrame(columns), source="by hand")
    assert Workload.of(table, source="by hand").frame.equals(ours.frame)
    table["gpu_milli"] = table["gpu_milli"].astype("float64")
    assert Workload.of(table, source="by hand").frame.equals(ours.frame)


def test_a_table_of_pandas_is_checked_like_any_other():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(WorkloadError, match="`submit`"):
        Workload.of(pandas.DataFrame({"runtime": [1.0]}), source="by hand")
    with pytest.raises(WorkloadError, match="gpu_milli"):
        Workload.of(pandas.DataFrame({"submit": [0.0, 1.0], "gpu_milli": [1000, None]}), source="by hand")
