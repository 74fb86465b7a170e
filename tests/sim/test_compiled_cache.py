"""Compiled code is kept as pickles, which run what they hold: it is never loaded from where others may have put it."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest

import fleetlab
from fleetlab.core.files import distrust, make_private
from fleetlab.sim import jit

OTHER = 54321  # a user that is not this one
# Compile one small function, or load it; print how often each was done.
ONE = """
from numba import float64, int64
from fleetlab.sim.heap import sink
sink.compile((float64[::1], int64[::1], int64, int64, int64, float64, int64))
print(sum(sink.stats.cache_hits.values()), sum(sink.stats.cache_misses.values()))
"""


# Compile that function where progress is shown.
SHOWN = """
from fleetlab.core.progress import shown
from fleetlab.sim.jit import compile_notice
from numba import float64, int64
from fleetlab.sim.heap import sink
calls = []
shown.append(lambda *words: calls.append(words))
with compile_notice():
    sink.compile((float64[::1], int64[::1], int64, int64, int64, float64, int64))
((what, done, share),) = calls
print(what, done, 0 < share <= 1)
"""


def test_a_compilation_is_shown_by_what_draws_progress(tmp_path):
    env = os.environ | {"FLEETLAB_COMPILED": str(tmp_path / "compiled")}
    done = subprocess.run([sys.executable, "-c", SHOWN], env=env, capture_output=True, text=True)
    assert done.stdout == "compiling 1 True\n", done.stderr
    assert done.stderr.startswith("compiling the simulator, once")


# A built-in order by loops from the cache, the same order asked as Python, and one that is compiled after those loops.
THREE_WAYS = """
import sys
import numpy as np
import fleetlab
from fleetlab import order
from fleetlab.sim.orders import BY_NAME
from fleetlab.sim.policy import no_state

work = fleetlab.synthesize("pai2020", jobs=300, seed=2)
few = fleetlab.Cluster.uniform(2, 8)

def waits(by):
    return fleetlab.simulate(work, few, order=by, backfill="easy", min_coverage=0).jobs["wait"].to_list()

def mine(s, job, now):
    size = s.instances[job] * (s.gpu_milli[job] if s.gpu_milli[job] > 0 else 1000) / 1000
    waited = (now - s.submit[job]) / max(1.0, s.estimate[job])
    return -waited * waited * waited * size

