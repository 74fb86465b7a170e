"""A suite that is killed leaves the GPU as it was found: against stand-ins for NVIDIA's programs."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from benchmarks.kill_suite import PLAN, Suite, kill_often, kill_when, whole_run

from fleetlab.sharing import leftovers, locks, records
from fleetlab.sharing.mps_guard import process_state

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
from fleetlab.devices.nvidia_smi import run_smi
from fleetlab.sharing import locks
run_smi("-i", "0", "-mig", "1", hold=(locks.take(Path({str(tmp_path / "lock")!r})),))"""
    run = subprocess.Popen([sys.executable, "-c", code])
    while not told(smi, "-mig")(0.0):
        time.sleep(0.02)
    run.kill()
    run.wait()
    assert locks.take(tmp_path / "lock") is None
    lock = locks.take(tmp_path / "lock", within=60)
    assert smi["mig"] == "Enabled"  # it was still at work
    os.close(lock)


def test_a_guard_that_is_killed_too_leaves_it_to_the_next_run(smi, suite, card, own):
    """The journal of a run whose guard is gone: as `apply` writes it, with its lock free."""
    smi.set(mig="Enabled", pending="Enabled", instances=[["3g.71gb", 1, 4, 4]])
    before = {"gpu": 0, "uuid": smi["uuid"], "mig": "Disabled", "layout": "3g.71gb", "temporary": True}
    records.write("mig-0", before | {"places": ["3g.71gb:4"]})
    said = []
    leftovers.restore(progress=said.append)
    assert card() == {"card": ["Disabled", "Disabled", []], "journal": []}
    assert "a run was killed" in said[0]


def test_a_layout_that_somebody_meant_to_stay_is_not_a_leftover(smi):
    smi.set(mig="Enabled", pending="Enabled", instances=[["3g.71gb", 1, 4, 4]])
    about = {"gpu": 0, "uuid": smi["uuid"], "mig": "Disabled", "layout": "3g.71gb", "places": ["3g.71gb:4"]}
    records.write("mig-0", about | {"temporary": False})
    leftovers.restore(progress=print)
    assert smi.changes == []


@pytest.mark.validate
def test_ten_kills_at_random_moments_leave_a_partitioned_card_as_it_was(suite, card):
    found = kill_often(replace(suite, out=suite.out.parent), card, kills=10, seed=1)
    assert found["clean"], found


# --- MPS -------------------------------------------------------------------------------------------------------------


def test_killed_while_mps_starts_no_daemon_is_left(mps, tmp_path):
    """The program that starts the daemon goes on when the suite is killed: its guard waits for that."""
    program = mps / "bin" / "nvidia-cuda-mps-control"
    slow = 'if sys.argv[1:] == ["-d"]:\n    Path({!r}).touch(); time.sleep(5)'.format(str(mps / "launching"))
    program.write_text(program.read_text().replace('if sys.argv[1:] == ["-d"]:', slow))
    suite = suite_of(tmp_path, "mps")
    found = kill_when(suite, lambda _: (mps / "launching").exists(), dict)
    assert found.clean, found
    assert (mps / "daemon").exists()  # it was started, after the suite was gone


def test_the_next_run_waits_for_the_guard_of_a_killed_one(mps, tmp_path, own):
    """Removed while the daemon was being started, its directory took the only way to stop the daemon with it."""
    program = mps / "bin" / "nvidia-cuda-mps-control"
    slow = 'if sys.argv[1:] == ["-d"]:\n    Path({!r}).touch(); time.sleep(3)'.format(str(mps / "launching"))
    program.write_text(program.read_text().replace('if sys.argv[1:] == ["-d"]:', slow))
    run = suite_of(tmp_path, "mps")
    run.out.parent.mkdir(parents=True)
    killed = run.start("next-run")
    while not (mps / "launching").exists():
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    leftovers.restore(progress=print)
    daemon = int((mps / "daemon").read_text())  # it was started, after the suite was gone
    assert process_state(daemon) in ("", "Z")


def test_directories_of_a_killed_run_are_removed_by_the_next(mps, tmp_path):
    suite = suite_of(tmp_path, "mps")
    kill_when(suite, lambda _: (mps / "daemon").exists(), dict)
    left = leftovers.mps_homes()  # other tests may kill runs of their own meanwhile
    assert left
    leftovers.restore(progress=print)
    assert not any(home.exists() for home in left)


@pytest.mark.validate
def test_ten_kills_at_random_moments_leave_no_mps(mps, tmp_path):
    suite = suite_of(tmp_path, "mps")
    found = kill_often(replace(suite, out=suite.out.parent), dict, kills=10, seed=1)
    assert found["clean"], found


@pytest.mark.validate
def test_a_run_that_is_not_killed_leaves_nothing_either(suite, card):
    before = card()
    whole_run(suite)
    assert card() == before
