"""Nodes for what comes next: counts that follow by hand from a constant demand, and mistakes that end with words."""

import inspect
import json
from dataclasses import fields

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Provenance, Trace, Workload, WorkloadError
from fleetlab.commands.plan import ForecastOptions
from fleetlab.forecast import instances_ahead
from fleetlab.plan import check, present
from fleetlab.studies.plan_ahead.plan_ahead import in_shapes
from fleetlab.studies.plan_ahead.result import enlarged

HOUR = 3600.0
HOURS = 150  # whole steps; the last submission ends the last of them
CPU = {"cpu_milli": 6000, "memory_mib": 0, "gpu_milli": 0}
GPU = {"cpu_milli": 1000, "memory_mib": 0, "gpu_milli": 1000}
SIX = {"horizon": 6, "models": ["simple"], "seconds": 10}


def constant(per_hour, runtime=600.0, **more):
    """So many instances of each role and shape in every hour, each for ten minutes: all gone at the end of a step."""
    rows = [
        {"submit": h * HOUR + 60.0 * k, "runtime": runtime, "group": role, "app": role, **shape, **more}
        for h in range(HOURS)
        for role, (count, shape) in per_hour.items()
        for k in range(count)
    ]
    rows.append({**rows[0], "submit": HOURS * HOUR})
    work = Workload.of(pl.DataFrame(rows).sort("submit", maintain_order=True), source="constant")
    return Trace(work, Provenance("made", "constant"))


def nodes_of(text, tmp_path):
    (tmp_path / "nodes.toml").write_text(text, "utf-8")
    return Cluster.from_toml(tmp_path / "nodes.toml")


def needed(found):
    return {row["kind"]: (row["now"], row["median"], row["P90"]) for row in found.tables()["nodes"].to_dicts()}


# -- counts by hand ----------------------------------------------------------------------------------------------------


def test_one_shape_of_one_resource_needs_demand_over_capacity_rounded_up():
    # 5 an hour over 6 hours are 30; a node of 16 cores holds 2 of 6 cores: 15 nodes, where cores alone would say 12.
    found = fleetlab.plan_ahead(constant({"CN": (5, CPU)}), Cluster.uniform(40, 0, cpu_milli=16_000), **SIX)
    assert needed(found) == {"node": (0, 15, 15)}
    assert found.tables()["demand"].select("running", "waiting", "median", "P90").row(0) == (0, 0, 30, 30)


def test_two_roles_need_the_nodes_of_two_kinds_each_by_its_own_demand(tmp_path):
    # 18 of 6 cores, two on a node of 12: 9. 42 GPUs, 4 on a node: 11; they leave it 0 cores for anyone else.
    text = '[[node]]\ncount = 20\npool = "cpu"\ncpu_milli = 12000\n'
    text += '[[node]]\ncount = 20\npool = "gpu"\ngpu_type = "A10"\ngpus = 4\ncpu_milli = 4000\n'
    found = fleetlab.plan_ahead(constant({"CN": (3, CPU), "HN": (7, GPU)}), nodes_of(text, tmp_path), **SIX)
    assert needed(found) == {"cpu": (0, 9, 9), "gpu-A10": (0, 11, 11)}
    assert found.feasible
    assert "By role: HN 42 and 42; CN 18 and 18." in found.findings[0]


def test_two_dimensional_shapes_are_packed_together():
    # 12 of (8 cores, 2 GiB) and 12 of (2 cores, 8 GiB): one of each fills a node of 10 and 10, so 12 nodes.
    cores, memory = {"cpu_milli": 8000, "memory_mib": 2048}, {"cpu_milli": 2000, "memory_mib": 8192}
    nodes = Cluster.uniform(40, 0, cpu_milli=10_000, memory_mib=10_240)
    found = fleetlab.plan_ahead(constant({"a": (2, cores), "b": (2, memory)}), nodes, **SIX)
    assert needed(found) == {"node": (0, 12, 12)}
    assert found.tables()["plans"]["search"].to_list() == [None, "proved", "proved"]


