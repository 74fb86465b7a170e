"""A fact stands in one place: names of the catalogs appear in the catalogs, where they are computed, and in tests."""

import ast
from pathlib import Path

import pytest

import fleetlab
from fleetlab.core.catalog import ORDERS, PLACEMENTS, REASONS, RESOURCES

ROOT = Path(fleetlab.__file__).parent
CATALOG = "core/catalog/"
DEFAULTS = {"fifo", "best_fit"}  # stand in signatures
# Words that other things are called too: columns, functions, labels of tables.
SHARED = {"priority", "fair", "smallest", "largest", "spread", "random"}
SHARED |= {"cpu", "memory", "gpu", "gpu_type", "gpu_memory", "rdma", "disk", "max_per_node"}
SHARED |= {"quota", "reservation", "scheduler", "partition", "limit"}

# Where a name is computed: its own file. Studies of one published result name what that result is about.
PLACEMENT_FILES = {"sim/codes.py", "sim/packing.py", "studies/validate/", "reproduce/", "studies/autoscale/"}
ORDER_FILES = {"sim/codes.py", "sim/orders.py", "sim/simulate.py", "studies/validate/", "studies/tune/terms.py"}
ORDER_FILES |= {"web/advice.py", "studies/compare/", "studies/diagnose/"}
REASON_FILES = {"sim/codes.py", "schedulers/slurm/site.py", "studies/diagnose/", "web/advice.py"}
REASON_FILES |= {"schedulers/slurm/reader/conf_keys.py"}  # some are called as the parameter that they come from
# Readers fill what their logs have.
RESOURCE_FILES = {"schedulers/kubernetes/reader/", "traces/dlrm2025", "studies/validate/"}


def strings(path: Path) -> set[str]:
    """The string literals of a module that are not docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {node.value for node in texts if id(node) not in docs}


@pytest.fixture(scope="module")
def literals() -> dict[str, set[str]]:
    return {str(path.relative_to(ROOT)): strings(path) for path in sorted(ROOT.rglob("*.py"))}


@pytest.mark.parametrize(
    ("names", "own"),
    [
        (PLACEMENTS.names, PLACEMENT_FILES),
        (ORDERS.names, ORDER_FILES),
        (REASONS.names, REASON_FILES),
        ([RESOURCES["rdma"].request], RESOURCE_FILES),
    ],
    ids=["placements", "orders", "wait reasons", "resources"],
)
def test_names_stand_in_the_catalog_and_where_they_are_computed(names, own, literals):
    names = set(names) - DEFAULTS - SHARED
    files = {name for name, texts in literals.items() if texts & names and not name.startswith(CATALOG)}
    assert sorted(name for name in files if not name.startswith(tuple(own))) == []
    assert sorted(entry for entry in own if not any(name.startswith(entry) for name in files)) == []  # not needed
