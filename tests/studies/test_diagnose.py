"""Why do jobs wait? A planted cause is named first, pairs are exact, and the ledger adds up however it is cut."""

import json
import shlex
from contextlib import suppress
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, PolicyError, Prices, Trace, Workload, WorkloadError, cli
from fleetlab.core import Drain, Estimate, Scenario
from fleetlab.core.replicas import perturbed
from fleetlab.sim import order
from fleetlab.studies.diagnose.changes import CHANGES, LARGEST, what_if

PROBLEMS = {
    "low utilization from fractional use",
    "short jobs queue long",
    "jobs of many GPUs are hard to place",
    "load imbalance between GPU types",
    "CPU as the bottleneck",
}


def poisson(count, gap, seed=0):
    gaps = np.random.default_rng(seed).exponential(gap, count)
    return np.append(0.0, np.cumsum(gaps)[:-1])


def work(source="planted", **columns):
    return Workload.of(pl.DataFrame(columns), source=source)


def nodes(**kinds):
    """Nodes of several kinds: name = (count, gpus, CPU cores)."""
    parts = [
        Cluster.uniform(n, gpus, gpu_type=name, cpu_milli=1000 * cores).frame.with_columns(
            node=pl.format("{}-{}", pl.lit(name), pl.int_range(pl.len())), pool=pl.lit(name)
        )
        for name, (n, gpus, cores) in kinds.items()
    ]
    return Cluster.of(pl.concat(parts), source="planted")


@order
def longest(s, job, now):
    """Return a key by which the longest job is first."""
    return -s.estimate[job]


# -- planted causes: every job runs equally long, so that nothing is won by order alone ----------------------------


def too_few_cpus():
    """Half of the GPUs stand idle, for want of CPUs beside them."""
    n = 1200
    jobs = work(submit=poisson(n, 2.2), runtime=[60.0] * n, gpu_milli=[1000] * n, cpu_milli=[8000] * n)
    return jobs, nodes(A100=(8, 8, 32))


def one_scarce_type():
    """Half of the jobs want the few V100s, while T4s idle."""
    n = 1200
    types = [["V100"] if k % 2 else ["T4"] for k in range(n)]
    jobs = work(submit=poisson(n, 2.2), runtime=[60.0] * n, gpu_milli=[1000] * n, gpu_types=types)
    return jobs, nodes(V100=(2, 6, 96), T4=(10, 8, 96))


def a_giant_gang():
    """Now and then a gang wants the whole cluster: all others wait behind it."""
    n = 1200
    giant = [40 if k % 100 == 50 else 1 for k in range(n)]
    runtime = [2.0 if g > 1 else 60.0 for g in giant]
    return work(submit=poisson(n, 8.0), runtime=runtime, gpu_milli=[1000] * n, instances=giant), nodes(A100=(20, 2, 96))


def fragments():
    """Jobs of five GPUs on nodes of eight: three of every eight are free, and of no use."""
    n = 1200
    return work(submit=poisson(n, 6.0), runtime=[60.0] * n, gpu_milli=[5000] * n), nodes(A100=(10, 8, 96))


@pytest.mark.parametrize(
    ("planted", "backfill", "first", "reason"),
    [
        (too_few_cpus, "greedy", "cpu", "cpu"),
        (one_scarce_type, "greedy", "types", "gpu_type"),
        (a_giant_gang, "none", "gangs", "head_of_line"),
        (fragments, "greedy", "fragmentation", "fragmentation"),
    ],
)
def test_a_planted_cause_is_named_first(planted, backfill, first, reason):
    found = fleetlab.diagnose(*planted(), backfill=backfill)
    scarce = found.tables()["waiting"]["reason"][0]
    assert (found.best_change, scarce) == (first, reason)
    assert any(line.endswith(f", is aimed at the main reason, `{reason}`.") for line in found.findings)
    best = found.records[0]
    assert (best.metric, best.verdict, best.scope) == ("mean wait", "better", "this log")
    assert best.low < best.difference < best.high < 0


def planted(gap=10.0, held=0.0, **columns):
    """A stream of equal jobs, and what is planted in it."""
    submit = poisson(400, gap)
    plain = {"runtime": 60.0, "gpu_milli": 1000, "cpu_milli": 1000, "memory_mib": 100}
    values = {name: [v] * 400 if np.isscalar(v) or isinstance(v, str) else v for name, v in (plain | columns).items()}
    return work(submit=submit, eligible=np.asarray(submit) + held, **values)


