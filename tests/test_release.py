"""What is published installs and runs where there is no repository, and says everywhere which version it is."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
from release.compiled_wheel import RUNS

from fleetlab.cli import app

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
VERSION = PROJECT["project"]["version"]
# Few enough nodes and jobs to be simulated without compiling, which would take half a minute.
SMALL = "\n".join(
    f'[[node]]\ncount = 1\ngpu_type = "{kind}"\ngpus = {gpus}\ncpu_milli = 96000\nmemory_mib = 524288'
    for kind, gpus in (("V100", 8), ("T4", 2), ("MISC", 8))
)


def done(*words, cwd, **more):
    """Run a program without this repository's paths; return what it printed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_", "FLEETLAB_"))}
    ran = subprocess.run([*map(str, words)], cwd=cwd, env=kept | more, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return ran.stdout


def built(kind, source, out):
    """Build a `sdist` or a `wheel` of a source tree, as pip does, with the packages that are installed here."""
    out.mkdir(exist_ok=True)
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    done(sys.executable, "-c", code, cwd=source)
    return next(out.iterdir())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution of the files as they are, built beside them: nothing of former builds is in it."""
    tree = tmp_path_factory.mktemp("tree") / "fleetlab"
    hidden = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, tree, ignore=hidden, symlinks=True)
    compiled = tree / "src" / "fleetlab" / "sim" / "__pycache__" / "engine.play-0123"  # as a checkout in use has it
    compiled.mkdir(parents=True)
    (compiled / "play.lock").write_text("")
    return built("sdist", tree, tree.parent / "out")


@pytest.fixture(scope="module")
def unpacked(sdist):
    with tarfile.open(sdist) as file:
        file.extractall(sdist.parent.parent, filter="data")
    return sdist.parent.parent / f"fleetlab-{VERSION}"


@pytest.fixture(scope="module")
def wheel(unpacked):
    return built("wheel", unpacked, unpacked.parent / "wheel")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of a fresh environment with the wheel in it; what it depends on is lent by this one."""
    home = tmp_path_factory.mktemp("outside")
    venv.create(home / "env", with_pip=False, symlinks=True)
    places = sysconfig.get_paths(vars={"base": str(home / "env"), "platbase": str(home / "env")})
    with ZipFile(wheel) as file:
        file.extractall(places["purelib"])
    # Its own packages come first. Of this environment's path files none is read, so not that of the editable install.
    (Path(places["purelib"]) / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_the_source_distribution_has_all_that_its_tests_need(unpacked):
    wanted = [
        "tests/conftest.py",
        "tests/fixtures",
        "docs/README.md",
        "deploy/compose.yaml",
        "Makefile",
        "CHANGELOG.md",
    ]
    assert [name for name in wanted if not (unpacked / name).exists()] == []


def test_no_compiled_code_is_published(sdist, wheel):
    with tarfile.open(sdist) as source, ZipFile(wheel) as binary:
        assert [name for name in (*source.getnames(), *binary.namelist()) if "__pycache__" in name] == []


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    package = ROOT / "src" / "fleetlab"
    there = {
        f"fleetlab/{p.relative_to(package)}" for p in package.rglob("*") if p.is_file() and "__pycache__" not in p.parts
    }
    with ZipFile(wheel) as file:
        assert there - set(file.namelist()) == set()


def test_the_wheel_runs_outside_the_repository(installed):
    (installed / "small.toml").write_text(SMALL)
    python = installed / "env" / "bin" / "python"
    where = done(python, "-c", "import fleetlab; print(fleetlab.__file__)", cwd=installed)
    told = done(python, "-m", "fleetlab", "demo", "builtin:40", "--cluster", "small.toml", "--out", "a.html",
                cwd=installed, NUMBA_DISABLE_JIT="1", XDG_CACHE_HOME=str(installed))  # fmt: skip
    assert where.startswith(str(installed))
    assert "WHAT WOULD FIX IT" in told or "No job waits" in told
    assert "<svg" in (installed / "a.html").read_text("utf-8")


def test_the_installed_wheel_knows_its_version(installed):
    python = installed / "env" / "bin" / "python"
    assert done(python, "-m", "fleetlab", "--version", cwd=installed).strip().endswith(VERSION)


@pytest.mark.validate
def test_the_wheel_compiles_and_runs_outside_the_repository(installed):
    python = installed / "env" / "bin" / "python"
    home = {"FLEETLAB_COMPILED": str(installed / "compiled"), "XDG_CACHE_HOME": str(installed)}
    told = done(python, "-m", "fleetlab", "demo", "builtin:2000", cwd=installed, **home)
    assert "2,000 jobs" in told


# What is compiled in a process: events of numba's compiler on functions of the package.
COUNTED = """
import runpy, sys
from numba.core.event import Listener, install_listener

class Compilations(Listener):
    names = []
    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event):
        pass

with install_listener("numba:compile", Compilations()):
    try:
        runpy.run_module("fleetlab", run_name="__main__")
    except SystemExit as e:
        assert not e.code, e.code
print("compiled:", Compilations.names)
"""


def test_what_compiles_the_loops_of_a_wheel_goes_on_after_a_command(tmp_path):
    begin, _, _ = RUNS.partition("\nfor _, words in rules()")
    code = f"{begin}\nrun('synthesize', 'pai2020', '--jobs', '20', '--out', 'trace')\nprint('end')"
    env = {"PYTHONPATH": str(ROOT / "src")}
    assert done(sys.executable, "-c", code, cwd=tmp_path, **env).endswith("end\n")


@pytest.mark.validate
def test_the_wheel_with_compiled_loops_compiles_nothing(wheel, tmp_path):
    pure = tmp_path / wheel.name
    shutil.copy(wheel, pure)
    done(sys.executable, "-m", "release.compiled_wheel", pure, cwd=ROOT, PYTHONPATH=str(ROOT))
    (path,) = set(tmp_path.glob("*.whl")) - {pure}
    assert path.name.split("-")[2] == f"cp{sys.version_info.major}{sys.version_info.minor}"
    with ZipFile(path) as file:
        file.extractall(tmp_path / "site")
    (metadata,) = (tmp_path / "site").glob("*.dist-info/METADATA")
    assert f"Requires-Dist: numba=={version('numba')}\n" in metadata.read_text("utf-8")
    site, home = str(tmp_path / "site"), str(tmp_path / "home")
    home = {"PYTHONPATH": site, "XDG_CACHE_HOME": home, "FLEETLAB_COMPILED": home}
    log = ROOT / "measurements" / "slurm" / "plain-1.tar.gz"
    done(sys.executable, "-m", "fleetlab", "read", "slurm", log, "--out", "site-log", cwd=tmp_path, **home)
    for words in (["demo"], ["demo", "builtin:2000"], ["simulate", "site-log"], ["diagnose", "site-log"]):
        assert "compiled: []" in done(sys.executable, "-c", COUNTED, *words, cwd=tmp_path, **home)


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    told = dict(re.findall(r"^([\w-]+): (.+)$", text, re.M))
    assert (told["version"], told["license"]) == (VERSION, PROJECT["project"]["license"])


def test_the_changelog_has_this_version():
    assert re.search(rf"^## {re.escape(VERSION)} ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize(
    "path", sorted(p for p in (ROOT / "deploy").rglob("*") if p.is_file() and p.suffix != ".pyc"), ids=lambda p: p.name
)
def test_images_are_of_this_version(path):
    tags = re.findall(r"fleetlab-\w+:([\d.]+)|image\.version=\"([\d.]+)\"|TAG:-([\d.]+)", path.read_text("utf-8"))
    assert {one for found in tags for one in found if one} <= {VERSION}


def test_the_readme_names_commands_and_options_that_exist():
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    lines = [part.strip() for block in blocks for part in re.split(r"&&|\n", block)]
    named = [shlex.split(line)[1:] for line in lines if line.startswith("fleetlab ")]
    assert len(named) >= 2
    for words in named:
        app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_readme_fits_two_screens():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 100


def test_every_command_is_in_the_list_of_features():
    text = (ROOT / "docs" / "features.md").read_text("utf-8")
    names = [name for name in app if not name.startswith("-")]
    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b", text)] == []
