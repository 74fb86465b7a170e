"""Does the page stay right and small for days? Random what-ifs by several visitors while its processes are killed.

    python -m benchmarks.web_soak --what-ifs 3000 --kill-every 30

Every answer is compared with the question (is it the one that was asked?), with earlier answers to the same question,
and, for a sample, with a fresh simulation in another process without a page. A visitor who tries something every 10 s
asks 2,880 times in 8 hours; if a process is killed every 5 minutes, that is every 30 what-ifs. Small traces make all of
it fit into half an hour. Memory is that of the server and of each of its processes, as the system counts it, by the
number of what-ifs; its growth after the first third is a slope with an interval (`benchmarks.memory`). Where
processes are killed none gets old: `--kill-every inf` shows whether they grow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchmarks.memory import PER, Memory, children
from fleetlab.stats.intervals import Interval

SAMPLES = 200  # of memory
TIMES = ("seconds", "cpu_seconds")  # differ from run to run
ORDERS = ("fifo", "sjf", "smallest", "largest", "priority", "aging")
BACKFILLS = ("greedy", "none", "easy")
KINDS = ("T4", "P100", "MISC", "V100")
UNLUCKY = "has ended twice"


@dataclass
class Soak:
    """What was asked, and what came of it."""

    what_ifs: int  # at most
    minutes: float = math.inf  # after which none is asked any more
    visitors: int = 4
    workers: int = 2
    kill_every: float = 30.0  # what-ifs, the mean; infinite: never
    cancel: float = 0.1  # the share of what-ifs that are given up
    traces: int = 3
    jobs: int = 2000  # of each trace
    seed: int = 0
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # by question, without times
    statuses: Counter[int] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    unlucky: int = 0  # what-ifs whose process was killed twice
    cancelled: int = 0
    kills: int = 0
    seconds: float = 0.0
    memory: Memory = field(default_factory=Memory)
    _next: int = 0
    _until: float = math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> Soak:
        """Ask all what-ifs, and return this."""
        with _saved(self.traces, self.jobs) as folder, _page(self.workers, folder) as (host, pid):
            began = time.monotonic()
            self._until = began + 60 * self.minutes
            threads = [threading.Thread(target=self._visit, args=(host, k)) for k in range(self.visitors)]
            others = [
                threading.Thread(target=self._watch, args=(pid,)),
                threading.Thread(target=self._kill, args=(pid,)),
            ]
            for thread in threads + others:
                thread.start()
            for thread in threads:
                thread.join()
            self._over.set()
            for thread in others:
                thread.join()
            self.seconds = time.monotonic() - began
        return self

    def question(self, draw: random.Random) -> dict[str, str]:
        """Return a random what-if."""
        words = {"v": "1", "trace": f"folder:{draw.randrange(self.traces)}"}
        if draw.random() < 0.7:
            words["order"] = draw.choice(ORDERS)
        if draw.random() < 0.5:
            words["backfill"] = draw.choice(BACKFILLS)
        if draw.random() < 0.8:
            words["load"] = f"{draw.randrange(50, 400) / 100:g}"
        if draw.random() < 0.3:
            words["nodes"] = f"{draw.choice(KINDS)}+{draw.randrange(1, 60)}"
        return words

    def _mistake(self, what: str) -> None:
        self.mistakes.append(what)
        print(f"wrong: {what[:500]}", file=sys.stderr)

    def _visit(self, host: str, number: int) -> None:
        draw = random.Random(f"{self.seed} {number}")
        while True:
            with self._lock:
                if self._next >= self.what_ifs or time.monotonic() > self._until:
                    return
                self._next += 1
            words, way = self.question(draw), draw.random()
            try:
                if way < self.cancel:
                    self._give_up(host, number, words, draw.random())
                elif way < self.cancel + 0.2:
                    self._follow(host, number, words)
                else:
                    self._ask(host, number, words)
            except (OSError, ValueError) as e:
                self._mistake(f"{urlencode(words)}: {type(e).__name__}: {e}")

    def _ask(self, host: str, number: int, words: dict[str, str]) -> None:
        status, body = _request(host, f"/api/run?{urlencode(words)}", visitor=number)
        self._take(words, status, json.loads(body))

    def _follow(self, host: str, number: int, words: dict[str, str]) -> None:
        question = json.dumps({"kind": "run", "link": urlencode(words)})
        _, body = _request(host, "/api/operations", "POST", question, visitor=number)
        state = json.loads(body)
        if state["status"] == "running":
            _, events = _request(host, f"/api/operations/{state['operation']}/events", visitor=number)
            state = json.loads(events.decode().strip().rpartition("data: ")[2])
        done = state["status"] == "done"
        self._take(words, 200 if done else 503, state["result"] if done else state["error"])

    def _give_up(self, host: str, number: int, words: dict[str, str], after: float) -> None:
        """Start a what-if and cancel it."""
        question = json.dumps({"kind": "run", "link": urlencode(words)})
        _, body = _request(host, "/api/operations", "POST", question, visitor=number)
        time.sleep(after / 4)
        status, _ = _request(host, f"/api/operations/{json.loads(body)['operation']}", "DELETE", visitor=number)
        with self._lock:
            self.cancelled += 1
            if status != 200:
                self._mistake(f"cancelling gave {status}")

    def _take(self, words: dict[str, str], status: int, answer: dict[str, Any]) -> None:
        """Check an answer against its question, and against earlier answers to it."""
        key = urlencode(words)
        answer = {name: value for name, value in answer.items() if name not in TIMES}
        with self._lock:
            self.statuses[status] += 1
            if status != 200:
                unlucky = UNLUCKY in str(answer.get("error"))
                self.unlucky += unlucky
                if not unlucky:
                    self._mistake(f"{key}: {status}: {answer}")
            elif not _is_about(answer, words):
                self._mistake(f"{key}: the answer is about {answer['link']}")
            elif self.answers.setdefault(key, answer) != answer:
                self._mistake(f"{key}: another answer than before")

    # -- killing and measuring --------------------------------------------------------------------------------------

    def _kill(self, pid: int) -> None:
        """Kill at random, by what-ifs: compressed time has as many kills, however long it takes."""
        draw = random.Random(f"{self.seed} kills")
        at = 0.0 if math.isfinite(self.kill_every) else math.inf
        while not self._over.wait(0.05):
            if self._next < at:
                continue
            at = self._next + draw.expovariate(1 / self.kill_every)
            if processes := children(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(processes), signal.SIGKILL)
                    self.kills += 1

    def _watch(self, pid: int) -> None:
        """Measure memory at equal numbers of what-ifs."""
        step, seen = max(1, self.what_ifs // SAMPLES), 0
        while not self._over.wait(0.05):
            if self._next // step > seen:
                seen = self._next // step
                self.memory.sample(self._next, pid)
                asked = f"{self._next:,} of {self.what_ifs:,} what-ifs, {self.kills} kills"
                print(f"{asked}, {len(self.mistakes)} wrong, server {self.memory.server[-1]:.0f} MiB", file=sys.stderr)

    # -- what came of it --------------------------------------------------------------------------------------------

    def compare_with_fresh_runs(self, most: int) -> list[str]:
        """Simulate a sample anew, without a page; return the questions whose answers differ."""
        sample = random.Random(self.seed).sample(sorted(self.answers), min(most, len(self.answers)))
        return [why for key in sample if (why := _differs(key, self.answers[key], self.jobs))]


def _is_about(answer: dict[str, Any], words: dict[str, str]) -> bool:
    from fleetlab.web.link import Link

    return bool(Link.of(answer["link"]) == Link.of(urlencode(words)))


def _differs(key: str, answer: dict[str, Any], jobs: int) -> str:
    """Return what differs from `fleetlab.simulate`, or nothing; the first answer has no intervals."""
    from urllib.parse import parse_qsl

    import fleetlab

    words: dict[str, Any] = dict(parse_qsl(key))
    seed = words.pop("trace").partition(":")[2]
    del words["v"]
    if "load" in words:
        words["load"] = float(words["load"])
    scenario = fleetlab.Scenario.of(f"builtin:{jobs}:{seed}", **words)
    fresh = {e.metric: e for e in fleetlab.simulate(scenario).summary()}
    rows = {row["metric"]: row["now"] for row in answer["rows"]}
    both = [name for name in rows if name in fresh]
    wrong = [n for n in both if not math.isclose(rows[n]["value"], fresh[n].value, rel_tol=1e-9, abs_tol=1e-9)]
    return f"{key}: {wrong}" if wrong or len(both) < 3 else ""


@contextlib.contextmanager
def _saved(traces: int, jobs: int) -> Iterator[str]:
    """Save built-in traces, by seed, in a folder: those that the page offers by itself are larger."""
    from fleetlab.core.data import open_trace

    with tempfile.TemporaryDirectory(prefix="fleetlab-soak-") as folder:
        for seed in range(traces):
            open_trace(f"builtin:{jobs}:{seed}").save(Path(folder) / str(seed))
        yield folder


@contextlib.contextmanager
def _page(workers: int, folder: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json", "--workers", str(workers)]
    command += ["--traces", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            yield urlsplit(json.loads(page.stdout.readline())["url"]).netloc, page.pid
        finally:
            page.terminate()


def _request(host: str, path: str, method: str = "GET", body: str | None = None, *, visitor: int) -> tuple[int, bytes]:
    connection = HTTPConnection(host, timeout=900)
    try:
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, {"Fleetlab-Visitor": f"visitor-{visitor}", **kind})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what-ifs", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--kill-every", type=float, default=30.0)
    parser.add_argument("--fresh", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--cancel", type=float, default=0.1)
    parser.add_argument("--visitors", type=int, default=4)
    settings = vars(parser.parse_args())
    fresh = settings.pop("fresh")
    soak = Soak(**settings).run()
    differ = soak.compare_with_fresh_runs(fresh)
    for name, value in _rows(soak, fresh, differ).items():
        print(f"{name}: {value}")
    for mistake in (soak.mistakes + differ)[:20]:
        print(mistake)
    sys.exit(1 if soak.mistakes or differ else 0)


def _rows(soak: Soak, fresh: int, differ: list[str]) -> dict[str, object]:
    memory = soak.memory
    tenth = slice(None, None, max(1, len(memory.server) // 10))
    return {
        "what-ifs": soak.statuses.total() + soak.cancelled,
        "different ones": len(soak.answers),
        "statuses": dict(soak.statuses),
        "cancelled": soak.cancelled,
        "kills": soak.kills,
        "killed twice (503)": soak.unlucky,
        "wrong or mixed": len(soak.mistakes),
        "compared with fresh runs": min(fresh, len(soak.answers)),
        "that differ": len(differ),
        "seconds": round(soak.seconds),
        "server, MiB": [round(size) for size in memory.server[tenth]],
        "processes, MiB": [[round(size) for size in each] for each in memory.processes[tenth]],
        "largest process, MiB": round(memory.largest_process),
        f"growth of the server in {PER:,} what-ifs, MiB": _said(memory.growth()),
        f"growth of its processes in {PER:,} what-ifs, MiB": _said(memory.growth_of_processes()),
    }


def _said(growth: Interval) -> str:
    return f"{growth.value:.1f} ({growth.low:.1f} to {growth.high:.1f})"


if __name__ == "__main__":
    main()
