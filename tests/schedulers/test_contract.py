"""Schedulers stand behind one contract: nobody outside a scheduler's folder knows it by name, and users bring more."""

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Outage, PolicyError, Recovery, Scenario, Workload, simulate
from fleetlab.core import Feature, Scheduler, TraceError
from fleetlab.core.schedulers import brought, schedulers
from fleetlab.sim.engine import play as engine

SRC = Path(fleetlab.__file__).parent
NAMES = {*schedulers(), *(kind.__name__ for kind in schedulers().values()), "kube-scheduler", "KAI"}
# Where a name may stand: what registers it, systems that are asked by commands of their own, and files of earlier days.
MAY_NAME = {
    "__init__.py": "registers what is built in",
    "traces/shipped.py": "the format of the recorded run that ships",
    "gpu/": "sharing stacks and their formats",
    "core/catalog/reasons.py": "a column has what squeue shows in place of a reason",
}


def names_in(file):
    """Return each import of a scheduler's folder, and each scheduler's name that stands alone."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fleetlab.schedulers"):
            yield node.lineno, node.module
        elif isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            name = node.value if isinstance(node, ast.Constant) else getattr(node, "id", None) or node.attr
            if isinstance(name, str) and name in NAMES:
                yield node.lineno, name


def test_nobody_outside_a_schedulers_folder_asks_which_one_it_is():
    every = {path.relative_to(SRC).as_posix(): path for path in SRC.rglob("*.py")}
    others = {name: path for name, path in every.items() if not name.startswith(("schedulers/", *MAY_NAME))}
    assert len(others) > 100
    assert [f"{name}:{line}: {what}" for name, path in others.items() for line, what in names_in(path)] == []


def test_each_exception_is_still_needed():
    for name in MAY_NAME:
        files = [SRC / name] if name.endswith(".py") else (SRC / name).rglob("*.py")
        assert name == "__init__.py" or any(True for file in files for _ in names_in(file)), name


@pytest.mark.parametrize("name", schedulers())
def test_a_scheduler_declares_what_it_is(name):
    kind = schedulers()[name]
    assert issubclass(kind, Scheduler)
    assert kind.name == name
    assert kind.schedules in ("jobs", "pods")
    assert kind.honors <= set(Feature)
    assert kind.simulate is not Scheduler.simulate
    assert not kind.recognizes(Path(__file__))


@pytest.mark.parametrize("name", schedulers())
@pytest.mark.parametrize(
    ("feature", "words"),
    [
        (Feature.NODE_EVENTS, {"events": (Outage(5, 10, ["node-0"]),)}),
        (Feature.CHECKPOINTS, {"recovery": Recovery(every=60.0)}),
    ],
    ids=str,
)
def test_what_a_scheduler_does_not_honor_is_refused_before_it_runs(name, feature, words):
    kind = schedulers()[name]
    if feature in kind.honors:
        pytest.skip(f"{kind.title} honors {feature}")
    with pytest.raises(PolicyError, match=f"{kind.title} is simulated without {feature}"):
        simulate(WORK, Cluster.uniform(1, 2), scheduler=kind(), **words)


# -- one of the user's own ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShortestFirst(Scheduler):
    """Starts the shortest job that waits, and nothing past it."""

    name = "shortest-first"
    title = "Shortest First"
    honors = frozenset({Feature.FRACTIONS, Feature.GANGS})

    longest: float = 1e9  # s that a job may run; others are never started

    def simulate(self, scenario, world, *, progress=None, draws=None):
        return engine.play(
            world, order=np.minimum(world.estimate, self.longest), backfill="none", placement="best_fit",
            seed=scenario.seed, until=scenario.until,
        )  # fmt: skip


WORK = Workload.of(
    pl.DataFrame(
        {
            "submit": [0.0, 1.0, 2.0, 3.0], "runtime": [10.0, 30.0, 5.0, 20.0], "gpu_milli": [2000, 1000, 500, 2000],
            "user": ["ann", "bob", "ann", "bob"],
        }
    ),
    source="by hand",
)  # fmt: skip


def starts(result):
    return result.jobs.sort("job")["start"].to_list()


def test_a_scheduler_of_ones_own_is_simulated_as_any_other():
    scheduler, cluster = ShortestFirst(), Cluster.uniform(1, 2)
    own = simulate(WORK, cluster, scheduler=scheduler)
    assert starts(own) == starts(simulate(WORK, cluster, order="sjf", backfill="none"))
    assert "Shortest First" in repr(own) or "shortest-first" in repr(own)
    assert starts(own)[0] == 0.0


def test_it_is_compared_with_policies_on_the_same_jobs():
    words = [{"order": "fifo"}, {"scheduler": ShortestFirst()}]
    found = fleetlab.compare([Scenario.of(WORK, Cluster.uniform(1, 2), **own) for own in words])
    assert found.tables()["policies"]["policy"].to_list() == ["fifo/greedy", "shortest-first"]


def test_another_configuration_of_it_is_compared_by_its_settings():
    from fleetlab.core.schedulers import compare_settings

    (setting,) = compare_settings(ShortestFirst(), ShortestFirst(longest=60.0), "short").settings
    assert (setting.name, setting.was, setting.becomes) == ("longest", "not set", "60.0")


def test_it_has_no_configuration_files_unless_it_says_so():
    with pytest.raises(TraceError, match="Shortest First has no configuration in files"):
        ShortestFirst.read(Path("shortest.yaml"))


def test_a_package_brings_its_scheduler_as_an_entry_point(tmp_path):
    (tmp_path / "shortest.py").write_text(
        "from dataclasses import dataclass\n"
        "from fleetlab.schedulers.kai.config import Kai\n\n"
        "@dataclass(frozen=True)\nclass Shortest(Kai):\n    name = 'shortest'\n    title = 'Shortest'\n"
    )
    about = tmp_path / "shortest-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fleetlab.schedulers]\nshortest = shortest:Shortest\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fleetlab\n"
        "run = fleetlab.simulate('builtin:50', scheduler='shortest')\n"
        "print(run.scenario.scheduler.title, run.provenance.settings['scheduler'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "Shortest {'kind': 'shortest'}\n"


@pytest.mark.parametrize(
    ("address", "what"),
    [("gone:Gone", "cannot be loaded: No module named 'gone'"), ("json:dumps", "is no Scheduler with the name `mine`")],
)
def test_a_package_whose_scheduler_is_broken_is_named(address, what):
    point = EntryPoint("mine", address, "fleetlab.schedulers")
    with pytest.raises(PolicyError, match=re.escape(f"`mine = {address}` of an installed package {what}")):
        brought(point)
