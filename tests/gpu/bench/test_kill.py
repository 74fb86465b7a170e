"""A suite that is killed leaves the GPU as it was found: against stand-ins for NVIDIA's programs."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.kill_suite import PLAN, Suite, card_state, kill_often, kill_when, unclean, whole_run

from fleetlab.gpu.sharing import modes, records
from fleetlab.gpu.sharing.mps_guard import process_state

pytestmark = [
    pytest.mark.usefixtures("works", "own"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can partition a GPU"),
]
LAYOUT = "mig:3g.71gb,2g.35gb,2g.35gb"


@pytest.fixture
def suite(smi, tmp_path, monkeypatch):
    """A suite of two tenants on a partitioned stand-in, which takes its time."""
    smi.set(slow=0.15)
    monkeypatch.setenv("FLEETLAB_ALLOW_MIG", smi["uuid"])
    return suite_of(tmp_path, LAYOUT, "--allow-mig")


def suite_of(folder, mode, *options):
    plan = folder / "killed.toml"
    plan.write_text(PLAN.format(mode=mode, work="mine:Steady"))
    return Suite(plan, folder / "out" / "run", ("--device", "cpu", *options))


@pytest.fixture
def card(smi):
    """What must be as before: the card, and the journal of changes."""
    return lambda: {"card": [smi[key] for key in ("mig", "pending", "instances")], "journal": records.names("mig-")}


def told(smi, word):
    return lambda _: any(word in line.split() for line in smi["log"])


def test_killed_while_mig_is_switched_on_the_card_is_as_before(smi, suite, card):
    found = kill_when(suite, told(smi, "-mig"), card)
    assert found.clean, found
    assert smi.changes[-1] == "-i 0 -mig 0"


def test_killed_with_its_children_while_instances_are_created_none_is_left(smi, suite, card):
    found = kill_when(suite, lambda _: len(smi["instances"]) == 1, card, group=True)
    assert found.clean, found
    assert any("-dgi" in line for line in smi.changes)


def test_killed_while_tenants_load_nothing_is_left(smi, suite, card):
    loading = lambda _: len(smi["instances"]) == 3 and (suite.out / "manifest.json").exists()  # noqa: E731
    found = kill_when(suite, lambda t: loading(t) and time.sleep(0.3) is None, card)
    assert found.clean, found
    assert found.cells == 0


def test_a_lock_is_held_by_nvidia_smi_after_its_run_was_killed(smi, tmp_path):
    """So nothing is created after the guard has looked."""
    smi.set(slow=5.0)
    code = f"""from pathlib import Path
from fleetlab.gpu.devices.nvidia_smi import run_smi
from fleetlab.gpu.sharing import records
run_smi("-i", "0", "-mig", "1", hold=(records.lock_file(Path({str(tmp_path / "lock")!r})),))"""
    run = subprocess.Popen([sys.executable, "-c", code])
    while not told(smi, "-mig")(0.0):
        time.sleep(0.02)
    run.kill()
    run.wait()
    assert records.lock_file(tmp_path / "lock") is None
    lock = records.lock_file(tmp_path / "lock", within=60)
    assert smi["mig"] == "Enabled"  # it was still at work
    os.close(lock)


def test_a_guard_that_is_killed_too_leaves_it_to_the_next_run(smi, suite, card, own):
    """The journal of a run whose guard is gone: as `apply` writes it, with its lock free."""
    smi.set(mig="Enabled", pending="Enabled", instances=[["3g.71gb", 1, 4, 4]])
    before = {"gpu": 0, "uuid": smi["uuid"], "mig": "Disabled", "layout": "3g.71gb", "temporary": True}
    records.write("mig-0", before | {"places": ["3g.71gb:4"]})
    said = []
    modes.restore(progress=said.append)
    assert card() == {"card": ["Disabled", "Disabled", []], "journal": []}
    assert "a run was killed" in said[0]


def test_a_layout_that_somebody_meant_to_stay_is_not_a_leftover(smi):
    smi.set(mig="Enabled", pending="Enabled", instances=[["3g.71gb", 1, 4, 4]])
    about = {"gpu": 0, "uuid": smi["uuid"], "mig": "Disabled", "layout": "3g.71gb", "places": ["3g.71gb:4"]}
    records.write("mig-0", about | {"temporary": False})
    modes.restore(progress=print)
    assert smi.changes == []


@pytest.mark.validate
def test_ten_kills_at_random_moments_leave_a_partitioned_card_as_it_was(suite, card):
    found = kill_often(replace(suite, out=suite.out.parent), card, kills=10, seed=1)
    assert found["clean"], unclean(found)


# --- MPS -------------------------------------------------------------------------------------------------------------


def test_killed_while_mps_starts_no_daemon_is_left(mps, tmp_path):
    """The program that starts the daemon goes on when the suite is killed: its guard waits for that."""
    (mps / "slow-start").write_text("5")
    suite = suite_of(tmp_path, "mps")
    found = kill_when(suite, lambda _: (mps / "launching").exists(), dict)
    assert found.clean, found
    assert (mps / "daemon").exists()  # it was started, after the suite was gone


def test_the_next_run_waits_for_the_guard_of_a_killed_one(mps, tmp_path):
    """Removed while the daemon was being started, its directory took the only way to stop the daemon with it."""
    (mps / "slow-start").write_text("3")
    run = started(mps, tmp_path, "launching")
    run.kill()
    run.wait()
    modes.restore(progress=print)
    assert ended(mps / "daemon")  # it was started, after the suite was gone


def test_a_daemon_and_a_server_that_take_seconds_to_end_are_waited_for(mps, tmp_path):
    (mps / "slow-start").write_text("1.5")
    (mps / "slow-quit").write_text("2.5")
    (mps / "server").write_text("1.5")
    found = kill_when(suite_of(tmp_path, "mps"), lambda _: (mps / "server-id").exists(), dict)
    assert found.clean, found


def test_a_server_that_hears_no_signal_is_killed(mps, tmp_path):
    """A client that is killed within a kernel may leave its server in an undefined state, NVIDIA's manual says."""
    (mps / "server").write_text("deaf")
    found = kill_when(suite_of(tmp_path, "mps"), lambda _: (mps / "server-id").exists(), dict)
    assert found.clean, found


