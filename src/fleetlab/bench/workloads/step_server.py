"""The suite's side of `fleetlab.bench.step`: receives steps of a program, and makes it wait."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

from fleetlab.bench.steps import GO, WAITS


class StepServer:
    """Listens on a Unix socket; a program may have several processes, each with its own connection."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended: list[float] = []  # times of the steps, in order of arrival
        self.items: list[int] = []
        self._state = GO
        self._rest: dict[socket.socket, bytes] = {}  # by connection: what has come of the next line
        self._waits: set[socket.socket] = set()
        self._open = True
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._select = selectors.DefaultSelector()
        self._select.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def add(self, items: int, at: float) -> None:
        """Count a step; items first, so that a reader never sees a time without them."""
        self.items.append(items)
        self.ended.append(at)

    def say(self, word: bytes) -> None:
        """Tell every process, and those that connect later, to wait or to go on."""
        self._state = word
        self._waits.clear()
        for one in list(self._rest):
            with contextlib.suppress(OSError):
                one.sendall(word)

    def all_wait(self) -> bool:
        """Whether each has said that it waits."""
        return self._waits >= set(self._rest)

    def clients(self) -> list[int]:
        """Processes that are connected."""
        pids = [struct.unpack("3i", one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] for one in self._rest]
        return [pid for pid in pids if pid]  # 0: of another namespace of processes

    def close(self) -> None:
        """Stop listening."""
        self._open = False
        self._thread.join(timeout=1)

    def _serve(self) -> None:
        while self._open:
            for key, _ in self._select.select(timeout=0.2):
                if key.fileobj is self._listener:
                    self._greet()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type]
        for one in (*self._rest, self._listener):
            one.close()
        self._select.close()

    def _greet(self) -> None:
        one, _ = self._listener.accept()
        self._rest[one] = b""
        self._select.register(one, selectors.EVENT_READ)
        if self._state != GO:
            one.sendall(self._state)

    def _receive(self, one: socket.socket) -> None:
        try:
            more = one.recv(1 << 16)
        except OSError:
            more = b""
        if not more:
            self._select.unregister(one)
            self._rest.pop(one)
            self._waits.discard(one)
            one.close()
            return
        *lines, self._rest[one] = (self._rest[one] + more).split(b"\n")
        for line in lines:
            if line + b"\n" == WAITS:
                self._waits.add(one)
            else:
                self._line(line)

    def _line(self, line: bytes) -> None:
        """Count `ITEMS` or `ITEMS TIME`; without a time it is now."""
        words = line.split()
        with contextlib.suppress(ValueError, IndexError):
            items = int(words[0])
            at = float(words[1]) if len(words) > 1 else time.monotonic()
            self.add(items, at)
