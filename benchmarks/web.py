"""How long does the page take to answer while a control is moved? Start it, send requests, and print a table.

    python -m benchmarks.web

Wall time is what a visitor waits: until there are numbers, and until the figures are drawn. CPU is what the process
used. Every scenario is requested once, so that no answer comes from memory; the baseline is known after the first.
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

QUICK = {
    "load": [f"load={0.8 + 0.05 * k:.2f}" for k in range(9)],
    "nodes": [f"nodes=T4+{440 + 10 * k}" for k in range(9)],
    "order": ["order=sjf", "order=smallest", "order=largest", "order=priority", "order=aging"],
    "none": [f"backfill=none&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "exclusive": [f"sharing=exclusive&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "easy": [f"backfill=easy&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
    "fgd": [f"placement=fgd&load={0.8 + 0.05 * k:.2f}" for k in range(5)],
}
# Only the full loop can simulate these.
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--full", action="store_true", help="the slow ones too, for up to 60 s each")
    arguments = parser.parse_args()
    trace = f"trace=builtin:{arguments.jobs}:0"
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        try:
            url = json.loads(page.stdout.readline())["url"]
            print(f"the first answer, from the start of the server: {_request(url, trace).all:.2f} s")
            print(f"the same again, from memory: {_request(url, trace).all:.3f} s")
            _request(url, f"{trace}&load=0.5")  # by the other process, which has not opened the trace yet
            for name, states in QUICK.items():
                _request(url, f"{trace}&{states[0]}&seed=1")  # loads compiled code
                _print(name, [_request(url, f"{trace}&{state}") for state in states])
            for name, state in SLOW.items() if arguments.full else ():
                _print(name, [_request(url, f"{trace}&{state}", most=60.0)])
        finally:
            page.terminate()


class Times(NamedTuple):
    """Seconds until the numbers, and until the figures; and of CPU. Not known of what takes too long."""

    numbers: float
    all: float
    cpu: float


def _request(url: str, state: str, *, most: float = 600.0) -> Times:
    """Follow one request to its end, for so long at most."""
    began, numbers = time.perf_counter(), math.nan
    request = {"kind": "run", "link": f"v=1&{state}"}
    operation = _json(
        Request(f"{url}api/operations", json.dumps(request).encode(), {"Content-Type": "application/json"})
    )
    if operation["status"] == "running":
        with urlopen(f"{url}api/operations/{operation['operation']}/events", timeout=600) as events:
            for line in events:
                now = time.perf_counter() - began
                if not line.startswith(b"data: "):
                    continue
                operation = json.loads(line.removeprefix(b"data: "))
                if math.isnan(numbers) and (operation["progress"] or {}).get("answer"):
                    numbers = now
                if now > most:
                    _json(Request(f"{url}api/operations/{operation['operation']}", method="DELETE"))
                    return Times(numbers, math.nan, math.nan)
    took = time.perf_counter() - began
    return Times(took if math.isnan(numbers) else numbers, took, operation["result"]["cpu_seconds"])


def _json(request: Request) -> dict[str, Any]:
    with urlopen(request, timeout=600) as answer:
        return dict(json.load(answer))


def _print(name: str, took: Sequence[Times]) -> None:
    texts = [_text([getattr(t, column) for t in took]) for column in Times._fields]
    print(f"{name:10s} numbers {texts[0]}, all {texts[1]}, CPU {texts[2]} of {len(took)}", flush=True)


def _text(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({max(seconds):.2f}) s"


if __name__ == "__main__":
    main()