def test_no_lock_is_inherited_by_the_daemon(mps, tmp_path):
    """It closes nothing that it inherits, and would hold a lock for as long as it lives."""
    run = started(mps, tmp_path, "daemon")
    guard = next(Path("/proc").glob(f"{run.pid}/task/{run.pid}/children")).read_text().split()
    guard = [int(pid) for pid in guard if b"mps_guard" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    for pid in (*guard, run.pid):
        os.kill(pid, signal.SIGKILL)
    run.wait()
    began = time.monotonic()
    modes.restore(progress=print)
    assert guard
    assert ended(mps / "daemon")
    assert time.monotonic() - began < 30  # a lock that is held is waited for longer


def test_a_process_that_has_the_id_of_a_daemon_by_now_is_let_live(mps, tmp_path):
    bystander = subprocess.Popen(["sleep", "100"])
    home = Path(tempfile.mkdtemp(prefix=modes.HOMES, dir="/tmp"))
    (home / modes.LOCK).touch()
    (home / "pipe").mkdir()
    (home / "pipe" / "nvidia-cuda-mps-control.pid").write_text(str(bystander.pid))
    modes.restore(progress=print)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_daemon_that_has_ended_and_is_not_reaped_holds_nothing():
    """Where nobody reaps orphans, as in a container, each stays in the list of processes."""
    code = "from pathlib import Path; Path('/proc/self/comm').write_text('nvidia-cuda-mps-control')"
    zombie = subprocess.Popen([sys.executable, "-c", code])
    while process_state(zombie.pid) != "Z":
        time.sleep(0.01)
    assert str(zombie.pid) not in card_state()["mps"]
    zombie.wait()


def test_what_nvidia_smi_still_lists_at_the_start_is_not_missed_at_the_end(smi, tmp_path):
    """It lists a process for some seconds after its end: that of a run before."""
    smi.set(processes=[[4711, "nvidia-cuda-mps-server"]], leaves=2)
    (tmp_path / "plan").write_text("")
    found = kill_when(Suite(tmp_path / "plan", tmp_path / "out" / "run"), lambda _: False, card_state)
    assert smi["processes"] == []
    assert found.clean, found


def started(mps, folder, file):
    """A suite under MPS that has got so far."""
    run = suite_of(folder, "mps")
    run.out.parent.mkdir(parents=True)
    process = run.start("so-far")
    while not (mps / file).exists():
        assert process.poll() is None, run.out.with_suffix(".log").read_text()
        time.sleep(0.01)
    return process


def ended(file):
    return process_state(int(file.read_text())) in ("", "Z")


def test_directories_of_a_killed_run_are_removed_by_the_next(mps, tmp_path):
    suite = suite_of(tmp_path, "mps")
    kill_when(suite, lambda _: (mps / "daemon").exists(), dict)
    left = modes.mps_homes()  # other tests may kill runs of their own meanwhile
    assert left
    modes.restore(progress=print)
    assert not any(home.exists() for home in left)


@pytest.mark.validate
def test_ten_kills_at_random_moments_leave_no_mps(mps, tmp_path):
    """With a server, and slow as on an H200."""
    for name in ("slow-start", "slow-quit", "server"):
        (mps / name).write_text("1")
    suite = suite_of(tmp_path, "mps")
    found = kill_often(replace(suite, out=suite.out.parent), dict, kills=10, seed=1)
    assert found["clean"], unclean(found)


@pytest.mark.validate
def test_a_run_that_is_not_killed_leaves_nothing_either(suite, card):
    before = card()
    whole_run(suite)
    assert card() == before
