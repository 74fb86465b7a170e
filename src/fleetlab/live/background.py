"""Work that takes memory and time is done by processes of its own: the trace, and predictions from it.

So a poll is never late for them, and what they take is given back.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fleetlab.live.metrics import Metrics
from fleetlab.live.options import WatchOptions

TRACE_S = 3600.0  # s between traces
LONGEST_S = 1800.0  # s that one may take
PREDICTED = "predicted.json"


class Background:
    """At most one process at a time."""

    def __init__(self, folder: Path, system: str, options: WatchOptions, say: Callable[[str], None]) -> None:
        self._folder, self._system, self._options, self._say = folder, system, options, say
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = 0.0
        self._task = self._said = ""
        self._due = {"trace": time.time() + TRACE_S, "predict": time.time()}

    def step(self, metrics: Metrics) -> None:
        """Take over what has been done, and begin what is due."""
        if self._process is not None:
            if self._process.poll() is None:
                if time.time() - self._begun > LONGEST_S:
                    self._end()
                return
            self._take(metrics)
        now = time.time()
        if self._options.predict and now >= self._due["predict"]:
            self._due["predict"] = now + self._options.predict
            self._start("predict")
        elif now >= self._due["trace"]:
            self._due["trace"] = now + TRACE_S
            self._start("trace")

    def finish(self) -> None:
        """End what runs, and write the trace as it is now."""
        self._end()
        self._start("trace")
        assert self._process is not None
        try:
            self._process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self._end()
        self._take(None)

    def _start(self, task: str) -> None:
        words = [sys.executable, "-m", "fleetlab.live.analyze", task, self._system, str(self._folder)]
        words += [word for request in self._options.request for word in ("--request", request)]
        self._begun, self._task = time.time(), task
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def _take(self, metrics: Metrics | None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stderr is not None
        said = process.stderr.read().decode("utf-8", "replace").strip()
        process.stderr.close()
        if process.returncode:
            if metrics is not None:
                metrics.counts["watch_failures"][self._task,] += 1
            line = f"{self._task}: {said.splitlines()[-1][:200] if said else f'status {process.returncode}'}"
            if line != self._said:  # what fails each time is said once
                self._say(line)
                self._said = line
        elif self._task == "predict" and metrics is not None:
            self._predictions(metrics)

    def _predictions(self, metrics: Metrics) -> None:
        values = json.loads((self._folder / "store" / PREDICTED).read_text("utf-8"))
        metrics.predicted_at = values["at"]
        metrics.predicted = {
            f"predicted_{kind}_seconds": {(row[0], row[1]): row[2] for row in values[kind]}
            for kind in ("wait", "request")
        }

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None