def plenty(**scarce):
    node = {"gpus": 8, "gpu_memory_mib": 80_000, "cpu_milli": 96_000, "memory_mib": 10**6, "rdma_milli": 8000}
    node |= {"disk_mib": 10**6} | scarce
    rows = [{"node": f"n{k}", "gpu_type": "A100"} | node for k in range(4)]
    return Cluster.of(pl.DataFrame(rows), source="planted")


@pytest.mark.parametrize(
    ("reason", "columns", "scarce", "words"),
    [
        ("gpu", {"gap": 1.8}, {}, {}),
        ("memory", {"memory_mib": 500}, {"memory_mib": 1000}, {}),
        ("rdma", {"rdma_milli": 1000}, {"rdma_milli": 2000}, {}),
        ("disk", {"disk_mib": 500}, {"disk_mib": 1000}, {}),
        ("gpu_memory", {"gpu_milli": 100, "gpu_memory_mib": 30_000, "gap": 1.2}, {"gpu_memory_mib": 40_000}, {}),
        ("max_per_node", {"max_per_node": 1, "app": "one", "gap": 16.0}, {}, {}),
        ("quota", {"user": "mallory"}, {}, {"quota": 7}),
        ("reservation", {"gap": 8.0, "instances": [32 if k % 50 == 25 else 1 for k in range(400)],
                         "runtime": [10.0 if k % 50 == 25 else 60.0 for k in range(400)]}, {}, {"backfill": "easy"}),
        ("scheduler", {"gap": 40.0}, {}, {"cycle": 300}),
        ("not_eligible", {"gap": 40.0, "held": 500.0}, {}, {}),
        ("start_up", {"gap": 40.0}, {}, {"latency": 30}),
    ],
)  # fmt: skip
def test_the_first_sentence_names_what_is_planted(reason, columns, scarce, words):
    cluster = plenty(**scarce)
    found = fleetlab.diagnose(planted(**columns), cluster, changes=["nodes"], workers=0, replicas=2, **words)
    assert found.tables()["waiting"]["reason"][0] == reason
    assert f"`{reason}`" in found.findings[0]


def test_behind_a_giant_gang_the_gang_is_named():
    jobs, cluster = a_giant_gang()
    found = fleetlab.diagnose(jobs, cluster, backfill="none", changes=["backfill"])
    job = found.tables()["blocking jobs"]["job"][0]
    assert jobs.frame["instances"][job] == 40
    assert any(f"Job {job} (40 instances, 40 GPUs) blocked the queue most" in line for line in found.findings)


def test_who_held_up_most_is_who_most_waited_behind():
    # The gang waits for both GPUs from 1 to 10; behind it one job from 2 on, another from 6 on.
    jobs = work(
        submit=[0.0, 1.0, 2.0, 6.0], runtime=[10.0] * 4, gpu_milli=[1000] * 4, instances=[1, 2, 1, 1]
    )  # fmt: skip
    heads = fleetlab.diagnose(jobs, Cluster.uniform(1, 2), backfill="none", changes=["gangs"]).tables()["blocking jobs"]
    first = heads.row(0, named=True)
    assert (first["job"], first["blocked"], first["behind"]) == (1, 9.0, 8.0 + 4.0)


def test_where_short_jobs_could_pass_a_giant_gang_backfill_helps():
    n = 600
    giant = [40 if k % 50 == 25 else 1 for k in range(n)]
    runtime = [60.0 if g == 1 and k % 4 == 0 else 5.0 for k, g in enumerate(giant)]
    jobs = work(submit=poisson(n, 1.5), runtime=runtime, gpu_milli=[1000] * n, instances=giant)
    found = fleetlab.diagnose(jobs, nodes(A100=(20, 2, 96)), backfill="none", changes=["backfill", "cpu", "nodes"])
    assert found.best_change == "backfill"


def test_where_ledger_and_changes_agree_it_is_said():
    found = fleetlab.diagnose(*a_giant_gang(), backfill="none", changes=["gangs", "nodes"])
    agree = "The best change, no gang scheduling, is aimed at the main reason, `head_of_line`."
    assert agree in found.findings


