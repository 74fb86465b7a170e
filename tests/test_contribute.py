"""Every how-to for contributors is done, word by word, in a copy of the repository, and does what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .guide_outputs import fits_with_gaps, lines

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "contribute").glob("*.md"))
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path):
    """The package and its tests, with bytecode but without compiled loops: those are played as plain Python."""
    compiled = shutil.ignore_patterns("*.nbi", "*.nbc", "*.lock", "*.egg-info")
    for name in ("src", "tests", "realtest"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=compiled)
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(command, folder):
    words = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "src"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "NUMBA_DISABLE_JIT": "1",  # compiling takes half a minute, and a catalog that changed compiles all anew
        "COLUMNS": "",
    }
    command = re.sub(r"^fleetlab ", "python -m fleetlab ", command)
    command = re.sub(r"^python -m pytest ", "python -m pytest -p no:cacheprovider ", command)
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=os.environ | words, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def patch(text, folder):
    """Change a file as a diff says; its hunks have no line numbers, so each must stand in the file once."""
    path = folder / re.search(r"^\+\+\+ b/(\S+)$", text, re.M)[1]
    found = path.read_text("utf-8")
    for hunk in re.split(r"^@@\n", text, flags=re.M)[1:]:
        rows = hunk.splitlines()
        old = "".join(f"{row[1:]}\n" for row in rows if not row.startswith("+"))
        new = "".join(f"{row[1:]}\n" for row in rows if not row.startswith("-"))
        assert found.count(old) == 1, f"{path.name} has this {found.count(old)} times:\n{old}"
        found = found.replace(old, new)
    path.write_text(found, "utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_how_to_does_what_it_says(page, copy):
    for kind, name, body in FENCE.findall(page.read_text("utf-8")):
        if kind == "diff":
            patch(body, copy)
        elif name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_text(body, "utf-8")
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found = run(command, copy)
                assert not output.strip() or fits_with_gaps(lines(output), lines(found)), f"{command}\n{found}"


def test_there_is_a_how_to_for_each_thing_that_is_added_often():
    told = {"order", "placement", "reader", "resource", "scheduler", "stack", "wait-reason"}
    assert told <= {page.stem for page in PAGES}
