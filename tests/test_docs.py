"""Every example in the guides runs, and prints what the guide says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(text):
    """What a guide has one do, in order: ("file", name, text), ("shell", command, output) or ("python", code, "")."""
    for kind, name, body in FENCE.findall(text):
        if name:
            yield "file", name, body
        elif kind == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                yield "shell", command, output
        elif kind == "python":
            yield "python", body, ""


def run(words, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"XDG_CACHE_HOME": str(folder / "cache"), "PATH": path, "COLUMNS": "100"}
    done = subprocess.run(words, cwd=folder, env=os.environ | home, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_pattern(output):
    """The text of a guide as a pattern: a line of `...` stands for any lines, `…` inside one for any words."""
    lines = [re.escape(line.rstrip()).replace("…", ".*?") for line in output.strip("\n").split("\n")]
    return "\n".join("(?:.*\n?)*?" if line == r"\.\.\." else line for line in lines)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: p.name)
def test_a_guide_does_what_it_says(guide, tmp_path):
    for kind, what, text in steps(guide.read_text("utf-8")):
        if kind == "file":
            (tmp_path / what).write_text(text, "utf-8")
        elif kind == "python":
            run([sys.executable, "-c", what], tmp_path)
        elif not what.startswith(("git ", "make ", "cd ")):
            found = "\n".join(line.rstrip() for line in run(["bash", "-c", what], tmp_path).strip("\n").split("\n"))
            assert not text.strip() or re.fullmatch(as_pattern(text), found), f"{what}\n{found}"


def test_the_guides_have_examples():
    assert sum(1 for guide in GUIDES for _ in steps(guide.read_text("utf-8"))) >= 10
