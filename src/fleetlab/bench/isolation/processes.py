"""The parent's side of tenants: start them through the nursery, send commands, wait for events."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetlab.devices.errors import BenchError
from fleetlab.devices.start import python_path

START = 120.0  # s for the nursery to import PyTorch
Event = dict[str, Any]


class ProbeTenant:
    """One process, as its parent knows it: what it said, in order."""

    def __init__(self, number: int, nursery: TenantNursery) -> None:
        self._number, self._nursery = number, nursery
        self.events: list[Event] = []
        self._news = threading.Condition()

    def hear(self, event: Event) -> None:
        """Take an event; called by the nursery's reader."""
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def find(self, *at: str, part: str | None = None) -> Event | None:
        """The first of these events so far."""
        return next((e for e in self.events if e["at"] in at and (part is None or e.get("part") == part)), None)

    def wait(self, *at: str, within: float, part: str | None = None) -> Event | None:
        """Wait for one of these events; None if the process ends or the time passes first."""
        deadline = time.monotonic() + within
        with self._news:
            while True:
                event = self.find(*at, part=part)
                if event or self.find("ended") or (left := deadline - time.monotonic()) <= 0:
                    return event
                self._news.wait(left)

    def count(self, at: str) -> int:
        """How many of these events there were."""
        return sum(event["at"] == at for event in self.events)

    def send(self, do: str, **more: Any) -> None:  # noqa: ANN401
        """Send a command."""
        self._nursery.write({"to": self._number, "do": do, **more})

    def end(self, *, within: float = 5.0) -> Event | None:
        """Wait for its end; kill it if it takes longer, and say so in the event."""
        if event := self.wait("ended", within=within):
            return event
        started = self.wait("started", within=1.0)
        if started is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.kill(started["pid"], signal.SIGKILL)
        event = self.wait("ended", within=20.0)
        return event and event | {"killed": True}


class TenantNursery:
    """The forking process, inside a `with` block; all its tenants end with it."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self._home, self._env = home, env
        self._tenants: list[ProbeTenant] = []
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._log = self._home / "nursery.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fleetlab.bench.isolation.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | python_path() | self._env,
                start_new_session=True,  # Ctrl-C goes to the parent, which ends its tenants in order
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        if not self._ready.wait(START) or self._process.poll() is not None:
            self._close()
            last = self._log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            msg = f"the processes of the probes cannot be started: {' '.join(last)}"
            raise BenchError(msg, hint="PyTorch is part of `pip install 'fleetlab[bench]'`")
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=5)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                if event["at"] == "nursery":
                    self._ready.set()
                else:
                    self._tenants[event["tenant"]].hear(event)
        self._ready.set()

    def write(self, word: dict[str, Any]) -> None:
        """Send a line to the nursery."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(word).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            msg = f"the process that starts tenants died: {self._log}"
            raise BenchError(msg) from None

    def start(self, env: dict[str, str], **order: Any) -> ProbeTenant:  # noqa: ANN401
        """Fork a tenant with an environment and an order."""
        number = len(self._tenants)
        tenant = ProbeTenant(number, self)
        self._tenants.append(tenant)
        log = self._home / f"tenant-{number}.log"
        self.write({"start": number, "env": env, "log": str(log), **order})
        return tenant
