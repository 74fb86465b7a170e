"""The suite, and tenants of one process, on a real GPU."""

import contextlib
import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from benchmarks.kill_suite import main, unclean
from benchmarks.sharing.one_process import measure
from benchmarks.sharing.time_slices import measure_slices

from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.run import SuiteRun
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.sharing.mps_guard import process_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
needs_mps = pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="no MPS here")
needs_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")


def told(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]


def living(name: str) -> list[str]:
    """Processes by that name; not those that only nobody has reaped."""
    names = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            names[int(folder.name)] = (folder / "comm").read_text().strip()
    return [
        f"{pid} {comm}" for pid, comm in names.items() if comm.startswith(name) and process_state(pid) not in ("", "Z")
    ]


@needs_mps
def test_tenants_under_mps_are_proved_and_one_over_its_memory_is_a_record(tmp_path):
    tenants = {"small": Tenant("launch"), "large": Tenant("hbm", {"mib": 12_000})}
    cells = (
        BenchCell("all", "mps", 0, (Seat("small"), Seat("small", 1, Share(25)))),
        BenchCell("all", "mps", 0, (Seat("large", share=Share(memory_mib=8_000)),)),
        BenchCell("all", "mps", 0, (Seat("small"),)),
    )
    SuiteRun(SuitePlan("try", tenants, cells, settle=0.2, window=1.5), tmp_path, limit=200).run()
    first, second, third = told(tmp_path)
    said = [(c["status"], c["failures"]) for c in (first, second, third)]
    assert [status for status, _ in said] == ["ok", "failed", "ok"], said
    attached = {t["seat"]: t["attached"] for t in first["tenants"]}
    assert all(attached.values()), attached
    whole, quarter = (t["sms"] for t in first["tenants"])
    assert quarter <= whole / 3, f"{quarter} of {whole} SMs under a limit of 25 %"
    assert second["failures"][0]["kind"] == "out-of-memory", second["failures"]
    assert first["gpu"]["watts"] > 50, first["gpu"]
    assert not living("nvidia-cuda-mps"), living("nvidia-cuda-mps")


def test_a_green_context_has_its_sms_and_no_more(tmp_path):
    measure((("gemm", "gemm"),), tmp_path, ways=("streams", "green"), sms=32, window=1.0, progress=lambda _: None)
    rates = {c["cell"].split("/", 2)[2]: c["tenants"][0]["rate"] for c in told(tmp_path) if c["status"] == "ok"}
    assert rates["green/gemm@32sms"] < 0.5 * rates["streams/gemm"], rates
    # Two parts that do not overlap: each keeps what it had alone, but for power and memory.
    assert rates["green/gemm@32sms+gemm@32sms"] > 0.85 * rates["green/gemm@32sms"], rates


@needs_cupy
@needs_mps
def test_processes_take_turns_without_mps_and_none_with_it():
    seen = measure_slices(seconds=0.5)
    alone, two, mps = seen["time-slicing"]["1"], seen["time-slicing"]["2"], seen["mps"]["2"]
    assert alone["gaps"] == 0, alone
    assert two["running"] < 1, two
    assert two["gaps"] > 20, two
    assert mps["running"] > 1.9, mps


@needs_mps
@pytest.mark.validate
@pytest.mark.parametrize("mode", ["mps", "time-slicing"])
def test_a_suite_that_is_killed_at_ten_moments_leaves_the_card_as_it_was(tmp_path, mode):
    main(["--mode", mode, "--kills", "10", "--out", str(tmp_path)])
    left = unclean(json.loads((tmp_path / "kills.json").read_text()))
    assert not left, left
