"""What tells policies from others: their labels in tables, and all code of the user that decides what they do."""

import importlib
import sys

import polars as pl
import pytest

import fleetlab
from fleetlab import Cluster, Scenario, Workload
from fleetlab.core.word_spellings import fingerprint, label

JOBS = Workload.of(
    pl.DataFrame({"submit": [0.0, 0.0, 1.0, 2.0], "runtime": [9.0, 40.0, 5.0, 20.0], "gpu_milli": [1000] * 4}),
    source="four jobs",
)
BASE = Scenario.of(JOBS, Cluster.uniform(1, 1), warm_up="none")


def factory(weight):
    def aged(s, job, now):
        return weight * s.estimate[job]

    return aged


def decorated(weights):
    @fleetlab.order
    def aged(s, job, now):
        return weights[0] * s.estimate[job]

    return aged


SHORT, LONG = (lambda s, job, now: s.estimate[job]), (lambda s, job, now: -s.estimate[job])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (factory(1.0), factory(-1.0)),
        (decorated((1.0, 2.0)), decorated((-1.0, 2.0))),
        (lambda s, job, now: s.estimate[job], lambda s, job, now: -s.estimate[job]),
        (SHORT, LONG),
    ],
)
def test_policies_of_one_name_are_two_scenarios_with_two_labels(one, other):
    scenarios = BASE.vary(order=[one, other])
    assert len({s.key for s in scenarios}) == len({s.title for s in scenarios}) == 2
    assert fingerprint(one) != fingerprint(other)
    assert label(one) != label(other)
    rows = fleetlab.compare(scenarios, replicas=1).tables()["policies"]
    assert rows["policy"].n_unique() == rows.height == 2
    means = [fleetlab.simulate(s).jobs["wait"].mean() for s in scenarios]
    assert rows["mean wait"].to_list() == pytest.approx(means)
    assert means[0] != means[1]


def test_what_was_made_twice_with_the_same_values_is_one_scenario():
    assert BASE.replace(order=factory(2.0)) == BASE.replace(order=factory(2.0))
    assert BASE.replace(order=factory(2)) != BASE.replace(order=factory(3))


HELPERS = "def of(x):\n    return {} * x\n"
POLICIES = {
    "a module": "import its_helpers\n\ndef mine(s, job, now):\n    return its_helpers.of(s.submit[job])\n",
    "a function": "from its_helpers import of\n\ndef mine(s, job, now):\n    return of(s.submit[job])\n",
    "imported when it is called": (
        "import its_helpers\nh = its_helpers\n\ndef mine(s, job, now):\n"
        "    from its_helpers import of\n    return of(s.submit[job])\n"
    ),
    "in a nested function": (
        "import its_helpers\n\ndef mine(s, job, now):\n    return min((its_helpers.of(x) for x in [s.submit[job]]))\n"
    ),
    "kept in a cache": (
        "from functools import lru_cache\nimport its_helpers\nof = lru_cache(its_helpers.of)\n\n"
        "def mine(s, job, now):\n    return of(s.submit[job])\n"
    ),
    "in part": (
        "from functools import partial\nimport its_helpers\nof = partial(its_helpers.of)\n\n"
        "def mine(s, job, now):\n    return of(s.submit[job])\n"
    ),
    "a property": (
        "import its_helpers\n\nclass Weight:\n    @property\n    def value(self):\n"
        "        return its_helpers.of(1.0)\n\nweight = Weight()\n\n"
        "def mine(s, job, now):\n    return weight.value * s.submit[job]\n"
    ),
}


@pytest.mark.parametrize("way", POLICIES)
def test_a_key_covers_helpers_of_other_modules(way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for factor in ("1.0", "-1.0", "-1.0"):
        (tmp_path / "its_helpers.py").write_text(HELPERS.format(factor))
        (tmp_path / "its_policies.py").write_text(POLICIES[way])
        importlib.invalidate_caches()
        found.append(Scenario.of("builtin:100", order="its_policies:mine").key)
        mine = sys.modules["its_policies"].mine
        assert Scenario.of("builtin:100", order=mine).key == found[-1]
        for name in ("its_helpers", "its_policies"):
            del sys.modules[name]
    assert found[0] != found[1] == found[2]


def test_a_policy_that_cannot_be_imported_has_a_key_still(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "is_broken.py").write_text("1 / 0\n")
    one, other = (Scenario.of("builtin:100", order=name) for name in ("is_broken:mine", "is_absent:mine"))
    assert one.key != other.key
    with pytest.raises(fleetlab.PolicyError, match="is_broken"):
        fleetlab.simulate(one)


def test_builtin_functions_differ():
    assert fingerprint(max) != fingerprint(min)
