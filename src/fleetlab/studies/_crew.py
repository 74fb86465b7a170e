"""Several simulations at once, each in a process of its own: memory goes back when one is done.

A call is the name of a function and its arguments as plain values; it hands back arrays. What is large (the workload)
lies in a folder, as a file that all processes map. Processes are started anew rather than forked: compiled code and the
frame library have threads. A small study is run right here: a process takes two seconds to start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.core import FleetlabError, WorkloadError

Arrays = Mapping[str, Any]  # arrays by name
Done = Callable[[int], None]  # told which call is done

SMALL = 50_000  # instances: below, a process takes longer to start than to simulate
REFUSED = 64  # the exit status of a call that cannot be done as it was asked
MOST = 4  # processes where nobody says how many: each holds the workload and its schedule


def crew(instances: int, workers: int | None) -> int:
    """How many processes to take; 0: none but this one."""
    if workers is not None and (isinstance(workers, bool) or not 0 <= workers <= 1024):
        msg = f"a number of processes is not below 0: {workers}"
        raise WorkloadError(msg, hint="workers=0 simulates in this process, one after the other")
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (0 if instances < SMALL else min(there, MOST)) if workers is None else workers


def play(function: str, calls: Sequence[Mapping[str, Any]], folder: Path, *, workers: int, done: Done) -> list[Arrays]:
    """Call `module:function` for each call, so many at a time; what each hands back, in their order."""
    if not workers:
        return [_here(function, call, k, done) for k, call in enumerate(calls)]
    alive: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(workers) as pool:
        started = [pool.submit(_apart, function, call, folder / f"{k}.npz", alive) for k, call in enumerate(calls)]
        try:
            for each in as_completed(started):
                each.result()
                done(started.index(each))
        except BaseException:  # one has failed, or somebody has had enough: none goes on alone
            pool.shutdown(wait=False, cancel_futures=True)
            for process in alive:
                process.terminate()
            raise
    return [each.result() for each in started]


def _here(function: str, call: Mapping[str, Any], k: int, done: Done) -> Arrays:
    module, _, name = function.partition(":")
    found: Arrays = getattr(import_module(module), name)(**call)
    done(k)
    return found


def _apart(function: str, call: Mapping[str, Any], out: Path, alive: list[subprocess.Popen[str]]) -> Arrays:
    # What can be imported here can be imported there, and what lies in the current folder is not in its way.
    words = [sys.executable, "-P", "-m", "fleetlab.studies._crew", function, json.dumps(call), str(out)]
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(words, env=os.environ | path, stderr=subprocess.PIPE, text=True)
    alive.append(process)
    said = process.communicate()[1]
    if process.returncode == REFUSED:
        told = json.loads(said.strip().splitlines()[-1])
        raise WorkloadError(told["error"], hint=told["hint"])
    if process.returncode:
        why = (said.strip().splitlines() or ["no word why"])[-1]
        msg = f"a simulation in a process of its own ended with status {process.returncode}: {why}"
        raise WorkloadError(msg, hint="is there memory enough for several? workers=0 simulates one after the other")
    with np.load(out, allow_pickle=False) as kept:
        found = dict(kept)
    out.unlink()
    return found


def main() -> None:
    """Do one call: the name of a function, its arguments as JSON, and the file for what it hands back."""
    function, call, out = sys.argv[1:]
    module, _, name = function.partition(":")
    try:
        np.savez(out, **getattr(import_module(module), name)(**json.loads(call)))
    except FleetlabError as e:  # the user's mistake, told in the same words as if it had been found at home
        print(json.dumps({"error": str(e), "hint": e.hint}), file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