def test_where_they_differ_it_is_said_why():
    # Most waiting is for the one V100, some for CPUs beside the T4s; what would bring V100s is not tried.
    n = 1200
    types = [["V100"] if k % 8 == 0 else ["T4"] for k in range(n)]
    cpus = [1000 if t == ["V100"] else 8000 for t in types]
    jobs = work(submit=poisson(n, 2.0), runtime=[20.0] * n, gpu_milli=[1000] * n, gpu_types=types, cpu_milli=cpus)
    found = fleetlab.diagnose(jobs, nodes(V100=(1, 1, 96), T4=(2, 8, 44)), changes=["cpu"])
    line = next(line for line in found.findings if "is not aimed at the main reason, `gpu_type`" in line)
    assert line.startswith("The best change, unlimited CPU, ")
    assert line.endswith("No simulated change is aimed at `gpu_type`.")


def test_where_nobody_waits_in_the_replay_the_log_and_the_refused_are_heard():
    at, gpus = np.arange(300) * 100.0, [16_000 if k % 3 == 0 else 1000 for k in range(300)]
    quiet = {"submit": at, "runtime": [10.0] * 300, "gpu_milli": gpus}
    seen = work(**quiet, start=at + 50.0, end=at + 60.0)
    found = fleetlab.diagnose(seen, nodes(A100=(1, 8, 96)), changes=["nothing"])
    assert found.findings == (
        "No job waits in the simulation: try a higher --load; in the log, the mean wait is 50 s "
        "(see `fleetlab audit`); 100 jobs cannot run on this cluster.",
    )
    small = work(**quiet | {"gpu_milli": [1000] * 300})
    found = fleetlab.diagnose(small, nodes(A100=(1, 8, 96)), changes=["nothing"])
    assert found.findings == ("No job waits in the simulation: try a higher --load.",)
    assert set(found.tables()) == {"actions", "changes", "open problems", "CPU by GPU type"}
    assert (found.summary(), set(found.figures())) == ([Estimate.exact("jobs that complete", 300)], {"changes"})


@pytest.mark.parametrize(
    ("there", "title"),
    [(1, "1 more A100 node (+100 %)"), (4, "1 more A100 node (+25 %)"), (10, "10 % more A100 nodes"),
     (16, "2 more A100 nodes (+12 %)"), (200, "10 % more A100 nodes")],
)  # fmt: skip
def test_a_tenth_more_is_called_so_only_where_it_is(there, title):
    jobs = work(submit=[0.0])
    assert what_if("nodes:A100", Scenario.of(jobs, nodes(A100=(there, 8, 96)))).title == title


def test_nodes_are_advised_for_the_partition_whose_jobs_wait():
    """Half of the jobs wait in a small partition, while the other, with the same GPUs, is half empty."""
    n = 1200
    names = [["small"] if k % 2 else ["large"] for k in range(n)]
    jobs = work(submit=poisson(n, 2.2), runtime=[60.0] * n, gpu_milli=[1000] * n, partitions=names)
    frame = nodes(A100=(12, 6, 96)).frame.with_columns(partitions=pl.Series([["small"]] * 2 + [["large"]] * 10))
    found = fleetlab.diagnose(
        jobs, Cluster.of(frame, source="planted"), changes=["nodes", "partitions"], backfill="none"
    )
    assert found.best_change in ("partitions", "nodes:small")
    changes = {row["change"]: row for row in found.frames["changes"].iter_rows(named=True)}
    assert changes.keys() == {"partitions", "nodes:small"}
    assert changes["nodes:small"]["verdict"] == "better"
    assert changes["nodes:small"]["action"] == "buy or rent 1 more node of partition small, in partition small"
    assert any("of partition large: not simulated, its jobs wait 0 s on average" in note for note in found.notes)
    assert found.frames["waiting"]["reason"][0] == "partition"
    waits = dict(found.frames["by partitions"].select("partitions", "mean wait").iter_rows())
    assert waits["small"] > 0 == waits["large"]
    result = fleetlab.simulate(jobs, Cluster.of(frame, source="planted"), backfill="none")
    assert result.tables()["by partitions"]["partitions"].to_list() == ["large", "small"]


# -- pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy"])
def test_a_null_change_gives_exactly_zero(backfill):
    jobs = fleetlab.synthesize("pai2020", jobs=1500, seed=3).workload
    cluster = nodes(MISC=(12, 8, 96), T4=(20, 2, 96))  # some jobs are refused: they name other types
    found = fleetlab.diagnose(jobs, cluster, backfill=backfill, changes=["nothing"])
    row = found.tables()["changes"].row(0, named=True)
    assert found.summary()[0].value > 0
    assert {row[c] for c in row if c.split(" ")[-1] in ("change", "low", "high") and c != "change"} == {0.0}
    assert (row["verdict"], row["added GPU-hours"], row["added cost"]) == ("no difference", 0.0, 0.0)


