"""How fast the simulator is: beside a bare loop, on the whole two months, with a long queue, and from a start.

`python -m benchmarks.simulate` does all of it, `python -m benchmarks.simulate whole queue` some. Times are CPU seconds
of one process, loops compiled before; of repeated ones the best is taken, for the noise of a machine only ever adds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl

import fleetlab
from fleetlab import Cluster, Workload
from fleetlab.core.data import open_trace
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.sim.engine import play as quick
from fleetlab.sim.layout import TICK
from fleetlab.sim.reference import play as reference
from fleetlab.sim.world import world

BUILD = Path("build/bench")
# Not part of the project: what needs them is skipped where they are absent.
BARE = Path(__file__).parents[2] / "shared/tools/bare_loop.py"
THETA = Path(__file__).parents[2] / "shared/data/theta/theta_2022-11_2023-05.csv.gz"
JOBS, REPEATS, LOADS = 1_000_000, 5, (0.5, 0.8)
TWO_MONTHS = "builtin:1260920:0"
RULES = {  # order, backfill, place; the most CPU seconds that the two months may take
    "fifo/greedy/best_fit": 15,
    "sjf/greedy/best_fit": 20,
    "fifo/easy/best_fit": 60,
    "fifo/greedy/fgd": 60,
}
ALSO = ("fifo/none/best_fit", "sjf/easy/best_fit", "fifo/greedy/worst_fit")

# One process of its own: words of a trace, rules, by what factor submissions are pressed together, how often to
# measure, and how often the jobs come, one time after the other.
CHILD = """
import json, sys, time, fleetlab, polars as pl
from fleetlab.core.data import open_trace
words, rules, faster = sys.argv[1], sys.argv[2].split("/"), float(sys.argv[3])
rules = dict(zip(("order", "backfill", "placement"), rules))
small = open_trace("builtin:2000:0")
fleetlab.simulate(small.workload, small.cluster, **rules)
trace = open_trace(words)
told = trace.workload
times = int(sys.argv[5])
if faster != 1 or times != 1:
    frame = told.frame.with_columns(pl.col("submit") / faster).drop("job", "start", "end")
    span = frame["submit"].max()
    frame = pl.concat([frame.with_columns(pl.col("submit") + k * span) for k in range(times)])
    told = fleetlab.Workload.of(frame, source=told.source)
took = []
for _ in range(int(sys.argv[4])):
    begin = time.process_time()
    result = fleetlab.simulate(told, trace.cluster, **rules)
    took.append(time.process_time() - begin)
begin = time.process_time()
wait = result.summary()[0].value
told = {"cpu_s": min(took), "summary_s": time.process_time() - begin, "jobs": len(result.world.submit)}
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1]
print(json.dumps({**told, "instances": int(result.world.first[-1]), "wait_s": wait, "peak_gib": int(peak) / (1 << 20)}))
"""
# The same jobs and nodes, without and with six partitions that share no nodes: each GPU type is dealt out evenly, and
# users so that each partition is asked for as much. Turn by turn, in one process.
PARTITIONED = """
import json, sys, time, fleetlab, polars as pl
from fleetlab.core.data import open_trace
rules = dict(zip(("order", "backfill", "placement"), sys.argv[2].split("/")))
count = int(sys.argv[4])
def dealt(frame, by):
    return frame.with_columns(partitions=pl.concat_list(pl.format("p{}", by % count)))
def split(trace):
    turn = pl.int_range(pl.len()).over("gpu_type")
    nodes = fleetlab.Cluster.of(dealt(trace.cluster.frame, turn), source="six")
    asked = pl.col("gpu_milli") * pl.col("instances") * pl.col("runtime").fill_null(0)
    users = trace.workload.frame.group_by("user").agg(asked=asked.sum()).sort("asked", "user", descending=True)
    load, turns = [0.0] * count, []
    for more in users["asked"]:
        turns.append(load.index(min(load)))
        load[turns[-1]] += more
    users = users.select("user", turn=pl.Series(turns))
    jobs = trace.workload.frame.join(users, on="user", how="left", maintain_order="left", nulls_equal=True)
    jobs = dealt(jobs, pl.col("turn")).drop("turn", "job", "parent", "start", "end")
    return fleetlab.Workload.of(jobs, source=trace.workload.source), nodes
