"""The whole population of a log: jobs there when it begins, jobs that outlive it; and clusters that start warm."""

import numpy as np
import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Scenario, Trace, Workload, WorkloadError, simulate
from fleetlab.queueing import solve

HOUR = 3600.0


def mgc(jobs, *, servers, load, seed, short=0.8873):
    """Jobs of one GPU: Poisson arrivals, hyperexponential run times (SCV 4), so many servers at this load."""
    rng = np.random.default_rng(seed)
    is_short = rng.random(jobs) < short  # balanced means
    runtime = rng.exponential(np.where(is_short, 1 / (2 * short), 1 / (2 * (1 - short)))) * 1000.0
    submit = np.cumsum(rng.exponential(1000.0 / servers / load, jobs))
    frame = pl.DataFrame({"submit": submit - submit[0], "runtime": runtime, "gpu_milli": np.full(jobs, 1000)})
    return Workload.of(frame, source="M/G/c")


def cut(schedule, begin, end):
    """What a log of some time shows of a schedule: jobs that were there at its begin, and no end after its own."""
    jobs = schedule.filter((pl.col("end") > begin) & (pl.col("submit") < end))
    older = pl.col("submit") < begin
    seen = jobs.select(
        submit=pl.when(older).then(0.0).otherwise(pl.col("submit") - begin),
        start=pl.when(pl.col("start") >= begin).then(pl.col("start") - begin),
        end=pl.when(pl.col("end") <= end).then(pl.col("end") - begin),
        initial=older,
        gpu_milli=pl.lit(1000),
        truth="job",
    ).with_columns(start=pl.when(pl.col("start") < end - begin).then("start"))
    ran = pl.col("start").is_not_null() | (pl.col("initial") & pl.col("end").is_not_null())
    running = pl.col("end").is_null() & (pl.col("start").is_not_null() | pl.col("initial"))
    seen = seen.with_columns(
        runtime=pl.col("end") - pl.col("start"),
        status=pl.when(running)
        .then(pl.lit("running"))
        .when(ran)
        .then(pl.lit("completed"))
        .otherwise(pl.lit("waiting")),
    ).sort(pl.col("initial").not_(), "submit", maintain_order=True)
    return Workload.of(seen.drop("truth"), source="cut"), seen["truth"]


# -- the state when the log begins -----------------------------------------------------------------------------------


def test_who_is_there_when_the_log_begins_holds_its_gpus_and_has_no_wait():
    frame = pl.DataFrame({
        "submit": [0.0, 0.0, 0.0], "start": [None, 5.0, None], "end": [4.0, 6.0, None], "runtime": [None, 1.0, 2.0],
        "gpu_milli": [1000] * 3, "initial": [True, True, False],
    })  # fmt: skip
    result = simulate(Workload.of(frame, source="by hand"), Cluster.uniform(1, 1))
    # The first runs until 4, the second was pending and comes next, the third waits for both.
    assert result.jobs.select("start", "end", "wait").rows() == [(0.0, 4.0, 0.0), (4.0, 5.0, 4.0), (5.0, 7.0, 5.0)]
    assert result.completed["job"].to_list() == [2]
    assert result.ledger["gpu"].to_list() == [0.0, 4.0, 5.0]
    assert result.timeline(every=1.0).filter(pl.col("gpu_type") == "all")["allocated"].to_list()[:7] == [1.0] * 7
    assert "2 were there when the log begins" in result.coverage.line