def test_what_runs_and_waits_is_placed_beside_what_comes():
    # Those of the last 10 hours run on, one an hour; 6 more come. A node holds 4.
    trace = constant({"CN": (1, {"cpu_milli": 1000})}, runtime=10.5 * HOUR)
    found = fleetlab.plan_ahead(trace, Cluster.uniform(9, 0, cpu_milli=4000), **SIX)
    assert found.tables()["demand"].select("running", "waiting", "new, P90").row(0) == (10, 0, 6)
    assert needed(found) == {"node": (3, 4, 4)}


def test_of_a_level_only_what_exceeds_those_there_is_new():
    trace = constant({"CN": (1, {"cpu_milli": 1000})}, runtime=10.5 * HOUR)
    found = fleetlab.plan_ahead(trace, Cluster.uniform(9, 0, cpu_milli=4000), target="level", **SIX)
    assert found.tables()["demand"].select("median", "new, median", "new, P90").row(0) == (10, 0, 0)
    assert needed(found) == {"node": (3, 3, 3)}


def poisson(seed):
    """Eight jobs an hour on average, for 900 hours."""
    submit = np.repeat(np.arange(900.0), np.random.default_rng(seed).poisson(8.0, 900)) * HOUR
    jobs = pl.DataFrame({"submit": np.append(submit, 900 * HOUR), "runtime": 60.0, "cpu_milli": 1000})
    return Trace(Workload.of(jobs, source="poisson"), Provenance("made", "poisson"))


def test_the_quantile_of_a_sum_is_that_of_past_sums_and_held_out_demand_stays_below_as_often():
    parts = [instances_ahead(poisson(k), horizon=12, quantile=0.9, models=["simple"]).parts[0] for k in range(6)]
    # A sum of twelve Poisson counts: mean 96, and 109 at 90 %; summing the twelve quantiles would give 144.
    assert np.mean([part.median for part in parts]) == pytest.approx(96, abs=3)
    assert np.mean([part.upper for part in parts]) == pytest.approx(109, abs=3)
    # One trace has 14 horizons held out, so it is off by 0.07 or so; six of them by 0.03.
    assert np.mean([part.below.value for part in parts]) == pytest.approx(0.9, abs=0.09)


def test_a_quantile_that_held_out_demand_exceeds_too_often_is_said():
    # Two an hour for 120 hours, then one more in each hour: nothing before tells it.
    counts = [2] * 120 + list(range(3, 33))
    submit = np.append(np.repeat(np.arange(150.0), counts), 150.0) * HOUR
    jobs = pl.DataFrame({"submit": submit, "runtime": 60.0, "group": "CN", **CPU})
    trace = Trace(Workload.of(jobs, source="it grows"), Provenance("made", "x"))
    found = fleetlab.plan_ahead(trace, Cluster.uniform(200, 0, cpu_milli=16_000), **SIX)
    assert found.findings[-1].startswith("The P90 of CN may be too low: in the held-out period demand stayed below")


def test_shapes_come_in_the_proportions_of_the_recent_log():
    shapes = pl.DataFrame({"part": ["a", "a", "b"], "requested": [60, 30, 7]})
    assert in_shapes(shapes, {"a": 10, "b": 3}).to_list() == [7, 3, 3]
    assert in_shapes(shapes, {"a": 0, "b": 1}).to_list() == [0, 0, 1]


def test_shapes_older_than_recent_are_forgotten():
    trace = constant({"CN": (2, CPU)})
    cores = pl.when(pl.col("submit") < 100 * HOUR).then(6000).otherwise(3000)
    work = Workload.of(trace.workload.frame.drop("job").with_columns(cpu_milli=cores), source="other shape")
    nodes = Cluster.uniform(20, 0, cpu_milli=6000)
    late = Trace(work, Provenance("made", "x"))
    assert needed(fleetlab.plan_ahead(late, nodes, recent="1d", **SIX)) == {"node": (0, 6, 6)}
    # Of the last 75 hours a third had the large shape: 4 large ones on 4 nodes, 8 small ones on 4.
    assert needed(fleetlab.plan_ahead(late, nodes, recent="75h", **SIX)) == {"node": (0, 8, 8)}


# -- who is there, and who does not fit --------------------------------------------------------------------------------