def mean_wait(result, instances):
    """The mean wait of jobs; where gangs are split, a job has waited until its last instance runs."""
    wait = np.full(len(result.scenario.workload), np.nan)
    wait[result.completed["job"].to_numpy()] = result.completed["wait"].to_numpy()
    if len(wait) != len(instances):
        wait = np.maximum.reduceat(wait, np.append(0, np.cumsum(instances)[:-1]))
    return wait[~np.isnan(wait)].mean()


def options_of(setting):
    words = shlex.split(setting)
    return {option.removeprefix("--"): value for option, value in zip(words[::2], words[1::2], strict=True)}


SMALL = ("builtin:600", nodes(MISC=(12, 8, 96), T4=(12, 2, 96), V100=(3, 8, 96)))
TIGHT = {"load": 3.0, "backfill": "none"}


@pytest.mark.parametrize(
    "words", [TIGHT, TIGHT | {"sharing": "exclusive", "nodes": "V100 +1", "warm_up": "none"}], ids=["shared", "whole"]
)
def test_a_setting_given_to_simulate_has_the_same_mean_wait_to_the_last_digit(words):
    base = Scenario.of(*SMALL, **words)
    found = fleetlab.diagnose(base, changes=[*CHANGES, "sharing", "nodes"], replicas=1, workers=0)
    rows = {row["change"]: row for row in found.frames["changes"].iter_rows(named=True)}
    assert {"types", "cpu", "fragmentation", "gangs", "backfill", "sjf", "sharing", "nodes:T4", "nothing"} <= set(rows)
    assert found.coverage.left_out  # jobs that cannot run
    instances = base.workload.frame["instances"].to_numpy()
    spelled = {name: row["setting"] for name, row in rows.items() if row["setting"] is not None}
    assert set(spelled) >= {"backfill", "sjf", "nothing"}
    of_nodes = {name for name in rows if name.startswith("nodes:")}
    # Without a warm-up the nodes are all that changes; with one, what earlier jobs have left is that of the baseline.
    assert of_nodes <= set(spelled) if words.get("warm_up") == "none" else not of_nodes & set(spelled)
    for name, row in rows.items():
        assert (row["setting"] is None) == (row["edits"] is not None), name
        own = mean_wait(fleetlab.simulate(found.scenario(name), min_coverage=0.0), instances)
        assert own == row["mean wait"], name
        if name in spelled:
            assert mean_wait(fleetlab.simulate(base, **options_of(row["setting"])), instances) == row["mean wait"], name


def test_a_setting_is_shown_as_options(command):
    found = fleetlab.diagnose(
        "builtin:300", load=20, warm_up="none", nodes="MISC -3", changes=["nodes:T4", "backfill"], replicas=1, workers=0
    )
    settings = dict(found.frames["changes"].select("change", "setting").iter_rows())
    assert settings["backfill"] == "--backfill easy"
    assert all(any(setting in note for note in found.notes) for setting in settings.values())
    assert settings["nodes:T4"].startswith("--nodes 'MISC -3, T4 +")
    row = next(row for row in found.frames["changes"].iter_rows(named=True) if row["change"] == "nodes:T4")
    done = command(
        "simulate", "builtin:300", "--load", "20", "--warm-up", "none", *shlex.split(row["setting"]), "--json"
    )
    assert json.loads(done.stdout)["summary"][0]["value"] == pytest.approx(row["mean wait"], rel=1e-15)


def test_jobs_that_only_a_change_could_run_stay_out_and_the_table_says_so():
    # The second job asks for five nodes of four.
    jobs = work(submit=[0.0, 1.0, 2.0], runtime=[10.0] * 3, gpu_milli=[1000] * 3, instances=[4, 5, 4])
    found = fleetlab.diagnose(
        jobs, Cluster.uniform(4, 1, gpu_type="A100"), changes=["nodes"], replicas=1, workers=0, min_coverage=0.0
    )
    row = found.frames["changes"].row(0, named=True)
    assert (row["setting"], row["edits"]) == (None, "--nodes 'A100 +1', without 1 job that cannot run as it is")
    assert fleetlab.simulate(found.scenario("nodes:A100"), min_coverage=0.0).completed["job"].to_list() == [0, 2]
    with pytest.raises(WorkloadError, match="no change"):
        found.scenario("cpu")


