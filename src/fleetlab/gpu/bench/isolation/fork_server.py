"""The fork server of the probes: a process that has imported PyTorch, but not touched the GPU, and forks tenants.

A tenant is then there in milliseconds, with an environment of its own, so that a probe measures the GPU and not the
import. Requests and events are one JSON object per line: `{"start": 3, "env": {…}, …}` starts tenant 3,
`{"to": 3, "do": …}` sends it a command, and the end of the input ends all. `ForkServer` is the parent's side, `Port`
that of a tenant.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from fleetlab.gpu.devices.console import BenchError, large_import, python_path


class Port:
    """Commands of one tenant, read in a thread; `stop` is an event, the others wait in a queue."""

    def __init__(self, number: int, commands: TextIO, events: int) -> None:
        self._number, self._commands, self._events = number, commands, events
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.stopped = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._commands:
            word = json.loads(line)
            if word["do"] == "stop":
                self.stopped.set()
            else:
                self._queue.put(word)
        os._exit(3)

    def say(self, **event: Any) -> None:  # noqa: ANN401
        """Send an event with its time; a line is short, so that lines of several tenants do not mix."""
        os.write(self._events, json.dumps({"tenant": self._number, "t": time.monotonic(), **event}).encode() + b"\n")

    def wait(self, *words: str) -> dict[str, Any]:
        """Wait for one of these commands."""
        while (word := self._queue.get())["do"] not in words:
            pass
        return word


# --- the parent's side of tenants ------------------------------------------------------------------------------------


START = 120.0  # s to import PyTorch
Event = dict[str, Any]


class ProbeTenant:
    """One process, as its parent knows it: what it said, in order."""

    def __init__(self, number: int, server: ForkServer) -> None:
        self._number, self._server = number, server
        self.events: list[Event] = []
        self._news = threading.Condition()

    def receive(self, event: Event) -> None:
        """Take an event; called by the server's reader."""
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
                if event or self.find("ended") or (remaining := deadline - time.monotonic()) <= 0:
                    return event
                self._news.wait(remaining)

    def count(self, at: str) -> int:
        """How many of these events there were."""
        return sum(event["at"] == at for event in self.events)

    def send(self, do: str, **more: Any) -> None:  # noqa: ANN401
        """Send a command."""
        self._server.write({"to": self._number, "do": do, **more})

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


class ForkServer:
    """The forking process, inside a `with` block; all its tenants end with it."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self._home, self._env = home, env
        self._tenants: list[ProbeTenant] = []
        self._ready = threading.Event()

    def __enter__(self) -> Self:
        self._log = self._home / "fork-server.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fleetlab.gpu.bench.isolation.fork_server"],
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
                if event["at"] == "serving":
                    self._ready.set()
                else:
                    self._tenants[event["tenant"]].receive(event)
        self._ready.set()

    def write(self, word: dict[str, Any]) -> None:
        """Send a line to the forking process."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(word).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError(f"the process that starts tenants died: {self._log}") from None

    def start(self, env: dict[str, str], **order: Any) -> ProbeTenant:  # noqa: ANN401
        """Fork a tenant with an environment and an order."""
        number = len(self._tenants)
        tenant = ProbeTenant(number, self)
        self._tenants.append(tenant)
        log = self._home / f"tenant-{number}.log"
        self.write({"start": number, "env": env, "log": str(log), **order})
        return tenant


# --- A process that has imported PyTorch, but not touched the GPU, and forks tenants on request ----------------------


def main() -> int:
    """Serve until the end of the input."""
    events = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not get between the events
    with large_import():
        from fleetlab.gpu.bench.isolation import tenants  # noqa: F401  imported here, used in the children
    return ForkingProcess(events).serve()


class ForkingProcess:
    """Children by number, and the events of their ends."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, int] = {}
        self._waits = selectors.DefaultSelector()
        self._rest = b""

    def serve(self) -> int:
        """Read requests and watch children."""
        self._say(at="serving")
        self._waits.register(0, selectors.EVENT_READ, None)
        while True:
            for key, _ in self._waits.select():
                if key.data is not None:
                    self._ended(key.data, key.fd)
                elif not self._read():
                    self._end_all()
                    return 0

    def _read(self) -> bool:
        if not (more := os.read(0, 1 << 16)):
            return False
        *lines, self._rest = (self._rest + more).split(b"\n")
        for line in lines:
            word = json.loads(line)
            if "start" in word:
                self._start(word)
            elif word["to"] in self._pipes:
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._pipes[word["to"]], line + b"\n")
        return True

    def _start(self, order: dict[str, Any]) -> None:
        number, (inlet, outlet) = order["start"], os.pipe()
        pid = os.fork()
        if pid == 0:
            for pipe in (outlet, *self._pipes.values()):
                os.close(pipe)
            _live(order, inlet, self._events)
        os.close(inlet)
        self._pids[number], self._pipes[number] = pid, outlet
        self._waits.register(os.pidfd_open(pid), selectors.EVENT_READ, number)
        self._say(tenant=number, at="started", pid=pid)

    def _ended(self, number: int, watch: int) -> None:
        at = time.monotonic()
        _, status = os.waitpid(self._pids.pop(number), 0)
        self._waits.unregister(watch)
        os.close(watch)
        os.close(self._pipes.pop(number))
        self._say(tenant=number, at="ended", status=os.waitstatus_to_exitcode(status), t=at)

    def _end_all(self) -> None:
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def _say(self, **event: Any) -> None:  # noqa: ANN401
        os.write(self._events, json.dumps({"t": time.monotonic(), **event}).encode() + b"\n")


def _live(order: dict[str, Any], inlet: int, events: int) -> None:
    """A child: take its environment and its log, play its parts, and end without the parent's clean-up."""
    status = 1
    try:
        os.dup2(inlet, 0)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        from fleetlab.gpu.bench.isolation.tenants import play

        # Never closed: the thread that reads it holds its lock until the process ends.
        commands = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        play(order, Port(order["start"], commands, events))
        status = 0
    except BaseException as e:  # nothing of a child may run the parent's code
        text = json.dumps({"tenant": order["start"], "t": time.monotonic(), "at": "failed", "detail": repr(e)[:400]})
        os.write(events, text.encode() + b"\n")
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
