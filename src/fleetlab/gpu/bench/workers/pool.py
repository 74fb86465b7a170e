"""The worker processes of one stage: started and loaded in parallel, run from a common start, replaced on failure."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetlab.gpu.bench.loops import arrivals
from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan
from fleetlab.gpu.devices.console import python_path
from fleetlab.gpu.sharing.modes import SharingMode
from fleetlab.gpu.sharing.mps import Worker


class WorkerError(Exception):
    """A worker did not answer: `kind` is `died` or `hung`."""

    def __init__(self, detail: str, *, kind: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class TenantWorker:
    """One process; its stderr goes to `log`, whose end is quoted if it dies."""

    def __init__(self, name: str, env: dict[str, str], log: Path) -> None:
        self.name, self._log, self._rest = name, log, b""
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleetlab.gpu.bench.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | python_path() | env,
                start_new_session=True,  # Ctrl-C goes to the parent, which ends its workers in order
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._into, self._out = self.process.stdin, self.process.stdout

    def send(self, **order: Any) -> None:  # noqa: ANN401
        """Send a request; if the worker is dead, the next `answer` reports it."""
        with contextlib.suppress(BrokenPipeError):
            self._into.write(json.dumps(order).encode() + b"\n")
            self._into.flush()

    def answer(self, *, within: float) -> dict[str, Any]:
        """Wait for the next answer; `WorkerError` if it dies or takes longer than `within` seconds."""
        deadline = time.monotonic() + within
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise WorkerError(f"no answer within {within:.0f} s", kind="hung")
            if not (more := os.read(self._out.fileno(), 1 << 16)):
                raise WorkerError(self._exit_reason(), kind="died")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        record: dict[str, Any] = json.loads(line)
        return record

    def _exit_reason(self) -> str:
        status = self.process.wait()
        by = f"by signal {-status}" if status < 0 else f"with status {status}"
        last = " / ".join(self._log.read_text("utf-8", "replace").strip().splitlines()[-3:])
        return f"ended {by}" + (f": {last[-500:]}" if last else "")

    def end(self, *, within: float = 5) -> None:
        """End the process and wait for it."""
        self.send(do="quit")
        with contextlib.suppress(OSError):
            self._into.close()
        try:
            self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()


# --- the worker processes of one stage -------------------------------------------------------------------------------


LEAD = 0.25  # s between the request and the common start
GRACE = 20.0  # s after the end of a window for an answer
LOAD = 150.0  # s for a worker to start and load
TRIES = 2  # starts of the worker of one seat
SEEDS_OF_A_BLOCK = 1000  # more than any plan has copies of a tenant

Failure = dict[str, Any]


class TenantWorkers:
    """One worker per seat, in one mode."""

    def __init__(self, plan: SuitePlan, mode: SharingMode, home: Path, *, device: str, tiny: bool) -> None:
        self._plan, self._mode, self._home = plan, mode, home
        self._device, self._tiny = device, tiny
        self._workers: dict[Seat, TenantWorker] = {}
        self._tries: dict[Seat, int] = {}
        self.about: dict[Seat, dict[str, Any]] = {}  # what each reported after loading
        self.failed: dict[Seat, Failure] = {}  # why a seat has no worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._workers.values():
            worker.send(do="quit")
        for worker in self._workers.values():
            worker.end()

    def start(self, seats: Iterable[Seat], *, within: float = LOAD) -> None:
        """Start and load the missing workers; failures are in `failed`."""
        empty = [s for s in dict.fromkeys(seats) if s not in self._workers and self._tries.get(s, 0) < TRIES]
        deadline = time.monotonic() + within
        for seat in empty:
            self._start(seat)
        for seat in empty:
            self._receive(seat, deadline, self._load)
        for seat in empty:
            self._receive(seat, deadline, self._loaded)
        self._prove([s for s in empty if s in self._workers])

    def _start(self, seat: Seat) -> None:
        count = self._tries[seat] = self._tries.get(seat, 0) + 1
        self.failed.pop(seat, None)
        name = f"{seat}.{seat.copy}".replace("/", "_")
        log = self._home / f"{name}.{count}.log"
        self._workers[seat] = TenantWorker(name, self._mode.environment(seat.share), log)

    def _load(self, seat: Seat, answer: dict[str, Any]) -> None:
        tenant = self._plan.tenants[seat.tenant]
        self.about[seat] = {"pid": answer["pid"], "torch": answer["torch"]}
        settings = {k: v for k, v in tenant.settings.items() if not (self._tiny and k == "batch")}
        self._workers[seat].send(
            do="load",
            work=tenant.work,
            settings=settings,
            tiny=self._tiny,
            device=self._device,
            seed=self._plan.seed + seat.copy,
        )

    def _loaded(self, seat: Seat, answer: dict[str, Any]) -> None:
        if answer["at"] == "loaded":
            self.about[seat] |= answer
            self.about[seat].pop("at")
        else:
            self._lose(seat, {"kind": answer["kind"], "detail": answer["detail"]})

    def _receive(self, seat: Seat, deadline: float, then: Callable[[Seat, dict[str, Any]], None]) -> None:
        if (worker := self._workers.get(seat)) is None:
            return
        try:
            then(seat, worker.answer(within=max(deadline - time.monotonic(), 1)))
        except WorkerError as e:
            self._lose(seat, {"kind": e.kind, "detail": e.detail})

    def _lose(self, seat: Seat, why: Failure) -> None:
        self.failed[seat] = why | {"seat": str(seat), "copy": seat.copy}
        self._workers.pop(seat).end(within=0.5)

    def _prove(self, seats: list[Seat]) -> None:
        """Check that each worker is attached as its mode requires; otherwise it would measure something else."""
        apart = self._mode.verify([Worker(seat.share, self.about[seat]) for seat in seats])
        for seat in seats:
            why = apart.get(self.about[seat]["pid"])
            self.about[seat] |= {"attached": why is None} | ({"apart": why} if why else {})

    def _feeding(self, seat: Seat, block: int) -> dict[str, Any]:
        """Schedule or pauses of a seat: the same in every cell and mode of a block, so that they are comparable.

        Another block draws anew: a repetition of the same requests would tell of the GPU, but not of the requests.
        """
        tenant, plan = self._plan.tenants[seat.tenant], self._plan
        if not tenant.poisson:
            return {"rest": tenant.rest, "seed": plan.seed + seat.copy + SEEDS_OF_A_BLOCK * block}
        drawn = (plan.seed, seat.copy, block) if block else (plan.seed, seat.copy)
        due = arrivals(tenant.poisson, plan.settle + plan.window, seed=drawn)
        return {"due": due.round(6).tolist(), "grace": 2.0}

    def measure(self, cell: BenchCell) -> tuple[float, dict[Seat, dict[str, Any]], list[Failure]]:
        """Run a cell; returns the start of its window, the tenants' results, and failures."""
        plan, failures = self._plan, [self.failed[s] for s in cell.seats if s in self.failed]
        here = [s for s in cell.seats if s in self._workers]
        start = time.monotonic() + LEAD
        for seat in here:
            how = self._feeding(seat, cell.block)
            self._workers[seat].send(do="run", at=start, settle=plan.settle, window=plan.window, **how)
        time.sleep(max(start + plan.settle + plan.window - time.monotonic(), 0))
        deadline = time.monotonic() + GRACE
        answers: dict[Seat, dict[str, Any]] = {}
        for seat in here:
            self._receive(seat, deadline, answers.__setitem__)
        for seat in here:
            if seat in answers and answers[seat].pop("at") == "failed":
                self._lose(seat, {"kind": answers[seat].pop("kind"), "detail": answers[seat].pop("detail")})
        return start + plan.settle, answers, failures + [self.failed[s] for s in here if s in self.failed]
