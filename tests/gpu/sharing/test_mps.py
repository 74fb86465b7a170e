"""An MPS that stays until it is stopped, and commands run in a mode that is put back."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import mps as mps_daemon
from fleetlab.gpu.sharing import records, run_command
from fleetlab.gpu.sharing.modes import CONTROL, Share

pytestmark = pytest.mark.usefixtures("own")
# Comes as a client, and stays until the list of clients was asked for, and a while, lest it be gone when looked for.
CLIENT = """import os, sys, time; from pathlib import Path
home = Path(sys.argv[1]); (home / "clients").write_text(str(os.getpid()))
for patience in (100, 3):
    (home / "asked").unlink(missing_ok=True)
    end = time.monotonic() + patience
    while not (home / "asked").exists() and time.monotonic() < end: time.sleep(0.02)"""


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def daemon(mps):
    """The id of the daemon last started, which ends with the test whatever happens."""

    def pid():
        return int((mps / "daemon").read_text())

    yield pid
    if (mps / "daemon").exists() and alive(pid()):
        os.kill(pid(), signal.SIGKILL)


# --- one that stays --------------------------------------------------------------------------------------------------


def test_a_daemon_outlives_its_start_and_is_gone_after_its_stop(daemon, own):
    code = "from fleetlab.gpu.sharing import mps; mps.start()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert alive(daemon())
    mps_daemon.stop()
    assert not alive(daemon())
    assert list(own.iterdir()) == []


def test_a_client_is_told_where_to_find_it(daemon):
    told = mps_daemon.start()
    assert told["CUDA_MPS_PIPE_DIRECTORY"] == mps_daemon.mps_record()["pipe"]
    assert Path(told["CUDA_MPS_PIPE_DIRECTORY"], "nvidia-cuda-mps-control.pid").read_text() == str(daemon())
    mps_daemon.stop()


def test_its_folder_is_ones_own(daemon, own):
    mps_daemon.start()
    assert own.stat().st_mode & 0o777 == 0o700
    assert Path(mps_daemon.mps_record()["pipe"]).stat().st_mode & 0o777 == 0o700
    mps_daemon.stop()


def test_limits_are_set_and_asked_back(daemon):
    pipe = Path(mps_daemon.start(percent=50, memory_mib=20000)["CUDA_MPS_PIPE_DIRECTORY"])
    assert (pipe / "percent").read_text() == "50.0"
    assert (pipe / "memory0").read_text() == "20000M"
    mps_daemon.stop()


@pytest.mark.parametrize("limit", [{"percent": 50}, {"memory_mib": 8192}])
def test_a_limit_that_is_not_taken_is_found_out_and_nothing_is_left(mps, daemon, own, limit):
    (mps / "stubborn").touch()
    with pytest.raises(BenchError, match="MPS did not accept"):
        mps_daemon.start(**limit)
    assert not alive(daemon())
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("limit", [{"percent": 0}, {"percent": 101}, {"memory_mib": 0}])
def test_a_limit_that_cannot_be_starts_nothing(mps, limit):
    with pytest.raises(BenchError):
        mps_daemon.start(**limit)
    assert not (mps / "daemon").exists()


@pytest.mark.parametrize(("told", "mib"), [("8G", 8192), ("19G", 20000), ("20000M", 20000)])
def test_drivers_say_memory_in_m_or_in_whole_g(told, mib):
    assert mps_daemon._same_memory(told, mib)
    assert not mps_daemon._same_memory(told, mib - 1025)
    assert not mps_daemon._same_memory("", mib)


def test_a_second_start_says_where_the_first_is(daemon):
    pipe = mps_daemon.start()["CUDA_MPS_PIPE_DIRECTORY"]
    first = daemon()
    with pytest.raises(BenchError, match=f"already: {pipe}"):
        mps_daemon.start()
    assert daemon() == first
    assert alive(first)
    mps_daemon.stop()


def test_one_that_died_is_forgotten_by_the_next_start(daemon):
    mps_daemon.start()
    first = daemon()
    os.kill(first, signal.SIGKILL)
    assert until(lambda: not alive(first))
    mps_daemon.start()
    assert daemon() != first
    mps_daemon.stop()


@pytest.mark.usefixtures("deaf_mps")
def test_a_program_that_starts_nothing_and_exits_0_is_found_out(own):
    with pytest.raises(BenchError, match="no daemon answers"):
        mps_daemon.start()
    assert list(own.iterdir()) == []


def test_without_a_control_program_there_is_no_mps(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BenchError, match="MPS is not available"):
        mps_daemon.start()


def test_a_pipe_of_ones_own_is_made_and_removed(daemon, own):
    pipe = own.parent / "mine"
    assert mps_daemon.start(pipe=pipe)["CUDA_MPS_PIPE_DIRECTORY"] == str(pipe)
    mps_daemon.stop()
    assert not pipe.exists()


def test_a_pipe_that_was_there_stays(daemon, own):
    pipe = own.parent / "mine"
    pipe.mkdir()
    mps_daemon.start(pipe=pipe)
    mps_daemon.stop()
    assert pipe.is_dir()


def test_a_pipe_that_may_be_somebodys_or_cannot_be_is_refused(mps, own):
    somebodys = own.parent / "theirs"
    somebodys.mkdir()
    (somebodys / "control").touch()
    for pipe, why in [
        (somebodys, "not an empty directory"),
        (own.parent / "no" / "where", "no such folder"),
        (Path("/tmp/" + "x" * 100), "too long"),
    ]:
        with pytest.raises(BenchError, match=why):
            mps_daemon.start(pipe=pipe)
    assert not (mps / "daemon").exists()


def test_clients_are_not_cut_off_unless_one_insists(mps, daemon):
    mps_daemon.start()
    (mps / "clients").write_text("11\n12\n")
    with pytest.raises(BenchError, match="MPS has clients: 11, 12"):
        mps_daemon.stop()
    assert alive(daemon())
    assert mps_daemon.stop(anyway=True) == [11, 12]
    assert not alive(daemon())


def test_a_daemon_that_does_not_answer_may_have_clients(mps, daemon):
    mps_daemon.start()
    working = (mps / "bin" / CONTROL).read_text()
    (mps / "bin" / CONTROL).write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(BenchError, match="are unknown"):
        mps_daemon.stop()
    assert alive(daemon())
    mps_daemon.stop(anyway=True)  # by its id, as it does not listen
    assert not alive(daemon())
    (mps / "bin" / CONTROL).write_text(working)


def test_where_nothing_was_started_nothing_is_stopped():
    with pytest.raises(BenchError, match="fleetlab started no MPS daemon"):
        mps_daemon.stop()


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_record_that_is_none_is_an_error(own, text):
    own.mkdir()
    (own / "mps").mkdir()
    (own / "mps" / "record.json").write_text(text)
    for verb in (mps_daemon.start, mps_daemon.stop):
        with pytest.raises(BenchError):
            verb()


def test_a_folder_that_others_may_write_to_is_not_trusted(own):
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(BenchError, match="only you can write to"):
        records.folder()


def test_a_folder_behind_a_link_is_not_trusted(own, tmp_path):
    own.symlink_to(tmp_path)
    with pytest.raises(BenchError, match="only you can write to"):
        records.folder()


# --- a command in a mode ---------------------------------------------------------------------------------------------


def test_a_command_under_mps_is_proved_and_mps_put_back(mps, daemon):
    said = []
    status = run_command.run_in_mode("mps", [sys.executable, "-c", CLIENT, str(mps)], progress=said.append)
    pid = (mps / "clients").read_text()
    assert (status, said) == (0, [f"ran under MPS: attached as {pid}"])
    assert not alive(daemon())


def test_a_child_of_the_command_is_proof_too(mps, daemon):
    said = []
    script = f"{sys.executable} -c '{CLIENT}' {mps}; true"  # not the shell itself
    run_command.run_in_mode("mps", ["sh", "-c", script], progress=said.append)
    assert said == [f"ran under MPS: attached as {(mps / 'clients').read_text()}"]


def test_what_is_not_proved_is_said(mps, daemon):
    said = []
    assert run_command.run_in_mode("mps", ["true"], progress=said.append) == 0
    assert said[0].startswith("not verified that it ran under MPS")


def test_a_command_sees_its_share(mps, daemon, tmp_path):
    script = f"env > {tmp_path / 'env'}"
    run_command.run_in_mode("mps", ["sh", "-c", script], share=Share(50, 8192, 1), progress=print)
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert seen["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert seen["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
    assert seen["CUDA_MPS_CLIENT_PRIORITY"] == "1"


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_the_status_is_the_commands_and_mps_is_put_back(mps, daemon, script, status):
    assert run_command.run_in_mode("mps", ["sh", "-c", script], progress=print) == status
    assert not alive(daemon())


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_mps_is_put_back_when_the_runner_is_ended(mps, daemon, tmp_path, blow):
    words = ["share", "run", "mps", "--", "sh", "-c", f"echo $$ > {tmp_path / 'pid'}; exec sleep 600"]
    starter = subprocess.Popen([sys.executable, "-m", "fleetlab.cli", *words], stderr=subprocess.DEVNULL)
    assert until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    command = int((tmp_path / "pid").read_text())
    starter.send_signal(blow)
    status = starter.wait(timeout=100)
    assert until(lambda: not alive(daemon()))
    if blow == signal.SIGKILL:  # nobody is left to end it
        os.kill(command, signal.SIGKILL)
    else:
        assert status == 128 + blow
        assert not alive(command)


def test_by_turns_a_command_cannot_find_a_daemon(tmp_path):
    run_command.run_in_mode(
        "time-slicing", ["sh", "-c", f"echo $CUDA_MPS_PIPE_DIRECTORY > {tmp_path / 'pipe'}"], progress=print
    )
    assert not Path((tmp_path / "pipe").read_text().strip()).exists()


def test_an_exclusive_card_is_one_that_nobody_uses(smi, tmp_path):
    smi.set(processes=[[4711, "python"]])
    with pytest.raises(BenchError, match=r"GPU 0 is in use: 4711 \(python\)"):
        run_command.run_in_mode("exclusive", ["touch", str(tmp_path / "ran")], progress=print)
    assert not (tmp_path / "ran").exists()
    assert smi.changes == []


VISITED = """import os, sys, time; from pathlib import Path
home = Path(sys.argv[1]); (home / "visitors").write_text(" ".join([*sys.argv[2:], str(os.getpid())]))
end = time.monotonic() + 100
while not (home / "looked").exists() and time.monotonic() < end: time.sleep(0.02)"""


@pytest.mark.parametrize("others", [[], [os.getpid()]])
@pytest.mark.usefixtures("smi")
def test_whoever_comes_to_an_exclusive_card_is_named(tmp_path, monkeypatch, others):
    monkeypatch.setitem(sys.modules, "pynvml", None)  # the stand-in is to be asked, not a GPU that may be here
    said = []
    command = [sys.executable, "-c", VISITED, str(tmp_path), *map(str, others)]
    assert run_command.run_in_mode("exclusive", command, progress=said.append) == 0
    assert said[0].startswith(
        f"NOT alone on GPU 0: processes {os.getpid()} used it too" if others else "alone on GPU 0"
    )


@pytest.mark.parametrize(
    ("mode", "command", "share", "why"),
    [
        ("magic", ["true"], Share(), "unknown sharing mode"),
        ("mps", [], Share(), "no command to run"),
        ("mps", ["/nonexistent/program"], Share(), "no such command"),
        ("time-slicing", ["true"], Share(50), "no limits per tenant"),
        ("exclusive", ["true"], Share(50), "no limits per tenant"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_switched_on(mps, mode, command, share, why):
    with pytest.raises(BenchError, match=why):
        run_command.run_in_mode(mode, command, share=share, progress=print)
    assert not (mps / "daemon").exists()


def test_a_program_that_is_none_is_an_error_and_mps_is_put_back(mps, daemon, tmp_path):
    (tmp_path / "odd").write_bytes(b"\x00\x01")
    (tmp_path / "odd").chmod(0o700)
    with pytest.raises(BenchError, match="cannot be run"):
        run_command.run_in_mode("mps", [str(tmp_path / "odd")], progress=print)
    assert not alive(daemon())


def test_a_machine_without_a_card_has_none_to_be_alone_on(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match="nvidia-smi is not installed"):
        run_command.run_in_mode("exclusive", [sys.executable, "-c", ""], progress=print)


def test_a_family_is_the_process_and_all_that_came_of_it():
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert run_command.process_tree(parent.pid) == {parent.pid, child}
        assert os.getpid() not in run_command.process_tree(parent.pid)
        os.kill(child, signal.SIGKILL)
