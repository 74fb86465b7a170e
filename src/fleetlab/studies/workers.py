"""Several simulations at once, in processes of their own.

A call names a function, which takes a scenario and plain values and returns arrays. Jobs and nodes are written to files
that all processes map; the rest of a scenario travels as its words. Processes are spawned, not forked, because compiled
code and the data frame library have threads. A policy that exists only in this process is simulated in this process,
and so are all calls of a small study: starting a process takes two seconds.
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
from queue import SimpleQueue
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fleetlab.core import Cluster, FleetlabError, Scenario, Workload, WorkloadError
from fleetlab.core.warm_up import Before
from fleetlab.core.words import Opaque

Arrays = Mapping[str, Any]  # arrays by name
Done = Callable[[int], None]  # called with the number of calls that have returned

SMALL = 50_000  # instances: below, starting a process takes longer than a simulation
MOST = 4  # processes by default: each has the workload and its schedule in memory


class Call(NamedTuple):
    """One simulation: its scenario, and the other arguments of the function, as JSON can hold them."""

    scenario: Scenario
    arguments: Mapping[str, Any]


def process_count(instances: int, workers: int | None) -> int:
    """Return how many processes to start; 0 for none but this one."""
    if workers is not None and (isinstance(workers, bool) or not 0 <= workers <= 1024):
        msg = f"a number of processes is not below 0: {workers}"
        raise WorkloadError(msg, hint="workers=0 runs the simulations in this process, one after the other")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (0 if instances < SMALL else min(cores, MOST)) if workers is None else workers


def run_calls(function: str, calls: Sequence[Call], *, workers: int, done: Done) -> list[Arrays]:
    """Call `module:function` once per call, `workers` at a time; return the results in the order of the calls."""
    results: dict[int, Arrays] = {}

    def keep(k: int, result: Arrays) -> None:
        results[k] = result
        done(len(results))

    apart = [k for k, call in enumerate(calls) if workers and _can_travel(call.scenario)]
    with TemporaryDirectory(prefix="fleetlab-") as name:
        _run_apart(function, _written(calls, apart, Path(name)), workers, keep)
    for k in sorted(set(range(len(calls))) - set(apart)):
        keep(k, _function(function)(calls[k].scenario, **calls[k].arguments))
    return [results[k] for k in range(len(calls))]


def _function(name: str) -> Callable[..., Arrays]:
    module, _, function = name.partition(":")
    target: Callable[..., Arrays] = getattr(import_module(module), function)
    return target


# -- scenarios as files ----------------------------------------------------------------------------------------------


def _words(scenario: Scenario) -> dict[str, Any]:
    """Return the words that travel: jobs, nodes and a column of estimates are in files."""
    words = {k: v for k, v in scenario.words().items() if k not in ("trace", "cluster")}
    if not isinstance(scenario.estimate, str):
        del words["estimate"]
    return words


def _can_travel(scenario: Scenario) -> bool:
    return not any(isinstance(value, Opaque) for value in _words(scenario).values())


def _written(calls: Sequence[Call], chosen: Sequence[int], folder: Path) -> dict[int, Path]:
    """Write what the process of each call reads; a table that several calls share is written once."""
    files: dict[int, str] = {}

    def table(frame: pl.DataFrame) -> str:
        if id(frame) not in files:
            files[id(frame)] = str(folder / f"{len(files)}.arrow")
            frame.write_ipc(files[id(frame)], compression="uncompressed")
        return files[id(frame)]

    for k in chosen:
        scenario, workload = calls[k].scenario, calls[k].scenario.trace.workload
        given: dict[str, Any] = {
            "jobs": table(workload.frame), "nodes": table(scenario.data.cluster.frame), "words": _words(scenario),
            "workload": {"source": workload.source, "epoch": workload.epoch, "zone": workload.zone},
            "cluster": {"source": scenario.data.cluster.source}, "arguments": dict(calls[k].arguments),
        }  # fmt: skip
        if not isinstance(scenario.estimate, str):
            given["estimate"] = str(folder / f"{k}.estimate")
            scenario.estimate.to_frame("seconds").write_ipc(given["estimate"])
        if (before := scenario.data.before) is not None:
            given["before"] = table(before.frame)
            given["before_estimate"] = None if before.estimate is None else table(before.estimate.to_frame("seconds"))
        (folder / f"{k}.json").write_text(json.dumps(given))
    return {k: folder / f"{k}.json" for k in chosen}


def _read(given: Mapping[str, Any]) -> Scenario:
    workload = Workload(pl.read_ipc(given["jobs"]), **given["workload"])
    cluster = Cluster(pl.read_ipc(given["nodes"]), **given["cluster"])
    scenario = Scenario.of(workload, cluster, **given["words"])
    if "before" in given:
        estimate = given["before_estimate"] and pl.read_ipc(given["before_estimate"])["seconds"]
        before = pl.read_ipc(given["before"])
        scenario.data.before = Before(before, np.full(before.height, -1), "", estimate)
    if "estimate" in given:
        scenario = scenario.replace(estimate=pl.read_ipc(given["estimate"])["seconds"])
    return scenario


# -- processes -------------------------------------------------------------------------------------------------------


def _run_apart(function: str, files: Mapping[int, Path], workers: int, keep: Callable[[int, Arrays], None]) -> None:
    if not files:
        return
    idle: SimpleQueue[_Process] = SimpleQueue()
    processes = [_Process(function) for _ in range(min(workers, len(files)))]
    for process in processes:
        idle.put(process)
    try:
        with ThreadPoolExecutor(len(processes)) as pool:
            tasks = {pool.submit(_call, idle, file): k for k, file in files.items()}
            try:
                for task in as_completed(tasks):
                    keep(tasks[task], task.result())
            except BaseException:  # one has failed, or Ctrl-C: the others must not go on
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()
                raise
    finally:
        for process in processes:
            process.close()


def _call(idle: SimpleQueue[_Process], file: Path) -> Arrays:
    process = idle.get()
    try:
        return process.call(file)
    finally:
        idle.put(process)


class _Process:
    """A process that makes one call after another: a file of `_written` a line in, an outcome a line out."""

    def __init__(self, function: str) -> None:
        # The process can import what this one can; files in the current folder do not shadow modules.
        command = [sys.executable, "-P", "-m", "fleetlab.studies.workers", function]
        path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._errors = TemporaryFile("w+")  # noqa: SIM115  not a pipe, which a process that writes much would fill
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=os.environ | path, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )

    def call(self, file: Path) -> Arrays:
        """Make one call; an error of the user's in it is raised here."""
        answer = self._ask(f"{file}\n")
        if not answer:
            self._errors.seek(0)
            why = (self._errors.read().strip().splitlines() or ["no error message"])[-1]
            msg = f"a simulation in a process of its own ended with status {self._process.wait()}: {why}"
            raise WorkloadError(msg, hint="if memory is short, workers=0 runs the simulations one after the other")
        if "error" in (error := json.loads(answer)):
            raise WorkloadError(error["error"], hint=error["hint"])
        out = file.with_suffix(".npz")
        with np.load(out, allow_pickle=False) as arrays:
            result = dict(arrays)
        out.unlink()
        return result

    def _ask(self, line: str) -> str:
        """Return the answer to a line; empty if the process has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(line)
            stdin.flush()
        except BrokenPipeError:
            return ""
        return stdout.readline()

    def kill(self) -> None:
        """End the process; a call that it makes fails."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and close what connects it."""
        with self._errors, self._process:
            self.kill()


def main() -> None:
    """Make the calls of the files named on the standard input, one after another: the argument is the function."""
    function = sys.argv[1]
    # What a simulation prints must not be taken for an answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for line in sys.stdin:
            print(json.dumps(_answer(function, Path(line.rstrip("\n")))), file=answers, flush=True)


def _answer(function: str, file: Path) -> dict[str, str | None]:
    given = json.loads(file.read_text())
    try:
        np.savez(file.with_suffix(".npz"), **_function(function)(_read(given), **given["arguments"]))
    except FleetlabError as e:  # a mistake of the user: the same message as in one process
        return {"error": str(e), "hint": e.hint}
    return {}


if __name__ == "__main__":
    main()