def test_a_split_gang_has_waited_when_its_last_instance_runs():
    jobs = work(submit=[0.0, 0.0], runtime=[10.0, 5.0], gpu_milli=[1000, 1000], instances=[1, 2])
    found = fleetlab.diagnose(jobs, Cluster.uniform(1, 2), changes=["gangs"], replicas=1)
    row = found.tables()["changes"].row(0, named=True)
    # As it is the gang waits for 10 s; split, its second instance follows its first after 5.
    assert (row["mean wait"], row["mean wait change"]) == (2.5, -2.5)


def test_a_tenth_more_nodes_costs_their_hours():
    jobs = work(submit=[0.0, 7200.0], runtime=[10.0, 10.0], gpu_milli=[1000, 1000])
    prices = Prices(per_gpu_hour={"A100": 3.0, "T4": 0.5})
    found = fleetlab.diagnose(jobs, nodes(A100=(20, 8, 96), T4=(4, 2, 96)), changes=["nodes"], prices=prices)
    rows = {r["change"]: r for r in found.tables()["changes"].iter_rows(named=True)}
    assert (rows["nodes:A100"]["added GPU-hours"], rows["nodes:A100"]["added cost"]) == (2 * 8 * 2, 2 * 8 * 2 * 3.0)
    assert (rows["nodes:T4"]["added GPU-hours"], rows["nodes:T4"]["added cost"]) == (1 * 2 * 2, 1 * 2 * 2 * 0.5)


def test_what_would_change_nothing_is_not_tried():
    found = fleetlab.diagnose(*fragments(), order="sjf", backfill="easy")
    assert set(found.tables()["changes"]["change"]) == {"fragmentation", "nodes:A100"}
    assert sum("not simulated" in note for note in found.notes) == 8


@pytest.mark.slow
def test_processes_of_their_own_find_the_same():
    case = too_few_cpus()
    here, apart = (fleetlab.diagnose(*case, changes=["cpu", "nodes"], workers=n) for n in (0, 1))
    assert here.tables()["changes"].equals(apart.tables()["changes"])


@given(kinds=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 16), st.integers(1, 128)), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_a_cluster_without_fragments_has_all_that_there_was(kinds):
    scenario = Scenario.of(work(submit=[0.0]), nodes(**{f"T{k}": kind for k, kind in enumerate(kinds)}))
    cluster, merged = scenario.cluster.frame, what_if("fragmentation", scenario).apply(scenario).cluster.frame
    amounts = ["gpus", "cpu_milli", "memory_mib", "rdma_milli", "disk_mib"]
    sums = [frame.select(pl.col(amounts).cast(pl.Int64).sum()).row(0) for frame in (cluster, merged)]
    assert sums[0] == sums[1]
    assert merged["gpus"].max() <= LARGEST


# -- the ledger added up ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy():
    """A small part of the built-in trace on too few nodes."""
    trace = fleetlab.synthesize("pai2020", jobs=2000, seed=1)
    cluster = nodes(MISC=(20, 8, 96), T4=(30, 2, 96), V100=(5, 8, 96), P100=(20, 2, 64), V100M32=(3, 8, 96))
    run = fleetlab.simulate(trace.workload, cluster)
    return run, fleetlab.diagnose(trace, cluster, changes=["cpu", "types"])


def test_the_ledger_adds_up_whichever_way_it_is_cut(busy):
    run, found = busy
    tables = found.tables()
    waited = found.summary()[0].value * run.jobs.height
    assert tables["waiting"]["total wait"].sum() == pytest.approx(waited, rel=1e-12)
    for name in ("by GPU type", "by GPUs per instance", "by gang size", "by hour of the day"):
        assert tables[name]["share of waiting"].sum() == pytest.approx(1.0)
        assert tables[name]["jobs"].sum() == run.jobs.height
        # Means are over replicas, as that of all jobs is.
        mean = tables[name]["mean wait"].dot(tables[name]["jobs"]) / run.jobs.height
        assert mean == pytest.approx(found.summary()[0].value)


