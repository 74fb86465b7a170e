"""Workloads of a user's own, and small plans of them."""

import json
import os
from pathlib import Path

import pytest

from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.run import SuiteRun
from fleetlab.gpu.sharing.modes import Share

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


def put_works(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write the file of these works where workers find it."""
    (folder / "mine.py").write_text(MINE)
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder / "mine.py"


@pytest.fixture
def works(tmp_path, monkeypatch) -> Path:
    """The file of these works."""
    return put_works(tmp_path, monkeypatch)


# --- small plans of these works ---------------------------------------------------------------------------------------


def plan(cells, **tenants):
    made = {name: Tenant(f"mine:{name.capitalize()}", settings) for name, settings in tenants.items()}
    return SuitePlan("small", made, tuple(cells), settle=0.05, window=0.15)


def alone(name, block=0, **share):
    return BenchCell("all", "mps", block, (Seat(name, share=Share(**share)),))


def pair(a, b, block=0):
    return BenchCell("all", "mps", block, (Seat(a), Seat(b, int(a == b))))


def run(plan, out, *, limit=100):
    said = []
    skipped = SuiteRun(plan, out, limit=limit, rehearse=True, progress=said.append).run()
    return skipped, [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()], said
