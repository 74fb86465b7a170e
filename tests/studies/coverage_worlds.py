"""Scenarios on which intervals over replicas are judged, and how often they cover the mean of many replicas."""

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.replicas import perturbed
from fleetlab.sim import simulate
from fleetlab.stats import BETTER, NO_DIFFERENCE, NOT_DECIDED, WORSE, is_decided, over_replicas, verdict
from fleetlab.studies.autoscale.pools import pool_demand, scaled_pools
from fleetlab.studies.autoscale.replay import Replay, sustain
from fleetlab.studies.capacity.sizes import measure
from fleetlab.studies.diagnose.changes import what_if
from fleetlab.studies.replicas import LOOKS, Plan, Replication
from fleetlab.studies.tune.tune import split

SMALL = [("MISC", 24, 8, 524_288), ("T4", 40, 2, 524_288), ("V100", 6, 8, 393_216)]
DAY = 86_400
PHILLY = Path(__file__).parents[3] / "shared" / "data" / "philly" / "philly_sia_82k.csv"
CHANGES = ("types", "cpu", "memory", "fragmentation", "sjf", "sharing", "nodes:T4")


def small():
    """Return the cluster of the guide to diagnose."""
    kinds = [
        pl.DataFrame({"gpu_type": [name] * n, "gpus": gpus, "cpu_milli": 96_000, "memory_mib": memory})
        for name, n, gpus, memory in SMALL
    ]
    frame = pl.concat(kinds).with_columns(node=pl.format("node-{}", pl.int_range(pl.len())), pool="gpu_type")
    return Cluster.of(frame, source="small")


def gangs(load, jobs=2000, seed=0):
    """Return jobs of 1 to 16 instances at a load on 30 nodes of 8 GPUs."""
    rng = np.random.default_rng(seed)
    instances = rng.choice([1, 1, 1, 2, 4, 8, 16], jobs)
    runtime = np.maximum(1.0, rng.lognormal(6.0, 1.5, jobs))
    gap = float((instances * runtime).mean()) / (240 * load)
    submit = np.floor(np.append(0.0, np.cumsum(rng.exponential(gap, jobs - 1))))
    frame = pl.DataFrame({"submit": submit, "runtime": runtime, "instances": instances, "gpu_milli": 1000})
    return Scenario.of(Workload.of(frame, source="gangs"), Cluster.uniform(30, 8))


def of_changes(base, names=CHANGES):
    """Return what makes the scenario of each change of one replica, the baseline first."""
    return {"": lambda s: s} | {name: lambda s, name=name: what_if(name, s).apply(s) for name in names}


def of_words(*policies):
    """Return what makes the scenario of each policy."""
    return {str(words): lambda s, words=words: s.replace(**words) for words in policies}


def diagnosed(**words):
    """Return the example of the guide to diagnose, and its changes."""
    base = Scenario.of("builtin:2000", small(), **words)
    return base, of_changes(base)


def spread():
    """Return what the demo compares."""
    return Scenario.of("builtin:10000", placement="worst_fit"), of_words({}, {"placement": "best_fit"})


def crowded():
    """Return the built-in trace on every fifth node."""
    base = Scenario.of("builtin:20000")
    fifth = Cluster(base.cluster.frame.gather_every(5), "a fifth")
    return Scenario.of("builtin:20000", fifth), of_words({}, {"order": "smallest"})


