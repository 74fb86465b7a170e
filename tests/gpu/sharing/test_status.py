"""What is here is told as it is, and nothing is changed by asking."""

import os
import stat

import pytest

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import mps as mps_daemon
from fleetlab.gpu.sharing import status

pytestmark = pytest.mark.usefixtures("own")


@pytest.fixture(autouse=True)
def no_default(monkeypatch, tmp_path):
    """A machine may have a daemon where NVIDIA's program looks by default."""
    monkeypatch.setattr(status, "DEFAULT_PIPE", str(tmp_path / "default"))


def modes(found):
    return {m.name: m.why for m in found.modes}


def test_a_card_is_told_as_the_driver_tells_it(smi):
    (one,) = status.status().gpus
    assert (one.index, one.name, one.memory_mib, one.compute_mode) == (0, "NVIDIA H200", 143771, "Default")
    assert (one.mig, one.mig_pending, one.persistence, one.time_slice) == ("Disabled", "Disabled", "Enabled", "Default")


def test_asking_changes_nothing(smi, own):
    status.status()
    assert smi["log"]
    assert smi.changes == []
    assert not own.exists()


def test_a_machine_without_nvidia_smi_is_an_answer(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    found = status.status()
    assert (found.gpus, found.processes, found.daemons) == ([], [], [])
    assert "nvidia-smi is not installed" in found.absent
    assert not any(m.possible for m in found.modes)


def test_a_driver_without_cards_is_an_answer(smi):
    smi.set(fails={"--query-gpu=" + ",".join(nvidia_smi.FIELDS): "No devices were found"})
    assert "finds no device" in status.status().absent


def test_a_driver_that_does_not_answer_is_an_error(smi, monkeypatch):
    smi.set(hangs=True)
    monkeypatch.setattr(nvidia_smi, "TIMEOUT", 1.0)
    with pytest.raises(BenchError, match="did not finish within 1 s"):
        status.status()


def test_a_driver_that_answers_garbage_is_an_error(smi):
    smi.set(garbage=True)
    with pytest.raises(BenchError, match="unexpected output"):
        status.status()


def test_a_driver_that_is_not_loaded_is_an_error_with_advice(smi):
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    smi.set(fails={"--query-gpu=" + ",".join(nvidia_smi.FIELDS): said})
    with pytest.raises(BenchError, match="communicate with the NVIDIA driver") as e:
        status.status()
    assert "is the driver loaded" in e.value.hint


@pytest.mark.usefixtures("smi")
def test_a_program_that_may_not_be_run_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "bin" / "nvidia-smi").chmod(stat.S_IRUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BenchError, match="cannot be run: Permission denied"):
        status.status()


def test_processes_may_have_commas_in_their_names(smi):
    smi.set(processes=[[11, "python, -m, train"], [12, "[Not Found]"]])
    found = status.status()
    assert [(p.pid, p.name, p.memory_mib) for p in found.processes] == [
        (11, "python, -m, train", 1024),
        (12, "[Not Found]", 1024),
    ]


def test_a_warning_of_the_driver_is_not_a_card(smi):
    smi.set(warns="WARNING: infoROM is corrupted at gpu 0000:01:00.0\n")
    assert [c.name for c in nvidia_smi.gpus()] == ["NVIDIA H200"]


def test_what_stops_a_mode_is_told(smi, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    smi.set(processes=[[11, "python"]], compute="Exclusive_Process")
    why = modes(status.status())
    assert why["exclusive"] == "processes are running: 11"
    assert why["time-slicing"] == "compute mode is Exclusive_Process"
    assert why["mig"] == "only root can change MIG; processes are running on GPU 0: 11 (python)"


def test_a_free_card_with_all_that_is_needed_can_be_shared_in_every_mode(smi, mps, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    why = modes(status.status())
    assert why.pop("green-contexts") in ("", "torch is not installed")
    assert set(why.values()) == {""}


def test_a_card_without_mig_is_told_in_few_words(smi):
    smi.set(mig="[N/A]", pending="[N/A]")
    assert modes(status.status())["mig"] == "not supported by this GPU"


def test_instances_that_may_not_be_listed_do_not_end_the_status(smi):
    smi.set(mig="Enabled", pending="Enabled", fails={"-lgi": "Insufficient Permissions"})
    assert "Insufficient Permissions" in modes(status.status())["mig"]


@pytest.mark.usefixtures("smi")
def test_a_daemon_is_told_with_its_limits_and_clients(mps):
    (mps / "clients").write_text("11\n12\n")
    mps_daemon.start(percent=40)
    try:
        (one,) = status.status().daemons
        assert (one.whose, one.answers, one.percent) == ("started by fleetlab", True, 40.0)
        assert one.servers == {4242: [11, 12]}
    finally:
        mps_daemon.stop(anyway=True)
    assert status.status().daemons == []


@pytest.mark.usefixtures("smi")
def test_daemons_of_the_environment_and_the_default_are_found_once_each(mps, monkeypatch, tmp_path):
    mps_daemon.start()
    pipe = mps_daemon.mps_record()["pipe"]
    (tmp_path / "default").symlink_to(pipe)  # two names of one daemon
    with monkeypatch.context() as m:
        m.setenv("CUDA_MPS_PIPE_DIRECTORY", pipe)
        assert [d.whose for d in status.daemons()] == ["started by fleetlab"]
        m.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # as somebody else would see it
        assert [d.whose for d in status.daemons()] == ["from the environment"]
        m.delenv("CUDA_MPS_PIPE_DIRECTORY")
        assert [d.whose for d in status.daemons()] == ["default"]
    mps_daemon.stop()
