"""The house as a whole: what is visible from outside, and what its examples say."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

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