small = open_trace("builtin:2000:0")
for jobs, nodes in ((small.workload, small.cluster), split(small)):
    fleetlab.simulate(jobs, nodes, **rules)
trace = open_trace(sys.argv[1])
both = {"without": (trace.workload, trace.cluster), "with": split(trace)}
took, wait, jobs = {name: [] for name in both}, {}, {}
for _ in range(int(sys.argv[3])):
    for name, (workload, cluster) in both.items():
        begin = time.process_time()
        result = fleetlab.simulate(workload, cluster, **rules)
        took[name].append(time.process_time() - begin)
        wait[name], jobs[name] = float(result.jobs["wait"].mean()), len(result.world.submit)
best = {name: min(seconds) for name, seconds in took.items()}
told = {f"{name}_{k}": v[name] for name in both for k, v in (("s", best), ("wait_s", wait), ("jobs", jobs))}
print(json.dumps({**told, "ratio": best["with"] / best["without"]}))
"""
# From the first line of a new process to the first event, and a little further: a world of one job.
START = """
import sys, polars as pl, fleetlab
one = fleetlab.Workload.of(pl.DataFrame({"submit": [0.0], "runtime": [1.0], "gpu_milli": [1000]}), source="one")
fleetlab.simulate(one, fleetlab.Cluster.uniform(1, 8), backfill=sys.argv[1], preemption=sys.argv[2] == "preempt")
"""
COMMANDS = {"--version": 0.15, "--help": 0.15, "simulate pai:2000": 0.8}  # the most CPU seconds of a process
STARTS = ("none/quick", "greedy/quick", "easy/quick", "greedy/preempt")


def main(asked: list[str] | None = None) -> None:
    """Measure what is asked for, or everything; print it and keep the figures."""
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "bare": beside_bare, "whole": whole, "twice": twice, "queue": queue, "plan": plan, "start": start,
        "partitions": partitions, "slurm": slurm, "timed": timed, "waiting": waiting, "commands": commands,
    }  # fmt: skip
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / "simulate.json"
    figures = json.loads(kept.read_text()) if kept.exists() else {}
    for name in asked or parts:
        figures[name] = parts[name]()
        kept.write_text(json.dumps(figures, indent=1))


# -- beside a bare loop ----------------------------------------------------------------------------------------------


def beside_bare() -> list[dict[str, Any]]:
    """The same million jobs through both, in one process, turn by turn."""
    if not BARE.exists():
        return [_say({"what": "beside a bare loop", "skipped": "there is no bare loop beside the checkout"})]
    bare = _loaded(BARE)
    rows = [_compared(bare, load) for load in LOADS]
    return [*rows, *(_same(bare, load) for load in LOADS)]


def _compared(bare: ModuleType, load: float) -> dict[str, Any]:
    nodes, jobs = bare.make_cluster(), _on_tick(bare.make_jobs(JOBS, load))
    cluster, workload = _as_ours(nodes, jobs)
    _bare(bare, nodes, _on_tick(bare.make_jobs(2000, load)))
    ways: dict[str, Callable[[], object]] = {
        "bare": lambda: _bare(bare, nodes, jobs),
        "loop": lambda: quick.play(prepared, order="fifo", backfill="none", placement="best_fit"),
        "prepared": lambda: _play(workload, cluster),
        "simulate": lambda: fleetlab.simulate(workload, cluster, backfill="none"),
    }
    prepared = world(workload, cluster)
    ways["loop"]()
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(REPEATS):
        for name, way in ways.items():
            best[name] = min(best[name], _cpu(way))
    row = {"what": f"strict FIFO, best fit, {JOBS:,} jobs at load {load}"}
    row |= {f"{name}_s": took for name, took in best.items()}
    return _say(row | {f"{name} over bare": best["bare"] / best[name] for name in ways if name != "bare"})


def _same(bare: ModuleType, load: float) -> dict[str, Any]:
    """Do both find the same schedule? Jobs without a GPU are left out: the bare loop takes the first node for them."""
    nodes, jobs = bare.make_cluster(), _on_tick(bare.make_jobs(JOBS, load))
    jobs = tuple(column[jobs[2] > 0] for column in jobs)
    cluster, workload = _as_ours(nodes, jobs)
    ours = _play(workload, cluster).start + jobs[0][0]
    apart = np.abs(ours - _bare(bare, nodes, jobs))
    return _say(
        {
            "what": f"the same schedule at load {load}",
            "jobs": len(ours),
            "waited": int((ours > jobs[0]).sum()),
            "differ": int((apart > TICK).sum()),
        }
    )


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # its compiled code is kept on disk by this name
    spec.loader.exec_module(module)
    return module


def _on_tick(jobs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Times as both can add them up without rounding: else sums drift apart."""
    return (*(np.rint(column / TICK) * TICK for column in jobs[:2]), *jobs[2:])


