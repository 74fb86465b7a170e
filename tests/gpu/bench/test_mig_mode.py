"""MIG as a mode: allowed twice, partitioned, proved and undone, through the stand-in for `nvidia-smi`."""

import json
import os
import sys

import pytest

from fleetlab.gpu.bench.plan_file import read_plan
from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant, mig_cells, mig_plan
from fleetlab.gpu.bench.run import SuiteRun
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.mig.layouts import mig_gpu
from fleetlab.gpu.sharing.mig.mode import Mig, MigPart, differences, guarded, lock_path, permitted_gpu
from fleetlab.gpu.sharing.modes import shared
from fleetlab.gpu.sharing.mps import Share, Worker
from fleetlab.gpu.sharing.status import suite_modes

pytestmark = pytest.mark.usefixtures("own")
TWO = "mig:2x3g.71gb"


@pytest.fixture
def allowed(smi, monkeypatch):
    """The GPU is named in the environment, by root."""
    monkeypatch.setenv("FLEETLAB_ALLOW_MIG", smi["uuid"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return smi


def as_it_was(smi):
    return not smi["instances"] and smi["mig"] == smi["pending"] == "Disabled" and records.names("mig-") == []


# --- permission ------------------------------------------------------------------------------------------------------


def test_the_option_alone_does_not_allow_it(smi):
    with pytest.raises(BenchError, match="needs the UUID of the GPU in FLEETLAB_ALLOW_MIG") as e:
        permitted_gpu(allow=True)
    assert smi["uuid"] in e.value.hint


def test_the_environment_alone_does_not_allow_it(allowed):
    with pytest.raises(BenchError, match="needs the option --allow-mig"):
        permitted_gpu(allow=False)


def test_the_uuid_of_another_gpu_does_not_allow_it(smi, monkeypatch):
    monkeypatch.setenv("FLEETLAB_ALLOW_MIG", "GPU-other")
    with pytest.raises(BenchError, match="not `GPU-other`"):
        permitted_gpu(allow=True)


def test_without_permission_nothing_is_changed(smi):
    with pytest.raises(BenchError, match="is not allowed"), shared(TWO):
        pass
    assert smi.changes == []


def test_what_a_card_allows_is_told_with_reasons(smi, mps):
    found = {mode.name: mode for mode in suite_modes()}
    assert [name for name, mode in found.items() if mode.possible] == ["time-slicing", "mps"]
    assert "it needs the option --allow-mig and the UUID of the GPU" in found["mig"].why


def test_what_is_allowed_twice_is_possible(allowed):
    assert next(mode for mode in suite_modes(allow_mig=True) if mode.name == "mig").possible


def test_a_machine_without_a_gpu_allows_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert {(mode.possible, "no NVIDIA GPU" in mode.why) for mode in suite_modes()} == {(False, True)}


# --- the mode --------------------------------------------------------------------------------------------------------


def test_a_card_is_partitioned_for_a_block_and_put_back(allowed):
    with shared(TWO, allow_mig=True, progress=lambda _: None):
        assert [i[0] for i in allowed["instances"]] == ["3g.71gb", "3g.71gb"]
    assert as_it_was(allowed)


def test_a_card_is_put_back_after_an_error(allowed):
    with pytest.raises(RuntimeError), shared(TWO, allow_mig=True, progress=lambda _: None):
        raise RuntimeError
    assert as_it_was(allowed)


def test_tenants_see_the_instances_in_the_order_of_the_layout(allowed):
    with shared("mig:1g.18gb,4g.71gb,1g.18gb", allow_mig=True, progress=lambda _: None) as mode:
        seen = [mode.environment(Share(instance=k))["CUDA_VISIBLE_DEVICES"] for k in range(3)]
        names = {f"MIG-{i[1]}": i[0] for i in allowed["instances"]}
    assert [names[uuid] for uuid in seen] == ["1g.18gb", "4g.71gb", "1g.18gb"]
    assert len(set(seen)) == 3


def test_an_instance_that_the_layout_does_not_have_is_refused(allowed):
    with (
        shared(TWO, allow_mig=True, progress=lambda _: None) as mode,
        pytest.raises(BenchError, match="no instance 2: the layout has 2"),
    ):
        mode.environment(Share(instance=2))


@pytest.mark.parametrize(
    ("mode", "why"), [("mig:8x1g.18gb", "at most 7"), ("mig:5g.20gb", "no profile"), ("mig:", "not a layout")]
)
def test_a_layout_that_cannot_be_changes_nothing(allowed, mode, why):
    with pytest.raises(BenchError, match=why), shared(mode, allow_mig=True):
        pass
    assert allowed.changes == []


def test_two_runs_do_not_partition_one_card(allowed):
    with (
        guarded(0),
        pytest.raises(BenchError, match="another run has partitioned GPU 0"),
        shared(TWO, allow_mig=True, progress=print),
    ):
        pass
    assert allowed.changes == []


def test_a_process_that_is_not_gone_at_once_is_waited_for(allowed, tmp_path):
    said = []
    with shared(TWO, allow_mig=True, progress=said.append):
        allowed.set(processes=[[4711, "python"]])
        # It is listed once more, and gone at the second look.
        allowed.set(leaves=2)
    assert as_it_was(allowed)


def test_the_lock_is_free_after_the_block(allowed):
    with shared(TWO, allow_mig=True, progress=lambda _: None):
        pass
    with guarded(0):
        assert lock_path(0).exists()


# --- proof -----------------------------------------------------------------------------------------------------------

PART = MigPart(mig_gpu("H200").profile("3g.71gb"), "MIG-7")
RIGHT = {"pid": 1, "visible": "MIG-7", "sms": 60, "card_mib": 71_000}


def test_a_process_that_sees_its_instance_is_proved():
    assert differences(PART, RIGHT) == ""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"visible": "MIG-8"}, "CUDA_VISIBLE_DEVICES is MIG-8, not MIG-7"),
        ({"sms": 132}, "132 SMs, not 60"),
        ({"card_mib": 143_155}, "143155 MiB, not 71424"),
    ],
)
def test_a_process_that_sees_something_else_is_told(wrong, why):
    mode = Mig(None, [PART])
    assert mode.verify([Worker(Share(instance=0), RIGHT | wrong)]) == {1: why}


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_mix_takes_the_instances_in_order_and_each_tenant_is_alone_on_each_profile():
    cells = mig_cells("mig:3g.71gb,2g.35gb,2g.35gb", [("a", "b"), ("b", "a"), ("a", "b", "b")])
    names = sorted(cell.name.rpartition("/")[2] for cell in cells)
    assert names == ["a#0", "a#0+b#1", "a#0+b#1+b#2", "a#1", "b#0", "b#0+a#1", "b#1"]


