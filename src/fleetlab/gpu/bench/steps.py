"""Count the steps of your own program while a suite measures it.

```python
from fleetlab.gpu import step

for images, labels in loader:
    train(images, labels)
    step(len(images))
```

Outside a suite a call does nothing. In one, `FLEETLAB_STEPS` names a Unix socket: each step is a line with its items
and `time.monotonic()`, and the suite answers `0` to make the program wait, at the end of a step, and `1` to let it go
on. Another language can do the same in a few lines; without the socket, a plan counts steps by `match`.
"""

from __future__ import annotations

import os
import socket
import time

ADDRESS = "FLEETLAB_STEPS"
WAIT, GO = b"0", b"1"
WAITS = b"waits\n"  # what a program says when it has stopped


class StepCounter:
    """The connection of this process to a suite; none outside a suite, or once it is lost."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process = 0

    def count(self, items: int) -> None:
        """Report a step, and wait if the suite says so."""
        if self._process != os.getpid():  # the first step, also of a forked process
            self._process = os.getpid()
            self._connect()
        if self._socket is None:
            return
        try:
            self._socket.sendall(b"%d %.6f\n" % (items, time.monotonic()))
            if self._answer(socket.MSG_DONTWAIT) == WAIT:
                self._socket.sendall(WAITS)
                while self._answer() == WAIT:
                    pass
        except OSError:  # the suite is gone: the program goes on as without it
            self._socket = None

    def _connect(self) -> None:
        self._socket = None
        if address := os.environ.get(ADDRESS):
            try:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.connect(address)
            except OSError:
                self._socket = None

    def _answer(self, flags: int = 0) -> bytes:
        """The last answer, if there is one."""
        assert self._socket is not None
        try:
            answer = self._socket.recv(256, flags)
        except BlockingIOError:
            return b""
        if not answer:
            raise ConnectionError
        return answer[-1:]


_counter = StepCounter()


def step(items: int = 1) -> None:
    """Report that a step with so many items is done; call it when its results are there.

    On a GPU that is after a `loss.item()` or `torch.cuda.synchronize()`: otherwise steps are counted when they are
    enqueued. Their rate is the same over a window of seconds, but their times are the host's.
    """
    _counter.count(items)
