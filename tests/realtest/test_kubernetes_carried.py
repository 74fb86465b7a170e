"""Decisions of a real kube-scheduler follow from what a trace carries of its pods and nodes, as `simulate` has them."""

import gzip
import json
from dataclasses import replace

import pytest
from realtest.archives import recorded_runs
from realtest.kubernetes.record import pod_number
from realtest.kubernetes.replay import Replay, Run

import fleetlab
from fleetlab import Scenario, Trace
from fleetlab.schedulers.kubernetes.creations import creations
from fleetlab.schedulers.kubernetes.play import nodes_of, pods_of
from fleetlab.schedulers.kubernetes.specs import Specs
from fleetlab.schedulers.kubernetes.state import Cache
from fleetlab.sim.simulate import world_of

RUNS = recorded_runs("kubernetes")
SMALL = ("affinity", "spread", "preempt", "ratio", "controllers", "listed")
LARGE = ("mix-5000", "neighbors-5000", "budgets-5000")


def replayed(folder, saved, *, carried=True):
    """Replay a run with the pods and nodes that a saved trace of its list gives a simulation."""
    run = Run.load(folder)
    listed = json.loads(gzip.decompress((folder / "list.json.gz").read_bytes()))
    budgets = json.loads((folder / "site.json").read_text())["budgets"]
    listed["items"] += [one | {"kind": "PodDisruptionBudget"} for one in budgets]
    saved.with_suffix(".json").write_text(json.dumps(listed))
    fleetlab.read(saved.with_suffix(".json"), "kubernetes").save(saved)
    scenario = Scenario.of(Trace.load(saved), scheduler=run.profile)
    world, specs = world_of(scenario), Specs.of(scenario) if carried else Specs()
    made = creations(world, pods_of(world), run.profile, specs)
    names = scenario.trace.names.collect().sort("job")["name"].to_list()
    pods = {
        pod_number(names[job].partition("/")[2]): pod for job, pod in zip(world.frame["job"], made.pods, strict=True)
    }
    assert pods.keys() == run.pods.keys()
    again = Replay(replace(run, pods=pods))
    nodes = sorted(specs.on_nodes(nodes_of(world, scenario.cluster)), key=lambda node: node.name)
    again.cache = Cache(nodes)
    return again.play()


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(one, marks=pytest.mark.validate) for one in LARGE)])
def test_every_decision_of_the_real_one_follows_from_the_trace(name, tmp_path):
    outcome = replayed(RUNS / name, tmp_path / "trace")
    assert outcome.wrong == []
    assert outcome.counts["placed exact"] >= 0.99 * sum(n for kind, n in outcome.counts.items() if "placed" in kind)


def test_without_what_it_carries_many_would_not(tmp_path):
    assert len(replayed(RUNS / "affinity", tmp_path / "trace", carried=False).wrong) > 50