def test_who_holds_what_is_missing_adds_up_too(busy):
    run, found = busy
    tables = found.tables()
    assert tables["held by"]["total wait"].sum() == pytest.approx(found.summary()[0].value * run.jobs.height, rel=1e-9)
    held = tables["held by users"]["holds, share of all waiting"].sum()
    nobody = tables["held by"].filter(pl.col("held by") == "nobody")["share"].sum()
    assert held <= 1 - nobody + 1e-9


def test_a_user_who_floods_the_cluster_is_named():
    n = 1200
    flood = [k % 300 < 150 for k in range(n)]
    jobs = work(
        submit=poisson(n, 2.0), runtime=[400.0 if f else 20.0 for f in flood], gpu_milli=[1000] * n,
        user=["mallory" if f else f"user-{k % 20}" for k, f in enumerate(flood)],
    )  # fmt: skip
    found = fleetlab.diagnose(jobs, nodes(A100=(8, 8, 96)), changes=["nodes"])
    assert found.tables()["held by users"]["user"][0] == "mallory"
    line = next(line for line in found.findings if line.startswith("Jobs of user `mallory` block others most"))
    assert line.endswith("of the GPU time and are 50 % of the jobs.")


def test_the_tail_is_who_waited_longest(busy):
    run, found = busy
    tail = found.tables()["longest waits"]
    assert tail["wait"].to_list() == run.jobs["wait"].sort(descending=True).head(tail.height).to_list()


def test_the_longest_waits_have_the_ids_that_explain_takes():
    tail = fleetlab.diagnose("builtin:200", load=6, changes=["backfill"]).tables()["longest waits"]
    assert tail["name"].to_list() == [f"job-{job}" for job in tail["job"]]


def test_hours_are_those_of_the_clock_of_the_log():
    jobs = Workload.of(
        pl.DataFrame({"submit": [0.0, 3600.0], "runtime": [4000.0, 1.0], "gpu_milli": 1000}),
        source="x", epoch=0.0, zone="Asia/Shanghai",
    )  # fmt: skip
    found = fleetlab.diagnose(jobs, Cluster.uniform(1, 1), changes=["nothing"])
    assert found.tables()["by hour of the day"]["hour (Asia/Shanghai)"].to_list() == [8, 9]


def test_worst_hours_and_hours_of_the_day_count_the_same_jobs():
    # The log begins at 8:30: from the first submission an hour would be from half past to half past.
    jobs = Workload.of(
        pl.DataFrame({"submit": [0.0, 1200.0, 2400.0], "runtime": 9000.0, "gpu_milli": 1000}),
        source="x", epoch=1800.0, zone="Asia/Shanghai",
    )  # fmt: skip
    tables = fleetlab.diagnose(jobs, Cluster.uniform(1, 1), changes=["nothing"]).tables()
    assert tables["by hour of the day"].select("hour (Asia/Shanghai)", "jobs").rows() == [(8, 2), (9, 1)]
    worst = tables["worst hours"].select("hour begins (Asia/Shanghai)", "jobs").rows()
    assert worst == [("Thu 1970-01-01 09:00", 1), ("Thu 1970-01-01 08:00", 2)]


def test_at_another_load_there_are_no_hours_of_the_day():
    jobs = work(submit=[0.0, 10.0], runtime=[100.0, 100.0], gpu_milli=[1000, 1000])
    found = fleetlab.diagnose(jobs, Cluster.uniform(1, 1), changes=["nothing"], load=1.5)
    assert not {"by hour of the day", "worst hours"} & set(found.tables())
    assert "mean wait by hour" not in found.figures()
    assert "the load scales the times of submission: there are no hours of the day" in found.notes


def test_backfill_is_what_the_words_of_a_policy_make_of_it():
    base = Scenario.of("builtin:200", load=6)
    assert what_if("backfill", base).apply(base).policy == base.replace(backfill="easy").policy


@pytest.mark.parametrize("change", ["types", "cpu", "memory", "fragmentation", "gangs", "backfill", "sjf", "nodes:T4"])
def test_both_sides_of_a_pair_have_the_same_times_and_the_same_jobs_left_from_before(change):
    base = perturbed(Scenario.of("builtin:400", load=6), 1)
    base = base.after(base)
    changed = what_if(change, base).apply(base)
    for one, other in ((base.workload.frame, changed.workload.frame), (base.before.frame, changed.before.frame)):
        same = one[np.repeat(np.arange(one.height), one["instances"])] if change == "gangs" else one
        assert other.select("submit", "runtime").equals(same.select("submit", "runtime"))


# -- the named checks ------------------------------------------------------------------------------------------------


