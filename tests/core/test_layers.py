"""No package below `studies` reaches above itself by a string, and one name means one class."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import fleetlab

SRC = Path(fleetlab.__file__).parent
BELOW = ("core", "stats", "describe", "forecast", "plan", "queueing", "report", "schedulers", "sim", "traces")
# An import by its name, or the address of an object of another module as a string.
BY_NAME = re.compile(r"""import_module\(\s*f?["']fleetlab|["']fleetlab(\.\w+)+:\w+["']""")


@pytest.mark.parametrize("package", BELOW)
def test_no_package_below_studies_imports_another_by_its_name(package):
    files = list((SRC / package).rglob("*.py"))
    assert files
    found = [
        f"{file.relative_to(SRC)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if BY_NAME.search(line) and ">>>" not in line
    ]
    assert found == []


def test_what_is_registered_can_be_imported():
    from fleetlab.core.plugins import _ADDRESSES, registered

    assert all(registered(point) for point in _ADDRESSES)


@pytest.mark.parametrize("package", ["core", "sim", "traces", "live"])
def test_one_name_means_one_class(package):
    """Neither in a package nor in it and `core`, on which it stands; the compiled loops have tables of their own."""
    files = [file for part in {"core", package} for file in (SRC / part).rglob("*.py") if "engine" not in file.parts]
    names = [n.name for f in files for n in ast.walk(ast.parse(f.read_text("utf-8"))) if isinstance(n, ast.ClassDef)]
    assert sorted(name for name, count in Counter(names).items() if count > 1) == []
