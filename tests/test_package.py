"""The package as a whole: its public names, its import, and the examples of its docstrings."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import polars as pl
import pytest

import fleetlab

# A case for each package, not one for each of 900 modules: a case costs more than most examples.
GROUPS = sorted(m.name for m in pkgutil.iter_modules(fleetlab.__path__) if m.name != "__main__")


@pytest.mark.parametrize("group", GROUPS)
def test_the_examples_in_a_package_are_true(group):
    first = importlib.import_module(f"fleetlab.{group}")
    inside = pkgutil.walk_packages(getattr(first, "__path__", ()), f"fleetlab.{group}.")
    modules = [first, *(importlib.import_module(m.name) for m in inside if not m.name.endswith("__main__"))]
    assert [module.__name__ for module in modules if doctest.testmod(module).failed] == []


def test_the_examples_of_the_front_are_true():
    assert doctest.testmod(fleetlab).failed == 0


def test_what_is_visible_is_what_is_public():
    assert sorted(fleetlab.__all__) == dir(fleetlab)


def test_each_public_name_is_that_of_its_object():
    assert [name for name in fleetlab.__all__ if getattr(fleetlab, name).__name__ != name] == []


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fleetlab.nothing


def test_import_loads_no_dependency():
    code = "import sys, fleetlab; print(sorted({'numpy', 'polars', 'isal', 'rich'} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize("package", ["fleetlab.core", "fleetlab.traces"])
def test_a_package_has_the_names_that_it_lists(package):
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
        station = pkgutil.resolve_name(f"fleetlab.{name}")
        assert callable(station) or isinstance(station, property | cached_property)
    assert sum(map(len, stations)) <= 35


def test_reading_a_slurm_log_hands_its_rows_on_as_often_as_the_map_says():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    said = set(re.findall(r"`((?:\w+\.)+\w+)`", text.split("**Read**")[1].split("**Simulate**")[0]))
    log = Path(__file__).parent / "fixtures/slurm/good"
    jobs = fleetlab.read(log, "slurm").workload.frame.height
    seen, results, ours = set(), {}, str(Path(fleetlab.__file__).parent)

    def forms(value, depth=2):
        """Return the columns, or the class, in which a value has a row a job."""
        if isinstance(value, pl.DataFrame):
            return {tuple(value.columns)} if jobs <= value.height <= jobs + 2 and value.width > 5 else set()
        if depth and isinstance(value, tuple):
            return set().union(*(forms(part, depth - 1) for part in value))
        parts = [getattr(value, f.name) for f in fields(value)] if depth and is_dataclass(value) else []
        return {type(value).__name__} if any(forms(part, depth - 1) for part in parts) else set()

    def note(frame, event, result):
        code = frame.f_code
        if event == "return" and code.co_filename.startswith(ours) and result is not None:
            taken = [forms(frame.f_locals.get(name)) for name in code.co_varnames[: code.co_argcount]]
            if id(result) not in results and forms(result) - set().union(*taken):
                module = code.co_filename.removeprefix(ours)[1:-3].replace("/", ".")
                seen.add(f"{module}.{code.co_qualname}")
            results[id(result)] = result  # kept, so that no other gets its id

    sys.setprofile(note)
    try:
        fleetlab.read(log, "slurm")
    finally:
        sys.setprofile(None)
    parsers = {name for name in seen if name.startswith("traces.input.")}  # of a file's text, until a row has columns
    assert seen - said - parsers == set()
