"""Every example in the guides runs, and prints what the guide says.

`pytest tests/test_docs.py --update -k first-trace` writes what it prints now into the guide: look at the change.
"""

import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from .guide_outputs import fits, lines, refilled, steps

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "start", "concepts", "reference")  # those of contribute have tests of their own
MEASURING = {"isolation", "monitor", "suite", "workload"}  # commands of `bench` that start processes and are timed
GUIDES = [ROOT / "README.md", *(p for name in FOLDERS for p in sorted((ROOT / "docs" / name).glob("*.md")))]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The built-in trace is made once for all guides, and the user's own cache is left alone."""
    return tmp_path_factory.mktemp("cache")


def run(words, folder, cache):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"XDG_CACHE_HOME": str(cache), "PATH": path, "COLUMNS": ""}  # a line for each row
    done = subprocess.run(words, cwd=folder, env=os.environ | home, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(command):
    """Return the words of a `fleetlab` command and the file it writes to; None if it needs a shell or a process."""
    words = shlex.split(command)
    words, file = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)
    bare = re.sub(r'"[^"]*"', "", command.removesuffix(f"> {file}"))
    needs_shell = set(bare) & set("|&;<>()*$")
    measures = words[1:2] == ["bench"] and words[2] in MEASURING
    return None if needs_shell or words[:1] != ["fleetlab"] or measures else (words[1:], file)


@pytest.fixture
def here(tmp_path, cache, monkeypatch, command):
    """Run a command without a process of its own, beside the measurements that come with the source."""
    monkeypatch.chdir(tmp_path)
    Path("measurements").symlink_to(ROOT / "measurements")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("COLUMNS", "")  # a line for each row

    def run_here(words, file):
        done = command(*words)
        assert not done.returncode, done.stderr
        if file is None:
            return done.stdout
        Path(file).write_text(done.stdout, "utf-8")
        return ""

    yield run_here
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]  # another guide may have another of that name


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_guide_does_what_it_says(guide, tmp_path, cache, here, pytestconfig):
    text, changes = guide.read_text("utf-8"), []
    for step in steps(text):
        if step.kind == "file":
            (tmp_path / step.text).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / step.text).write_text(step.body, "utf-8")
        elif not step.text.startswith(("git ", "make ", "cd ", "pip ")):
            found = outcome(step, tmp_path, cache, here)
            changes.append((step, found))
            fine = not step.body.strip() or fits(lines(step.body), lines(found), varies=step.varies)
            assert fine or pytestconfig.getoption("update"), f"{step.text}\n{found}"
    if pytestconfig.getoption("update"):
        guide.write_text(updated(text, changes), "utf-8")


def outcome(step, folder, cache, here):
    """Do a step, and return what it printed."""
    if step.kind == "python":
        with redirect_stdout(StringIO()) as printed:
            exec(compile(step.text, "<string>", "exec"), {"__name__": "__main__"})
        return printed.getvalue()
    return here(*plain(step.text)) if plain(step.text) else run(["bash", "-c", step.text], folder, cache)


def updated(text, changes):
    """Return a guide with what its commands print now; what it shows nothing of stays so."""
    for step, found in reversed(changes):
        if step.body.strip() and not fits(lines(step.body), lines(found), varies=step.varies):
            begin, end = step.span
            text = text[:begin] + "\n".join(refilled(lines(step.body), lines(found))) + "\n" + text[end:]
    return text


def test_no_guide_leaves_out_what_a_command_prints_without_saying_how_much():
    shown = [
        (guide.name, line)
        for guide in GUIDES
        for step in steps(guide.read_text("utf-8"))
        for line in lines(step.body)
        if step.kind != "file"
    ]
    assert [(name, line) for name, line in shown if "…" in line or line.strip() == "..."] == []


def test_the_guides_have_examples():
    assert sum(1 for guide in GUIDES for _ in steps(guide.read_text("utf-8"))) >= 10
