"""Sharing a real GPU: asked, shared under MPS, and put back. Nothing of the GPU is changed."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import mps as mps_daemon
from fleetlab.gpu.sharing import run_command, status
from fleetlab.gpu.sharing.mig.layouts import gpu_profiles, mig_gpu
from fleetlab.gpu.sharing.modes import Share

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU here")]
# Opens the GPU, says what it sees, and stays until told.
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
    yield mps_daemon.start
    if mps_daemon.mps_record() is not None:
        mps_daemon.stop(anyway=True)


def sms():
    """Of the whole GPU, seen by a process that can find no daemon."""
    apart = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}
    done = subprocess.run([sys.executable, "-c", CLIENT], env=apart, input=b"\n", capture_output=True, check=True)
    return int(done.stdout)


def test_a_real_card_is_told():
    found = status.status()
    assert found.gpus
    assert found.gpus[0].name.startswith("NVIDIA")
    assert found.gpus[0].memory_mib > 1000, found.gpus[0]
    assert {m.name for m in found.modes} == set(status.OBSTACLES)


def test_an_h200_tells_the_profiles_that_we_know_of_it():
    if "H200" not in status.status().gpus[0].name:
        pytest.skip("another GPU")
    assert gpu_profiles(0).profiles == mig_gpu("H200").profiles


def test_mps_stays_with_its_limits_takes_a_client_and_goes(started, own):
    whole = sms()
    env = os.environ | started(percent=50, memory_mib=8192)
    (daemon,) = [d for d in status.daemons() if d.whose == "started by fleetlab"]
    assert (daemon.answers, daemon.percent, daemon.clients) == (True, 50.0, []), daemon
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        seen = int(client.stdout.readline())
        for _ in range(40):
            (daemon,) = [d for d in status.daemons() if d.whose == "started by fleetlab"]
            if client.pid in daemon.clients:
                break
            time.sleep(0.5)
        assert daemon.clients == [client.pid], daemon
        assert seen < whole, f"{seen} of {whole} SMs under a limit of 50 %"
        with pytest.raises(BenchError, match=f"MPS has clients: {client.pid}"):
            mps_daemon.stop()
        client.communicate(b"\n")
    for _ in range(40):
        if not [d for d in status.daemons() if d.clients]:
            break
        time.sleep(0.5)
    mps_daemon.stop()
    assert status.daemons() == [], status.daemons()
    assert list(own.iterdir()) == [], list(own.iterdir())


def test_a_limit_of_memory_holds(started):
    env = os.environ | started(memory_mib=8192)
    assert subprocess.run([sys.executable, "-c", GREEDY], env=env).returncode == 7


def test_a_second_start_is_refused(started):
    started()
    with pytest.raises(BenchError, match="already"):
        mps_daemon.start()


def test_a_command_is_proved_to_run_under_mps_and_mps_is_put_back():
    said = []
    script = CLIENT.replace("sys.stdin.readline()", "import time; time.sleep(8)")
    assert run_command.run_in_mode("mps", [sys.executable, "-c", script], share=Share(50), progress=said.append) == 0
    assert said[0].startswith("ran under MPS: attached as "), said
    assert status.daemons() == [], status.daemons()


def test_a_command_has_a_card_to_itself():
    if status.status().processes:
        pytest.skip("somebody is on the GPU")
    said = []
    script = CLIENT.replace("sys.stdin.readline()", "import time; time.sleep(3)")
    assert run_command.run_in_mode("exclusive", [sys.executable, "-c", script], progress=said.append) == 0
    assert "alone on GPU 0" in said[0], said


def test_a_card_that_somebody_uses_is_not_to_be_had_alone():
    apart = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent/mps"}
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT], env=apart, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as somebody:
        somebody.stdout.readline()
        try:
            with pytest.raises(BenchError, match="GPU 0 is in use"):
                run_command.run_in_mode("exclusive", ["true"], progress=print)
        finally:
            somebody.communicate(b"\n")


def test_a_limited_command_by_itself():
    assert (
        run_command.run_in_mode("mps", [sys.executable, "-c", GREEDY], share=Share(memory_mib=8192), progress=print)
        == 7
    )
    assert run_command.run_in_mode("time-slicing", [sys.executable, "-c", GREEDY], progress=print) == 0
