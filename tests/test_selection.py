"""Which test files a change selects."""

import pytest

from .conftest import measured
from .selection import TESTS, files_of, selected


def names(*paths):
    return {str(file.relative_to(TESTS)) for file in selected(paths)}


@pytest.mark.parametrize(
    ("path", "wanted", "other"),
    [
        ("src/fleetlab/sim/simulate.py", "sim/test_simulate.py", "gpu/stacks/test_rules.py"),
        ("src/fleetlab/studies/compare/compare.py", "studies/test_compare.py", "traces/test_philly.py"),
        ("src/fleetlab/traces/philly/reader.py", "traces/test_philly.py", "sim/test_simulate.py"),
        ("tests/plan/test_exact.py", "plan/test_exact.py", "sim/test_simulate.py"),
        ("docs/contribute/order.md", "test_contribute.py", "test_docs.py"),
        ("deploy/compose.yaml", "deploy/test_manifests.py", "test_docs.py"),
        ("realtest/spread.py", "realtest/test_spread.py", "traces/test_philly.py"),
    ],
)
def test_a_change_selects_the_tests_that_name_it_and_no_others(path, wanted, other):
    assert wanted in names(path)
    assert other not in names(path)


def test_data_beside_modules_are_of_these_modules():
    assert "web/test_browser.py" in names("src/fleetlab/web/page.js")


def test_fixtures_of_a_folder_select_its_tests_and_those_of_the_root_all():
    assert names("tests/conftest.py") == {str(file.relative_to(TESTS)) for file in files_of(TESTS)}


def test_without_a_change_only_what_always_runs_is_selected():
    assert len(names("src/fleetlab/sim/simulate.py")) > len(names()) == 2


def test_the_files_that_come_first_exist():
    assert [name for name in measured() if not (TESTS / name).is_file()] == []
