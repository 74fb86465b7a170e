"""Your own command or function as a tenant: the suite counts its steps.

A command runs in its cells and waits between them. The worker that watches it does not open the GPU, so that the
command has it as it would without the suite.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import selectors
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.gpu.bench.loops import StepLog
from fleetlab.gpu.bench.steps import ADDRESS, GO, WAIT, WAITS
from fleetlab.gpu.bench.workers import guard
from fleetlab.gpu.devices.console import BenchError

if TYPE_CHECKING:
    import torch


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


# --- A command of your own as a tenant -------------------------------------------------------------------------------


LONGEST = 10.0  # s after a window for the step that was running at its end
OBEYS = 5.0  # s for a program to stop at the end of its step, before it is stopped where it is
TAIL = 6  # lines of output that are quoted if it ends


@dataclass
class OwnCommand:
    """A command whose steps are counted by `fleetlab.gpu.step`, or by the lines of its output that match."""

    TINY: ClassVar[dict[str, Any]] = {}
    command: str
    match: str = ""  # a regular expression; its group, if it has one, is a step number
    items: int = 1  # of a step, if the program does not tell
    unit: str = "step"
    warm_up: int = 3  # steps before it counts as loaded
    start_s: float = 120.0  # s to get there

    def __post_init__(self) -> None:
        self.how = "steps by output" if self.match else "steps by step()"
        self._ended = threading.Event()
        self._last = deque[str](maxlen=TAIL)
        self._number: int | None = None  # the last step number in the output

    def setup(self, device: torch.device) -> None:
        """Start the command, wait until it has stepped, and make it wait."""
        self._home = tempfile.TemporaryDirectory(prefix="steps-", dir="/tmp")  # a socket's path must be short
        self._steps = StepServer(Path(self._home.name) / "steps")
        self._process = subprocess.Popen(
            [sys.executable, "-I", guard.__file__, *shlex.split(self.command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | self._environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until = time.monotonic() + self.start_s
        while len(self._steps.ended) < self.warm_up:
            self._alive()
            if time.monotonic() > until:
                called = f"no line of its output matches `{self.match}`" if self.match else "it does not call `step`"
                msg = f"{len(self._steps.ended)} steps in {self.start_s:g} s: {called}, or starts slowly"
                raise BenchError(msg, hint="fleetlab.gpu.step() after each step, or match = 'step (\\d+)'")
            time.sleep(0.01)
        self._wait()

    def _environment(self) -> dict[str, str]:
        """Where to count steps; nowhere if lines are counted, so that none is counted twice."""
        return {ADDRESS: "" if self.match else str(self._steps.path), "PYTHONUNBUFFERED": "1"}

    def processes(self) -> list[int]:
        """Those that step, if they say so; otherwise all of the command."""
        return self._steps.clients() or guard.descendants(self._process.pid)

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far."""
        ticks = 0
        for pid in guard.descendants(self._process.pid):
            with contextlib.suppress(OSError, ValueError, IndexError):
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def watch(self, *, closes: float, until: float) -> StepLog:
        """Let it run from now until a time, and until the step that runs when the window closes has ended."""
        log, first, began = StepLog(), len(self._steps.ended), time.monotonic()
        self._go()
        try:
            while time.monotonic() < until or not self._past(closes):
                self._alive()
                if time.monotonic() > until + LONGEST:
                    break
                time.sleep(0.005)
            self._wait()
        except Exception as e:  # an error of a program is a result, not the end of the bench
            log.error = e
        ended = self._steps.ended[first:]
        steps = sorted(zip(ended, self._steps.items[first : first + len(ended)], strict=True))  # of several processes
        log.ended, log.items = [at for at, _ in steps], [items for _, items in steps]
        log.begun = [began, *log.ended][: len(log.ended)]
        return log

    def close(self) -> None:
        """End it, with everything that it started."""
        if hasattr(self, "_process"):
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=guard.GRACE + 2)
            self._reader.join(timeout=1)
            self._process.stdout.close()
            self._steps.close()
            self._home.cleanup()

    def _past(self, when: float) -> bool:
        return bool(self._steps.ended) and self._steps.ended[-1] >= when

    def _alive(self) -> None:
        if self._ended.is_set():
            status = self._process.wait()
            last = " / ".join(self._last)
            msg = f"the command ended with status {status} after {len(self._steps.ended)} steps"
            raise RuntimeError(msg + (f": {last[-400:]}" if last else "; it must run until it is stopped"))

    def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while more := os.read(self._process.stdout.fileno(), 1 << 16):
            *lines, rest = re.split(rb"[\r\n]+", rest + more)  # a progress bar ends its lines with \r
            for line in lines:
                self._line(line.decode("utf-8", "replace").strip())
        self._line(rest.decode("utf-8", "replace").strip())
        self._ended.set()

    def _line(self, line: str) -> None:
        if line:
            self._last.append(line)
        if self.match and (match := re.search(self.match, line)):
            self._count(match)

    def _count(self, match: re.Match[str]) -> None:
        """One step, or as many as its number is higher than the last."""
        steps = 1
        if match.re.groups and match[1] and match[1].isdigit():
            number, last = int(match[1]), self._number
            self._number, steps = number, number - last if last is not None and number > last else 1
        self._steps.add(steps * self.items, time.monotonic())

    def _go(self) -> None:
        self._say(GO)
        self._steps.say(GO)

    def _wait(self) -> None:
        """Make it wait at the end of its step; one that does not is stopped where it is."""
        if self._steps.clients():
            self._steps.say(WAIT)
            if self._until(self._steps.all_wait):
                return
        self._say(WAIT)
        self._until(lambda: set(guard.states(self._process.pid).values()) <= {"T"})

    def _until(self, done: Callable[[], bool]) -> bool:
        until = time.monotonic() + OBEYS
        while not done() and time.monotonic() < until and not self._ended.is_set():
            time.sleep(0.002)
        return done()

    def _say(self, word: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(word)
            self._process.stdin.flush()


# --- A Python function of your own as a tenant -----------------------------------------------------------------------


DEVICE, REHEARSAL = "FLEETLAB_DEVICE", "FLEETLAB_REHEARSAL"  # environment variables of a user's program


def announce(device: str, *, tiny: bool) -> None:
    """Tell programs and modules of the user's own where they run."""
    os.environ[DEVICE] = device
    if tiny:
        os.environ |= {REHEARSAL: "1", "CUDA_VISIBLE_DEVICES": ""}
    elif ":" in device:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        index = int(device.partition(":")[2])
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[index] if len(visible) > index and visible[0] else str(index)


@dataclass
class OwnFunction:
    """A function that is one step; one with a parameter `device` is called once and returns it."""

    TINY: ClassVar[dict[str, Any]] = {}
    callable: str
    items: int = 1  # of a step, if the function does not return their number
    unit: str = "step"

    def setup(self, device: torch.device) -> None:
        """Import it, and build it if it is to be built."""
        function = import_function(self.callable)
        builds = "device" in inspect.signature(function).parameters
        self._step: Callable[[], Any] = function(device=device) if builds else function
        if not callable(self._step):
            raise BenchError(f"{self.callable}: returned {type(self._step).__name__}, not a function that is one step")

    def step(self) -> int:
        """Call it; what it returns is its number of items, if it is one."""
        result = self._step()
        return result if type(result) is int else self.items


def import_function(name: str) -> Callable[..., Any]:
    """Import MODULE:FUNCTION from the current folder or the Python path."""
    module, _, of = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), of)
    except (ImportError, AttributeError, ValueError) as e:
        msg = f"{name}: cannot be imported: {e}"
        raise BenchError(msg, hint="MODULE:FUNCTION, in the current folder or on PYTHONPATH") from e
    if not callable(function):
        raise BenchError(f"{name}: not a function")
    return function  # type: ignore[no-any-return]
