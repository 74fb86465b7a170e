"""No package below `studies` reaches above itself by a string, which the import linter cannot see."""

import re
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