def _as_ours(nodes: tuple[Any, ...], jobs: tuple[Any, ...]) -> tuple[Cluster, Workload]:
    gpus, kind, cpu, memory = nodes[:4]
    submit, runtime, milli, cores, asked, want = jobs
    table = {"gpu_type": [f"t{k}" for k in kind], "gpus": gpus, "cpu_milli": cpu, "memory_mib": memory}
    cluster = Cluster.of(pl.DataFrame({"node": [f"n{k}" for k in range(len(gpus))], **table}), source="bare")
    types = pl.Series([[f"t{k}"] if k >= 0 else [] for k in want], dtype=pl.List(pl.String))
    asks = {"gpu_milli": milli, "cpu_milli": cores, "memory_mib": asked, "gpu_types": types}
    frame = pl.DataFrame({"submit": submit - submit[0], "runtime": runtime, **asks})
    return cluster, Workload.of(frame, source="bare")


def _bare(bare: ModuleType, nodes: tuple[Any, ...], jobs: tuple[Any, ...]) -> np.ndarray:  # type: ignore[type-arg]
    n = len(jobs[0])
    begun, node, mask = np.empty(n), np.full(n, -1, np.int64), np.zeros(n, np.int64)
    bare.sim(*jobs, *nodes, True, begun, node, mask)  # noqa: FBT003  with its index
    return begun


def _play(workload: Workload, cluster: Cluster) -> Any:  # noqa: ANN401
    return quick.play(world(workload, cluster), order="fifo", backfill="none", placement="best_fit")


# -- the built-in trace ----------------------------------------------------------------------------------------------


def whole() -> list[dict[str, Any]]:
    """The two months under each of the rules, each in a process of its own."""
    open_trace(TWO_MONTHS)
    rows = []
    for rules in (*RULES, *ALSO):
        row = {"what": f"two months, {rules}", **_child(TWO_MONTHS, rules, repeats=1)}
        rows.append(_say(row | ({"at_most_s": RULES[rules]} if rules in RULES else {})))
    return rows


