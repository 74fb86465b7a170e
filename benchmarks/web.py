"""How long does the page take to answer while somebody drags? Starts it, asks, and prints a table.

    python -m benchmarks.web

Wall is what the visitor waits for: until there are numbers at all (of the first jobs, where all take long), until
those of all jobs are there, and until all is drawn. CPU is what the process used. Every state is asked for once, so
that nothing comes from what is kept; the baseline is there after the first.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

RULES = {
    "load": [f"load={0.8 + 0.05 * k:.2f}" for k in range(9)],
    "nodes": [f"nodes=T4:{440 + 10 * k}" for k in range(9)],
    "order": ["order=sjf", "order=smallest", "order=largest", "order=priority", "order=aging"],
    "none": [f"backfill=none&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "exclusive": [f"sharing=exclusive&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "easy": [f"backfill=easy&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "fgd": [f"placement=fgd&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
}
# Rules that only the full loop knows. The first drag learns how long they take; the others overtake each other.
SLOW = {
    "fair": "order=fair",
    "las": "order=las",
    "srpt": "order=srpt",
    "filling": "order=server_filling",
    "conserv.": "backfill=conservative",
    "mps": "sharing=mps",
    "slicing": "sharing=time-slicing",
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=100_000)
    asked.add_argument("--whole", action="store_true", help="wait for the whole of the slow rules too, up to a minute")
    told = asked.parse_args()
    trace = f"trace=builtin:{told.jobs}:0"
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            url = json.loads(page.stdout.readline())["url"]
            print(f"the first answer, from the start of the page: {_ask(url, trace).all:.2f} s")
            print(f"the same again, from what is kept: {_ask(url, trace).all:.3f} s")
            _ask(url, f"{trace}&load=0.5")  # by the other process, which has not opened the trace yet
            for name, states in RULES.items():
                _ask(url, f"{trace}&{states[0]}&seed=1")  # what is compiled is loaded, and how long it takes is known
                _print(name, [_ask(url, f"{trace}&{state}") for state in states])
            for name, state in SLOW.items():
                _print_slow(name, _drag(url, f"{trace}&{state}"))
                if told.whole:
                    _print(name, [_ask(url, f"{trace}&{state}", most=60.0)])
        finally:
            page.terminate()


class Took(NamedTuple):
    """Seconds until there are numbers, those of all jobs, and all; and of CPU. `part`: of how many jobs the first."""

    first: float
    part: int | None
    numbers: float
    all: float
    cpu: float
    operation: str


def _ask(url: str, state: str, *, instead: str = "", most: float = 600.0, early: bool = False) -> Took:
    """Follow one question to its end, for so long at most, or to its first numbers."""
    began, first, part, numbers, cpu = time.perf_counter(), math.nan, None, math.nan, math.nan
    asked = {"kind": "run", "link": f"v=1&{state}"} | ({"instead": instead} if instead else {})
    operation = _json(Request(f"{url}api/operations", json.dumps(asked).encode(), {"Content-Type": "application/json"}))
    if operation["status"] == "going":
        with urlopen(f"{url}api/operations/{operation['operation']}/events", timeout=600) as events:
            for line in events:
                now = time.perf_counter() - began
                if not line.startswith(b"data: "):
                    continue
                operation = json.loads(line.removeprefix(b"data: "))
                answer = (operation["progress"] or {}).get("answer")
                if answer and math.isnan(first):
                    first, part = now, answer["part"] and answer["part"]["jobs"]
                if answer and answer["part"] is None:
                    numbers = now
                if now > most or (early and not math.isnan(first)):
                    return Took(first, part, numbers, math.nan, cpu, operation["operation"])
    took = time.perf_counter() - began
    first, numbers = (took if math.isnan(at) else at for at in (first, numbers))
    return Took(first, part, numbers, took, operation["result"]["cpu_seconds"], operation["operation"])


def _drag(url: str, state: str) -> list[Took]:
    """Move the load on as soon as there are numbers, as a hand does; the first move learns, and does not count."""
    took: list[Took] = []
    for k in range(7):
        before = took[-1].operation if took else ""
        took.append(_ask(url, f"{state}&load={0.8 + 0.05 * k:.2f}", instead=before, early=True))
        time.sleep(0.3)
    _json(Request(f"{url}api/operations/{took[-1].operation}", method="DELETE"))
    return took[2:]


def _json(request: Request) -> dict[str, Any]:
    with urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def _print(name: str, took: Sequence[Took]) -> None:
    said = [_said([getattr(t, column) for t in took]) for column in ("first", "numbers", "all", "cpu")]
    print(f"{name:10s} first {said[0]}, numbers {said[1]}, all {said[2]}, CPU {said[3]} of {len(took)}", flush=True)


def _print_slow(name: str, took: Sequence[Took]) -> None:
    parts = sorted({t.part or 0 for t in took})
    print(f"{name:10s} first {_said([t.first for t in took])} of {len(took)}, for {parts} jobs", flush=True)


def _said(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({max(seconds):.2f}) s"


if __name__ == "__main__":
    main()
