"""How long does the page take to answer while somebody drags? Starts it, asks, and prints a table.

    python -m bench.web

Wall is what the visitor waits for: until the numbers are there, and until all is. CPU is what the process used.
Every state is asked for once, so that nothing comes from what is kept; the baseline is there after the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

RULES = {
    "load": [f"load={0.8 + 0.05 * k:.2f}" for k in range(9)],
    "nodes": [f"nodes=T4:{440 + 10 * k}" for k in range(9)],
    "order": ["order=sjf", "order=smallest", "order=largest", "order=priority", "order=aging"],
    "strict": [f"discipline=strict&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "exclusive": [f"sharing=exclusive&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "easy": [f"discipline=easy&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "fgd": [f"place=fgd&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--tasks", type=int, default=100_000)
    trace = f"trace=builtin:{asked.parse_args().tasks}:0"
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            url = json.loads(page.stdout.readline())["url"]
            print(f"the first answer, from the start of the page: {_ask(url, trace)[1]:.2f} s")
            print(f"the same again, from what is kept: {_ask(url, trace)[1]:.3f} s")
            _ask(url, f"{trace}&load=0.5")  # by the other process, which has not opened the trace yet
            for name, states in RULES.items():
                _print(name, [_ask(url, f"{trace}&{state}") for state in states])
        finally:
            page.terminate()


def _ask(url: str, state: str) -> tuple[float, float, float]:
    """Seconds until the numbers are there, until all is there, and of CPU."""
    began, early = time.perf_counter(), None
    question = json.dumps({"kind": "run", "link": f"v=1&{state}"}).encode()
    job = _json(Request(f"{url}api/jobs", question, {"Content-Type": "application/json"}))
    if job["status"] == "going":
        with urlopen(f"{url}api/jobs/{job['job']}/events", timeout=600) as events:
            for line in events:
                if not line.startswith(b"data: "):
                    continue
                job = json.loads(line.removeprefix(b"data: "))
                if early is None and "answer" in (job["progress"] or {}):
                    early = time.perf_counter() - began
    took = time.perf_counter() - began
    return early or took, took, job["result"]["cpu_seconds"]


def _json(request: Request) -> dict[str, Any]:
    with urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def _print(name: str, took: Sequence[tuple[float, float, float]]) -> None:
    said = [f"{statistics.median(t[k] for t in took):.2f} ({max(t[k] for t in took):.2f})" for k in range(3)]
    print(f"{name:10s} numbers {said[0]} s, all {said[1]} s, CPU {said[2]} s: median (longest) of {len(took)}")


if __name__ == "__main__":
    main()
