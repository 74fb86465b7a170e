"""The suite, and tenants of one process, on a real GPU."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from benchmarks.kill_suite import main

from fleetlab.bench.one_process import measure
from fleetlab.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.bench.suite import SuiteRun
from fleetlab.bench.time_slices import measure_slices
from fleetlab.sharing.modes import Share

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
]
needs_mps = pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is None, reason="no MPS here")
needs_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy is not installed")


def told(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]


def living(name: str) -> list[str]:
    """Processes by that name; not those that only nobody has reaped."""
    stats = [p.read_text() for p in Path("/proc").glob("[0-9]*/stat")]
    return [s for s in stats if f"({name}" in s and s.rpartition(")")[2].split()[0] != "Z"]


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
    assert [c["status"] for c in (first, second, third)] == ["ok", "failed", "ok"]
    assert all(t["attached"] for t in first["tenants"])
    whole, quarter = (t["sms"] for t in first["tenants"])
    assert quarter <= whole / 3
    assert second["failures"][0]["kind"] == "out-of-memory"
    assert first["gpu"]["watts"] > 50
    assert not living("nvidia-cuda-mps")


def test_a_green_context_has_its_sms_and_no_more(tmp_path):
    measure((("gemm", "gemm"),), tmp_path, ways=("streams", "green"), sms=32, window=1.0, progress=lambda _: None)
    rates = {c["cell"].split("/", 2)[2]: c["tenants"][0]["rate"] for c in told(tmp_path) if c["status"] == "ok"}
    assert rates["green/gemm@32sms"] < 0.5 * rates["streams/gemm"]
    # Two parts that do not overlap: each keeps what it had alone, but for power and memory.
    assert rates["green/gemm@32sms+gemm@32sms"] > 0.85 * rates["green/gemm@32sms"]


@needs_cupy
@needs_mps
def test_processes_take_turns_without_mps_and_none_with_it():
    seen = measure_slices(seconds=0.5)
    assert seen["time-slicing"]["1"]["gaps"] == 0
    assert seen["time-slicing"]["2"]["running"] < 1
    assert seen["time-slicing"]["2"]["gaps"] > 20
    assert seen["mps"]["2"]["running"] > 1.9


@needs_mps
@pytest.mark.validate
@pytest.mark.parametrize("mode", ["mps", "time-slicing"])
def test_a_suite_that_is_killed_at_ten_moments_leaves_the_card_as_it_was(tmp_path, mode):
    assert main(["--mode", mode, "--kills", "10", "--out", str(tmp_path)]) == 0
