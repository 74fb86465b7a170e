"""The site, built once for all its tests."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site; `cpu.txt` beside it has the CPU seconds that it took."""
    pytest.importorskip("material", reason="no theme: pip install 'fleetlab[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    (folder.parent / "cpu.txt").write_text(f"{seconds:.1f}")
    return folder
