"""Sharing a real card: asked, shared under MPS, and put back. Nothing of the card is changed."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fleetlab.devices.errors import BenchError
from fleetlab.sharing import mps_daemon as lasting
from fleetlab.sharing import run as within
from fleetlab.sharing import status as sharing
from fleetlab.sharing.mig.profiles import here, known
from fleetlab.sharing.modes import Share

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU here")]
# Opens the card, says what it sees, and stays until told.
CLIENT = """import sys, torch
torch.zeros(1, device="cuda"); torch.cuda.synchronize()
print(torch.cuda.get_device_properties(0).multi_processor_count, flush=True)
sys.stdin.readline()"""
GREEDY = """import torch
try: torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError: raise SystemExit(7)"""


@pytest.fixture(autouse=True)
def own(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="fl", dir="/tmp") as home:
        monkeypatch.setenv("XDG_RUNTIME_DIR", home)
        monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
        yield Path(home) / "fleetlab"


@pytest.fixture
def started():
    """Starts an MPS that stays, and ends it with the test."""
    yield lasting.start
    if lasting.recorded() is not None:
        lasting.stop(anyway=True)


def sms():
    """Of the whole card, seen by a process that can find no daemon."""
    apart = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}
    done = subprocess.run([sys.executable, "-c", CLIENT], env=apart, input=b"\n", capture_output=True, check=True)
    return int(done.stdout)


def test_a_real_card_is_told():
    found = sharing.status()
    assert found.cards
    assert found.cards[0].name.startswith("NVIDIA")
    assert found.cards[0].memory_mib > 1000
    assert {m.name for m in found.modes} == set(sharing.STOPPED_BY)


def test_an_h200_tells_the_profiles_that_we_know_of_it():
    if "H200" not in sharing.status().cards[0].name:
        pytest.skip("another card")
    assert here(0).profiles == known("H200").profiles


def test_mps_stays_with_its_limits_takes_a_client_and_goes(started, own):
    whole = sms()
    env = os.environ | started(percent=50, memory_mib=8192)
    (daemon,) = [d for d in sharing.daemons() if d.whose == "started by fleetlab"]
    assert (daemon.answers, daemon.percent, daemon.clients) == (True, 50.0, [])
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        seen = int(client.stdout.readline())
        for _ in range(40):
            (daemon,) = [d for d in sharing.daemons() if d.whose == "started by fleetlab"]
            if client.pid in daemon.clients:
                break
            time.sleep(0.5)
        assert daemon.clients == [client.pid]
        assert seen < whole
        with pytest.raises(BenchError, match=f"MPS has clients: {client.pid}"):
            lasting.stop()
        client.communicate(b"\n")
    for _ in range(40):
        if not [d for d in sharing.daemons() if d.clients]:
            break
        time.sleep(0.5)
    lasting.stop()
    assert sharing.daemons() == []
    assert list(own.iterdir()) == []


def test_a_limit_of_memory_holds(started):
    env = os.environ | started(memory_mib=8192)
    assert subprocess.run([sys.executable, "-c", GREEDY], env=env).returncode == 7


def test_a_second_start_is_refused(started):
    started()
    with pytest.raises(BenchError, match="already"):
        lasting.start()


def test_a_command_is_proved_to_run_under_mps_and_mps_is_put_back():
    said = []
    script = CLIENT.replace("sys.stdin.readline()", "import time; time.sleep(8)")
    assert within.run("mps", [sys.executable, "-c", script], share=Share(50), tell=said.append) == 0
    assert said[0].startswith("ran under MPS: attached as ")
    assert sharing.daemons() == []


def test_a_command_has_a_card_to_itself():
    if sharing.status().processes:
        pytest.skip("somebody is on the card")
    said = []
    script = CLIENT.replace("sys.stdin.readline()", "import time; time.sleep(3)")
    assert within.run("exclusive", [sys.executable, "-c", script], tell=said.append) == 0
    assert "alone on card 0" in said[0]


def test_a_card_that_somebody_uses_is_not_to_be_had_alone():
    apart = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT], env=apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as somebody:
        somebody.stdout.readline()
        try:
            with pytest.raises(BenchError, match="card 0 is not free"):
                within.run("exclusive", ["true"], tell=print)
        finally:
            somebody.communicate(b"\n")


def test_a_limited_command_by_itself():
    assert within.run("mps", [sys.executable, "-c", GREEDY], share=Share(memory_mib=8192), tell=print) == 7
    assert within.run("time-slicing", [sys.executable, "-c", GREEDY], tell=print) == 0
