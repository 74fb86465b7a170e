"""Run a plan, cell by cell; each finished cell is on disk before the next begins.

The folder has `manifest.json` (machine, plan, order, skipped cells), `cells.jsonl` (one line per cell) and
`monitor.jsonl` (the GPU, five times per second). A run that is started again resumes.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetlab.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.bench.workers.pool import GRACE, LEAD, LOAD, TenantWorkers
from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import atomic_write
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.progress import Progress
from fleetlab.devices.versions import package_version
from fleetlab.sharing import leftovers
from fleetlab.sharing.modes import MIG, SharingMode, shared

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
            msg = f"not a time limit: {limit} s"
            raise BenchError(msg)
        self._plan, self._out, self._progress = plan, out, progress
        self._device, self._rehearse = "cpu" if rehearse else device, rehearse
        self._allow_mig = allow_mig
        self._began = time.monotonic()
        self._until = self._began + limit
        self._rates: dict[tuple[str, Seat], float] = {}  # alone, for progress reports
        self._skipped: list[str] = []
        self._stages: list[dict[str, Any]] = []

    def run(self) -> list[str]:
        """Measure the missing cells; returns the names of cells that were skipped for lack of time."""
        self._out.mkdir(parents=True, exist_ok=True)
        self._manifest = self._out / "manifest.json"
        done = finished_cells(self._out)
        self._check()
        if not self._rehearse:
            leftovers.restore(progress=self._progress)
        with GpuSampler(self._out / "monitor.jsonl") as self._monitor:
            self._has_card()
            if self._monitor.absent:
                self._progress(f"no GPU to sample: {self._monitor.absent}")
            self._declare()
            for cells in self._plan.stages():
                left = [c for c in cells if c.name not in done]
                if left:
                    self._stage(left)
            self._declare(over=True)
        return self._skipped

    def _check(self) -> None:
        if self._manifest.exists():
            was = json.loads(self._manifest.read_text("utf-8"))
            for key, now in (("plan", self._plan.name), ("seed", self._plan.seed), ("rehearsal", self._rehearse)):
                if was.get(key) != now:
                    msg = f"{self._out}: contains another run: {key} {was.get(key)}, not {now}"
                    raise BenchError(msg, hint="name another folder with --out")

    def _has_card(self) -> None:
        if self._device.startswith("cuda") and self._monitor.absent and not Path("/dev/nvidia0").exists():
            msg = f"no NVIDIA GPU on this machine: {self._monitor.absent}"
            raise BenchError(msg, hint="--rehearse runs the plan on the CPU with tiny sizes")

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
            crew = stack.enter_context(TenantWorkers(self._plan, mode, home, device=self._device, tiny=self._rehearse))
            self._man(crew, mode, cells[0], list(seats))
            for k, cell in enumerate(cells):
                if not self._time_for(self._length()):
                    self._skip(cells[k:])
                    return
                self._cell(crew, cell)

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

    def _man(self, crew: TenantWorkers, mode: SharingMode, cell: BenchCell, seats: list[Seat]) -> None:
        began = time.monotonic()
        crew.man(seats, within=min(LOAD, self._until - began - RESERVE))
        about = {
            "stage": cell.stage,
            "mode": cell.mode,
            "load_s": round(time.monotonic() - began, 2),
            "seats": {f"{s}.{s.copy}": crew.about.get(s, {}) for s in seats},
            "failed": [crew.failed[s] for s in seats if s in crew.failed],
        }
        self._stages.append(about | mode.report())
        self._declare()
        apart = [f"{s} ({why})" for s in seats if (why := crew.about.get(s, {}).get("apart"))]
        self._progress(f"{cell.stage}: {len(seats)} workers in {about['load_s']} s")
        for failure in crew.failed.values():
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

    def _cell(self, crew: TenantWorkers, cell: BenchCell) -> None:
        if any(seat in crew.failed for seat in cell.seats):
            crew.man(cell.seats, within=max(min(60.0, self._until - time.monotonic() - RESERVE - GRACE), 1.0))
        load = os.getloadavg()[0]
        opens, told, failures = crew.meet(cell)
        tenants = [
            {"seat": str(seat), "tenant": seat.tenant, "copy": seat.copy, **_known(crew, seat), **told[seat]}
            for seat in cell.seats
            if seat in told
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
        line = {"cell": cell.name, "stage": cell.stage, "mode": cell.mode, "block": cell.block, "at": _now(), **about}
        with (self._out / "cells.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

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
            "written": _now(),
            "finished": over and not self._skipped,
            "device": self._device,
            "card": self._monitor.about or {"absent": self._monitor.absent},
            "machine": {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()},
            "fleetlab": package_version("fleetlab"),
            "torch": package_version("torch"),
            "numpy": package_version("numpy"),
            "settle": plan.settle,
            "window": plan.window,
            "tenants": {name: {"work": t.work, **_feeding(t), **t.settings} for name, t in plan.tenants.items()},
            "order": [cell.name for cell in plan.cells],
            "skipped": self._skipped,
            "stages": self._stages,
        }
        atomic_write(self._manifest, json.dumps(about, indent=1))


def finished_cells(out: Path) -> set[str]:
    """Names of the measured cells of a folder; a truncated last line is removed."""
    path, done = out / "cells.jsonl", set[str]()
    if not path.exists():
        return done
    text = path.read_text("utf-8")
    if text and not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1], "utf-8")
    for line in text.splitlines():
        try:
            about = json.loads(line)
        except ValueError:
            continue
        if about["status"] == "ok":
            done.add(about["cell"])
    return done


def _known(crew: TenantWorkers, seat: Seat) -> dict[str, Any]:
    about = crew.about.get(seat, {})
    known = ("pid", "sms", "unit", "how", "memory_mib", "card_mib", "visible", "attached")
    return {key: about[key] for key in known if key in about}


def _feeding(tenant: Tenant) -> dict[str, float]:
    """Settings that differ from the default, a closed loop."""
    return {key: value for key in ("rest", "poisson") if (value := getattr(tenant, key))}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