def test_present_are_those_that_go_on_and_those_that_wait():
    jobs = pl.DataFrame({
        "submit": [0.0, 0.0, 5.0, 8.0, 10.0, 9.0],
        "start": [None, 1.0, 12.0, None, 10.0, 9.0],
        "end": [20.0, 10.0, 30.0, None, 15.0, None],
        "status": ["completed", "completed", "completed", "waiting", "completed", "cancelled"],
        "initial": [True, False, False, False, False, False],
    })  # fmt: skip
    work = Workload.of(jobs.with_columns(cpu_milli=pl.int_range(pl.len())), source="six")
    running, waiting = present(work, 10.0)
    # One that ends now has made room; one that comes now is yet to come.
    assert running["cpu_milli"].to_list() == [0, 5]
    assert waiting["cpu_milli"].to_list() == [2, 3]


def test_too_few_nodes_are_said_with_how_many_it_takes(tmp_path):
    found = fleetlab.plan_ahead(constant({"CN": (5, CPU)}), Cluster.uniform(11, 0, cpu_milli=16_000), **SIX)
    assert not found.feasible
    assert found.tables()["nodes"].select("there", "P90", "missing").row(0) == (11, 15, 4)
    assert "Demand P90: 8 instances do not fit on the nodes that there are." in found.findings
    assert found.tables()["does not fit"]["demand"].unique(maintain_order=True).to_list() == ["median", "P90"]


def test_instances_that_no_node_can_hold_are_counted_and_the_others_placed():
    large = {"cpu_milli": 20_000, "memory_mib": 0, "gpu_milli": 0}
    trace = constant({"CN": (5, CPU), "huge": (1, large)})
    found = fleetlab.plan_ahead(trace, Cluster.uniform(40, 0, cpu_milli=16_000), **SIX)
    assert needed(found) == {"node": (0, 15, 15)}
    assert "Demand P90: 6 instances fit on no kind of node." in found.findings
    assert any("request more `cpu_milli` than any node has (16,000)" in note for note in found.notes)
    assert not found.feasible


def test_more_nodes_of_each_kind_surely_hold_the_demand():
    rng = np.random.default_rng(2)
    jobs = {"submit": 0.0, "cpu_milli": rng.integers(1, 9, 40), "instances": rng.integers(1, 9, 40), "max_per_node": 2}
    work = Workload.of(pl.DataFrame(jobs).with_columns(app=pl.int_range(pl.len()).cast(pl.String)), source="forty")
    nodes = Cluster.uniform(1, 0, cpu_milli=10)
    assert fleetlab.plan(work, enlarged(work, nodes), seconds=5).feasible


def test_the_placement_is_that_of_the_upper_quantile_and_valid():
    trace = constant({"CN": (2, CPU)}, max_per_node=1)
    nodes = Cluster.uniform(30, 0, cpu_milli=16_000)
    found = fleetlab.plan_ahead(trace, nodes, **SIX)
    assert needed(found) == {"node": (0, 12, 12)}  # one of the app on a node
    new = found.placements["job"].unique().to_list()
    assert min(new) > trace.workload.frame["job"].max()
    rows = pl.DataFrame({"submit": 0.0, "instances": 12, "app": "CN", "max_per_node": 1, **CPU})
    demand = Workload.of(rows, source="by hand")
    assert check(demand, nodes, found.placements.with_columns(job=pl.lit(0, pl.Int64)), whole=True) == []


def test_a_cost_is_that_of_the_nodes_that_are_needed():
    nodes = Cluster.uniform(40, 0, cpu_milli=16_000)
    found = fleetlab.plan_ahead(constant({"CN": (5, CPU)}), nodes, objective="cost", prices={"default": 2.5}, **SIX)
    assert found.tables()["plans"]["value"].to_list() == [None, 37.5, 37.5]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    constant({"CN": (5, CPU)}).save(tmp_path / "log")
    (tmp_path / "nodes.toml").write_text("[[node]]\ncount = 40\ncpu_milli = 16000\n", "utf-8")
    (tmp_path / "few.toml").write_text("[[node]]\ncount = 11\ncpu_milli = 16000\n", "utf-8")
    (tmp_path / "tiny.toml").write_text(
        '[[node]]\ncount = 40\ncpu_milli = 16000\n[[node]]\npool = "tiny"\ncpu_milli = 10\n', "utf-8"
    )
    (tmp_path / "demand.toml").write_text("[[instance]]\ncpu_milli = 1\n", "utf-8")
    return tmp_path