def test_the_five_open_problems_have_a_figure_each(busy):
    problems = busy[1].tables()["open problems"]
    assert set(problems["problem"]) == PROBLEMS
    assert set(problems.filter(pl.col("value").is_not_null())["problem"]) == PROBLEMS


def test_without_long_jobs_nobody_knows_whether_short_ones_wait_longer():
    jobs = work(submit=np.arange(50.0), runtime=[60.0] * 50, gpu_milli=[1000] * 50)
    problems = fleetlab.diagnose(jobs, nodes(A100=(1, 1, 96)), changes=["nothing"]).tables()["open problems"]
    rows = problems.filter(pl.col("problem") == "short jobs queue long")
    assert (rows["value"][0] > 90, rows["value"][1], rows["found here"].to_list()) == (True, None, ["–", ""])


def test_gpus_without_cpus_are_counted():
    # Two nodes of four GPUs and eight CPUs; on the first one GPU and all CPUs are held all along: three are of no use.
    jobs = work(
        submit=[0.0, 100.0], runtime=[1000.0, 1000.0], gpu_milli=[1000, 1000], cpu_milli=[8000, 8000], user=["a", "b"]
    )
    usage = pl.LazyFrame({"job": [0, 1], "gpu_milli": [250.0, 150.0]})
    trace = Trace(jobs, fleetlab.Provenance("make", "by hand"), cluster=nodes(A100=(2, 4, 8)), usage=usage)
    found = fleetlab.diagnose(trace, changes=["nothing"])
    figure = {r["measure"]: r["value"] for r in found.tables()["open problems"].iter_rows(named=True)}
    assert figure["GPUs free on nodes with less than 8 vCPU free"] == pytest.approx(100 * 3 / 8)
    assert figure["vCPU per GPU, requested: more than nodes have in A100"] == 8.0
    assert figure["GPU time used, of that requested"] == pytest.approx(20.0)
    assert figure["vCPU per GPU, of nodes"] == 2.0


def test_cpu_is_the_bottleneck_by_totals_and_each_problem_has_one_verdict():
    # A small fraction of a GPU with one CPU is 10 CPUs per GPU, but both jobs together ask for 3 on 2.1 GPUs.
    jobs = work(submit=[0.0, 1.0], runtime=[10.0, 10.0], gpu_milli=[100, 2000], cpu_milli=[1000, 2000])
    problems = fleetlab.diagnose(jobs, nodes(A100=(1, 4, 8)), changes=["nothing"]).tables()["open problems"]
    cpu = problems.filter(pl.col("problem") == "CPU as the bottleneck")
    assert (cpu["value"][0], cpu["found here"].to_list()) == (pytest.approx(3 / 2.1), ["no", "", ""])
    assert (problems.filter(pl.col("found here") != "").group_by("problem").len()["len"] == 1).all()


# -- any scenario ----------------------------------------------------------------------------------------------------


