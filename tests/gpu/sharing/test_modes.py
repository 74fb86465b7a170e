import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share, shared


def alive(pid):
    """A daemon whose parent is gone may stay as a zombie where nobody reaps: that is not alive."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def daemon(mps):
    return int((mps / "daemon").read_text())


def gone_soon(pid):
    for _ in range(100):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


def test_mps_runs_inside_the_block_and_is_put_back_after_it(mps):
    with shared("mps"):
        assert alive(daemon(mps))
    assert not alive(daemon(mps))


def test_mps_is_put_back_when_the_block_fails(mps):
    with pytest.raises(ZeroDivisionError), shared("mps"):
        raise ZeroDivisionError
    assert not alive(daemon(mps))


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_mps_is_put_back_when_its_starter_is_killed(mps, blow):
    code = "import time; from fleetlab.gpu.sharing.modes import shared\n"
    code += "with shared('mps'):\n print('on', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as starter:
        assert starter.stdout.readline() == b"on\n"
        assert alive(daemon(mps))
        starter.send_signal(blow)
        starter.wait()
    assert gone_soon(daemon(mps))


@pytest.mark.usefixtures("deaf_mps")
def test_an_exit_status_of_0_is_not_taken_for_a_daemon():
    with pytest.raises(BenchError, match="no daemon answers"), shared("mps"):
        pass


def test_a_machine_without_mps_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BenchError, match="MPS is not available"), shared("mps"):
        pass


def test_only_listed_clients_are_attached(mps):
    (mps / "clients").write_text("11\n12\n")
    with shared("mps") as mode:
        assert mode.attached({11, 13}) == {11}


def test_a_share_is_told_by_the_clients_environment(mps):
    with shared("mps") as mode:
        told = mode.environment(Share(percent=50, memory_mib=8192, priority=1))
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    assert told["CUDA_MPS_CLIENT_PRIORITY"] == "1"
    assert told["CUDA_MPS_PIPE_DIRECTORY"] != os.environ.get("CUDA_MPS_PIPE_DIRECTORY")


def test_a_time_sliced_tenant_cannot_attach_by_chance():
    with shared("time-slicing") as mode:
        assert not Path(mode.environment(Share())["CUDA_MPS_PIPE_DIRECTORY"]).exists()


def test_time_slicing_has_no_shares():
    with shared("time-slicing") as mode, pytest.raises(BenchError, match="no limits"):
        mode.environment(Share(percent=50))


@pytest.mark.parametrize("share", [{"percent": 0}, {"percent": 101}, {"memory_mib": 0}, {"priority": 2}])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(BenchError):
        Share(**share)


def test_an_unknown_mode_lists_the_known():
    with pytest.raises(BenchError, match="unknown sharing mode") as e, shared("magic"):
        pass
    assert "time-slicing, mps" in e.value.hint