def philly(jobs=2000):
    """Return submissions of a virtual cluster of Philly, as the first so many, on nodes that they keep busy."""
    table = pl.read_csv(PHILLY, try_parse_dates=True).filter(cluster="6c71a0").sort("timestamp")[:jobs]
    instances = -(-pl.col("num_gpus") // 8)
    frame = table.select(
        submit=(pl.col("timestamp") - pl.col("timestamp").min()).dt.total_seconds().cast(pl.Float64),
        runtime="duration", gpu_milli=pl.col("num_gpus") * 1000 // instances, instances=instances,
    )  # fmt: skip
    return Scenario.of(Workload.of(frame, source="Philly 6c71a0"), Cluster.uniform(12, 8))


def daily(jobs=2000, seed=0):
    """Return jobs that come by day, with run times of which a few hold most of the time (Pareto)."""
    rng = np.random.default_rng(seed)
    gpus, runtime = rng.choice([1, 2, 4, 8], jobs), 120 * (1 + rng.pareto(1.5, jobs))
    days = float((gpus * runtime).sum()) / (0.7 * 96 * DAY)
    at = np.sort(rng.uniform(0, days, 4 * jobs))
    chosen = rng.random(len(at)) < (1 + np.sin(2 * np.pi * at)) / 2
    submit = np.floor(DAY * np.sort(rng.permutation(at[chosen])[:jobs]))
    frame = pl.DataFrame({"submit": submit - submit[0], "runtime": np.ceil(runtime), "gpu_milli": gpus * 1000})
    return Scenario.of(Workload.of(frame, source="by day"), Cluster.uniform(12, 8))


def lined_up(load, jobs=300, seed=0, burst=1):
    """Return jobs of one GPU with exponential run times, in bursts of so many, at a load on 8 GPUs."""
    rng = np.random.default_rng(seed)
    bursts = np.append(0.0, np.cumsum(rng.exponential(100 * burst / (8 * load), -(-jobs // burst) - 1)))
    submit = np.repeat(np.floor(10 * bursts) / 10, burst)[:jobs]
    frame = pl.DataFrame({"submit": submit, "runtime": rng.exponential(100.0, jobs), "gpu_milli": 1000})
    return Scenario.of(Workload.of(frame, source="a line"), Cluster.uniform(8, 1))


def recorded():
    """Return the recorded run of a real Slurm, other loops of it, and one more node."""
    base = Scenario.of("sample")
    return base, of_changes(base, ("loops", "nodes:a100"))


ORDERS = of_words({}, {"order": "smallest"}, {"backfill": "easy"}, {"order": "sjf"})
WORLDS = {  # what makes a baseline, and what is compared with it
    "diagnose builtin:2000 on small.toml": diagnosed,
    "the same, --warm-up none": lambda: diagnosed(warm_up="none"),
    "30 × 8 nodes, gangs, load 0.7": lambda: (gangs(0.7), ORDERS),
    "30 × 8 nodes, gangs, load 0.9": lambda: (gangs(0.9), ORDERS),
    "30 × 8 nodes, gangs, load 1.1": lambda: (gangs(1.1), ORDERS),
    "Philly, 2,000 jobs": lambda: (philly(), ORDERS),
    "by day, Pareto run times": lambda: (daily(), ORDERS),
    "a recorded run of Slurm": recorded,
    "builtin:10000, worst_fit to best_fit": spread,
    "builtin:20000 on a fifth of the nodes": crowded,
}


GOALS = {  # what makes a log of 300 jobs, and a goal that some number of its nodes meets
    "30 × 8 nodes, gangs, load 0.7": (lambda: gangs(0.7, 300), "mean wait < 60"),
    "30 × 8 nodes, gangs, load 0.9": (lambda: gangs(0.9, 300), "mean wait < 120"),
    "by day, Pareto run times": (lambda: daily(300), "p90 wait < 600"),
    "one GPU each, load 0.7": (lambda: lined_up(0.7), "mean wait < 20"),
    "one GPU each, load 0.85": (lambda: lined_up(0.85), "p90 wait < 60"),
    "ten at once, load 0.7": (lambda: lined_up(0.7, burst=10), "mean wait < 60"),
}
WEEKS = {  # what makes a log of so many jobs, and whether few of its weeks have most of the waiting
    "one GPU each, load 0.7": (lambda jobs: lined_up(0.7, jobs), False),
    "one GPU each, load 0.85": (lambda jobs: lined_up(0.85, jobs), False),
    "ten at once, load 0.7": (lambda jobs: lined_up(0.7, jobs, burst=10), False),
    "30 × 8 nodes, gangs, load 0.5": (lambda jobs: gangs(0.5, jobs), True),
    "30 × 8 nodes, gangs, load 0.7": (lambda jobs: gangs(0.7, jobs), True),
    "30 × 8 nodes, gangs, load 0.8": (lambda jobs: gangs(0.8, jobs), True),
}
DAYS = {  # load of four nodes, mean run time, seed and swing of the hour
    "load 0.5": (0.5, 1800.0, 0, 0.6), "load 0.7": (0.7, 1800.0, 1, 0.6), "load 0.9": (0.9, 1800.0, 2, 0.6),
    "short jobs": (0.7, 600.0, 3, 0.9), "long jobs": (0.7, 7200.0, 4, 0.3), "no hours": (0.6, 1800.0, 5, 0.0),
}  # fmt: skip


def goal_by_replica(base, slo, size, count):
    """Return the value of a goal with some number of nodes, by replica."""
    replicas = (perturbed(base, k) for k in range(1, count + 1))
    return np.array([float(measure(replica, size, None, slo)["value"]) for replica in replicas])


def held_out(base, sets, weeks):
    """Return the mean waits of two orders in sets of consecutive weeks of one log: [sets, weeks] of each."""
    days = float(base.trace.workload.frame["submit"].max()) / DAY / (sets * weeks + 1.95)
    _, later = split(base, train=1, held_out=sets * weeks, days=days, warm=0.0)
    means = [later.means("wait", order=order) for order in ("fifo", "sjf")]
    return [np.array([m[week] for week in sorted(means[0])]).reshape(sets, weeks) for m in means]


def by_day(days, load, runtime, seed, swing):
    """Return the node-hours of each day with as many nodes ready as jobs need, and if these stay for two hours."""
    rng, nodes = np.random.default_rng(seed), 4
    count = rng.poisson(load * nodes * (1 + swing) / runtime * (days + 4) * DAY)
    submit = np.sort(rng.uniform(0, (days + 4) * DAY, count))
    submit = submit[rng.uniform(size=count) < (1 + swing * np.sin(2 * np.pi * submit / DAY)) / (1 + swing)]
    frame = pl.DataFrame(
        {"submit": submit - submit[0], "runtime": rng.exponential(runtime, len(submit)), "gpu_milli": 1000}
    )
    base = Scenario.of(Workload.of(frame, source="day and night"), Cluster.uniform(2 * nodes, 1))
    demand = pool_demand(scaled_pools(base)[0], every=1800.0)
    replay = Replay(demand, demand.scenario.replace(placement="first_fit"), 48, days, 300.0)
    level = np.clip(np.ceil(demand.level), 1, 2 * nodes).astype(np.int64)
    return [replay.scheduled("", "", ready).node_hours for ready in (level, sustain(level, 4))]


def measured(base, changes, replicas, scope="log"):
    """Return the mean wait of each change in each of some replicas."""
    waits = []
    for number in replicas:
        replica = perturbed(base, number, scope)
        replica = replica.after(replica)
        waits.append([simulate(change(replica)).completed["wait"].mean() for change in changes.values()])
    return np.array(waits).T


def drawn_again(base, changes, count):
    """Return replicas that are a log drawn again, with the wait of each job under each change."""
    results = []
    for number in range(1, count + 1):
        replica = perturbed(base, number, "like")
        replica = replica.after(replica)
        runs = {name: simulate(change(replica)).completed.sort("job") for name, change in changes.items()}
        results.append({name: {"wait": run["wait"].to_numpy()} for name, run in runs.items()})
    return Replication(Plan(count, "like"), results, base=next(iter(changes)))


def sequential(differences, level):
    """Return how many replicas a study takes until a change is decided."""
    return next((k for k in LOOKS[:-1] if is_decided(differences[:k], level)), LOOKS[-1])


def judged(waits, *, draws=400, count=None, seed=0):
    """Return how often intervals of some replicas cover the mean of all, and verdicts have the wrong sign, by change.

    The first row is of the baseline's own mean.
    """
    rng, truth = np.random.default_rng(seed), waits.mean(axis=1)
    rows = []
    for change in range(len(waits)):
        of_change = waits[change] - waits[0] if change else waits[0]
        right = truth[change] - truth[0] if change else truth[0]
        covered, wrong, says = 0, 0, []
        for _ in range(draws):
            chosen = rng.permutation(waits.shape[1])[: LOOKS[-1]]
            level = waits[0][chosen].mean()
            taken = chosen[: count or (sequential(of_change[chosen], level) if change else LOOKS[1])]
            _, low, high = over_replicas(of_change[taken], (0.0 if not change else -np.inf, np.inf)).interval()
            covered += low <= right <= high
            says.append(verdict(of_change[taken], level) if change else "")
            wrong += bool(change) and ((says[-1] == BETTER and right > 0) or (says[-1] == WORSE and right < 0))
        shares = {name: says.count(name) / draws for name in (BETTER, WORSE, NO_DIFFERENCE, NOT_DECIDED)}
        rows.append({"covered": covered / draws, "wrong": wrong / draws, "truth": float(right), **shares})
    return rows
