"""What a sweep costs beside a bare loop, how busy it keeps the cores, and whether ten kills change anything.

`python -m benchmarks.sweep overhead` plays the same small cells in a bare loop, by local workers and, where Ray is
installed, on a Ray cluster of its own. `python -m benchmarks.sweep thousand` plays 1,000 cells undisturbed, and again
with ten kills at random; the two stores must be the same. `python -m benchmarks.sweep longer` plays 1,000 cells of
15,000 jobs.
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
from fleetlab.studies.sweep._cell import Desk, play
from fleetlab.studies.sweep._engine import Engine
from fleetlab.studies.sweep._plan import Plan
from fleetlab.studies.sweep._queue import Queue

BUILD = Path("build/bench/sweep")
KILLS = 10
SMALL = {
    "traces": ["trace"],
    "seeds": 25,
    "loads": [0.8, 1.0],
    "simulate": {"order": ["fifo", "sjf", "smallest", "largest"]},
}
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
traces = ["builtin:5000"]
cluster = "nodes.toml"
loads = [0.8, 1.0]
seeds = 10

[simulate]
order = ["fifo", "sjf", "smallest", "largest", "aging"]
backfill = ["greedy", "none"]
place = ["best_fit", "first_fit", "worst_fit", "fgd", "gpu_packing"]

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


def bare(plan: Plan) -> dict[str, float]:
    """The same cells in one process, one after the other, with nothing kept."""
    desk = Desk(lambda digest: next(one.tables for one in plan.prepared.values() if one.source.digest == digest))
    cells = [plan.cell(case, seed) for seed in plan.study.seeds.listed for case in plan.study.cases()]
    play(plan.ask(cells[0]), desk)
    begin = time.perf_counter()
    for cell in cells:
        play(plan.ask(cell), desk)
    return {"cells": len(cells), "cell_ms": 1000 * (time.perf_counter() - begin) / len(cells)}


def measured(name: str, study: fleetlab.Study, **how: Any) -> dict[str, float]:  # noqa: ANN401
    """A sweep of them: in a cell, between two cells of a worker, and what the parent works for each while they run."""
    spent: list[float] = []
    run = Engine.run

    def timed(engine: Engine, queue: Queue) -> None:
        begin = time.process_time()
        run(engine, queue)
        spent.append(time.process_time() - begin)

    Engine.run = timed  # type: ignore[method-assign]
    try:
        found = fleetlab.sweep(study, store=fresh(name), **how)
    finally:
        Engine.run = run  # type: ignore[method-assign]
    told = {e.metric: e.value for e in found.summary()}
    return {
        "cells": told["cells played now"],
        "cell_ms": 1000 * told["a cell"],
        "between_ms": 1000 * told["a cell"] * (100 / told["workers busy"] - 1),
        "parent_cpu_ms": 1000 * sum(spent) / told["cells played now"],
        "wall_s": told["took"],
    }


def overhead() -> None:
    work = fleetlab.synthesize("pai2020", jobs=400, seed=1).workload
    Trace(work, Provenance("bench", "pai2020"), cluster=Cluster.uniform(40, 8, gpu_type="MISC")).save(fresh("trace"))
    study = fleetlab.Study.of(SMALL, folder=BUILD)
    plan = Plan.of(study, lambda *_: None)
    plan.rehearse()
    rows = {"bare loop": bare(plan)}
    for workers in (1, 2):
        rows[f"local, {workers} worker{'s' * (workers > 1)}"] = measured("local", study, workers=workers)
    if find_spec("ray") is not None:
        for workers in (1, 2):
            rows[f"ray, {workers} actor{'s' * (workers > 1)}"] = measured("ray", study, engine="ray", workers=workers)
    rows["bare loop, again"] = bare(plan)
    for name, row in rows.items():
        print(f"{name:18}" + "  ".join(f"{k} {v:8.2f}" for k, v in row.items()), flush=True)
    (BUILD / "overhead.json").write_text(json.dumps(rows, indent=1))


# -- a thousand cells, undisturbed and killed ------------------------------------------------------------------------


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


def undisturbed(store: Path, study: str) -> dict[str, dict[str, Any]]:
    """Play it, and say how much of both cores' time it was in cells."""
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "nodes.toml").write_text(NODES)
    (BUILD / "thousand.toml").write_text(study)
    begin = time.perf_counter()
    said = json.loads(subprocess.run(command(store), capture_output=True, check=True, text=True).stdout)
    wall = time.perf_counter() - begin
    found = records(store)
    parts = {k: sum(r["made"]["seconds"][k] for r in found.values()) for k in ("draw", "simulate", "measure", "all")}
    print(f"{len(found)} cells in {wall:.0f} s", {e["metric"]: round(e["value"], 3) for e in said["summary"]})
    print("seconds in cells:", {k: round(v, 1) for k, v in parts.items()})
    cores = len(os.sched_getaffinity(0))
    there = cores * wall
    simulated = parts["simulate"] + parts["measure"]
    print(f"of {cores} cores × all of the command's time: in cells {100 * parts['all'] / there:.1f} %")
    print(f"simulating and measuring {100 * simulated / there:.1f} %", flush=True)
    return found


def longer() -> None:
    """Cells of three times as many jobs: what the start and the draws are then."""
    undisturbed(fresh("longer"), THOUSAND.replace("builtin:5000", "builtin:15000"))


def thousand() -> None:
    whole, killed = fresh("whole"), fresh("killed")
    found = undisturbed(whole, THOUSAND)
    lots, kept = random.Random(1), []
    for _ in range(KILLS):
        process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = len(list(killed.glob("cells/*/*.json"))) + lots.randrange(1, len(found) // KILLS)
        while len(list(killed.glob("cells/*/*.json"))) < wanted:
            time.sleep(0.05)
        time.sleep(lots.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept.append(len(records(killed)))
    subprocess.run(command(killed), capture_output=True, check=True)
    again = records(killed)
    same = {k: r["digest"] for k, r in found.items()} == {k: r["digest"] for k, r in again.items()}
    print(f"killed after {kept} cells; at the end {len(again)}, the same as undisturbed: {same}")


def main() -> None:
    for part in sys.argv[1:] or ["overhead", "thousand"]:
        {"overhead": overhead, "thousand": thousand, "longer": longer}[part]()


if __name__ == "__main__":
    main()
