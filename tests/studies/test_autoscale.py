"""Nodes ready by forecasts: margins with the right risk, correct node-hours, and the same goal for all policies."""

import json

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Scenario, Trace, Workload, WorkloadError, cli
from fleetlab.forecast.catalogue import BY_NAME, NEEDS, SIMPLE
from fleetlab.studies.autoscale.autoscale import cheapest
from fleetlab.studies.autoscale.pools import node_kinds, peaks, pool_demand, preferred, scaled_pools
from fleetlab.studies.autoscale.replay import DemandForecast, Replay, forecasts, sustain

DAY = 86_400.0


def day_and_night(days, *, seed=1, mean=12.0, swing=0.7, runtime=1200.0):
    """Poisson arrivals by a sine of the day, each for one GPU."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(mean * (1 + swing) / runtime * days * DAY)
    submit = np.sort(rng.uniform(0, days * DAY, count))
    kept = submit[rng.uniform(size=count) < (1 + swing * np.sin(2 * np.pi * submit / DAY)) / (1 + swing)]
    times = {"submit": kept - kept[0], "runtime": rng.exponential(runtime, len(kept))}
    return Workload.of(pl.DataFrame({**times, "gpu_milli": 1000}), source="day and night")


def demand_of(work, nodes, every):
    return pool_demand(scaled_pools(Scenario.of(work, nodes))[0], every=every)


def replay_of(work, nodes, every, first, days, boot):
    demand = demand_of(work, nodes, every)
    pool = Cluster.of(nodes.frame.with_columns(pool=pl.lit("scaled")), source="pool")
    return Replay(demand, demand.scenario.replace(cluster=pool, placement="first_fit"), first, days, boot)


# -- demand ------------------------------------------------------------------------------------------------------------


def test_the_peak_of_a_step_is_the_highest_moment_in_it():
    # Held: 1 from 0 to 25, 2 more from 12 to 14, in steps of 10.
    found = peaks(np.array([0.0, 12.0]), np.array([25.0, 14.0]), np.array([[1.0], [2.0]]), 10.0, 4)
    assert found.tolist() == [1, 3, 1, 0]


def test_what_comes_when_another_goes_does_not_add_up():
    found = peaks(np.array([0.0, 5.0]), np.array([5.0, 9.0]), np.array([[1.0], [1.0]]), 10.0, 1)
    assert found.tolist() == [1]


def test_demand_is_counted_in_nodes_by_what_is_scarcest_in_all():
    # One job of half a node by CPU, one of three quarters by GPU: 0.75 of a node, if they pack well.
    work = pl.DataFrame(
        {"submit": [0.0, 1.0], "runtime": [500.0, 500.0], "cpu_milli": [500, 100], "gpu_milli": [1, 750]}
    )
    found = demand_of(Workload.of(work, source="two"), Cluster.uniform(4, 1, cpu_milli=1000), 100.0)
    assert found.level.tolist() == [pytest.approx(0.751)]


@pytest.mark.parametrize(
    ("asks", "runs"),
    [
        ({"instances": 8}, True),  # two nodes of four GPUs
        ({"instances": 9}, False),
        ({"instances": 8, "gpu_milli": 600}, True),  # one on each GPU: no two shares of 600 are on one
        ({"instances": 9, "gpu_milli": 600}, False),
        ({"gpu_memory_mib": 101}, False),
        ({"gpu_milli": 400, "gpu_memory_mib": 51, "instances": 9}, False),  # by milli two on each GPU, by memory one
        ({"instances": 3, "max_per_node": 1}, False),
        ({"cpu_milli": 1001}, False),
        ({"gpu_milli": 0, "cpu_milli": 1}, False),  # a pool with GPUs is for those who ask for some
    ],
)
def test_who_can_never_run_on_the_pool_is_left_out_just_as_the_simulator_does(asks, runs):
    jobs = [{"gpu_milli": 1000, "instances": 1, "cpu_milli": 0, "gpu_memory_mib": 0, "max_per_node": 0}] * 3
    jobs = [dict(one, submit=100.0 * k, runtime=50.0) for k, one in enumerate(jobs)]
    jobs[1] |= asks
    work, nodes = Workload.of(pl.DataFrame(jobs), source="three"), Cluster.uniform(
        2, 4, cpu_milli=1000, gpu_memory_mib=100)  # fmt: skip
    found = demand_of(work, nodes, 100.0)
    assert found.left_out == (0 if runs else 1)
    assert (found.level[1] > 0) == runs
    if jobs[1]["gpu_milli"]:
        assert (1 in fleetlab.simulate(work, nodes).jobs["job"]) == runs


def test_those_who_outlive_the_log_stay_to_its_end():
    work = pl.DataFrame({
        "submit": [0.0, 100.0, 300.0], "start": [None, 100.0, 300.0], "end": [None, None, 350.0],
        "status": ["running", "running", "completed"], "gpu_milli": [1000] * 3,
    })  # fmt: skip
    found = demand_of(Workload.of(work, source="log"), Cluster.uniform(4, 1), 100.0)
    assert found.level.tolist() == [1, 2, 2]


# -- forecasts and their margins ---------------------------------------------------------------------------------------


def test_a_margin_is_exceeded_as_often_as_the_risk_says():
    rng = np.random.default_rng(3)
    level = rng.normal(100, 10, 6000)
    made = DemandForecast("flat", np.full(6000, 100.0), level, 2, 288)
    for risk in (0.3, 0.1, 0.02):
        over = level[2500:] > made.upper(risk)[2500:]
        # Binomial: four standard errors.
        assert over.mean() == pytest.approx(risk, abs=4 * np.sqrt(risk * (1 - risk) / 3500))


def test_no_forecast_and_no_margin_knows_what_comes_after_its_order():
    demand = demand_of(day_and_night(6), Cluster.uniform(9, 4), 300.0)
    other = demand_of(day_and_night(6), Cluster.uniform(9, 4), 300.0)
    lead, cut = 1, 1200
    other.level[cut:] *= 3.0  # another future
    for name in ("last", "seasonal", "ridge"):
        one, two = (forecasts([BY_NAME[name]], d, lead=lead, train=600)[0].upper(0.1) for d in (demand, other))
        assert np.array_equal(one[: cut + lead + 1], two[: cut + lead + 1], equal_nan=True)
        assert not np.array_equal(one[cut + lead + 1 :], two[cut + lead + 1 :], equal_nan=True)


# -- replays -----------------------------------------------------------------------------------------------------------


def clockwork():
    """One job of one GPU every 100 s for 100 s, over six days; each node has one GPU."""
    count = int(6 * DAY / 100)
    work = pl.DataFrame({"submit": np.arange(count) * 100.0, "runtime": 100.0, "gpu_milli": 1000})
    return replay_of(Workload.of(work, source="clockwork"), Cluster.uniform(3, 1), 300.0, 4 * 288, 1, 300.0)


def test_clockwork_keeps_one_node_busy_and_the_others_idle():
    replay = clockwork()
    result = replay.scheduled("static", "two", np.full(len(replay.demand.level), 2))
    assert result.p95 == 0
    assert result.node_hours.tolist() == [48]
    assert result.idle.tolist() == [pytest.approx(24)]


def test_a_node_that_is_switched_off_counts_until_its_last_job_ends():
    work = pl.DataFrame({"submit": [0.0, 10.0, 2 * DAY], "runtime": [10.0, DAY, 10.0], "gpu_milli": [1000] * 3})
    ready = np.full(48, 1)
    ready[0] = 2  # node 1 is there for an hour, in which nobody takes it: the long job follows on node 0
    replay = replay_of(Workload.of(work, source="three"), Cluster.uniform(2, 1), 3600.0, 0, 2, 0.0)
    result = replay.scheduled("made", "", ready)
    assert result.node_hours.tolist() == [25, 24]
    assert result.boots.tolist() == [0, 0]


def test_a_node_that_comes_back_has_booted_once():
    replay = clockwork()
    ready = np.full(len(replay.demand.level), 1)
    ready[4 * 288 + 12 : 4 * 288 + 24] = 3  # two nodes for an hour of the day that counts
    result = replay.scheduled("made", "", ready)
    assert result.boots.tolist() == [2]
    assert result.node_hours.tolist() == [pytest.approx(24 + 2 * (1 + 300 / 3600))]


def test_nodes_that_are_kept_are_those_of_the_last_steps():
    draw = np.random.default_rng(0).integers(1, 9, 50)
    for steps in (0, 1, 7):
        by_hand = [max(draw[max(0, t - steps) : t + 1]) for t in range(50)]
        assert sustain(draw, steps).tolist() == by_hand


def test_a_reactive_pool_makes_the_first_of_each_burst_wait_for_a_node():
    # Four days of bursts of three, six hours apart, that run an hour: nodes boot in 300 s after a look each 60 s.
    submit = np.repeat(np.arange(16) * 6 * 3600.0, 3) + np.tile([0.0, 1.0, 2.0], 16)
    work = pl.DataFrame({"submit": submit, "runtime": 3600.0, "gpu_milli": 1000})
    replay = replay_of(Workload.of(work, source="bursts"), Cluster.uniform(3, 1), 300.0, 0, 3, 300.0)
    result = replay.reactive(0, 600.0)
    assert result.wait.min() >= 300
    assert result.wait.max() <= 360
    assert result.node_hours.tolist() == pytest.approx([4 * 3 * (300 + 3600 + 600) / 3600] * 3, rel=0.02)
    assert result.boots.tolist() == [12, 12, 12]


def test_the_cheapest_setting_that_meets_the_goal_is_found_by_halving():
    class Waited:
        def __init__(self, p95):
            self.p95 = p95

    looked = []

    def run(n):
        looked.append(n)
        return Waited(100 - n)

    assert cheapest(range(100), run, 40).p95 == 40
    assert len(looked) <= 7
    assert cheapest(range(10), run, 40) is None


# -- the study ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    nodes = Cluster.uniform(12, 4)
    return fleetlab.autoscale(day_and_night(7), nodes, wait=10.0, learn=4 * DAY, models=["last", "ridge"])


def test_everybody_meets_the_goal_and_a_day_has_so_many_hours(found):
    at = found.tables()["policies"]
    assert set(at["policy"]) == {"reactive", "static", "forecast", "oracle"}
    assert (at["P95 wait"] <= 10).all()
    static = at.filter(pl.col("policy") == "static")
    assert static["node-hours per day"].item() == 24 * int(static["setting"].item().split()[0])


def test_demand_that_comes_and_goes_with_the_day_needs_fewer_node_hours_than_its_peak(found):
    against = {row["baseline"]: row for row in found.tables()["differences"].iter_rows(named=True)}
    assert against["static"]["verdict"] == "better"
    assert found.summary()[0].low <= found.summary()[0].value <= found.summary()[0].high


def test_the_sentences_say_what_the_table_says(found):
    for row, said in zip(found.tables()["differences"].iter_rows(named=True), found.findings, strict=True):
        assert f"`{row['baseline']}`" in said
        assert {"better": "fewer", "worse": "more", "no difference": "as many"}.get(
            row["verdict"], "do not differ"
        ) in said


def test_nodes_to_have_ready_are_told_for_every_step_that_counts(found):
    ready, at = found.tables()["ready"], found.tables()["policies"]
    assert ready["begin"].to_list() == [4 * DAY + 300.0 * k for k in range(3 * 288)]
    static = at.filter(pl.col("policy") == "static")["setting"].item()
    assert ready["static"].unique().to_list() == [int(static.split()[0])]
    # The oracle has what is asked for, and some more or less, always the same.
    extra = int(at.filter(pl.col("policy") == "oracle")["setting"].item().split()[0])
    assert ready["oracle"].to_list() == (ready["demand"] + extra).ceil().clip(1, 12).to_list()
    # What is on at least is what was to be ready: 12 steps make an hour.
    hours = at.filter(pl.col("policy") == "forecast")["node-hours per day"].item()
    assert ready["forecast"].sum() / 12 / 3 <= hours + 1e-9


def test_a_chosen_risk_is_how_often_more_is_asked_for_than_is_ready_and_others_wait_no_longer():
    work, nodes = day_and_night(7, mean=20.0), Cluster.uniform(60, 1)
    found = fleetlab.autoscale(work, nodes, risk=0.2, learn=4 * DAY, models=["last", "ridge"])
    at, ready = found.tables()["policies"], found.tables()["ready"]
    forecast = at.filter(pl.col("policy") == "forecast")
    assert forecast["setting"].item().startswith("risk 0.2, ")
    assert (at["P95 wait"] <= forecast["P95 wait"].item()).all()
    # Seldomer than that, as nodes are whole and so are demands; 864 steps that hang together vary by some points.
    assert 0.06 < (ready["demand"] > ready["forecast"]).mean() < 0.24


def test_a_study_leaves_the_models_of_the_catalogue_as_they_were(found):
    assert not hasattr(BY_NAME["ridge"], "fits_")


def test_the_result_is_one_json_object_with_figures(found):
    told = json.loads(fleetlab.core.as_json(found))
    assert {"settings", "demand"} == set(told["figures"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"wait": -1.0}, "`wait` is not a time"),
        ({"every": 0.0}, "`every` is not a time of at least 1 s"),
        ({"boot": float("nan")}, "`boot` is not a time"),
        ({"learn": "long"}, "`learn` is not a time"),
        ({"models": ["oracle"]}, "no model or family by that name"),
        ({"wait": 60, "risk": 0.1}, "a risk replaces a wait"),
        ({"risk": 0.0}, "a risk is between 0 and 1: 0.0"),
        ({"risk": float("nan")}, "a risk is between 0 and 1"),
        ({"models": []}, "no model to forecast with"),
        ({"seed": -1}, "a seed is a whole number from 0 up, not: -1"),
        ({"until": 5}, "leave `events`, `until` and `placement` out"),
        ({"placement": "fgd"}, "leave `events`, `until` and `placement` out"),
        ({"learn": 4 * DAY, "every": 3600.0}, "too few forecasts are over to take a margin from: 46"),
        ({"learn": 4 * DAY, "boot": 2 * DAY}, "too few forecasts are over"),
        ({"learn": 4 * DAY, "every": 1e12}, "too few forecasts are over"),
        ({"learn": 6.5 * DAY}, "too short"),
        ({"every": 1.0}, "steps of 1 s"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(options, words):
    with pytest.raises(WorkloadError, match=words):
        fleetlab.autoscale(day_and_night(7), Cluster.uniform(12, 4), **options)


def test_times_are_told_as_people_say_them_and_models_by_family():
    work, nodes = day_and_night(6.1, mean=4.0), Cluster.uniform(12, 4)
    told = {"wait": "1m", "every": "10m", "boot": "20m", "models": ["simple", "last"]}
    settings = fleetlab.autoscale(work, nodes, **told).provenance.settings
    # Of six days a third would be two: four are learnt from, unless told otherwise.
    assert [settings[name] for name in ("wait", "every", "boot", "learn")] == [60, 600, 1200, 4 * DAY]
    assert settings["models"] == [*SIMPLE]


def test_a_log_too_short_is_refused_with_the_option_that_would_do():
    with pytest.raises(WorkloadError, match=r"too short: .* days, with 6 to learn from") as refused:
        fleetlab.autoscale(day_and_night(7), Cluster.uniform(12, 4), learn="6d")
    assert "--learn 4d" in refused.value.hint


def test_a_model_whose_library_is_not_there_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(NEEDS, "boosted", ("no_such_library", "forecast"))
    with pytest.raises(WorkloadError, match="not installed: no_such_library") as refused:
        fleetlab.autoscale(day_and_night(7), Cluster.uniform(12, 4), models=["last", "boosted"])
    assert "fleetlab[forecast]" in refused.value.hint


def test_a_goal_that_nobody_meets_is_said():
    # One node of one GPU for some five at noon: whatever is done, jobs wait.
    found = fleetlab.autoscale(
        day_and_night(7, mean=3.0), Cluster.uniform(1, 1), wait=0.0, learn=4 * DAY, models=["last"]
    )
    assert found.findings == ("No setting of the forecasts has a P95 wait of at most 0 s.",)
    assert "nothing meets the goal" in repr(found)
    assert json.loads(fleetlab.core.as_json(found))["summary"] == []


def test_nobody_who_could_run_is_told():
    with pytest.raises(WorkloadError, match="too few jobs"):
        fleetlab.autoscale(day_and_night(7), Cluster.uniform(3, 0))


def test_a_scenario_is_scaled_with_its_words():
    work = day_and_night(7, mean=3.0)  # few jobs: a quota is for the reference loop
    options = {"wait": 10.0, "learn": 4 * DAY, "models": ["last"]}
    faster = fleetlab.autoscale(Scenario.of(work, Cluster.uniform(2, 4), load=1.1, nodes="+2", quota=4), **options)
    by_hand = fleetlab.autoscale(work.at_load(1.1), Cluster.uniform(4, 4), quota=4, **options)
    assert faster.tables()["policies"].equals(by_hand.tables()["policies"])
    assert (faster.provenance.settings["nodes"], faster.provenance.settings["quota"]) == ("+2", 4)


def test_a_trace_that_is_too_short_ends_with_words(tmp_path, capsys):
    trace = Trace(day_and_night(2), fleetlab.Provenance("made", "made"), cluster=Cluster.uniform(12, 4))
    trace.save(tmp_path / "short")
    with pytest.raises(SystemExit) as left:
        cli.main(["autoscale", str(tmp_path / "short")])
    assert left.value.code == 2
    assert "too short" in capsys.readouterr().err


# -- several kinds of nodes --------------------------------------------------------------------------------------------

GPU_NODES = '[[node]]\ncount = 12\npool = "gpu"\ngpu_type = "A10"\ngpus = 4\ncpu_milli = 64000\n'
CPU_NODES = '[[node]]\ncount = 9\npool = "cpu"\ncpu_milli = 8000\n'
SHORT = {"wait": 10.0, "learn": 4 * DAY, "models": ["last"]}


def two_roles(days=7):
    """Jobs of one GPU, and jobs of two cores without, each by its own day and night; two jobs fit nowhere."""
    gpu = day_and_night(days, mean=4.0).frame.with_columns(cpu_milli=pl.lit(1000, pl.Int64))
    cpu = day_and_night(days, seed=2, mean=3.0).frame.with_columns(
        gpu_milli=pl.lit(0, pl.Int32), cpu_milli=pl.lit(2000, pl.Int64)
    )
    large = cpu.head(2).with_columns(cpu_milli=pl.lit(9000, pl.Int64))
    every = pl.concat([gpu, cpu, large]).sort("submit", maintain_order=True).drop("job")
    return Workload.of(every, source="two roles")


def written(tmp_path, text, name="nodes.toml"):
    (tmp_path / name).write_text(text, "utf-8")
    return Cluster.from_toml(tmp_path / name)


def test_one_kind_gives_what_it_gave_before_there_could_be_several(found):
    # Computed by the version that knew one kind only.
    at = found.tables()["policies"]
    assert at["setting"].to_list() == ["0 at least, idle 3600 s", "7 nodes", "risk 0.4, kept 900 s, ridge", "+0 nodes"]
    hours = [113.29483627147145, 168.0, 108.85402324983367, 102.53125522643329]
    assert at["node-hours per day"].to_list() == pytest.approx(hours, rel=1e-12)
    assert at["boots per day"].to_list() == pytest.approx([29 / 3, 0, 56 / 3, 98 / 3], rel=1e-12)
    waits = [4.637763667998982, 0.7476788385587095, 4.068849331746861, 0.0]
    assert at["mean wait"].to_list() == pytest.approx(waits, rel=1e-12)
    ready = found.tables()["ready"]
    assert [int(ready[name].sum()) for name in ("static", "forecast", "oracle")] == [6048, 3810, 3218]
    # Wider than then (-5.154, -61.51, 4.750): intervals of few days allow for their skewness.
    assert found.tables()["differences"]["low"].to_list() == pytest.approx(
        [-5.190785417865923, -62.03817671735416, 4.468486762604906], rel=1e-12
    )
    assert found.tables()["settings"].height == 48
    assert found.tables()["policies"].columns[0] == "policy"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    nodes = written(tmp_path_factory.mktemp("two"), CPU_NODES + GPU_NODES)
    return fleetlab.autoscale(two_roles(), nodes, **SHORT)


@pytest.mark.parametrize(("kind", "text"), [("cpu", CPU_NODES), ("gpu-A10", GPU_NODES)])
def test_two_kinds_with_disjoint_demands_are_two_runs_of_one_kind(both, tmp_path, kind, text):
    alone = fleetlab.autoscale(two_roles(), written(tmp_path, text), **SHORT).tables()
    for name, frame in alone.items():
        mine = both.tables()[name].filter(pl.col("kind") == kind).drop("kind")
        assert mine.select(frame.columns).equals(frame), name


def test_node_hours_of_all_kinds_are_the_sum_of_each_day(both):
    days, all_kinds = both.tables()["days"], both.tables()["all kinds"]
    for policy in ("reactive", "static", "forecast", "oracle"):
        summed = days.group_by("day").agg(pl.col(policy).sum())[policy].mean()
        row = all_kinds.filter(pl.col("policy") == policy)
        assert row["node-hours per day"].item() == pytest.approx(summed)
    assert both.findings[0].startswith("All kinds together: forecasts ")
    assert any(line.startswith("Nodes of kind `cpu`: At a P95 wait") for line in both.findings)


def test_jobs_that_no_kind_can_hold_are_counted_and_said(both):
    said = [note for note in both.notes if "no kind of node" in note]
    assert said == ["2 jobs left out: no kind of node that they may use can hold them"]


def test_a_job_that_two_kinds_can_hold_goes_to_the_lowest_weight_then_to_the_first(tmp_path):
    small, large = "[[node]]\ncpu_milli = 1000\n", '[[node]]\npool = "large"\ncpu_milli = 4000\n'
    jobs = Workload.of(pl.DataFrame({"submit": [0.0, 1.0, 2.0], "cpu_milli": [500, 2000, 5000]}), source="three").frame
    by_order = preferred(jobs, node_kinds(written(tmp_path, small + large)))
    assert by_order.tolist() == [0, 1, -1]
    by_weight = preferred(jobs, node_kinds(written(tmp_path, small + "weight = 9\n" + large)))
    assert by_weight.tolist() == [1, 1, -1]


def test_a_job_that_names_a_partition_goes_to_a_kind_that_is_in_it(tmp_path):
    text = '[[node]]\ncpu_milli = 1000\npartitions = ["a"]\n[[node]]\ncpu_milli = 2000\npartitions = ["b"]\n'
    jobs = {"submit": [0.0, 1.0, 2.0], "cpu_milli": [500] * 3, "partitions": [["b"], ["a", "b"], []]}
    found = preferred(Workload.of(pl.DataFrame(jobs), source="three").frame, node_kinds(written(tmp_path, text)))
    assert found.tolist() == [1, 0, 0]


def test_kinds_are_named_as_their_nodes_are_and_pools_of_equal_nodes_are_one(tmp_path):
    text = CPU_NODES + GPU_NODES + GPU_NODES.replace("gpus = 4", "gpus = 8") + CPU_NODES.replace('cpu"', 'more"')
    kinds = node_kinds(written(tmp_path, text))
    assert [kind.name for kind in kinds] == ["cpu", "gpu-A10", "gpu-A10.2"]
    assert [len(kind.nodes) for kind in kinds] == [18, 12, 12]


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ('[[node]]\npool = "tiny"\ncpu_milli = 1\n', "too few jobs can run on nodes of kind `tiny`: 0", "entry out"),
        (CPU_NODES.replace("8000", "8001"), "can hold go to other kinds", "lowest `weight`"),
    ],
)
def test_a_kind_without_jobs_is_refused_with_what_to_do(tmp_path, capsys, text, words, hint):
    trace = Trace(two_roles(), fleetlab.Provenance("made", "made"))
    trace.save(tmp_path / "log")
    (tmp_path / "three.toml").write_text(CPU_NODES + GPU_NODES + text.replace('cpu"', 'other"'), "utf-8")
    with pytest.raises(SystemExit) as left:
        cli.main(["autoscale", str(tmp_path / "log"), "--cluster", str(tmp_path / "three.toml")])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert words in said
    assert hint in said.split("hint: ")[1]


def test_what_is_wrong_with_the_jobs_of_one_kind_is_said_with_its_name(tmp_path):
    late = two_roles().frame.filter((pl.col("gpu_milli") > 0) | (pl.col("submit") < DAY)).drop("job")
    nodes = written(tmp_path, GPU_NODES + CPU_NODES)
    with pytest.raises(WorkloadError, match=r"nodes of kind `cpu`: .*too short"):
        fleetlab.autoscale(Workload.of(late, source="late"), nodes, **SHORT)
