"""Every example in the guides runs, and prints what the guide says."""

import os
import re
import shlex
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
    return None if needs_shell or words[:1] != ["fleetlab"] or "bench" in words else (words[1:], file)


@pytest.fixture
def here(tmp_path, cache, monkeypatch, command):
    """Run a command without a process of its own, beside the measurements that come with the source."""
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    Path("docs/measurements").symlink_to(ROOT / "docs" / "measurements")
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


def fits(told, found):
    """Is this what the guide says? A line of `...` stands for any lines, `…` inside one for any words."""
    if not told or not found:
        return not found and all(line == "..." for line in told)
    if told[0] == "...":
        return fits(told[1:], found) or fits(told, found[1:])
    return bool(re.fullmatch(re.escape(told[0]).replace("…", ".*"), found[0])) and fits(told[1:], found[1:])


def lines(text):
    return [line.rstrip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda p: p.name)
def test_a_guide_does_what_it_says(guide, tmp_path, cache, here):
    for kind, what, text in steps(guide.read_text("utf-8")):
        if kind == "file":
            (tmp_path / what).write_text(text, "utf-8")
        elif kind == "python":
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        elif not what.startswith(("git ", "make ", "cd ", "pip ")):
            found = here(*plain(what)) if plain(what) else run(["bash", "-c", what], tmp_path, cache)
            assert not text.strip() or fits(lines(text), lines(found)), f"{what}\n{found}"


def test_the_guides_have_examples():
    assert sum(1 for guide in GUIDES for _ in steps(guide.read_text("utf-8"))) >= 10