def test_preemption_events_quota_and_own_orders_are_diagnosed():
    n = 300
    jobs = work(submit=poisson(n, 8.0), runtime=[60.0] * n, gpu_milli=[1000] * n, user=["a", "b"] * (n // 2))
    scenario = Scenario.of(
        jobs, nodes(A100=(2, 4, 96)), order=longest, preemption=True, quota=6, load=1.2,
        events=[Drain(100.0, 200.0, pool="A100")],
    )  # fmt: skip
    changes = ["fragmentation", "backfill", "nodes", "nothing"]
    found = fleetlab.diagnose(scenario, changes=changes)
    rows = {row["change"]: row for row in found.tables()["changes"].iter_rows(named=True)}
    assert set(rows) == {"nodes:A100", "nothing"}
    assert rows["nothing"]["mean wait change"] == 0
    assert rows["nodes:A100"]["mean wait change"] < 0
    notes = "; ".join(found.notes)
    assert "EASY backfill: not simulated, preemption cannot be combined with backfill easy" in notes
    assert "large nodes: not simulated, node events name nodes" in notes


def test_jobs_that_do_not_complete_are_counted_and_left_out():
    jobs = work(submit=[0.0, 1.0, 2.0], runtime=[10.0, 10.0, 10.0], gpu_milli=[1000] * 3)
    found = fleetlab.diagnose(jobs, Cluster.uniform(1, 1), changes=["nodes"], until=25.0, replicas=1)
    assert found.findings[0].startswith("Jobs wait 4.5 s on average. ")
    assert found.findings[0].endswith(
        " That is of the 2 jobs that complete in the simulation (of 3: 1 running when the simulation stops)."
    )
    assert found.tables()["changes"]["mean wait"][0] == pytest.approx(0.0)


# -- mistakes, and the command ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind", "error"),
    [
        ({"changes": ["cpus"]}, PolicyError, "no change by that name: `cpus`; did you mean cpu?"),
        ({"changes": ["nodes:H100"]}, PolicyError, "no change by that name: `nodes:H100`"),
        ({"changes": []}, PolicyError, "a diagnosis needs at least one change"),
        ({"workers": -1}, WorkloadError, "a number of processes is not below 0: -1"),
        ({"backfill": "eazy"}, PolicyError, "did you mean easy?"),
        ({"prices": Prices(per_gpu_hour={"T4": 1.0})}, WorkloadError, "no price for an hour of a GPU of type: `A100`"),
    ],
)
def test_a_mistake_is_said(settings, kind, error):
    jobs = work(submit=[0.0], runtime=[1.0], gpu_milli=[1000])
    with pytest.raises(kind) as e:
        fleetlab.diagnose(jobs, nodes(A100=(1, 8, 96)), **settings)
    assert error in str(e.value)


@pytest.mark.parametrize("columns", [{"submit": []}, {"submit": [0.0], "gpu_milli": [9000], "runtime": [1.0]}])
def test_a_workload_of_which_nothing_can_run_is_refused(columns):
    frame = pl.DataFrame(columns, schema_overrides={"submit": pl.Float64})
    with pytest.raises(WorkloadError, match="no job completes on this cluster"):
        fleetlab.diagnose(Workload.of(frame, source="none"), Cluster.uniform(1, 8))


@pytest.mark.parametrize(
    ("columns", "lacks"),
    [
        ({"cpu_milli": [1000, 1000]}, "2 request more `cpu_milli` than any node has (0)"),
        ({"gpu_milli": [9000, 20_000]}, "2 request more `gpus` than any node has (8)"),
        ({"gpu_types": [["T4"], ["H100"]]}, "2 name only GPU types that no node has"),
        ({"cpu_milli": [0, 4], "memory_mib": [9, 9]}, "2 request more `memory_mib` than any node has (0), 1 "),
        ({"runtime": [None, None]}, "the runtime of 2 is unknown"),
    ],
)  # fmt: skip
def test_where_nothing_can_run_it_is_said_what_no_node_has(columns, lacks):
    asked = {"submit": [0.0, 1.0], "runtime": [1.0, 1.0], "gpu_milli": [1000, 1000]} | columns
    frame = pl.DataFrame(asked, schema_overrides={"runtime": pl.Float64})
    bare = Cluster.of(pl.DataFrame({"node": ["a"], "gpus": [8], "gpu_type": ["A"]}), source="bare")
    with pytest.raises(WorkloadError) as e:
        fleetlab.diagnose(Workload.of(frame, source="none"), bare)
    assert lacks in str(e.value)


def test_the_command_prints_findings_first_and_json_has_them_too(capsys, tmp_path):
    jobs, cluster = too_few_cpus()
    Trace(jobs, cluster=cluster, provenance=fleetlab.Provenance("make", "planted")).save(tmp_path / "t")
    said = []
    for more in (["--full"], ["--json"]):
        with pytest.raises(SystemExit, match="0"):
            cli.main(["diagnose", str(tmp_path / "t"), "--changes", "cpu,backfill", *more])
        said.append(capsys.readouterr().out)
    found = json.loads(said[1])
    assert said[0].splitlines()[:2] == [found["coverage"]["line"], found["findings"][0]]
    assert found["tables"]["changes"][0]["change"] == "cpu"


@pytest.mark.parametrize(
    "words",
    [["diagnose", "--changes", "nothing", "--workers", "0"], ["capacity", "--slo", "p50 wait < 9e9"], ["model"]],
)
def test_what_is_to_be_known_of_a_log_is_said_of_what_follows_from_it(capsys, tmp_path, words):
    trace = fleetlab.synthesize("pai2020", jobs=300, seed=1)
    replace(trace, notes=("48 jobs name partitions",)).save(tmp_path / "log")
    with suppress(SystemExit):
        cli.main([words[0], str(tmp_path / "log"), *words[1:], "--json"])
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert notes[-1] == "trace: 48 jobs name partitions"