PLAN = ("plan", "log", "--forecast", "--horizon", "6", "--models", "simple")


def test_the_command_says_nodes_and_what_is_assumed(here, command):
    done = command(*PLAN, "--nodes", "nodes.toml", "--out", "placement.csv")
    assert done.returncode == 0
    assert "with the demand to come: median 15 (+15), P90 15 (+15)." in done.stdout
    assert "assumed: what runs stays to the end of the horizon" in done.stdout
    assert pl.read_csv("placement.csv").height == 30


def test_the_command_ends_with_status_1_where_nodes_are_too_few(here, command):
    done = command(*PLAN, "--nodes", "few.toml", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["tables"]["nodes"][0]["missing"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*PLAN,), "the trace has no cluster"),
        ((*PLAN, "--nodes", "tiny.toml"), "no instance fits on nodes of kind `tiny`"),
        (("plan", "log", "--forecast", "--nodes", "nodes.toml", "--horizon", "60"), "too few steps to learn from"),
        (("plan", "log", "--forecast", "--nodes", "nodes.toml", "--every", "2d"), "too few steps to learn from"),
        ((*PLAN, "--nodes", "nodes.toml", "--quantile", "1.5"), "a quantile is from 0.5 to below 1"),
        ((*PLAN, "--nodes", "nodes.toml", "--recent", "long"), "not a length of time"),
        ((*PLAN, "--nodes", "nodes.toml", "--every", "often"), "not a length of time"),
        ((*PLAN, "--nodes", "nodes.toml", "--by", "gpu_type"), "no job names its gpu_type"),
        ((*PLAN, "--nodes", "nodes.toml", "--objective", "moves"), "no objective with a forecast by that name"),
        ((*PLAN, "--nodes", "nodes.toml", "--at", "2h"), "takes no --at"),
        (("plan", "demand.toml", "--nodes", "nodes.toml", "--forecast"), "a forecast needs a trace"),
        (("plan", "log", "--nodes", "nodes.toml", "--quantile", "0.9"), "--quantile is for a forecast"),
    ],
)
def test_a_mistake_ends_with_words_and_status_2(here, command, words, said):
    done = command(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr
    assert said in done.stderr


def test_the_command_takes_what_its_verb_takes():
    own = set(inspect.signature(fleetlab.plan_ahead).parameters) - {"trace", "nodes", "progress"}
    shared = {"objective", "prices", "seconds", "seed"}
    assert {f.name for f in fields(ForecastOptions)} | shared == own


def test_nothing_to_forecast_from_is_refused():
    none = Trace(
        Workload.of(pl.DataFrame({"submit": []}, schema={"submit": pl.Float64}), source="none"), Provenance("made", "x")
    )
    with pytest.raises(WorkloadError, match="no jobs"):
        fleetlab.plan_ahead(none, Cluster.uniform(1, 0))


@pytest.mark.data
@pytest.mark.validate
def test_a_day_of_dlrm_needs_cpu_and_gpu_nodes_beside_what_runs(data, tmp_path):
    text = '[[node]]\ncount = 2600\npool = "cpu"\ncpu_milli = 192000\nmemory_mib = 1048576\nrdma_milli = 1000\n'
    text += 'disk_mib = 4194304\n[[node]]\ncount = 600\npool = "gpu"\ngpu_type = "GPU"\ngpus = 8\ncpu_milli = 128000\n'
    text += "memory_mib = 1048576\nrdma_milli = 4000\ndisk_mib = 4194304\n"
    trace = fleetlab.read(data / "alibaba-dlrm-v2025", "dlrm2025")
    found = fleetlab.plan_ahead(trace, nodes_of(text, tmp_path), models=["simple"], seconds=20)
    assert found.tables()["demand"]["running"].to_list() == [5562, 3322]
    now, median, upper = zip(*needed(found).values(), strict=True)
    assert sum(now) < sum(median) < sum(upper)
    assert found.feasible
