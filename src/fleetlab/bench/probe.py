"""Probe what a machine supports before a long measurement; nothing is changed that affects other users."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fleetlab.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.bench.workers.pool import TenantWorkers
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.progress import Progress
from fleetlab.sharing.modes import CONTROL, Share, shared

QUESTIONS = {
    "card": [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current",
        "--format=csv",
    ],
    "mig profiles": ["nvidia-smi", "mig", "-lgip"],
    "time slice": ["nvidia-smi", "compute-policy", "-l"],
    "tools": ["sh", "-c", "command -v ncu nvcc nvidia-cuda-mps-control; true"],
}
GREEN = (
    "import torch; from torch.cuda.green_contexts import GreenContext as G; "
    "a = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16); g = G.create(num_sms=32, device_id=0); "
    "g.set_context(); a @ a; torch.cuda.synchronize(); g.pop_context(); print('green context of 32 SMs: works')"
)
LIMITED_SHARE = Share(50, 8192, 1)


def probe(out: Path, *, progress: Progress, rehearse: bool = False) -> dict[str, Any]:
    """Query the tools, then use the GPU under time slicing and MPS, and report what a client gets."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    report: dict[str, Any] = {name: _output(*words) for name, words in QUESTIONS.items()}
    report["green contexts"] = "not tried" if rehearse else _output(sys.executable, "-c", GREEN)
    with GpuSampler(out / "monitor.jsonl") as monitor:
        report["nvml"] = monitor.about or monitor.absent
        report["time slicing"] = _try_mode("time-slicing", [Seat("gemm"), Seat("gemm", 1)], monitor, rehearse=rehearse)
        clients = [
            Seat("gemm"),
            Seat("gemm", share=Share(50)),
            Seat("gemm", share=Share(25)),
            Seat("gemm", share=LIMITED_SHARE),
        ]
        report["mps"] = _try_mode("mps", clients, monitor, rehearse=rehearse)
        report["energy counter updates per second"] = _updates(monitor)
    report["mps left behind"] = _output(
        "sh", "-c", f"ps -eo pid,comm | grep -c '[n]vidia-cuda-mps' ; command -v {CONTROL}; true"
    )
    report["seconds"] = round(time.monotonic() - began, 1)
    (out / "probe.json").write_text(json.dumps(report, indent=1), "utf-8")
    for name, answer in report.items():
        progress(f"{name}: {answer if isinstance(answer, str) else json.dumps(answer)}")
    return report


def _try_mode(mode: str, seats: list[Seat], monitor: GpuSampler, *, rehearse: bool) -> dict[str, Any]:
    """What each client of a mode reports, the memory of all, and their rates."""
    cell = BenchCell("probe", mode, 0, tuple(seats))
    plan = SuitePlan(
        "probe", {"gemm": Tenant("gemm")}, (cell,), settle=0.2 if rehearse else 1, window=0.2 if rehearse else 3
    )
    try:
        with shared(mode, rehearse=rehearse) as way, tempfile.TemporaryDirectory() as home:
            before = _memory(monitor)
            with TenantWorkers(plan, way, Path(home), device="cpu" if rehearse else "cuda", tiny=rehearse) as crew:
                crew.man(seats, within=90)
                memory = _memory(monitor) - before
                opens, told, failures = crew.meet(cell)
                return {
                    "clients": {f"{s}.{s.copy}": crew.about.get(s, {}) for s in seats},
                    "rates": {f"{s}.{s.copy}": told[s]["rate"] for s in seats if s in told},
                    "failures": failures,
                    "memory of all, MiB": memory,
                    "gpu": monitor.between(opens, opens + plan.window),
                }
    except BenchError as e:
        return {"error": str(e)}


def _memory(monitor: GpuSampler) -> float:
    return monitor.look()[3] if not monitor.absent else 0


def _updates(monitor: GpuSampler) -> float:
    """Updates of the energy counter in one second on the idle GPU: a lower bound."""
    if monitor.absent:
        return 0.0
    seen, end = set(), time.monotonic() + 1
    while time.monotonic() < end:
        seen.add(monitor.look()[6])
        time.sleep(0.005)
    return float(len(seen) - 1)


def _output(*words: str) -> str:
    if shutil.which(words[0]) is None:
        return f"`{words[0]}` is not installed"
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "no answer within 60 s"
    return (done.stdout.strip() or done.stderr.strip())[-3000:]
