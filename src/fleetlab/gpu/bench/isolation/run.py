"""Run the probes, cell by cell; each finished cell is on disk before the next begins, and a run resumes.

The folder has `manifest.json` (machine, settings), `probes.jsonl` (one line per cell) and `monitor.jsonl` (the GPU,
five times per second). Nothing of the GPU is changed, and MPS is stopped however the run ends.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from fleetlab.gpu.bench.isolation.fork_server import ForkServer
from fleetlab.gpu.bench.isolation.probes import FAULTS, PROBES, IsolationMode, Probe, ProbeError
from fleetlab.gpu.bench.options import IsolationOptions
from fleetlab.gpu.bench.run import RunFolder, card, check_card, machine, now
from fleetlab.gpu.devices.console import BenchError, Progress, check_folder
from fleetlab.gpu.devices.nvml import GpuSampler
from fleetlab.gpu.sharing.modes import NO_MPS, Share, shared

RESERVE = 12.0  # s that a cell may take
PROCESSES, THREADS = ("exit", "free"), ("cached", "free")  # variants of the information probe


class ProbeCell(NamedTuple):
    """One probe in one mode."""

    mode: IsolationMode
    probe: str
    kind: str

    @property
    def name(self) -> str:
        """A name that is the same in every run."""
        return f"{self.mode.name}/{self.probe}/{self.kind}"


def modes(memory_mib: int) -> dict[str, IsolationMode]:
    """Modes that need no change of the GPU's settings; limits are those of every tenant in `mps-limited`."""
    limits = Share(percent=50, memory_mib=memory_mib)
    every = (
        IsolationMode("time-slicing", "time-slicing"),
        IsolationMode("mps", "mps"),
        IsolationMode("mps-limited", "mps", limits),
        IsolationMode("streams", "time-slicing", lanes="streams"),
        IsolationMode("green", "time-slicing", lanes="green"),
    )
    return {mode.name: mode for mode in every}


def cells(options: IsolationOptions) -> list[ProbeCell]:
    """Cells in order: the harmless ones first, in every mode, and illegal accesses last."""
    there = modes(options.memory_mib)
    chosen = _chosen(options.modes, list(there), "mode")
    probes = _chosen(options.probes, list(PROBES), "probe")
    kinds = [(probe, kind) for probe in PROBES if probe in probes for kind in _kinds(probe)]
    every = [ProbeCell(there[mode], probe, kind) for probe, kind in kinds for mode in chosen]
    every = [cell for cell in every if cell.probe != "information" or cell.kind in _variants(cell.mode)]
    return [cell for cell in every if cell.kind != "illegal-access" or options.illegal_access]


def _kinds(probe: str) -> tuple[str, ...]:
    return {"memory": ("all",), "performance": ("stressors",), "faults": FAULTS}.get(probe, ("exit", "free", "cached"))


def _variants(mode: IsolationMode) -> tuple[str, ...]:
    return THREADS if mode.lanes else PROCESSES


def _chosen(text: str, there: list[str], kind: str) -> list[str]:
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [word for word in chosen if word not in there]:
        raise BenchError(f"unknown {kind}: `{unknown[0]}`", hint=f"there are {', '.join(there)}")
    return [word for word in there if word in chosen] if chosen else there


def run_isolation(options: IsolationOptions, *, progress: Progress) -> list[str]:
    """Measure the missing cells; returns the names of cells that were skipped for lack of time."""
    if not options.limit > 0:
        raise BenchError(f"not a time limit: {options.limit} s")
    device = "cpu" if options.rehearse else options.device
    planned = cells(options)
    check_folder(options.out)
    folder = RunFolder(options.out, "probes.jsonl")
    folder.check_same(device=device, rehearsal=options.rehearse, memory_mib=options.memory_mib)
    until, skipped = time.monotonic() + options.limit, list[str]()
    done = folder.finished()
    with GpuSampler(options.out / "monitor.jsonl") as monitor, tempfile.TemporaryDirectory(prefix="iso-") as home:
        check_card(monitor, device)
        folder.declare(
            {
                "plan": "isolation",
                "rehearsal": options.rehearse,
                "device": device,
                "memory_mib": options.memory_mib,
                "written": now(),
                "card": card(monitor),
                **machine(),
                "order": [cell.name for cell in planned],
            }
        )
        with ForkServer(Path(home), dict(NO_MPS)) as server:
            for cell in planned:
                if cell.name in done:
                    continue
                if time.monotonic() + RESERVE > until:
                    skipped.append(cell.name)
                    continue
                report = _measure(cell, server, Path(home), device, rehearse=options.rehearse)
                folder.append(report)
                progress(_line(report))
    if skipped:
        progress(f"no time left for {len(skipped)} cells: {', '.join(skipped[:4])} …")
    return skipped


def _measure(cell: ProbeCell, server: ForkServer, home: Path, device: str, *, rehearse: bool) -> dict[str, Any]:
    began, messages = time.monotonic(), _driver_messages()
    about = {"cell": cell.name, "mode": cell.mode.name, "probe": cell.probe, "kind": cell.kind, "at": now()}
    try:
        with shared(cell.mode.sharing, rehearse=rehearse) as on:
            probe = Probe(server, cell.mode, on, home, device=device)
            try:
                result = PROBES[cell.probe](probe, cell.kind)
            finally:
                probe.close()
        result["status"] = "ok"
    except (ProbeError, BenchError) as e:
        result = {"status": "failed", "detail": str(e)[:500]}
    new = [line for line in _driver_messages() if line not in messages]
    return about | result | {"driver_messages": new[:20], "seconds": round(time.monotonic() - began, 2)}


def _driver_messages() -> list[str]:
    """Errors that NVIDIA's driver reported to the kernel (Xid), where they can be read."""
    try:
        done = subprocess.run(["dmesg"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if "Xid" in line]


def _line(report: dict[str, Any]) -> str:
    head = f"{report['seconds']:5.1f} s  {report['cell']}: "
    if report["status"] != "ok":
        return head + f"failed: {report['detail']}"
    if report["probe"] == "information":
        return head + f"{report['found_share']:.3f} of the pattern found"
    if report["probe"] == "performance":
        alone, worst = report["windows"][0]["per_second"], min(w["per_second"] for w in report["windows"])
        return head + f"worst {worst:.4g} of {alone:.4g} steps per second"
    neighbor, new = report["neighbor"], report["newcomer"]
    state = "survived" if neighbor["survived"] else f"died ({neighbor['error'] or neighbor['exit']})"
    return head + f"neighbor {state}, gap {neighbor['longest_gap_s']} s; new process after {new['after_s']} s"