@pytest.mark.parametrize("words", [{}, {"order": "sjf"}, {"backfill": "easy"}, {"preemption": True}], ids=str)
def test_nobody_comes_before_those_who_run_when_the_log_begins(words):
    frame = pl.DataFrame({
        "submit": [0.0, 0.0], "end": [100.0, None], "runtime": [None, 1.0], "gpu_milli": [1000, 1000],
        "initial": [True, False], "status": ["completed", "completed"],
    })  # fmt: skip
    starts = simulate(Workload.of(frame, source="by hand"), Cluster.uniform(1, 1), **words).jobs["start"].to_list()
    assert starts == [0.0, 100.0]


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_a_log_cut_out_of_a_long_one_has_the_waits_of_the_long_one(load):
    whole = simulate(mgc(60_000, servers=20, load=load, seed=5), Cluster.uniform(1, 20))
    begin, end = (whole.jobs["submit"][k] for k in (30_000, 50_000))
    jobs, truth = cut(whole.jobs, begin, end)
    assert jobs.frame["initial"].sum() >= 10
    assert jobs.frame["runtime_at_least"].count() >= 10
    part = simulate(jobs, Cluster.uniform(1, 20))
    mine = part.completed["job"].to_numpy()
    expected = whole.jobs["wait"].to_numpy()[truth.to_numpy()[mine]]
    mean, low, high = part.summary()[0][1:4]
    assert low <= expected.mean() <= high
    assert abs(mean / expected.mean() - 1) < 0.01
    empty = simulate(Workload.of(jobs.frame.filter(~pl.col("initial")).drop("job"), source="empty"), part.cluster)
    assert empty.completed["wait"].mean() < mean  # what it was without those that were there


def test_jobs_that_outlive_the_log_hold_their_gpus_until_its_end():
    frame = pl.DataFrame({
        "submit": [0.0, 1.0, 50.0], "start": [0.0, 60.0, None], "end": [None, None, None], "gpu_milli": [1000] * 3,
        "runtime": [None, None, None], "status": ["running", "running", "waiting"],
    }, schema_overrides={"end": pl.Float64, "runtime": pl.Float64})  # fmt: skip
    result = simulate(Workload.of(frame, source="by hand"), Cluster.uniform(1, 2), min_coverage=0.0)
    assert result.jobs.select("start", "end").rows() == [(0.0, 60.0), (1.0, 1.0)]
    assert result.refused["reason"].to_list() == ["runtime unknown"]  # no job of the log ended


# -- warm starts -----------------------------------------------------------------------------------------------------


def test_a_warm_start_has_no_bias_where_an_empty_one_has():
    # M/G/c at load 0.9: jobs of 2,000 runs of 400 jobs; the truth is a long run of 400,000.
    servers, load, cluster = 20, 0.9, Cluster.uniform(1, 20)
    truth = simulate(mgc(400_000, servers=servers, load=load, seed=1), cluster).completed["wait"][20_000:].mean()
    runs = [mgc(1_000, servers=servers, load=load, seed=k) for k in range(10, 260)]
    cold, warm = (
        np.array([simulate(w, cluster, warm_up=how).completed["wait"].mean() for w in runs])
        for how in ("none", "repeat")
    )
    errors = [(means.mean() - truth, 2 * means.std(ddof=1) / np.sqrt(len(means))) for means in (cold, warm)]
    assert errors[0][0] < -3 * errors[0][1]  # an empty start is too low
    assert abs(errors[1][0]) < 2 * errors[1][1]


def running_before(jobs, cluster, seed):
    frame = Scenario.of(jobs, cluster, warm_up="repeat", seed=seed).before.frame
    return frame.filter("initial")["runtime"].to_numpy()


def test_the_jobs_that_run_before_are_those_of_a_stationary_queue():
    # M/G/inf: the number in service is Poisson, and what is left of it has the law of equilibrium.
    jobs = mgc(400, servers=100, load=0.9, seed=4)
    period, runtime = float(jobs.frame["submit"][-1]) * 400 / 399, jobs.frame["runtime"].to_numpy()
    states = [running_before(jobs, Cluster.uniform(1, 400), seed) for seed in range(400)]
    counts, expected = np.array([len(state) for state in states]), runtime.sum() / period
    assert abs(counts.mean() - expected) < 3 * np.sqrt(expected / 400)
    assert 0.8 < counts.var(ddof=1) / expected < 1.2
    work, second_moment = np.array([state.sum() for state in states]), (runtime**2).sum() / 2 / period
    assert abs(work.mean() - second_moment) < 3 * work.std(ddof=1) / 20


def test_no_more_jobs_run_before_than_the_cluster_holds_and_the_draw_is_the_same():
    jobs = mgc(400, servers=100, load=0.9, seed=4)
    many, few = (running_before(jobs, Cluster.uniform(1, gpus), 1) for gpus in (400, 9))
    assert len(few) < 25 < len(many)
    assert set(running_before(jobs, Cluster.uniform(1, 300), 1)) == set(many)


