"""The house as a whole: what is visible from outside, and what its examples say."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import fleetlab

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(fleetlab.__path__, "fleetlab.") if not m.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["fleetlab", *MODULES])
def test_the_examples_in_a_module_are_true(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_what_is_visible_is_what_is_public():
    assert sorted(fleetlab.__all__) == dir(fleetlab)


@pytest.mark.parametrize("name", fleetlab.__all__)
def test_each_public_name_leads_to_what_bears_it(name):
    assert getattr(fleetlab, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fleetlab.nothing


def test_coming_in_costs_nothing_that_is_not_asked_for():
    ask = "import sys, fleetlab; print(sorted({'numpy', 'polars', 'isal', 'rich'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


@pytest.mark.parametrize("package", ["fleetlab.core", "fleetlab.traces"])
def test_a_room_keeps_what_it_promises(package):
    module = importlib.import_module(package)
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def test_the_way_of_a_job_passes_functions_that_exist_as_many_as_are_said():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    way = text.split("## The way of a job")[1].split("\n## ")[0] + "\n"
    parts = re.findall(r"\*\*\w+\*\* \((\d+)\)\n(.*?)\n\n", way, re.S)
    stations = [re.findall(r"`((?:\w+\.)+\w+)`", part) for _, part in parts]
    assert [len(names) for names in stations] == [int(count) for count, _ in parts]
    assert f"these {sum(map(len, stations))}." in way
    for name in chain.from_iterable(stations):
        assert callable(pkgutil.resolve_name(f"fleetlab.{name}")) or name == "core.scenario.Scenario.workload"
