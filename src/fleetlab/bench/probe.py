"""What can this machine do? Ask, and try, before an hour is planned on it; nothing is set that others would feel."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleetlab.bench.plans import Cell, Plan, Seat, Tenant
from fleetlab.bench.workers.pool import Crew
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import Monitor
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
LIMITED = Share(50, 8192, 1)


def probe(out: Path, *, tell: Callable[[str], None], rehearse: bool = False) -> dict[str, Any]:
    """Ask the tools, then open the card by turns and under MPS, and see what a client gets."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found: dict[str, Any] = {name: _asked(*words) for name, words in QUESTIONS.items()}
    found["green contexts"] = "not tried" if rehearse else _asked(sys.executable, "-c", GREEN)
    with Monitor(out / "monitor.jsonl") as monitor:
        found["nvml"] = monitor.about or monitor.absent
        found["by turns"] = _opened("time-slicing", [Seat("gemm"), Seat("gemm", 1)], monitor, rehearse=rehearse)
        clients = [
            Seat("gemm"),
            Seat("gemm", share=Share(50)),
            Seat("gemm", share=Share(25)),
            Seat("gemm", share=LIMITED),
        ]
        found["mps"] = _opened("mps", clients, monitor, rehearse=rehearse)
        found["energy counter updates a second"] = _updates(monitor)
    found["mps left behind"] = _asked(
        "sh", "-c", f"ps -eo pid,comm | grep -c '[n]vidia-cuda-mps' ; command -v {CONTROL}; true"
    )
    found["seconds"] = round(time.monotonic() - began, 1)
    (out / "probe.json").write_text(json.dumps(found, indent=1), "utf-8")
    for name, answer in found.items():
        tell(f"{name}: {answer if isinstance(answer, str) else json.dumps(answer)}")
    return found


def _opened(mode: str, seats: list[Seat], monitor: Monitor, *, rehearse: bool) -> dict[str, Any]:
    """What each client of a mode sees, what its context takes, and how all of them run at once."""
    cell = Cell("probe", mode, 0, tuple(seats))
    plan = Plan(
        "probe", {"gemm": Tenant("gemm")}, (cell,), settle=0.2 if rehearse else 1, window=0.2 if rehearse else 3
    )
    try:
        with shared(mode, rehearse=rehearse) as way, tempfile.TemporaryDirectory() as home:
            before = _memory(monitor)
            with Crew(plan, way, Path(home), device="cpu" if rehearse else "cuda", tiny=rehearse) as crew:
                crew.man(seats, within=90)
                held = _memory(monitor) - before
                opens, told, failures = crew.meet(cell)
                return {
                    "clients": {f"{s}.{s.copy}": crew.about.get(s, {}) for s in seats},
                    "rates": {f"{s}.{s.copy}": told[s]["rate"] for s in seats if s in told},
                    "failures": failures,
                    "memory of all, MiB": held,
                    "gpu": monitor.between(opens, opens + plan.window),
                }
    except BenchError as e:
        return {"error": str(e)}


def _memory(monitor: Monitor) -> float:
    return monitor.look()[3] if not monitor.absent else 0


def _updates(monitor: Monitor) -> float:
    """Over one second, now that the card is idle again: a floor."""
    if monitor.absent:
        return 0.0
    seen, end = set(), time.monotonic() + 1
    while time.monotonic() < end:
        seen.add(monitor.look()[6])
        time.sleep(0.005)
    return float(len(seen) - 1)


def _asked(*words: str) -> str:
    if shutil.which(words[0]) is None:
        return f"`{words[0]}` is not here"
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "no answer within 60 s"
    return (said.stdout.strip() or said.stderr.strip())[-3000:]
