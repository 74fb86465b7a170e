"""A stand-in for NVIDIA's control program, and workers' own modules."""

import os
import stat
import sys
from pathlib import Path

import pytest

# What the driver's program does, as far as the bench asks: a daemon that leaves its id in the pipe directory, answers
# while it lives and goes at `quit`. The clients it lists are those that the test writes into `clients`.
DAEMON = """#!{python}
import os, signal, subprocess, sys, time
from pathlib import Path
pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
note = pipe / "nvidia-cuda-mps-control.pid"
if sys.argv[1:] == ["-d"]:
    sleeper = subprocess.Popen(["sleep", "300"], start_new_session=True)
    note.write_text(str(sleeper.pid))
    Path({record!r}).write_text(str(sleeper.pid))
    sys.exit(0)
if not note.exists():
    print("Cannot find MPS control daemon process", file=sys.stderr)
    sys.exit(0)
word = sys.stdin.read().split()
if word[0] == "get_default_active_thread_percentage":
    print("100.0")
elif word[0] == "get_server_list":
    print("4242")
elif word[0] == "get_client_list":
    listed = Path({clients!r})
    print(listed.read_text() if listed.exists() else "")
elif word[0] == "quit":
    os.kill(int(note.read_text()), signal.SIGKILL)
    note.unlink()
"""
DEAF = "#!/bin/sh\nexit 0\n"


def program(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def mps(tmp_path, monkeypatch) -> Path:
    """A folder with `daemon` (the id of the one last started) and `clients` (who is to be listed)."""
    text = DAEMON.format(python=sys.executable, record=str(tmp_path / "daemon"), clients=str(tmp_path / "clients"))
    program(tmp_path / "bin", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path


@pytest.fixture
def deaf_mps(tmp_path, monkeypatch) -> None:
    """A control program that exits 0 and starts nothing, as the driver's does with an option it does not know."""
    program(tmp_path / "bin", DEAF)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


# Works of a user's own: one whose speed is known, and some that fall.
MINE = '''
import os, signal, time, torch
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

@dataclass
class Steady:
    unit = "step"
    TINY: ClassVar[dict] = {}
    def setup(self, device): pass
    def step(self):
        time.sleep(0.002)
        return 1

@dataclass
class Hungry(Steady):
    """Takes all memory, at once or after a while."""
    after: int = 0
    count: int = 0
    def setup(self, device):
        if not self.after: self.step()
    def step(self):
        self.count += 1
        if self.count > self.after: raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return super().step()

@dataclass
class Stuck(Steady):
    """Loads, and never ends its fifth step."""
    count: int = 0
    def step(self):
        self.count += 1
        if self.count > 4: time.sleep(600)
        return super().step()

@dataclass
class Doomed(Steady):
    """Is killed in its first life, once it runs; its second is a long one."""
    mark: str = ""
    count: int = 0
    def step(self):
        self.count += 1
        if self.count > 5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step()
'''


@pytest.fixture
def works(tmp_path, monkeypatch) -> Path:
    """The file of these works, where workers find it."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "mine.py"
