"""The model of a cluster: what is planted into a workload is found, and nothing makes it stumble."""

import json
import math

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Workload, cli, model, solve
from fleetlab.queueing.cluster import prediction
from fleetlab.queueing.cluster.pool_fit import exponential_fit, lognormal_fit

DAY = 86_400.0


def jobs(rng, *, rate, count, mean=1.0, scv=1.0, batch=1, **columns):
    """Poisson arrivals, in batches if told so; exponential service times, or lognormal ones of that SCV."""
    submit = np.repeat(np.cumsum(rng.exponential(batch / rate, count // batch)), batch)
    width = math.log1p(scv) ** 0.5
    lognormal = mean * np.exp(rng.normal(-(width**2) / 2, width, len(submit)))
    service = rng.exponential(mean, len(submit)) if scv == 1 else lognormal
    frame = pl.DataFrame({"submit": submit - submit[0], "runtime": service, "gpu_milli": [1000] * len(submit)})
    return frame.with_columns(**{k: pl.lit(v) for k, v in columns.items()})


def work(*frames):
    whole = pl.concat(frames, how="diagonal_relaxed")
    if "instances" in whole.columns:
        whole = whole.with_columns(pl.col("instances").fill_null(1))
    if "gpu_types" in whole.columns:
        whole = whole.with_columns(pl.col("gpu_types").fill_null(pl.lit([], dtype=pl.List(pl.String))))
    return Workload.of(whole, source="planted")


def cluster(**gpus):
    """One node of eight GPUs after the other, by type."""
    rows = [{"node": f"{name}-{k}", "gpu_type": name, "gpus": 8} for name, n in gpus.items() for k in range(n // 8)]
    return Cluster.of(pl.DataFrame(rows).with_columns(cpu_milli=64_000, memory_mib=2**20), source="by hand")


def row(found, table="model", **wanted):
    return found.tables()[table].filter(**wanted).row(0, named=True)


def assumptions(found, pool):
    return set(found.tables()["violated"].filter(pool=pool)["assumption"])


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_a_poisson_workload_waits_as_erlang_c_says(rng):
    found = model(work(jobs(rng, rate=7.2, count=40_000)), cluster(A=8))
    one = row(found, pool="A")
    exact = solve("M/M/c", lam=7.2, mu=1, c=8)
    assert one["low"] <= exact["mean wait"] <= one["high"]
    assert one["model"] == "GI/G/8"
    assert one["violated"] == ""
    # At the rates that the sample has, the formula is the same but for the two SCVs, which are near 1: what is left is
    # how well a sample of this length tells them.
    time = row(found, "runtimes", pool="A")["mean"]
    same = solve("M/M/c", lam=one["load"] / time, mu=1 / time, c=8)
    assert one["wait"] == pytest.approx(same["mean wait"], rel=0.25)
    assert one["P90 wait"] == pytest.approx(same["P90 wait"], rel=0.25)


def test_constant_run_times_wait_half_as_long(rng):
    plain = jobs(rng, rate=0.9, count=20_000)
    found = model(work(plain.with_columns(runtime=pl.lit(1.0))), cluster(A=8))
    whole = model(work(plain.with_columns(runtime=pl.lit(1.0), gpu_milli=pl.lit(8000))), cluster(A=8))
    assert row(found, pool="A")["wait"] == 0  # nobody waits for eight GPUs at a ninth of the load
    load = row(whole, pool="A")["utilization"]
    assert row(whole, pool="A")["wait"] == pytest.approx(load / (2 * (1 - load)), rel=0.25)


def test_offered_load_is_arrivals_times_run_time_times_gpus(rng):
    frame = jobs(rng, rate=0.5, count=5000, instances=3)
    found = model(work(frame), cluster(A=64))
    known = 3 * frame["runtime"].sum() / frame["submit"].max()
    assert row(found, pool="A")["load"] == pytest.approx(known)
    low, high = (found.summary()[0].low, found.summary()[0].high)
    assert low < known < high


@pytest.mark.parametrize(
    ("planted", "assumption"),
    [
        ({"scv": 10.0}, "heavy tail"),
        ({"batch": 10}, "bursts"),
        ({"instances": 4}, "gangs"),
        ({"cpu_milli": 60_000}, "CPU first"),
    ],
)
def test_a_planted_violation_is_named_and_no_other(rng, planted, assumption):
    assert assumptions(model(work(jobs(rng, rate=4, count=20_000, **planted)), cluster(A=64)), "A") == {assumption}


def test_jobs_bound_to_a_busy_type_while_another_idles_are_named(rng):
    busy, idle = jobs(rng, rate=7, count=14_000), jobs(rng, rate=1, count=2000)
    named = [
        frame.filter(pl.col("submit") < 1800).with_columns(gpu_types=pl.lit([name]))
        for frame, name in ((busy, "A"), (idle, "B"))
    ]
    found = model(work(*named), cluster(A=8, B=8))
    assert assumptions(found, "A") == {"type-bound"}
    assert assumptions(found, "B") == set()


def test_a_daily_pattern_is_followed_by_the_hour(rng):
    # Twice as many by day; runtimes of an hour.
    t = np.sort(rng.uniform(0, 30 * DAY, 30_000))
    by_day = (t % DAY) < DAY / 2
    t = t[by_day | (rng.random(len(t)) < 1 / 3)]
    frame = pl.DataFrame({"submit": t - t[0], "runtime": rng.exponential(3600, len(t)), "gpu_milli": [1000] * len(t)})
    found = model(work(frame), cluster(A=64))
    assert assumptions(found, "A") == {"daily pattern"}
    assert row(found, pool="A")["model"].endswith("by hour")
    day = found.tables()["day"]
    rate = day["jobs per hour"]
    assert rate[:12].mean() / rate[12:].mean() == pytest.approx(3, rel=0.1)
    assert day["load"].mean() == pytest.approx(row(found, pool="A")["load"], rel=0.02)
    # The load is an hour late: when few come already, many of those before still run.
    assert rate[12] < 1.4 * rate[20]
    assert day["load"][12] > 1.5 * day["load"][20]


def test_the_hours_are_those_of_the_people(rng):
    t = np.arange(0, 10 * DAY, DAY)  # always at the same moment: 03:00 in Berlin in winter
    frame = pl.DataFrame({"submit": t, "runtime": [60.0] * len(t), "gpu_milli": [1000] * len(t)})
    at = Workload.of(frame, source="clock", epoch=1_767_232_800.0, zone="Europe/Berlin")
    day = model(at, cluster(A=8)).tables()["day"]
    assert day.filter(pl.col("jobs per hour") > 0)["hour"].to_list() == [3]


def test_busy_hours_above_the_pool_are_said(rng):
    t = np.concatenate([d * DAY + np.sort(rng.uniform(0, 4 * 3600, 200)) for d in range(10)])
    frame = pl.DataFrame({"submit": t - t[0], "runtime": [3600.0] * len(t), "gpu_milli": [1000] * len(t)})
    found = model(work(frame), cluster(A=16))
    assert any("overloaded in the busiest hours" in note for note in found.notes)
    assert row(found, "pools", pool="A")["peak hour load"] > 16


def test_more_than_there_is_waits_for_ever_and_says_so(rng):
    found = model(work(jobs(rng, rate=20, count=5000)), cluster(A=8))
    assert row(found, pool="A")["wait"] == math.inf
    assert row(found, pool="A")["model"] == "none: overload"
    assert any("no steady state" in line for line in (*found.findings, *found.notes))


def test_who_asks_for_more_waits_more_often(rng):
    mixed = [jobs(rng, rate=r, count=int(r * 4000), gpu_milli=g) for r, g in ((8.0, 500), (6.0, 1000), (1.0, 8000))]
    gang = jobs(rng, rate=1.0, count=4000, instances=12)
    found = model(work(*mixed, gang), cluster(A=40)).tables()["model"]
    waits = dict(found.select("class", "wait").iter_rows())
    assert waits["fraction of a GPU"] < waits["1 GPU"] < waits["2 GPUs or more"] < waits["gang"]


def test_jobs_that_may_run_anywhere_are_split_by_capacity(rng):
    found = model(work(jobs(rng, rate=4, count=10_000)), cluster(A=48, B=16))
    shares = dict(found.tables()["pools"].select("pool", "jobs").iter_rows())
    assert shares["A"] / 10_000 == pytest.approx(0.75, abs=0.02)
    assert any("several GPU types" in note for note in found.notes)


def test_jobs_that_fit_nowhere_are_left_out_and_those_without_run_time_run_as_long_as_others(rng):
    good = jobs(rng, rate=1, count=100)
    large = jobs(rng, rate=1, count=10, gpu_milli=16_000)
    other = jobs(rng, rate=1, count=10, gpu_types=["Z"])
    unknown = jobs(rng, rate=1, count=10, runtime=None)
    found = model(work(good, large, other, unknown), cluster(A=16))
    assert row(found, "pools", pool="A")["jobs"] == 110
    assert any(note.startswith("20 jobs that fit no pool") for note in found.notes)
    assert found.coverage.imputed.jobs == 10
    nothing = model(work(unknown), cluster(A=16))
    assert any(note.startswith("10 jobs without a runtime") for note in nothing.notes)


def test_jobs_without_a_gpu_have_the_cpus(rng):
    found = model(work(jobs(rng, rate=2, count=4000, gpu_milli=0, cpu_milli=4000)), cluster(A=16))
    one = row(found, pool="no GPU")
    assert (one["class"], row(found, "pools", pool="no GPU")["servers"]) == ("no GPU", 128)
    assert one["load"] == pytest.approx(8, rel=0.1)
    assert row(found, "pools", pool="A")["jobs"] == 0


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"submit": []}, schema={"submit": pl.Float64}),
        pl.DataFrame({"submit": [0.0]}),
        pl.DataFrame({"submit": [0.0], "runtime": [5.0], "gpu_milli": [1000]}),
        pl.DataFrame({"submit": [0.0, 0.0], "runtime": [5.0, 1.0], "gpu_milli": [1000, 500]}),
        pl.DataFrame({"submit": [0.0, 9.0], "runtime": [0.0, 0.0], "gpu_milli": [1000, 1000]}),
        pl.DataFrame({"submit": [0.0, 9.0], "runtime": [1.0, 1.0]}),
        pl.DataFrame({"submit": [0.0, 3e5], "runtime": [1.0, 1e6], "gpu_milli": [1, 8000]}),
    ],
)
def test_little_is_no_trouble(frame):
    found = model(Workload.of(frame, source="little"), cluster(A=8, B=16))
    assert found.tables()["pools"].height == 3
    assert repr(found).startswith("<ClusterModel 3 pools")
    json.loads(fleetlab.core.as_json(found))


def test_a_cluster_without_gpus_is_no_trouble(rng):
    bare = Cluster.of(pl.DataFrame({"node": ["a"]}), source="bare")
    found = model(work(jobs(rng, rate=1, count=50)), bare)
    assert any("50 jobs that fit no pool" in note for note in found.notes)


def test_the_same_seed_gives_the_same_model(rng):
    made = work(jobs(rng, rate=4, count=3000, scv=5.0))
    first, again = (model(made, cluster(A=8, B=16), seed=3) for _ in range(2))
    assert all(a.equals(b) for a, b in zip(first.tables().values(), again.tables().values(), strict=True))


def test_poisson_counts_are_not_dispersed_and_batches_are_by_their_size(rng):
    for batch in (1, 10):
        submit = jobs(rng, rate=0.05, count=40_000, batch=batch)["submit"].to_numpy()
        for d in prediction.dispersions(submit, float(submit[-1]), 0.0)[1:3]:
            assert d.low * 0.9 <= batch <= d.high * 1.1
            assert d.around[0] == pytest.approx(batch, rel=0.2)


def test_a_law_is_refuted_as_often_as_it_should(rng):
    # Of values of the law itself one in ten has p below 0.1; of others nearly all.
    drawn = [rng.exponential(3.0, 300) for _ in range(150)]
    own = [exponential_fit(values, rng).p for values in drawn]
    other = [lognormal_fit(values, rng).p for values in drawn]
    assert 0.03 <= np.mean(np.array(own) < 0.1) <= 0.19
    assert np.mean(np.array(other) < 0.1) > 0.9


def test_the_distance_is_that_of_kolmogorov_and_smirnov():
    # By hand: of two values 1 and 3 (mean 2) the law has 0.3935 and 0.7769; the step at 1 ends at 0.5.
    values = np.array([1.0, 3.0] * 4)
    assert exponential_fit(values, np.random.default_rng(0)).distance == pytest.approx(1 - math.exp(-0.5), abs=1e-9)


def test_the_command_prints_pools_waits_and_what_speaks_against_them(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["model", "builtin:2000"])
    said = capsys.readouterr().out
    assert said.startswith("Modeled all 2,000 jobs in the synthetic log (")
    assert "\noffered load " in said
    assert all(word in said for word in ("V100M32", "heavy tail", "GI/G/", "gangs"))


def test_the_command_for_machines_has_all_tables(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["model", "builtin:2000", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert set(found["tables"]) == {"model", "pools", "violated", "arrivals", "runtimes", "day"}


@pytest.mark.data
def test_the_published_pods_have_a_model(data):
    trace = fleetlab.read(data / "alibaba-openb-v2023", "openb2023")
    found = model(trace.workload, trace.cluster)
    pools = found.tables()["pools"]
    left = sum(int(note.split()[0].replace(",", "")) for note in found.notes if "left out" in note)
    assert pools["jobs"].sum() + left == len(trace.workload)
    assert pools.filter(pl.col("pool") != "no GPU")["servers"].sum() == trace.cluster.gpus
