"""Every word of a scenario is understood by the simulator, as an object and as text."""

import math

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Faults, Prices, Recovery, Scenario, Speed, Trace, Workload
from fleetlab.core.catalog import BACKFILLS, ESTIMATES, SHARINGS
from fleetlab.core.words import WORDS
from fleetlab.schedulers.slurm.config import Slurm

JOBS = Workload.of(
    pl.DataFrame(
        {
            "submit": [0.0, 1.0, 2.0],
            "runtime": [9.0, 5.0, 1.0],
            "gpu_milli": [500, 1000, 2000],
            "user": ["a", "b", "a"],
            "queue": ["a", "a", "b"],
        }
    ),
    source="three",
)
NODES = Cluster.uniform(1, 2, gpu_type="T4")

# A value of each word, as Python has it and as text.
SPELLINGS = {
    "nodes": ("T4 +1", "T4 +1"),
    "load": (2.0, "2"),
    "latency": ({"1 GPU": [2.0, 3.0], "other": [5.0]}, "1 GPU=2/3,other=5"),
    "order": ("sjf", "sjf"),
    "scheduler": (Slurm(epilog=3.0), '{"epilog": 3}'),
    "backfill": ("easy", "easy"),
    "placement": ("worst_fit", "worst_fit"),
    "estimate": ("user", "user"),
    "sharing": ("mps", "mps"),
    "speed": (Speed.named("published"), "published"),
    "speed_classes": ({"user:a": "light", "other": "heavy"}, "user:a=light,other=heavy"),
    "preemption": (True, "true"),
    "quota": ({"a": 2.0, "queue:b": 1.0}, "a=2,queue:b=1"),
    "recovery": (Recovery(every=2, save=1), "every=2,save=1"),
    "events": ([Faults(50, 5)], '[{"event": "faults", "mtbf": 50, "mttr": 5}]'),
    "weights": ((1.0, 0.5), "1,0.5"),
    "prices": (Prices(per_gpu_hour=2.0), '{"per_gpu_hour": 2}'),
    "seed": (7, "7"),
    "until": (4.0, "4s"),
    "cycle": (2.0, "2s"),
    "window": ("2..", (2.0, math.inf)),
    "warm_up": ("repeat", "repeat"),
    "censored": ("drop", "drop"),
    "min_coverage": (0.25, "0.25"),
}
NEEDS = {
    "scheduler": {"sharing": "exclusive"},
    "speed": {"sharing": "time-slicing"},
    "speed_classes": {"sharing": "time-slicing"},
    "preemption": {"order": "sjf"},
}  # without these a word changes nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("three")
    Trace(JOBS, fleetlab.Provenance("test", "three"), NODES).save(path / "log")
    (path / "cluster.toml").write_text(NODES.to_toml(), "utf-8")
    return path


def starts(run):
    return run.jobs.select("job", "start", "end").rows()


@pytest.mark.parametrize("word", [name for name in WORDS if name not in ("trace", "cluster")])
def test_a_word_means_the_same_in_every_spelling(word, folder, tmp_path):
    value, text = SPELLINGS[word]
    needs = NEEDS.get(word, {})
    run = fleetlab.simulate(JOBS, NODES, **{word: value}, **needs)
    assert starts(run) == starts(fleetlab.simulate(JOBS, NODES, **{word: text}, **needs))
    assert run.provenance.settings[word] == run.scenario.words()[word]
    scenario = Scenario.of(folder / "log", **{word: text}, **needs)
    assert starts(fleetlab.simulate(scenario)) == starts(run)
    assert starts(fleetlab.simulate(Scenario.from_query(scenario.to_query()))) == starts(run)
    (tmp_path / "scenario.toml").write_text(Scenario.of(folder / "log", **{word: text}, **needs).to_toml(), "utf-8")
    assert starts(fleetlab.simulate(Scenario.from_toml(tmp_path / "scenario.toml"))) == starts(run)


def test_a_trace_and_a_cluster_may_be_names(folder):
    run = fleetlab.simulate(str(folder / "log"), folder / "cluster.toml")
    assert starts(run) == starts(fleetlab.simulate(JOBS, NODES))
    assert run.provenance.settings["trace"] == str(folder / "log")


@pytest.mark.parametrize(
    "words",
    [{"backfill": b} for b in BACKFILLS.names]
    + [{"order": "sjf", "estimate": e} for e in ESTIMATES.names]
    + [{"sharing": s} for s in SHARINGS.names],
    ids=str,
)
def test_a_saved_result_can_be_run_again(words, folder):
    run = fleetlab.simulate(str(folder / "log"), **words)
    assert starts(fleetlab.simulate(Scenario.of_words(run.provenance.settings))) == starts(run)