def test_the_mean_wait_of_short_windows_is_that_of_a_long_run_with_heavy_tails():
    # M/G/16 at 0.9: half of the work is of 4.8 % of the jobs, each a third of the window long (SCV 10). FCFS, and the
    # truth is a run of 400,000 jobs.
    def jobs(count, seed):
        return mgc(count, servers=16, load=0.9, seed=seed, short=0.9523)

    cluster = Cluster.uniform(1, 16)
    truth = simulate(jobs(400_000, seed=1), cluster).completed["wait"][20_000:].mean()
    scenarios = [Scenario.of(jobs(400, seed=100 + k), cluster, seed=k) for k in range(300)]
    cold, warm = (
        np.array([simulate(s, warm_up=how).completed["wait"].mean() for s in of])
        for how, of in (("none", scenarios[:50]), ("repeat", scenarios))
    )
    assert cold.mean() < 0.3 * truth
    assert abs(warm.mean() - truth) < 2 * warm.std(ddof=1) / np.sqrt(len(warm))


def test_warm_up_is_simulated_and_not_measured():
    trace = Scenario.of("builtin:2000:1")
    cold, warm = simulate(trace, warm_up="none"), simulate(trace)
    assert warm.world.before >= 2000 > cold.world.before == 0
    assert warm.jobs["job"].to_list() == cold.jobs["job"].to_list()
    assert warm.jobs["submit"].to_list() == cold.jobs["submit"].to_list()
    assert warm.ledger.height == warm.jobs.height == warm.schedule().height
    sums = warm.ledger.select(pl.sum_horizontal(pl.exclude("job"))).to_series()
    assert (sums - warm.jobs["wait"]).abs().max() < 1e-6
    at_zero = warm.timeline(every=HOUR).filter((pl.col("gpu_type") == "all") & (pl.col("time") == 0))
    assert at_zero["allocated"].item() > 100
    assert "warm start: the same jobs are simulated once before" in warm.notes[-1]
    assert "starts empty" in cold.notes[-1]


@pytest.mark.parametrize(
    "words",
    [{}, {"backfill": "none"}, {"backfill": "easy"}, {"order": "las"}, {"preemption": True, "order": "sjf"},
     {"quota": 2.0}, {"order": "fair"}, {"cycle": 70}, {"latency": 7}],
    ids=str,
)  # fmt: skip
def test_a_window_plays_what_the_whole_log_plays(words):
    jobs = mgc(3_000, servers=8, load=0.95, seed=3)
    jobs = Workload.of(
        jobs.frame.drop("job").with_columns(user=(pl.int_range(pl.len()) % 5).cast(pl.String)), source="log"
    )
    cluster = Cluster.uniform(2, 4)
    whole = simulate(jobs, cluster, **words)
    begin = 100 * HOUR / 8
    part = simulate(jobs, cluster, window=f"{begin}..", **words)
    later = whole.jobs.filter(pl.col("submit") >= begin)
    assert 500 < part.jobs.height == later.height < 2_900
    np.testing.assert_allclose(part.jobs["wait"], later["wait"], atol=1e-5)
    ledger = whole.ledger.filter(pl.col("job").is_in(later["job"].implode())).drop("job")
    np.testing.assert_allclose(part.ledger.drop("job"), ledger, atol=1e-4)
    assert part.coverage.log.jobs == part.jobs.height


def test_a_schedule_of_a_window_has_the_names_of_the_log():
    jobs = Workload.of(pl.DataFrame({"submit": [0.0, 10.0, 20.0], "runtime": [15.0] * 3}), source="log")
    names = pl.DataFrame({"job": [0, 1, 2], "name": ["a", "b", "c"]}).lazy()
    trace = Trace(jobs, Provenance("read", "log"), cluster=Cluster.uniform(1, 1), names=names)
    assert simulate(trace, window="10..").schedule()["name"].to_list() == ["b", "c"]
    assert simulate(trace, window=(5, 15)).schedule()["name"].to_list() == ["b"]