def test_more_tenants_than_instances_are_refused():
    with pytest.raises(BenchError, match="3 tenants, but the layout has 2 instances"):
        mig_cells(TWO, [("a", "b", "c")])


def test_a_plan_file_names_layouts_among_its_modes(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[suite]\nmodes = ["mps", "mig:2x3g.20gb"]\nblocks = 1\n[tenant.a]\nworkload = "launch"\n')
    plan = read_plan(path)
    assert [stage[0].mode for stage in plan.stages()] == ["mps", "mig:2x3g.20gb"]
    assert plan.cells[-1].seats[0].share.instance is not None


def test_the_plan_of_a_card_has_every_profile_of_it_and_what_predicts_it(smi):
    stages = [stage[0].mode for stage in mig_plan().stages()]
    assert stages == ["time-slicing", "mps", "mps"] + [
        f"mig:{n}" for n in ("7x1g.18gb", "4x1g.35gb", "3x2g.35gb", "2x3g.71gb", "1x4g.71gb", "1x7g.141gb")
    ]


# --- the suite -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_suite_measures_on_instances_proves_it_and_puts_the_card_back(allowed, tmp_path, works):
    tenants = {"steady": Tenant("mine:Steady")}
    cells = (
        BenchCell(TWO, TWO, 0, (Seat("steady", share=Share(instance=0)),)),
        BenchCell(TWO, TWO, 0, (Seat("steady", share=Share(instance=0)), Seat("steady", 1, Share(instance=1)))),
    )
    plan = SuitePlan("small", tenants, cells, settle=0.05, window=0.15)
    SuiteRun(plan, tmp_path / "out", limit=100, device="cpu", allow_mig=True, progress=lambda _: None).run()
    measured = [json.loads(line) for line in (tmp_path / "out" / "cells.jsonl").read_text().splitlines()]
    assert [c["status"] for c in measured] == ["ok", "ok"]
    assert [t["visible"] for t in measured[1]["tenants"]] == ["MIG-1", "MIG-2"]
    assert all(t["attached"] for c in measured for t in c["tenants"])
    stage = json.loads((tmp_path / "out" / "manifest.json").read_text())["stages"][0]
    assert [part["profile"] for part in stage["mig"]["instances"]] == ["3g.71gb", "3g.71gb"]
    assert as_it_was(allowed)


COUNTS = """
import os, sys, time
from pathlib import Path
from fleetlab.gpu import step
Path(sys.argv[1]).joinpath(f"seen-{os.getpid()}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
while True:
    time.sleep(0.002)
    step()
"""
FUNCTION = "import os\nseen = os.environ['CUDA_VISIBLE_DEVICES']\ndef count(): return 1 if seen == 'MIG-2' else 1000\n"


@pytest.mark.slow
def test_own_work_sees_the_instance_of_its_seat_and_the_card_is_put_back(allowed, tmp_path, monkeypatch):
    """A command on the first instance, a callable on the second: each program itself says what it sees."""
    (tmp_path / "my_train.py").write_text(COUNTS)
    (tmp_path / "my_function.py").write_text(FUNCTION)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    command = f"{sys.executable} {tmp_path / 'my_train.py'} {tmp_path}"
    tenants = {
        "mine": Tenant("command", {"command": command}),
        "called": Tenant("callable", {"callable": "my_function:count"}),
    }
    seats = (Seat("mine", share=Share(instance=0)), Seat("called", share=Share(instance=1)))
    plan = SuitePlan("own", tenants, (BenchCell(TWO, TWO, 0, seats),), settle=0.1, window=0.3)
    SuiteRun(plan, tmp_path / "out", limit=100, device="cpu", allow_mig=True, progress=lambda _: None).run()
    (cell,) = [json.loads(line) for line in (tmp_path / "out" / "cells.jsonl").read_text().splitlines()]
    assert cell["status"] == "ok"
    assert [path.read_text() for path in tmp_path.glob("seen-*")] == ["MIG-1"]
    mine, called = sorted(cell["tenants"], key=lambda t: t["tenant"] == "called")
    assert called["items"] == called["steps"]  # of a thousand each, if it saw another instance
    assert [t["visible"] for t in (mine, called)] == ["MIG-1", "MIG-2"]
    assert all(t["attached"] for t in (mine, called))
    assert as_it_was(allowed)


@pytest.mark.slow
def test_own_work_that_ends_early_on_an_instance_leaves_the_card_as_it_was(allowed, tmp_path):
    tenants = {"bad": Tenant("command", {"command": f"{sys.executable} -c 'raise SystemExit(5)'"})}
    cells = (BenchCell(TWO, TWO, 0, (Seat("bad", share=Share(instance=0)),)),)
    plan = SuitePlan("own", tenants, cells, settle=0.05, window=0.15)
    SuiteRun(plan, tmp_path / "out", limit=100, device="cpu", allow_mig=True, progress=lambda _: None).run()
    (cell,) = [json.loads(line) for line in (tmp_path / "out" / "cells.jsonl").read_text().splitlines()]
    assert (cell["status"], cell["failures"][0]["seat"]) == ("failed", "bad#0")
    assert as_it_was(allowed)


def test_a_suite_that_may_not_says_why_and_goes_on(smi, tmp_path, works):
    plan = SuitePlan(
        "small",
        {"steady": Tenant("mine:Steady")},
        (BenchCell(TWO, TWO, 0, (Seat("steady", share=Share(instance=0)),)),),
        settle=0.05,
        window=0.15,
    )
    said = []
    SuiteRun(plan, tmp_path / "out", limit=100, device="cpu", progress=said.append).run()
    assert any("partitioning a GPU is not allowed" in line for line in said)
    assert smi.changes == []


def test_the_plan_of_a_gpu_elsewhere_has_its_layouts_and_fits_the_screen(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = command("bench", "mig", "plan", "--model", "H200")
    assert done.returncode == 0
    assert "mig:7x1g.18gb" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[1:])
    assert command("bench", "mig", "plan", "--model", "T4").returncode == 2
