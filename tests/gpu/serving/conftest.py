"""Real servers in processes of their own, and models whose answers are known."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

# `Echo` answers with the first number of each input, so that no answer can be taken for another's. While the file
# `gate` is there it computes on and on. The calls that `fall` lists fail, such as 7:memory.
MINE = """
import time, torch
from dataclasses import dataclass
from pathlib import Path
from fleetlab.gpu.serving.server.requests import InputShape

@dataclass
class Echo:
    gate: str = "/nonexistent"
    seconds: float = 0.0
    size: int = 4
    slow_load: bool = False
    fall: str = ""
    calls: int = 0

    def __post_init__(self):
        self.shape = InputShape(self.size, 1 << 20, "token", "<i4")

    def _wait(self):
        while Path(self.gate).exists():
            time.sleep(0.002)

    def load(self, device):
        if self.slow_load: self._wait()

    def classes(self, rows):
        self._wait()
        time.sleep(self.seconds)
        self.calls += 1
        kind = dict(one.split(":") for one in self.fall.split(",") if one).get(str(self.calls))
        if kind == "memory": raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        if kind: raise ValueError(kind)
        return rows[:, 0]
"""


@dataclass
class House:
    """A running server."""

    process: subprocess.Popen
    said: str  # its first line
    gate: Path
    log: Path

    @property
    def url(self):
        return self.said.rpartition(" ")[2].strip()

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def ask(self, method, path, body=None, kind="application/json", timeout=60):
        """Status, headers and JSON of one answer on a connection of its own."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            line.request(method, path, body, {"Content-Type": kind} if body is not None else {})
            answer = line.getresponse()
            text = answer.read()
        finally:
            line.close()
        return answer.status, dict(answer.getheaders()), json.loads(text) if text[:1] == b"{" else text.decode()

    def predict(self, *, batch=False, **said):
        status, _, found = self.ask("POST", "/predict/batch" if batch else "/predict", json.dumps(said))
        return status, found

    def stats(self):
        return self.ask("GET", "/stats")[2]

    def until(self, true, *, seconds=60):
        """The stats of which `true` is true; a busy machine may take its time."""
        end = time.monotonic() + seconds
        while not true(found := self.stats()):
            assert time.monotonic() < end, f"not within {seconds} s: {found}"
            time.sleep(0.01)
        return found

    @contextlib.contextmanager
    def closed(self):
        """Nothing is finished while this lasts."""
        self.gate.touch()
        try:
            yield
        finally:
            self.gate.unlink(missing_ok=True)

    def stop(self):
        """The exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def adds_up(stats):
    """Every request that came was answered, refused, failed, or is under way."""
    return stats["received"] == stats["answered"] + stats["refused"] + stats["failed"] + stats["in_flight"]


@contextlib.contextmanager
def started(folder, work, *words, ready=True, device="cpu"):
    (folder / "echoes.py").write_text(MINE)
    gate, log = folder / "gate", folder / "log"
    own = ["--set", f"gate={gate}"] if ":" in work else ["--tiny"] if device == "cpu" else []
    line = [sys.executable, "-m", "fleetlab.gpu.serving.server", work, "--port", "0", "--device", device, *own, *words]
    found = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with log.open("w") as errors:
        process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | {"PYTHONPATH": found}
        )
    try:
        said = process.stdout.readline() if ready else ""
        assert said or not ready, log.read_text()
        yield House(process, said, gate, log)
    finally:
        gate.unlink(missing_ok=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            process.stdout.close()


@pytest.fixture(scope="session")
def start():
    return started


@pytest.fixture(scope="session")
def law():
    return adds_up
