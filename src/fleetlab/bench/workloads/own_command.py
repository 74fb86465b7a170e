"""A command of your own as a tenant: it steps by itself, and the suite counts its steps.

It runs in its cells and waits between them. The worker that watches it does not open the GPU, so that the command has
it as it would without the suite.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
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

from fleetlab.bench.loops import StepLog
from fleetlab.bench.steps import ADDRESS, GO, WAIT
from fleetlab.bench.workers import guard
from fleetlab.bench.workloads.step_server import StepServer
from fleetlab.devices.errors import BenchError

if TYPE_CHECKING:
    import torch

LONGEST = 10.0  # s after a window for the step that was running at its end
OBEYS = 5.0  # s for a program to stop at the end of its step, before it is stopped where it is
TAIL = 6  # lines of output that are quoted if it ends


@dataclass
class OwnCommand:
    """A command whose steps are counted by `fleetlab.bench.step`, or by the lines of its output that match."""

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
                raise BenchError(msg, hint="fleetlab.bench.step() after each step, or match = 'step (\\d+)'")
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
        fed, first, began = StepLog(), len(self._steps.ended), time.monotonic()
        self._go()
        try:
            while time.monotonic() < until or not self._past(closes):
                self._alive()
                if time.monotonic() > until + LONGEST:
                    break
                time.sleep(0.005)
            self._wait()
        except Exception as e:  # an error of a program is a result, not the end of the bench
            fed.error = e
        ended = self._steps.ended[first:]
        steps = sorted(zip(ended, self._steps.items[first : first + len(ended)], strict=True))  # of several processes
        fed.ended, fed.items = [at for at, _ in steps], [items for _, items in steps]
        fed.begun = [began, *fed.ended][: len(fed.ended)]
        return fed

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
        if self.match and (found := re.search(self.match, line)):
            self._count(found)

    def _count(self, found: re.Match[str]) -> None:
        """One step, or as many as its number is higher than the last."""
        steps = 1
        if found.re.groups and found[1] and found[1].isdigit():
            number, last = int(found[1]), self._number
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
