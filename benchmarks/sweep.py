"""The overhead of a sweep over a plain loop, how busy it keeps the cores, and whether ten kills change its results.

`python -m benchmarks.sweep overhead` runs the same small cells in a plain loop, by local workers and, where Ray is
installed, on a Ray cluster of its own. `python -m benchmarks.sweep thousand` runs 1,000 cells without interruption,
and again with ten kills at random times; the two stores must be the same. `python -m benchmarks.sweep longer` runs
1,000 cells of 15,000 jobs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fleetlab
from fleetlab import Cluster, Provenance, Trace
from fleetlab.studies.runner import Dispatcher
from fleetlab.studies.runner.calls import Questions
from fleetlab.studies.sweep.cell import CellInputs, run_cell
from fleetlab.studies.sweep.plan import SweepPlan

BUILD = Path("build/bench/sweep")
KILLS = 10
SMALL = {"trace": "trace", "seeds": 25, "load": [0.8, 1.0], "order": ["fifo", "sjf", "smallest", "largest"]}
NODES = """
[[node]]
count = 24
gpu_type = "MISC"
gpus = 8
cpu_milli = 96000
memory_mib = 524288

[[node]]
count = 40
gpu_type = "T4"
gpus = 2
cpu_milli = 96000
memory_mib = 524288

[[node]]
count = 6
gpu_type = "V100"
gpus = 8
cpu_milli = 96000
memory_mib = 393216
"""
THOUSAND = """
trace = "builtin:5000"
cluster = "nodes.toml"
load = [0.8, 1.0]
seeds = 10
order = ["fifo", "sjf", "smallest", "largest", "aging"]
backfill = ["greedy", "none"]
placement = ["best_fit", "first_fit", "worst_fit", "fgd", "gpu_packing"]

[compare]
against = { order = "fifo" }
metrics = ["mean wait"]
"""


def fresh(name: str) -> Path:
    shutil.rmtree(BUILD / name, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    return BUILD / name


def records(store: Path) -> dict[str, dict[str, Any]]:
    found = (json.loads(path.read_text("utf-8")) for path in store.glob("cells/*/*.json"))
    return {record["key"]: record for record in found}


# -- overhead --------------------------------------------------------------------------------------------------------


def plain_loop(plan: SweepPlan) -> dict[str, float]:
    """Run the same cells in one process, one after the other, and keep nothing."""
    traces = {source.digest: source.trace for source in plan.sources.values()}
    inputs = CellInputs(traces)
    cells = [plan.cell(scenario, seed) for seed in plan.study.seeds.values for scenario in plan.study.scenarios]
    run_cell(plan.question(cells[0]), inputs)
    begin = time.perf_counter()
    for cell in cells:
        run_cell(plan.question(cell), inputs)
    return {"cells": len(cells), "cell_ms": 1000 * (time.perf_counter() - begin) / len(cells)}


def measured(name: str, study: fleetlab.Study, **how: Any) -> dict[str, float]:  # noqa: ANN401
    """Sweep them: time in a cell, between two cells of a worker, and CPU time of the parent for each."""
    spent: list[float] = []
    run = Dispatcher.run

    def timed(workers: Dispatcher, queue: Questions) -> None:
        begin = time.process_time()
        run(workers, queue)
        spent.append(time.process_time() - begin)

    Dispatcher.run = timed  # type: ignore[assignment,method-assign]
    try:
        result = fleetlab.sweep(study, store=fresh(name), **how)
    finally:
        Dispatcher.run = run  # type: ignore[method-assign]
    values = {e.metric: e.value for e in result.summary()}
    return {
        "cells": values["cells run now"],
        "cell_ms": 1000 * values["time per cell"],
        "between_ms": 1000 * values["time per cell"] * (100 / values["workers busy"] - 1),
        "parent_cpu_ms": 1000 * sum(spent) / values["cells run now"],
        "wall_s": values["wall time"],
    }


def overhead() -> None:
    work = fleetlab.synthesize("pai2020", jobs=400, seed=1).workload
    Trace(work, Provenance("bench", "pai2020"), cluster=Cluster.uniform(40, 8, gpu_type="MISC")).save(fresh("trace"))
    study = fleetlab.Study.of_words(SMALL, folder=BUILD)
    plan = SweepPlan.of(study, lambda *_: None)
    plan.rehearse()
    rows = {"plain loop": plain_loop(plan)}
    for workers in (1, 2):
        rows[f"local, {workers} worker{'s' * (workers > 1)}"] = measured("local", study, workers=workers)
    if find_spec("ray") is not None:
        for workers in (1, 2):
            rows[f"ray, {workers} actor{'s' * (workers > 1)}"] = measured("ray", study, engine="ray", workers=workers)
    rows["plain loop, again"] = plain_loop(plan)
    for name, row in rows.items():
        print(f"{name:18}" + "  ".join(f"{k} {v:8.2f}" for k, v in row.items()), flush=True)
    (BUILD / "overhead.json").write_text(json.dumps(rows, indent=1))


# -- a thousand cells, uninterrupted and killed ------------------------------------------------------------------------


def command(store: Path) -> list[str]:
    return [
        sys.executable,
        "-m",
        "fleetlab.cli",
        "sweep",
        str(BUILD / "thousand.toml"),
        "--store",
        str(store),
        "--json",
    ]


def uninterrupted(store: Path, study: str) -> dict[str, dict[str, Any]]:
    """Run the study, and print how much of the time of all cores was in cells."""
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "nodes.toml").write_text(NODES)
    (BUILD / "thousand.toml").write_text(study)
    begin = time.perf_counter()
    said = json.loads(subprocess.run(command(store), capture_output=True, check=True, text=True).stdout)
    wall = time.perf_counter() - begin
    found = records(store)
    parts = {k: sum(r["made"]["seconds"][k] for r in found.values()) for k in ("sample", "simulate", "measure", "all")}
    print(f"{len(found)} cells in {wall:.0f} s", {e["metric"]: round(e["value"], 3) for e in said["summary"]})
    print("seconds in cells:", {k: round(v, 1) for k, v in parts.items()})
    cores = len(os.sched_getaffinity(0))
    there = cores * wall
    simulated = parts["simulate"] + parts["measure"]
    print(f"of {cores} cores × all of the command's time: in cells {100 * parts['all'] / there:.1f} %")
    print(f"simulating and measuring {100 * simulated / there:.1f} %", flush=True)
    return found


def longer() -> None:
    """Run cells of three times as many jobs: how much time the start and the samples take then."""
    uninterrupted(fresh("longer"), THOUSAND.replace("builtin:5000", "builtin:15000"))


def thousand() -> None:
    whole, killed = fresh("whole"), fresh("killed")
    found = uninterrupted(whole, THOUSAND)
    rng, kept = random.Random(1), []
    for _ in range(KILLS):
        process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = len(list(killed.glob("cells/*/*.json"))) + rng.randrange(1, len(found) // KILLS)
        while len(list(killed.glob("cells/*/*.json"))) < wanted:
            time.sleep(0.05)
        time.sleep(rng.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept.append(len(records(killed)))
    subprocess.run(command(killed), capture_output=True, check=True)
    again = records(killed)
    same = {k: r["digest"] for k, r in found.items()} == {k: r["digest"] for k, r in again.items()}
    print(f"killed after {kept} cells; at the end {len(again)}, the same as uninterrupted: {same}")


def main() -> None:
    for part in sys.argv[1:] or ["overhead", "thousand"]:
        {"overhead": overhead, "thousand": thousand, "longer": longer}[part]()


if __name__ == "__main__":
    main()
