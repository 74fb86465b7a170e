"""Scenarios on which intervals over replicas are judged, and how often they cover the mean of many replicas."""

from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.replicas import perturbed
from fleetlab.sim import simulate
from fleetlab.stats import BETTER, NO_DIFFERENCE, NOT_DECIDED, WORSE, is_decided, over_replicas, verdict
from fleetlab.studies.diagnose.changes import what_if
from fleetlab.studies.replicas import LOOKS

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


def measured(base, changes, replicas, scope="log"):
    """Return the mean wait of each change in each of some replicas."""
    waits = []
    for number in replicas:
        replica = perturbed(base, number, scope)
        replica = replica.after(replica)
        waits.append([simulate(change(replica)).completed["wait"].mean() for change in changes.values()])
    return np.array(waits).T


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