def test_an_answer_about_too_little_of_a_log_is_refused_unless_one_insists():
    jobs = Workload.of(pl.DataFrame({"submit": [0.0, 1.0], "runtime": [10.0, 10.0], "gpu_milli": [16_000, 1000]}),
                       source="log")  # fmt: skip
    trace = Trace(jobs, Provenance("read", "log"), cluster=Cluster.uniform(4, 8))
    with pytest.raises(
        WorkloadError, match=r"less than 50 % of the GPU-hours in the log can be simulated: Simulated 1 of 2 jobs"
    ):
        simulate(trace)
    assert simulate(trace, min_coverage=0).completed.height == 1


def test_the_stationary_wait_of_a_known_queue_is_met_from_a_short_log():
    # M/M/20 at 0.9: Erlang C.
    rng, servers, load = np.random.default_rng(8), 20, 0.9
    waits = []
    for _ in range(100):
        submit = np.cumsum(rng.exponential(100.0 / servers / load, 3_000))
        frame = pl.DataFrame({"submit": submit - submit[0], "runtime": rng.exponential(100.0, 3_000),
                              "gpu_milli": np.full(3_000, 1000)})  # fmt: skip
        result = simulate(Workload.of(frame, source="M/M/c"), Cluster.uniform(1, 20), warm_up="repeat")
        waits.append(result.completed["wait"].mean())
    truth = solve("M/M/c", lam=load * servers / 100.0, mu=0.01, c=servers)["mean wait"]
    assert abs(np.mean(waits) - truth) < 3 * np.std(waits, ddof=1) / 10


# -- eligible times and cycles of the scheduler ----------------------------------------------------------------------


def test_a_job_does_not_start_before_it_is_eligible():
    frame = pl.DataFrame({"submit": [0.0, 1.0, 2.0], "eligible": [0.0, 50.0, 2.0], "runtime": [10.0, 10.0, 10.0],
                          "gpu_milli": [1000] * 3})  # fmt: skip
    result = simulate(Workload.of(frame, source="held"), Cluster.uniform(1, 1))
    assert result.jobs.select("job", "start", "wait").rows() == [(0, 0.0, 0.0), (1, 50.0, 49.0), (2, 10.0, 8.0)]
    assert result.ledger.select("not_eligible", "gpu").rows() == [(0.0, 0.0), (49.0, 0.0), (0.0, 8.0)]
    assert result.holders.select("nobody").to_series().to_list()[1] == 49.0
    late = simulate(Workload.of(frame, source="held"), Cluster.uniform(1, 1), until=20.0)
    assert late.jobs["wait"].to_list() == [0.0, 19.0, 8.0]


def by_cycles(jobs, gpus, cycle):
    """A plain scheduler that looks every so many seconds: FIFO, no backfill."""
    now, running, starts = 0.0, [], {}
    waiting = list(jobs)
    while waiting:
        running = [(end, g) for end, g in running if end > now]
        free = gpus - sum(g for _, g in running)
        for job in [j for j in waiting if j[1] <= now]:
            if job[3] > free:
                break
            starts[job[0]] = now
            running.append((now + job[2], job[3]))
            free -= job[3]
            waiting.remove(job)
        now += cycle
    return starts


@pytest.mark.parametrize("seed", range(5))
def test_a_scheduler_that_looks_in_cycles_starts_jobs_when_a_plain_one_does(seed):
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.integers(0, 2_000, 100)), rng.integers(1, 200, 100), rng.integers(1, 5, 100)
    jobs = [(k, float(t), float(r), int(g)) for k, (t, r, g) in enumerate(zip(*columns, strict=True))]
    first = jobs[0][1]
    jobs = [(k, t - first, r, g) for k, t, r, g in jobs]
    frame = pl.DataFrame({"submit": [j[1] for j in jobs], "runtime": [j[2] for j in jobs],
                          "gpu_milli": [1000 * j[3] for j in jobs]})  # fmt: skip
    result = simulate(Workload.of(frame, source="cycles"), Cluster.uniform(1, 8), backfill="none", cycle=30)
    starts = by_cycles(jobs, 8, 30.0)
    assert result.jobs["start"].to_list() == [starts[k] for k in range(100)]
    assert (result.jobs["end"] - result.jobs["start"] - frame["runtime"]).abs().max() < 1e-6
    sums = result.ledger.select(pl.sum_horizontal(pl.exclude("job"))).to_series()
    assert (sums - result.jobs["wait"]).abs().max() < 1e-6
    held = result.holders.select(pl.sum_horizontal(pl.exclude("job"))).to_series()
    assert (held - result.jobs["wait"]).abs().max() < 1e-6