built_in = waits("wfp3")
print("numba.np.linalg" in sys.modules)
one = {"submit": 1.0, "estimate": 2.0, "instances": 3, "gpu_milli": 4000}
print(BY_NAME["wfp3"](no_state()._replace(**{name: np.array([x]) for name, x in one.items()}), 0, 5.0))
print(waits(order(mine)) == built_in and max(built_in) > 0)
"""


def test_loops_are_loaded_without_what_numba_compiles_with_and_a_policy_still_compiles_after_them(tmp_path):
    script = tmp_path / "three_ways.py"
    script.write_text(THREE_WAYS)
    for _ in ("compile", "load"):
        done = subprocess.run([sys.executable, script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "-96.0", "True"]


@pytest.fixture
def clone(tmp_path):
    """How often a copy of the package at some path loads that function, and how often it compiles it."""

    def loads(name, *, package=None, **env):
        copy = tmp_path / name / "fleetlab"
        ignored = shutil.ignore_patterns("__pycache__", "gpu", "web", "traces", "studies")
        shutil.copytree(package or Path(fleetlab.__file__).parent, copy, ignore=ignored)
        env = {"PYTHONPATH": str(copy.parent), "FLEETLAB_COMPILED": "", "XDG_CACHE_HOME": str(tmp_path / "home"), **env}
        done = subprocess.run([sys.executable, "-c", ONE], env=os.environ | env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return tuple(map(int, done.stdout.split()))

    return loads


def shipped(home, package):
    """Put what was compiled into a package, as a wheel has it."""
    compiled = package / "compiled"
    for folder in home.glob("fleetlab/sim.heap-*"):
        shutil.copytree(folder, compiled / folder.name)
    files = [path for path in compiled.rglob("*") if path.suffix in (".nbi", ".nbc")]
    digests = {f"{path.parent.name}/{path.name}": sha256(path.read_bytes()).hexdigest() for path in files}
    (compiled / "manifest.json").write_text(json.dumps(digests))
    return files


def test_what_one_clone_compiled_others_of_the_same_user_load(clone):
    assert clone("one") == (0, 1)
    assert clone("other") == (1, 0)


def test_a_folder_that_is_named_serves_users_with_other_homes(clone, tmp_path):
    named = str(tmp_path / "named")
    assert clone("one", FLEETLAB_COMPILED=named, XDG_CACHE_HOME=str(tmp_path / "home")) == (0, 1)
    assert clone("other", FLEETLAB_COMPILED=named, XDG_CACHE_HOME=str(tmp_path / "elsewhere")) == (1, 0)
    assert not (tmp_path / "home").exists()


def test_a_wheel_brings_code_for_any_processor_and_a_file_that_changed_is_not_executed(clone, tmp_path):
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert clone("built", **generic) == (0, 1)
    package = tmp_path / "built" / "fleetlab"
    files = shipped(tmp_path / "home", package)
    shutil.rmtree(tmp_path / "home")
    assert clone("installed", package=package) == (1, 0)
    data = next(path for path in files if path.suffix == ".nbc")
    data.write_bytes(data.read_bytes() + b" ")
    assert clone("damaged", package=package) == (0, 1)


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A temporary folder of all users, where neither the sources nor the home can hold the cache."""
    nowhere = tmp_path / "file"
    nowhere.touch()
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(jit, "BESIDE", nowhere / "__pycache__")
    monkeypatch.setattr(jit, "_refusals", [])
    monkeypatch.delenv("FLEETLAB_COMPILED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def cache_folder():
    """Where the code of one module is cached, without what was decided before."""
    return jit.cache_folder.__wrapped__("sim.heap")


def names(shared):
    """The names that others can guess, now and before."""
    return [shared / "fleetlab", shared / f"fleetlab-compiled-{os.geteuid()}"]


def hand_over(path):
    try:
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root can give a folder away")


def test_a_folder_in_the_temporary_one_is_this_users_and_private(shared, capfd):
    folder = cache_folder()
    assert folder.parent == names(shared)[1]
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700, 0o700]
    assert cache_folder() == folder
    assert capfd.readouterr().err == ""


def planted_by_another(path):
    path.mkdir()
    path.chmod(0o777)
    hand_over(path)


def planted_open_to_all(path):
    path.mkdir()
    path.chmod(0o777)


def planted_link(path):
    target = path.parent.parent / f"target of {path.name}"
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def planted_file(path):
    path.touch()


@pytest.mark.parametrize("plant", [planted_by_another, planted_open_to_all, planted_link, planted_file])
def test_a_folder_that_others_have_made_is_not_used_and_that_is_said_once(shared, plant, capfd):
    for path in names(shared):
        plant(path)
    folder = cache_folder()
    assert folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(folder.is_relative_to(path.resolve()) for path in names(shared))
    cache_folder()
    told = capfd.readouterr().err
    assert told.count("compiled code is not kept") == 1
    assert str(names(shared)[1]) in told


def test_one_module_in_a_sound_folder_may_have_been_put_there_while_it_was_open(shared, capfd):
    sound = cache_folder()
    sound.chmod(0o777)
    assert cache_folder() != sound
    assert "others can write into it" in capfd.readouterr().err


def test_a_folder_under_one_that_others_own_or_share_can_be_replaced_by_them(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="others can replace it"):
        make_private(tmp_path / "open" / "mine")
    (tmp_path / "open").chmod(0o1777)
    assert distrust(make_private(tmp_path / "open" / "mine")) == ""
    (tmp_path / "theirs").mkdir()
    hand_over(tmp_path / "theirs")
    with pytest.raises(PermissionError, match="others can replace it"):
        make_private(tmp_path / "theirs" / "mine")


def test_beside_the_sources_their_owner_is_trusted_and_nobody_else(tmp_path, monkeypatch):
    beside = tmp_path / "__pycache__"
    monkeypatch.setattr(jit, "BESIDE", beside)
    folder = jit._named_folder(beside, "heap", "heap-1")
    assert folder == beside / "heap-1"
    hand_over(folder)
    with pytest.raises(PermissionError, match="belongs to another user"):
        jit._named_folder(beside, "heap", "heap-1")
    monkeypatch.setattr(jit, "ROOT", tmp_path)
    hand_over(tmp_path)
    assert jit._named_folder(beside, "heap", "heap-1") == folder
