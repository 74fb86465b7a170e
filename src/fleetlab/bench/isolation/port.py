"""A tenant's side of its connection: commands come in, events go out, one JSON object per line.

A tenant ends when its parent does: the end of the input ends the process.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import Any, TextIO


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