def partitions() -> list[dict[str, Any]]:
    """The two months with six partitions, as a part of the time without: at most 1.3."""
    rows = []
    for rules in ("fifo/greedy/best_fit", "fifo/none/best_fit", "fifo/easy/best_fit"):
        command = [sys.executable, "-c", PARTITIONED, TWO_MONTHS, rules, "1", "6"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(_say({"what": f"two months, six partitions, {rules}", **json.loads(done.stdout)}))
    return rows


def twice() -> list[dict[str, Any]]:
    """Twice the jobs at the same load: the same ones, and once more when they have come."""
    rows = []
    for rules in RULES:
        one, two = (_child("builtin:100000:0", rules, repeats=3, times=n)["cpu_s"] for n in (1, 2))
        rows.append(_say({"what": f"twice 100,000 jobs, {rules}", "one_s": one, "two_s": two, "ratio": two / one}))
    return rows


def queue() -> list[dict[str, Any]]:
    """So many jobs at once that nearly all of them wait; a time that grows with the square shows as a ratio of 4."""
    rows = []
    for rules in (*RULES, "fifo/none/best_fit"):
        took = {n: _child(f"builtin:{n}:0", rules, faster=1e4)["cpu_s"] / n * 1e6 for n in (30_000, 120_000)}
        short = _child("builtin:120000:0", rules)["cpu_s"] / 120_000 * 1e6
        row = {"what": f"all at once, {rules}", "us_a_job_30k": took[30_000], "us_a_job_120k": took[120_000]}
        rows.append(_say({**row, "ratio": took[120_000] / took[30_000], "us_a_job_as_they_came": short}))
    return rows


def plan() -> list[dict[str, Any]]:
    """Conservative backfill where the queue grows with the jobs: runtimes that are known, and limits above them."""
    rows = []
    _planned(20, longer=False)
    for longer in (False, True):
        for jobs in (2_000, 4_000, 8_000):
            what = f"conservative, {jobs:,} jobs, {'limits' if longer else 'runtimes'} known"
            rows.append(_say({"what": what, "cpu_s": _planned(jobs, longer=longer)}))
    return rows


def slurm() -> list[dict[str, Any]]:
    """Slurm's two loops with their defaults: a load that the nodes can bear, and more, where the queue grows."""
    _by_slurm(100, 10, 1.0)
    sizes = ((10_000, 100, 0.9), (100_000, 1_000, 0.95), (10_000, 100, 1.2))
    return [
        _say({"what": f"Slurm, {n:,} jobs, {k:,} nodes, load {load}", **_by_slurm(n, k, load)}) for n, k, load in sizes
    ]


def _by_slurm(jobs: int, nodes: int, load: float) -> dict[str, float]:
    """Return the CPU seconds of jobs of 1 to 16 GPUs on nodes of 8, with limits of 1.1 to 4 times what they run."""
    random = np.random.default_rng(0)
    gpus = random.choice(np.array([1, 1, 1, 1, 2, 2, 4, 8, 8, 16]), jobs)
    runtime = np.ceil(np.minimum(random.lognormal(7, 1.5, jobs), 86_400))
    submit = np.sort(random.uniform(0, (gpus * runtime).sum() / (nodes * 8 * load), jobs))
    instances = np.where(gpus > 8, 2, 1)
    frame = pl.DataFrame(
        {"submit": submit - submit[0], "runtime": runtime, "gpu_milli": 1000 * (gpus // instances),
         "cpu_milli": 4000 * (gpus // instances), "instances": instances,
         "limit": np.ceil(runtime * random.choice([1.1, 1.5, 2, 4], jobs) / 60) * 60}
    ).with_columns(distinct_nodes=True)  # fmt: skip
    workload, cluster = Workload.of(frame, source="drawn"), Cluster.uniform(nodes, 8)
    begin = time.process_time()
    result = fleetlab.simulate(workload, cluster, scheduler=Slurm())
    return {"cpu_s": time.process_time() - begin, "wait_s": float(result.jobs["wait"].mean())}  # type: ignore[arg-type]


def _planned(jobs: int, *, longer: bool) -> float:
    """Return the CPU seconds of jobs of 1 to 8 GPUs on 8 nodes of 8 GPUs at load 1.1."""
    random, sizes = np.random.default_rng(0), np.array([1, 1, 1, 2, 4, 8])
    gpus, runtime = random.choice(sizes, jobs), random.exponential(1000, jobs)
    submit = np.append(0.0, random.exponential(1000 * sizes.mean() / (1.1 * 64), jobs - 1)).cumsum()
    frame = pl.DataFrame({"submit": submit, "runtime": runtime, "gpu_milli": gpus * 1000})
    limits = runtime * random.choice([1, 1.5, 2, 4], jobs) if longer else runtime
    drawn = world(Workload.of(frame, source="drawn"), Cluster.uniform(8, 8), estimate=limits.tolist())
    return _cpu(lambda: reference.play(drawn, backfill="conservative"))


def _child(words: str, rules: str, *, faster: float = 1.0, repeats: int = 1, times: int = 1) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, words, rules, str(faster), str(repeats), str(times)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(found.stdout))


def timed() -> list[dict[str, Any]]:
    """Orders that change with time on 14,374 jobs of a real log with EASY: at most 10 CPU s; beside `fifo`."""
    if not THETA.exists():
        return [_say({"what": "orders by time", "skipped": "the log of Theta is not beside the checkout"})]
    log = pl.read_csv(THETA).sort("submit_time", maintain_order=True)
    jobs = log.select(
        submit=(pl.col("submit_time") - pl.col("submit_time").min()).cast(pl.Float64),
        runtime=pl.col("run_time").cast(pl.Float64), limit=pl.col("wall_time").cast(pl.Float64),
        instances=pl.col("node_num").cast(pl.Int64), gpu_milli=1000, cpu_milli=1000,
    )  # fmt: skip
    workload, estimate, rows = Workload.of(jobs, source="theta"), log["wall_time"].cast(pl.Float64), []
    for order in ("fifo", "wfp3", "unicef"):
        _drawn_queue(50, 10, order)
        begin = time.process_time()
        result = fleetlab.simulate(workload, Cluster.uniform(4392, 1), order=order, backfill="easy", estimate=estimate)
        row = {"what": f"Theta, {order}/easy", "cpu_s": time.process_time() - begin}
        rows.append(_say({**row, "wait_h": result.jobs["wait"].mean() / 3600}))  # type: ignore[operator]
    return rows


def waiting() -> list[dict[str, Any]]:
    """A queue of 1,000, 10,000 and 100,000 jobs: a job's time should hardly grow with it."""
    rows = []
    for order in ("fifo", "sjf", "wfp3"):
        _drawn_queue(50, 10, order)
        for count in (1_000, 10_000, 100_000) if order != "wfp3" else (1_000, 10_000):
            jobs = max(100_000, 2 * count) if order != "wfp3" else 20_000
            took = _drawn_queue(jobs, count, order)
            row = {"what": f"{order}/easy, {count:,} of {jobs:,} jobs wait", "cpu_s": took}
            rows.append(_say({**row, "us_a_job": took / jobs * 1e6}))
    return rows


def _drawn_queue(jobs: int, count: int, order: str) -> float:
    """Return the CPU seconds of jobs of 1 to 8 GPUs under EASY, of which so many come first and the others in time."""
    random, sizes = np.random.default_rng(0), np.array([1, 1, 1, 2, 4, 8])
    gpus, runtime = random.choice(sizes, jobs), random.exponential(1000, jobs)
    gap = 1000 * sizes.mean() / (512 * 0.95)
    submit = np.append(np.zeros(count), random.exponential(gap, jobs - count)).cumsum()
    frame = pl.DataFrame({"submit": submit, "runtime": runtime, "gpu_milli": gpus * 1000})
    estimate = pl.Series(runtime * random.choice([1.1, 1.5, 2, 4], jobs))
    workload, cluster = Workload.of(frame, source="drawn"), Cluster.uniform(64, 8)
    return _cpu(lambda: fleetlab.simulate(workload, cluster, order=order, backfill="easy", estimate=estimate))


# -- from a start ----------------------------------------------------------------------------------------------------


def start() -> list[dict[str, Any]]:
    """A new process until its first job has run: with what is kept on disk, and with nothing kept."""
    rows = []
    for loop in STARTS:
        with tempfile.TemporaryDirectory() as folder:
            package = Path(fleetlab.__file__).parent
            shutil.copytree(package, Path(folder) / "fleetlab", ignore=shutil.ignore_patterns("__pycache__"))
            cold = _started(loop, folder)
            warm = min(_started(loop, folder) for _ in range(REPEATS))
        row = {"what": f"start, {loop}", "cached_s": warm[0], "cached_cpu_s": warm[1]}
        rows.append(_say({**row, "first_s": cold[0], "first_cpu_s": cold[1]}))
    return rows


def commands() -> list[dict[str, Any]]:
    """Whole processes of commands, loops compiled before; beside Python itself."""
    rows = []
    for words, most in ({"": 0.0} | COMMANDS).items():
        command = [sys.executable, *(["-m", "fleetlab", *words.split()] if words else ["-c", "pass"])]
        took = min(_process(command) for _ in range(REPEATS))
        rows.append(_say({"what": f"fleetlab {words}" if words else "Python alone", "cpu_s": took, "at_most_s": most}))
    return rows


def _process(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _started(loop: str, folder: str) -> tuple[float, float]:
    """Seconds on the wall, which a user waits, and of CPU, which a busy machine does not stretch as much."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", START, *loop.split("/")]
    environment = {**os.environ, "PYTHONPATH": folder}
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, cpu


def _cpu(way: Callable[[], object]) -> float:
    begin = time.process_time()
    way()
    return time.process_time() - begin


def _say(row: dict[str, Any]) -> dict[str, Any]:
    words = [f"{k} {v:,.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if k != "what"]
    print(f"{row['what']}: {', '.join(words)}", flush=True)
    return row


if __name__ == "__main__":
    main(sys.argv[1:] or None)
