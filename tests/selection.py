"""The test files that a change concerns: `pytest --changed` and `make quick` collect no others.

A file is selected if it changed, if it names a module that changed or one that imports such a module, or if it tests
what lies outside of the package (guides, manifests, notebooks, the site) and that changed. The examples of docstrings
and the rules for metadata are always selected.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import grimp

import fleetlab

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
ALWAYS = ("tests/test_package.py", "tests/test_docstrings.py")
# What is tested by other files than those that import it; the first that fits counts.
OUTSIDE = (
    (r"docs/contribute/", ("tests/test_contribute.py",)),
    (r"docs/notebooks/", ("tests/test_notebooks.py", "tests/reproduce/test_pages.py")),
    (r"docs/(site/|reference/)|mkdocs\.yml", ("tests/site",)),
    (r"docs/reproduce/", ("tests/reproduce/test_pages.py",)),
    (r"docs/.*\.md|README\.md", ("tests/test_docs.py",)),
    (r"deploy/", ("tests/deploy",)),
    (r"measurements/", ("tests/realtest", "tests/gpu/bench")),
    (r"pyproject\.toml|CHANGELOG\.md|CITATION\.cff|MANIFEST\.in", ("tests/test_release.py",)),
)
NAMED = re.compile(
    r"^\s*(?:from|import) ((?:fleetlab|realtest|benchmarks)[\w.]*)(?: import \(?([\w, \n]+?)(?:\)|$))?", re.M
)
PUBLIC = re.compile(r"\bfleetlab\.(\w+)")


def changed(ref: str) -> list[str]:
    """Return the files that differ from where this branch left another, and new ones, as paths in the repository."""
    words = ["git", "merge-base", ref, "HEAD"]
    base = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    listed = (["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"])
    return [
        line
        for words in listed
        for line in subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    ]


def selected(paths: Iterable[str]) -> set[Path]:
    """Return the test files that changes of these files concern."""
    paths = list(paths)
    modules = {module for path in paths for module in modules_of(path)}
    graph = import_graph()
    importers = (graph.find_modules_that_directly_import(module) for module in modules if module in graph.modules)
    near = modules.union(*importers) - {"fleetlab"}
    near -= {module for module in near - modules if graph.find_children(module)}  # fronts import all that is inside
    files = {TESTS.parent / path for path in ALWAYS}
    for path in paths:
        files |= set(mirrors(path))
        names = next((names for pattern, names in OUTSIDE if re.match(pattern, path)), ())
        files |= {file for name in names for file in files_of(ROOT / name)}
        if path.startswith("tests/"):
            own = Path(path).name.startswith("test_")  # what else is there, tests in its folder and below may use
            files |= set(files_of(ROOT / path if own else (ROOT / path).parent))
    return files | {file for file in files_of(TESTS) if named_modules(file) & near}


def mirrors(path: str) -> list[Path]:
    """Return the tests in the folder of a module's package that are named after the module or its folder."""
    parts = Path(path).parts
    if parts[:2] != ("src", "fleetlab") or len(parts) < 4:
        return []
    tests = files_of(TESTS / parts[2])
    words = {Path(parts[-1]).stem, parts[-2]} - {"__init__"}
    return (
        [file for file in tests if words & {file.stem, file.stem.removeprefix("test_"), *file.stem.split("_")}]
        if path.endswith(".py")
        else tests
    )


def modules_of(path: str) -> set[str]:
    """Return the modules that a file is, or those beside a file of data."""
    place = Path(path)
    if place.parts[:2] != ("src", "fleetlab") and place.parts[:1] not in (("realtest",), ("benchmarks",)):
        return set()
    name = ".".join(place.with_suffix("").parts).removeprefix("src.").removesuffix(".__init__")
    if place.suffix == ".py":
        return {name}
    package = name.rpartition(".")[0]
    return {module for module in import_graph().modules if module.rpartition(".")[0] == package} | {package}


def files_of(place: Path) -> list[Path]:
    """Return a test file, or all in a folder."""
    return [place] if place.is_file() else sorted(place.rglob("test_*.py"))


@cache
def import_graph() -> grimp.ImportGraph:
    """Return who imports whom in the package."""
    return grimp.build_graph("fleetlab", cache_dir=str(ROOT / ".import_linter_cache"))


@cache
def home(module: str, name: str) -> str:
    """Return the module in which a name is defined that another exports."""
    try:
        value = getattr(import_module(module), name, None)
    except ImportError:  # of an extra that is not installed
        return module
    if isinstance(value, ModuleType):
        return value.__name__
    return str(getattr(value, "__module__", None) or module)


def named_modules(file: Path) -> set[str]:
    """Return the modules that a test file names, by imports or by public names."""
    text = file.read_text("utf-8")
    modules = {home("fleetlab", name) for name in PUBLIC.findall(text) if name in fleetlab.__all__}
    for module, names in NAMED.findall(text):
        modules |= {module, *(home(module, name.strip()) for name in names.split(",") if name.strip())}
    return modules
