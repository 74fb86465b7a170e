"""A process that has imported PyTorch, but not touched the GPU, and forks tenants on request.

A tenant is then there in milliseconds, with an environment of its own, so that a probe measures the GPU and not the
import. Requests and events are one JSON object per line: `{"start": 3, "env": {…}, …}` starts tenant 3,
`{"to": 3, "do": …}` sends it a command, and the end of the input ends all.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any

from fleetlab.devices.start import large_import


def main() -> int:
    """Serve until the end of the input."""
    events = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not get between the events
    with large_import():
        from fleetlab.bench.isolation import tenants  # noqa: F401  imported here, used in the children
    return Nursery(events).serve()


class Nursery:
    """Children by number, and the events of their ends."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, int] = {}
        self._waits = selectors.DefaultSelector()
        self._rest = b""

    def serve(self) -> int:
        """Read requests and watch children."""
        self._say(at="nursery")
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
        from fleetlab.bench.isolation.port import Port
        from fleetlab.bench.isolation.tenants import play

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
