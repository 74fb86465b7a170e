"""Probes of isolation: rehearsed on the CPU with real processes, and with the stand-in for MPS."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.isolation.__main__ import main
from fleetlab.gpu.bench.isolation.probes import (
    FATAL,
    GOOD,
    KIND,
    REFUSED,
    WRONG,
    StepWriter,
    read_steps,
    summarize_steps,
)
from fleetlab.gpu.bench.isolation.run import cells, run_isolation
from fleetlab.gpu.bench.options import IsolationOptions
from fleetlab.gpu.bench.results.programs import isolation_result
from fleetlab.gpu.bench.run import RunFolder
from fleetlab.gpu.devices.console import BenchError


def quiet(line):
    pass


def options(out, **more):
    return IsolationOptions(out=out, **{"rehearse": True, "illegal_access": True} | more)


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    """All probes in a mode of processes and in one of threads: run once for all."""
    out = tmp_path_factory.mktemp("isolation") / "out"
    skipped = run_isolation(options(out, modes="time-slicing,streams"), progress=quiet)
    by = {(c["mode"], c["kind"]): c for c in map(json.loads, (out / "probes.jsonl").read_text().splitlines())}
    return out, skipped, by


def test_every_probe_is_made_in_every_mode(probed):
    out, skipped, by = probed
    assert not skipped
    assert [c["status"] for c in by.values()] == ["ok"] * 16
    assert RunFolder(out, "probes.jsonl").finished() == {
        cell.name for cell in cells(options(out, modes="time-slicing,streams"))
    }


@pytest.mark.parametrize("kind", ["kill", "hang", "assert", "illegal-access"])
def test_a_process_survives_the_fault_of_another(probed, kind):
    cell = probed[2]["time-slicing", kind]
    assert cell["neighbor"]["survived"]
    assert cell["neighbor"]["good_after"]
    assert cell["neighbor"]["after"]["wrong"] == 0
    assert cell["newcomer"]["good"]


def test_a_tenant_dies_of_what_it_is_asked_to_die_of(probed):
    ends = {kind: probed[2]["time-slicing", kind]["aggressor"] for kind in ("kill", "assert", "illegal-access")}
    assert ends["kill"]["exit"] == -9
    assert ends["illegal-access"]["exit"] == -11
    assert "assertion failed" in ends["assert"]["error"]


@pytest.mark.parametrize("kind", ["kill", "illegal-access"])
def test_a_thread_dies_with_the_process_of_its_neighbor_and_a_new_process_can_start(probed, kind):
    cell = probed[2]["streams", kind]
    assert not cell["neighbor"]["survived"]
    assert cell["neighbor"]["before"]["good"] > 0
    assert not cell["neighbor"]["good_after"]
    assert cell["newcomer"]["good"]


def test_the_tenant_that_allocates_is_refused_at_its_limit_and_others_are_not(probed):
    cell = probed[2]["time-slicing", "all"]
    assert cell["aggressor"]["refused"]
    assert cell["aggressor"]["held_mib"] < cell["aggressor"]["bound_mib"]
    assert cell["neighbor"]["during"]["refused"] == 0
    assert cell["newcomer_while_full"]["good"]


def test_every_stressor_is_measured_at_every_duty_between_two_runs_alone(probed):
    windows = probed[2]["time-slicing", "stressors"]["windows"]
    assert [w["stressor"] for w in (windows[0], windows[-1])] == ["", ""]
    assert len({(w["stressor"], w["duty"]) for w in windows}) == 13
    assert all(w["wrong"] == 0 for w in windows)


def test_memory_of_the_operating_system_does_not_tell_what_a_process_wrote(probed):
    cell = probed[2]["time-slicing", "exit"]
    assert cell["written_words"] == 4 << 18
    assert cell["found_words"] == 0


def test_the_tables_have_a_row_per_probe(probed):
    result = isolation_result(probed[0])
    assert result.frames["faults"].height == 8
    assert result.frames["performance"].height == 24
    assert set(result.frames["information"]["freed_by"]) == {"exit", "free", "cached"}
    assert any("rehearsal" in note for note in result.notes)


def test_what_was_measured_is_not_measured_again(probed, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("manifest.json", "probes.jsonl"):
        (out / name).write_bytes((probed[0] / name).read_bytes())
    with (out / "probes.jsonl").open("a") as file:
        file.write('{"cell": "time-sl')  # killed while it wrote
    said = []
    run_isolation(options(out, modes="time-slicing"), progress=said.append)
    assert said == []


def test_mps_is_started_for_a_probe_and_stopped_after_it(mps, tmp_path):
    run_isolation(
        options(tmp_path / "out", rehearse=False, device="cpu", modes="mps", probes="information"), progress=quiet
    )
    lines = [json.loads(x) for x in (tmp_path / "out/probes.jsonl").read_text().splitlines()]
    assert [x["status"] for x in lines] == ["ok", "ok"]
    assert not any(x["attached"] for x in lines)  # the stand-in lists no clients
    assert not alive(int((mps / "daemon").read_text()))


def test_a_run_that_is_killed_leaves_no_tenants_and_no_daemon(mps, tmp_path):
    words = ["--device", "cpu", "--modes", "mps", "--probes", "performance", "--out", str(tmp_path / "out")]
    run = subprocess.Popen([sys.executable, "-m", "fleetlab.gpu.bench.isolation", *words])
    until = time.monotonic() + 60
    # The program that starts the daemon has children of its own: tenants are there once the daemon is.
    while not ((mps / "daemon").exists() and (children := tenants_of(run.pid))) and time.monotonic() < until:
        time.sleep(0.05)
    run.kill()
    run.wait()
    until = time.monotonic() + 20
    daemon = int((mps / "daemon").read_text())
    while (any(map(alive, children)) or alive(daemon)) and time.monotonic() < until:
        time.sleep(0.05)
    assert children
    assert not any(map(alive, children))
    assert not alive(daemon)


def tenants_of(pid):
    """Children of the nursery of a run."""
    return [child for nursery in children_of(pid) for child in children_of(nursery)]


def children_of(pid):
    try:
        return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- plans, options and the log of steps ------------------------------------------------------------------------------


def test_an_illegal_access_must_be_asked_for_and_comes_last(tmp_path):
    without = [c.kind for c in cells(options(tmp_path, illegal_access=False))]
    asked = [c.kind for c in cells(options(tmp_path))]
    assert "illegal-access" not in without
    assert asked[-5:] == ["illegal-access"] * 5
    assert asked[:-5] == without


@pytest.mark.parametrize(("more", "said"), [({"modes": "mig"}, "unknown mode"), ({"probes": "x"}, "unknown probe")])
def test_a_mode_or_probe_that_is_unknown_is_refused_before_anything_is_written(tmp_path, more, said):
    with pytest.raises(BenchError, match=said):
        run_isolation(options(tmp_path / "out", **more), progress=quiet)
    assert not (tmp_path / "out").exists()


def test_another_run_in_the_same_folder_is_refused(probed, capsys):
    words = ["--rehearse", "--memory-mib", "99", "--modes", "streams", "--out", str(probed[0])]
    assert main(words) == 2
    assert "contains another run: memory_mib" in capsys.readouterr().err


def test_without_a_gpu_the_run_says_so(tmp_path, capsys):
    if Path("/dev/nvidia0").exists():
        pytest.skip("a GPU is here")
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "no NVIDIA GPU" in capsys.readouterr().err


def test_no_cell_starts_after_the_time_limit(tmp_path):
    skipped = run_isolation(options(tmp_path / "out", modes="streams", limit=1), progress=quiet)
    assert len(skipped) == 8
    assert not (tmp_path / "out/probes.jsonl").exists()


def test_a_folder_without_probes_is_refused(tmp_path):
    with pytest.raises(DeviceError, match="not a folder of probes"):
        isolation_result(tmp_path)


def test_steps_are_counted_by_phase_and_the_gap_spans_the_event():
    ended = [1.0, 1.1, 1.2, 3.2, 3.3, 3.4]
    status = [GOOD, GOOD, GOOD, GOOD, REFUSED, WRONG]
    steps = np.array([(t, 0.1, s) for t, s in zip(ended, status, strict=True)], KIND)
    summary = summarize_steps(steps, acts=1.25, over=3.25, tail=1.0)
    assert summary["before"]["good"] == 3
    assert summary["during"]["good"] == 1
    assert (summary["after"]["refused"], summary["after"]["wrong"]) == (1, 1)
    assert summary["longest_gap_s"] == pytest.approx(2.0)
    assert summary["next_good_s"] == pytest.approx(1.95)
    assert not summary["good_after"]
    assert not summary["fatal"]


def test_a_log_that_breaks_off_within_a_record_keeps_the_others(tmp_path):
    log = StepWriter(tmp_path / "steps")
    log.write(1.0, 0.5, GOOD)
    log.write(2.0, 0.5, FATAL)
    data = (tmp_path / "steps").read_bytes()
    (tmp_path / "steps").write_bytes(data[:-3])
    assert read_steps(tmp_path / "steps")["status"].tolist() == [GOOD]