def test_a_warm_up_of_some_time_has_what_still_runs_of_older_jobs():
    frame = pl.DataFrame({"submit": [0.0, 10.0, 60.0, 100.0], "runtime": [200.0, 20.0, 15.0, 5.0],
                          "gpu_milli": [1000] * 4})  # fmt: skip
    scenario = Scenario.of(Workload.of(frame, source="log"), Cluster.uniform(1, 1), window="100..", warm_up="50s")
    # Of the first, 150 s are left when the warm-up begins; the second is over by then.
    assert scenario.before.frame["runtime"].to_list() == [150.0, 15.0]
    assert scenario.before.frame["submit"].to_list() == pytest.approx([-50.0, -40.0], abs=1e-5)
    assert simulate(scenario).jobs["wait"].to_list() == pytest.approx([115.0], abs=1e-4)
    assert scenario.title == "fifo/greedy"


# -- what a log says stays so at another load, in a window, with a latency --------------------------------------------


def log_with_an_initial_state():
    """Two run when the log begins, one is pending; then ten arrive, of which the last runs when the log ends."""
    came = [10.0 * k for k in range(1, 11)]
    frame = pl.DataFrame({
        "submit": [0.0] * 3 + came, "start": [None, None, 30.0, *came],
        "end": [30.0, 80.0, 50.0, *(t + 5 for t in came[:-1]), None],
        "runtime": [None, None, 20.0, *[5.0] * 9, None], "status": ["completed"] * 12 + ["running"],
        "initial": [True] * 3 + [False] * 10, "gpu_milli": [1000] * 13,
    })  # fmt: skip
    return Workload.of(frame, source="log")


def test_another_load_keeps_who_was_there_and_how_long_they_run():
    jobs, cluster = log_with_an_initial_state(), Cluster.uniform(1, 2)
    usual, busier = (simulate(jobs, cluster, load=load) for load in (1.0, 2.0))
    assert busier.coverage.log == usual.coverage.log
    assert busier.coverage.imputed.jobs == 0
    for run in (usual, busier):
        assert run.jobs["start"].to_list()[:3] == [0.0, 0.0, 30.0]
        assert run.jobs["runtime"].to_list()[:3] == [30.0, 80.0, 20.0]


def test_who_was_pending_when_the_log_began_starts_up_and_who_ran_does_not():
    starts = simulate(log_with_an_initial_state(), Cluster.uniform(1, 2), latency=4).jobs["start"].to_list()
    assert starts[:3] == [0.0, 0.0, 34.0]


def test_what_a_window_does_not_tell_is_drawn_from_the_whole_log():
    ended = pl.DataFrame({"submit": np.arange(50.0), "start": np.arange(50.0), "runtime": np.full(50, 7.0)})
    lost = pl.DataFrame({"submit": [600.0] * 5, "status": ["waiting"] * 5})
    status = pl.col("status").fill_null("completed")
    frame = pl.concat([ended, lost], how="diagonal").with_columns(status=status, gpu_milli=pl.lit(1000))
    jobs = Workload.of(frame, source="log")
    result = simulate(jobs, Cluster.uniform(1, 8), window="600..700")
    assert result.jobs["runtime"].to_list() == [7.0] * 5
    assert result.coverage.line.startswith("Simulated all 5 jobs in the window")


def test_a_running_job_without_a_start_is_not_held_for_no_time():
    frame = pl.DataFrame({"submit": [0.0, 5.0, 9.0], "start": [0.0, None, 9.0], "runtime": [4.0, None, None],
                          "status": ["completed", "running", "running"]})  # fmt: skip
    assert Workload.of(frame, source="log").frame["runtime_at_least"].to_list() == [None, None, 0.0]


def test_a_window_without_jobs_is_refused():
    trace = Trace(log_with_an_initial_state(), Provenance("read", "log"), cluster=Cluster.uniform(1, 2))
    with pytest.raises(WorkloadError, match=r"no job was submitted in the window 500"):
        simulate(trace, window="500..")
