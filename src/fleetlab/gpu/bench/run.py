"""Run a plan, cell by cell; each finished cell is on disk before the next begins.

The folder has `manifest.json` (machine, plan, order, skipped cells), `cells.jsonl` (one line per cell) and
`monitor.jsonl` (the GPU, five times per second). A run that is started again resumes. On a
machine with few packages: `python -m fleetlab.gpu.bench.run PLAN --out FOLDER`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fleetlab.gpu.bench.options import SuiteOptions
from fleetlab.gpu.bench.plan_file import read_plan
from fleetlab.gpu.bench.plans import BY_NAME, BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.workers.pool import GRACE, LEAD, LOAD, TenantWorkers
from fleetlab.gpu.devices.console import BenchError, Progress, atomic_write, package_version, print_progress, start
from fleetlab.gpu.devices.nvml import GpuSampler
from fleetlab.gpu.sharing import modes
from fleetlab.gpu.sharing.modes import MIG, SharingMode, shared

STOPPED = "stopped; finished cells are kept, run the same command again to resume"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Its manifest, and its records, of which a kill can truncate only the last."""

    path: Path
    lines: str = "cells.jsonl"
    about: str = "manifest.json"

    def read(self) -> dict[str, Any] | None:
        """The manifest of an earlier run; None if there was none."""
        path = self.path / self.about
        return dict(json.loads(path.read_text("utf-8"))) if path.exists() else None

    def check_same(self, **now: object) -> None:
        """Refuse a folder of another run, in which one of these values differs."""
        before = self.read() or now
        for key, value in now.items():
            if before.get(key) != value:
                msg = f"{self.path}: contains another run: {key} {before.get(key)}, not {value}"
                raise BenchError(msg, hint="name another folder with --out")

    def declare(self, about: dict[str, Any]) -> None:
        """Write the manifest."""
        atomic_write(self.path / self.about, json.dumps(about, indent=1))

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        with (self.path / self.lines).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """All records; a truncated last line is removed, and what is none is passed over."""
        path = self.path / self.lines
        text = path.read_text("utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, "utf-8")
        return [record for line in text.splitlines() if (record := _record(line)) is not None]

    def finished(self) -> set[str]:
        """Names of the cells that were measured."""
        return {record["cell"] for record in self.records() if record["status"] == "ok"}


def _record(line: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def now() -> str:
    """The time, for records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def machine(packages: Iterable[str] = ("fleetlab", "torch")) -> dict[str, Any]:
    """System, cores and versions, for a manifest."""
    about = {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    return {"machine": about} | {package: package_version(package) for package in packages}


def card(monitor: GpuSampler) -> dict[str, Any]:
    """The GPU, or why there is none, for a manifest."""
    return monitor.about or {"absent": monitor.absent}


def check_card(monitor: GpuSampler, device: str) -> None:
    """Refuse to measure on a GPU where there is none."""
    if device.startswith("cuda") and monitor.absent and not Path("/dev/nvidia0").exists():
        msg = f"no NVIDIA GPU on this machine: {monitor.absent}"
        raise BenchError(msg, hint="--rehearse runs the same on the CPU with tiny sizes")


# --- one run of a plan into one folder -------------------------------------------------------------------------------


RESERVE = 15.0  # s to end workers and to restore the mode


class SuiteRun:
    """One run of a plan into one folder."""

    def __init__(
        self,
        plan: SuitePlan,
        out: Path,
        *,
        limit: float,
        device: str = "cuda",
        rehearse: bool = False,
        allow_mig: bool = False,
        progress: Progress = print,
    ) -> None:
        if not limit > 0:
            raise BenchError(f"not a time limit: {limit} s")
        self._plan, self._folder, self._progress = plan, RunFolder(out), progress
        self._device, self._rehearse = "cpu" if rehearse else device, rehearse
        self._allow_mig = allow_mig
        self._began = time.monotonic()
        self._until = self._began + limit
        self._rates: dict[tuple[str, Seat], float] = {}  # alone, for progress reports
        self._skipped: list[str] = []
        self._stages: list[dict[str, Any]] = []

    def run(self) -> list[str]:
        """Measure the missing cells; returns the names of cells that were skipped for lack of time."""
        self._folder.path.mkdir(parents=True, exist_ok=True)
        done = self._folder.finished()
        self._folder.check_same(plan=self._plan.name, seed=self._plan.seed, rehearsal=self._rehearse)
        if not self._rehearse:
            modes.restore(progress=self._progress)
        with GpuSampler(self._folder.path / "monitor.jsonl") as self._monitor:
            check_card(self._monitor, self._device)
            if self._monitor.absent:
                self._progress(f"no GPU to sample: {self._monitor.absent}")
            self._declare()
            for cells in self._plan.stages():
                remaining = [c for c in cells if c.name not in done]
                if remaining:
                    self._stage(remaining)
            self._declare(over=True)
        return self._skipped

    # --- a stage -----------------------------------------------------------------------------------------------------

    def _stage(self, cells: list[BenchCell]) -> None:
        if not self._time_for(LOAD / 3 + self._length()):
            self._skip(cells)
            return
        seats = dict.fromkeys(seat for cell in cells for seat in cell.seats)
        with ExitStack() as stack:
            try:
                mode = stack.enter_context(self._mode(cells[0].mode))
            except BenchError as e:
                self._progress(f"{cells[0].stage}: {e}")
                for cell in cells:
                    self._write(cell, {"status": "failed", "failures": [{"kind": "mode", "detail": str(e)}]})
                return
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            workers = stack.enter_context(
                TenantWorkers(self._plan, mode, home, device=self._device, tiny=self._rehearse)
            )
            self._start_workers(workers, mode, cells[0], list(seats))
            for k, cell in enumerate(cells):
                if not self._time_for(self._length()):
                    self._skip(cells[k:])
                    return
                self._cell(workers, cell)

    @contextmanager
    def _mode(self, mode: str) -> Iterator[SharingMode]:
        """Switch to the mode; the sampler has no GPU open while MIG is switched."""
        switched = shared(mode, rehearse=self._rehearse, allow_mig=self._allow_mig, progress=self._progress)
        released = self._monitor.released if mode.startswith(MIG) else nullcontext
        with ExitStack() as stack:
            with released():
                way = stack.enter_context(switched)
            try:
                yield way
            finally:
                with released():
                    stack.close()

    def _start_workers(self, workers: TenantWorkers, mode: SharingMode, cell: BenchCell, seats: list[Seat]) -> None:
        began = time.monotonic()
        workers.start(seats, within=min(LOAD, self._until - began - RESERVE))
        about = {
            "stage": cell.stage,
            "mode": cell.mode,
            "load_s": round(time.monotonic() - began, 2),
            "seats": {f"{s}.{s.copy}": workers.about.get(s, {}) for s in seats},
            "failed": [workers.failed[s] for s in seats if s in workers.failed],
        }
        self._stages.append(about | mode.report())
        self._declare()
        apart = [f"{s} ({why})" for s in seats if (why := workers.about.get(s, {}).get("apart"))]
        self._progress(f"{cell.stage}: {len(seats)} workers in {about['load_s']} s")
        for failure in workers.failed.values():
            self._progress(f"  failed: {failure['seat']}: {failure['kind']}: {failure['detail']}")
        if apart:
            self._progress(f"  NOT ATTACHED: {', '.join(apart)}")

    def _length(self) -> float:
        return LEAD + self._plan.settle + self._plan.window + 0.3

    def _time_for(self, seconds: float) -> bool:
        return time.monotonic() + seconds + RESERVE <= self._until

    def _skip(self, cells: list[BenchCell]) -> None:
        self._skipped += [cell.name for cell in cells]
        self._progress(f"{cells[0].stage}: no time left for {len(cells)} cells")

    # --- a cell ------------------------------------------------------------------------------------------------------

    def _cell(self, workers: TenantWorkers, cell: BenchCell) -> None:
        if any(seat in workers.failed for seat in cell.seats):
            workers.start(cell.seats, within=max(min(60.0, self._until - time.monotonic() - RESERVE - GRACE), 1.0))
        load = os.getloadavg()[0]
        opens, answers, failures = workers.measure(cell)
        tenants = [
            {"seat": str(seat), "tenant": seat.tenant, "copy": seat.copy, **_known(workers, seat), **answers[seat]}
            for seat in cell.seats
            if seat in answers
        ]
        ok = not failures and len(tenants) == len(cell.seats)
        self._write(
            cell,
            {
                "status": "ok" if ok else "failed",
                "opens": round(opens, 4),
                "settle": self._plan.settle,
                "window": self._plan.window,
                "load": load,
                "tenants": tenants,
                "gpu": self._monitor.between(opens, opens + self._plan.window),
                "failures": failures,
            },
        )
        self._progress(self._cell_line(cell, tenants, failures))

    def _write(self, cell: BenchCell, about: dict[str, Any]) -> None:
        of = {"cell": cell.name, "stage": cell.stage, "mode": cell.mode, "block": cell.block, "at": now()}
        self._folder.append(of | about)

    def _cell_line(self, cell: BenchCell, tenants: list[dict[str, Any]], failures: list[dict[str, Any]]) -> str:
        if len(cell.seats) == 1 and tenants:
            self._rates[cell.stage, cell.seats[0]] = tenants[0]["rate"]
        parts = []
        for one in tenants:
            alone = self._rates.get((cell.stage, Seat(one["tenant"])))
            part = f"{one['rate']:.4g}/s"
            parts.append(part + (f" ({one['rate'] / alone:.2f})" if alone and len(tenants) > 1 else ""))
        parts += [f"failed: {f['seat']} {f['kind']}" for f in failures]
        return f"{time.monotonic() - self._began:4.0f} s  {cell.name}: {', '.join(parts[:8]) or '-'}"

    # --- the manifest ------------------------------------------------------------------------------------------------

    def _declare(self, *, over: bool = False) -> None:
        plan = self._plan
        about = {
            "plan": plan.name,
            "seed": plan.seed,
            "rehearsal": self._rehearse,
            "written": now(),
            "finished": over and not self._skipped,
            "device": self._device,
            "card": card(self._monitor),
            **machine(("fleetlab", "torch", "numpy")),
            "settle": plan.settle,
            "window": plan.window,
            "tenants": {name: {"work": t.work, **_feeding(t), **t.settings} for name, t in plan.tenants.items()},
            "order": [cell.name for cell in plan.cells],
            "skipped": self._skipped,
            "stages": self._stages,
        }
        self._folder.declare(about)


def _known(workers: TenantWorkers, seat: Seat) -> dict[str, Any]:
    about = workers.about.get(seat, {})
    columns = ("pid", "sms", "unit", "how", "memory_mib", "card_mib", "visible", "attached")
    return {key: about[key] for key in columns if key in about}


def _feeding(tenant: Tenant) -> dict[str, float]:
    """Settings that differ from the default, a closed loop."""
    return {key: value for key in ("rest", "poisson") if (value := getattr(tenant, key))}


# --- measure on a machine with few packages --------------------------------------------------------------------------


def _run(options: SuiteOptions) -> int:
    return 3 if run_suite(options, progress=print_progress) else 0


main = partial(start, "fleetlab.gpu.bench.run", SuiteOptions, _run, stopped=STOPPED)


def run_suite(options: SuiteOptions, *, progress: Progress) -> list[str]:
    """Measure a plan; returns the names of cells that were skipped for lack of time."""
    o = options
    plan = make_plan(o.plan, blocks=o.blocks, settle=o.settle, window=o.window, seed=o.seed, rehearse=o.rehearse)
    how: dict[str, Any] = {name: getattr(o, name) for name in ("limit", "device", "rehearse", "allow_mig")}
    return SuiteRun(plan, o.out, **how, progress=progress).run()


def make_plan(
    plan: str,
    *,
    blocks: int | None = None,
    settle: float | None = None,
    window: float | None = None,
    seed: int = 0,
    rehearse: bool = False,
) -> SuitePlan:
    """Look up a plan by name or TOML file, and override its settings."""
    if blocks is not None and blocks < 1:
        raise BenchError(f"not a number of blocks: {blocks}")
    if plan.endswith(".toml"):
        suite_plan = read_plan(Path(plan), seed=seed, blocks=blocks)
    elif plan in BY_NAME:
        suite_plan = BY_NAME[plan](seed=seed, **({} if blocks is None else {"blocks": blocks}))
    else:
        raise BenchError(f"unknown plan: `{plan}`", hint=f"there are {', '.join(BY_NAME)}; or name a TOML file")
    if rehearse:
        suite_plan = replace(suite_plan, settle=0.1, window=0.3)
    settle = suite_plan.settle if settle is None else settle
    window = suite_plan.window if window is None else window
    return replace(suite_plan, settle=settle, window=window)


if __name__ == "__main__":
    sys.exit(main())
