"""Tenants, modes and runs that fall: what was measured stays, what goes on goes on."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetlab.gpu.bench.plans import BenchCell, Seat
from fleetlab.gpu.bench.run import RunFolder, SuiteRun
from fleetlab.gpu.bench.workers import pool
from fleetlab.gpu.devices.console import BenchError

from .conftest import alone, pair, plan, run

pytestmark = pytest.mark.usefixtures("works")


def test_a_tenant_out_of_memory_is_a_record_and_the_others_go_on(tmp_path):
    cells = [pair("steady", "hungry"), alone("steady")]
    _, told, _ = run(plan(cells, steady={}, hungry={"after": 10}), tmp_path / "out")
    assert told[0]["status"] == "failed"
    assert told[0]["failures"][0]["kind"] == "out-of-memory"
    assert told[0]["tenants"][0]["rate"] > 0
    assert told[1]["status"] == "ok"


def test_a_tenant_that_cannot_load_fails_its_cells_alone(tmp_path):
    cells = [alone("hungry"), alone("steady")]
    _, told, _ = run(plan(cells, steady={}, hungry={}), tmp_path / "out")
    assert [c["status"] for c in told] == ["failed", "ok"]
    assert told[0]["failures"][0]["kind"] == "out-of-memory"


def test_a_killed_worker_is_a_record_and_is_replaced(tmp_path):
    cells = [pair("steady", "doomed"), alone("doomed"), alone("steady")]
    _, told, _ = run(plan(cells, steady={}, doomed={"mark": str(tmp_path / "dead")}), tmp_path / "out")
    assert [c["status"] for c in told] == ["failed", "ok", "ok"]
    assert told[0]["failures"][0]["kind"] == "died"
    assert "signal 9" in told[0]["failures"][0]["detail"]
    assert told[0]["tenants"][0]["tenant"] == "steady"


@pytest.mark.slow
def test_a_tenant_that_hangs_is_a_record_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "GRACE", 6.0)  # that long the test does nothing but wait
    _, told, _ = run(plan([pair("steady", "stuck"), alone("steady")], steady={}, stuck={}), tmp_path / "out")
    assert [c["status"] for c in told] == ["failed", "ok"]
    assert told[0]["failures"][0]["kind"] == "hung"
    assert told[0]["tenants"][0]["rate"] > 0


def on_a_card(plan, out):
    """Not a rehearsal: the mode is switched on, though the tenants run on the CPU."""
    said = []
    SuiteRun(plan, out, limit=100, device="cpu", progress=said.append).run()
    return [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()], said


@pytest.mark.usefixtures("deaf_mps")
def test_a_mode_that_does_not_start_fails_its_stage_and_the_next_goes_on(tmp_path):
    cells = [alone("steady"), BenchCell("turns", "time-slicing", 0, (Seat("steady"),))]
    told, _ = on_a_card(plan(cells, steady={}), tmp_path / "out")
    assert [c["status"] for c in told] == ["failed", "ok"]
    assert told[0]["failures"][0]["kind"] == "mode"


@pytest.mark.slow
def test_a_client_that_is_not_listed_is_said_to_be_apart(mps):
    told, said = on_a_card(plan([alone("steady")], steady={}), mps / "out")
    assert told[0]["tenants"][0]["attached"] is False
    assert any("NOT ATTACHED" in line for line in said)


@pytest.mark.slow
@pytest.mark.usefixtures("mps")
def test_a_share_reaches_the_worker(tmp_path, works):
    works.write_text(
        works.read_text() + "\n@dataclass\nclass Asker(Steady):\n"
        "    def setup(self, device):\n        self.how = os.environ.get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE')\n"
    )
    told, _ = on_a_card(plan([alone("asker", percent=25)], asker={}), tmp_path / "out")
    assert told[0]["tenants"][0]["how"] == "25"
    assert told[0]["cell"] == "all/0/asker@25"


def test_a_machine_without_a_gpu_says_so_before_anything_starts(tmp_path):
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is one here")
    with pytest.raises(BenchError, match="no NVIDIA GPU"):
        SuiteRun(plan([alone("steady")], steady={}), tmp_path / "out", limit=100, progress=print).run()


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_run_leaves_no_worker_and_keeps_its_cells(tmp_path, blow):
    (tmp_path / "two.toml").write_text(
        '[suite]\nblocks = 99\n[tenant.a]\nworkload = "launch"\n[tenant.b]\nworkload = "gemm"\n'
    )
    words = [sys.executable, "-m", "fleetlab.gpu.bench.run", str(tmp_path / "two.toml"), "--rehearse", "--out"]
    words.append(str(tmp_path / "out"))
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as runner:
        for line in runner.stderr:
            if "/0/" in line:
                break
        workers = _children(runner.pid)
        runner.send_signal(blow)
        rest = runner.stderr.read()
        assert runner.wait() == (130 if blow == signal.SIGTERM else -9)
    assert ("stopped" in rest) == (blow == signal.SIGTERM)
    assert len(workers) == 4
    assert len(RunFolder(tmp_path / "out").finished()) >= 1
    for _ in range(50):  # orphans finish their cell first
        if not any(map(_alive, workers)):
            return
        time.sleep(0.1)
    pytest.fail("a worker outlived its run")


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]
