"""What a model's HTTP server answers while others use its card.

Run it as `python -m benchmarks.served OUT` on a machine with a GPU.

The server (`python -m fleetlab.gpu.serving.server`), the background (`… bench.single`) and the load (`… serving.load`)
are the commands that a user would run, each in a process of its own; all but the load under the sharing mode. One
server serves a mode from its first background to its last. With `--out` of an
earlier run it goes on with what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetlab.gpu.sharing.modes import Share, shared

# Mode, and what the background may have.
MODES = {
    "time slicing": ("time-slicing", Share()),
    "MPS": ("mps", Share()),
    "MPS, background 50 %": ("mps", Share(50)),
    "MPS, background below": ("mps", Share(priority=1)),
}
BACKGROUNDS = ("", "resnet-train", "llm-decode")
RATES = (100, 300)
SLO_MS = 25
SETTLE = 4.0  # s that a background runs before it counts
MARK = "loading"  # the background's last word before it works


def main() -> None:
    """Every mode, background and load; a line of JSON each, written as it comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--mode", action="append", choices=MODES, help="one of the modes; all, if none is named")
    parser.add_argument("--background", action="append", choices=BACKGROUNDS, help="likewise")
    parser.add_argument("--search", default="", help="LOW:HIGH: look for the highest rate that keeps the goal instead")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, tiny: same code, no meaning")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    there = options.out / "served.jsonl"
    done = {json.loads(line)["cell"] for line in there.read_text().splitlines()} if there.exists() else set()
    for name in options.mode or MODES:
        mode, share = MODES[name]
        with shared(mode, rehearse=options.rehearse) as way, _server(way.environment(Share()), options) as (pid, url):
            for background in options.background or BACKGROUNDS:
                todo = [load for load in _loads(options) if f"{name}/{background}/{load}" not in done]
                if todo:
                    with _background(background, way.environment(share), options) as other:
                        proved = sorted(way.attached({pid, *other})) == sorted({pid, *other})
                        for load in todo:
                            cell = {"cell": f"{name}/{background}/{load}", "mode": name, "background": background}
                            _keep(there, cell | {"proved": proved, "load": load, "said": _load(url, load, options)})


def _loads(said: argparse.Namespace) -> list[str]:
    if said.search:
        return [f"--search {said.search} --within 0.1"]
    return [f"--rate {rate // 10 if said.rehearse else rate}" for rate in RATES]


@contextmanager
def _server(environment: dict[str, str], said: argparse.Namespace) -> Iterator[tuple[int, str]]:
    line = [sys.executable, "-m", "fleetlab.gpu.serving.server", "resnet-infer", "--port", "0", "--json", *_where(said)]
    with subprocess.Popen(line, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.pid, json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@contextmanager
def _background(name: str, environment: dict[str, str], said: argparse.Namespace) -> Iterator[list[int]]:
    """A work that runs until the block is left, and its process."""
    if not name:
        yield []
        return
    line = [sys.executable, "-m", "fleetlab.gpu.bench.single", name, "--seconds", "600", *_where(said)]
    out, err = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(line, env=os.environ | environment, stdout=out, stderr=err, text=True) as other:
        try:
            assert other.stderr is not None
            first = other.stderr.readline()
            assert MARK in first, first + other.stderr.read()
            time.sleep(SETTLE if said.rehearse else 3 * SETTLE)
            assert other.poll() is None, "the background is gone"
            yield [other.pid]
            assert other.poll() is None, "the background went in the middle"
        finally:
            other.kill()


def _where(said: argparse.Namespace) -> list[str]:
    return ["--device", "cpu", "--tiny"] if said.rehearse else []


def _load(url: str, load: str, said: argparse.Namespace) -> dict[str, Any]:
    seconds = ["--seconds", str(said.seconds), "--warmup", "1.5", "--slo-ms", str(SLO_MS)]
    line = [sys.executable, "-m", "fleetlab.gpu.serving.load", url, *load.split(), *seconds]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _keep(there: Path, cell: dict[str, Any]) -> None:
    with there.open("a") as out:
        out.write(json.dumps(cell) + "\n")
    print(cell["cell"], "proved" if cell["proved"] else "NOT PROVED", flush=True)


if __name__ == "__main__":
    main()
