"""All seven PAI tables at full size: the published numbers of rows, the shapes of their names, keys that meet."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import polars as pl
from isal import igzip

ROWS = {"job": 1_055_501, "task": 1_261_050, "instance": 7_522_002, "sensor": 3_033_232, "metric": 2_009_423}
GROUPS = 1_055_032
CHUNK = 250_000  # instances written at a time
SPAN = 62 * 86_400
MACHINES = [("CPU", 96, 512, 0, 83), ("MISC", 96, 512, 8, 280), ("P100", 64, 512, 2, 798), ("T4", 96, 512, 2, 497)]
MACHINES += [("V100", 96, 384, 8, 45), ("V100", 96, 512, 8, 59), ("V100M32", 96, 384, 8, 135)]


def generate(folder: Path, seed: int = 0) -> None:
    """Write the seven CSVs, about 3.9 GB, with no more than a chunk of them in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    machines = _names(rng, 1897, 12)
    jobs = _jobs(rng)
    tasks = _tasks(rng, jobs)
    _write(_spec(machines), folder / "pai_machine_spec.csv")
    _write(jobs.drop("nothing", strict=False), folder / "pai_job_table.csv")
    _write(_groups(rng, jobs), folder / "pai_group_tag_table.csv")
    _write(tasks.drop("job"), folder / "pai_task_table.csv")
    _instances(rng, folder, jobs, tasks, machines)


def pack(source: Path, folder: Path) -> None:
    """Pack each CSV into a tar.gz of its own, as they are published."""
    folder.mkdir(parents=True, exist_ok=True)
    for csv in sorted(source.glob("*.csv")):
        target = folder / f"{csv.stem}.tar.gz"
        with igzip.open(target, "wb", compresslevel=1) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            tar.add(csv, arcname=csv.name)


def _names(rng: np.random.Generator, count: int, size: int) -> pl.Series:
    text = rng.bytes(size * count).hex()
    return pl.Series([text[i : i + 2 * size] for i in range(0, len(text), 2 * size)], dtype=pl.String)


def _write(frame: pl.DataFrame, path: Path) -> None:
    frame.write_csv(path, include_header=False)


def _spec(machines: pl.Series) -> pl.DataFrame:
    rows = [row[:4] for row in MACHINES for _ in range(row[4])]
    kinds = pl.DataFrame(rows, schema=["gpu_type", "cap_cpu", "cap_mem", "cap_gpu"], orient="row")
    return kinds.insert_column(0, machines.alias("machine"))


def _jobs(rng: np.random.Generator) -> pl.DataFrame:
    n = ROWS["job"]
    users = _names(rng, 1300, 6)
    start = np.sort(rng.integers(600_000, 600_000 + SPAN, n)).astype(float)
    return pl.DataFrame(
        {
            "job_name": _names(rng, n, 12),
            "inst_id": _names(rng, n, 30),
            "user": users.gather(rng.zipf(1.4, n) % 1300),
            "status": "Terminated",
            "start_time": start,
            "end_time": start + rng.integers(10, 100_000, n),
        }
    )


def _groups(rng: np.random.Generator, jobs: pl.DataFrame) -> pl.DataFrame:
    some = jobs.head(GROUPS)
    groups = _names(rng, 150_000, 16)
    spec = pl.Series(["V100", "V100M32", "T4", None]).gather(rng.choice(4, GROUPS, p=[0.03, 0.02, 0.05, 0.9]))
    tag = pl.Series(["ctr", "bert", "graphlearn", None]).gather(rng.choice(4, GROUPS, p=[0.04, 0.03, 0.02, 0.91]))
    group = groups.gather(rng.zipf(1.3, GROUPS) % 150_000)
    return pl.DataFrame([some["inst_id"], some["user"], spec.alias("s"), group.alias("g"), tag.alias("w")])


def _tasks(rng: np.random.Generator, jobs: pl.DataFrame) -> pl.DataFrame:
    more = ROWS["task"] - jobs.height
    job = np.concatenate([np.arange(jobs.height), rng.choice(jobs.height, more, replace=False)])
    n = len(job)
    size = np.where(
        rng.random(n) < 0.76, 1, rng.choice([2, 5, 10, 20, 30, 50, 100], n, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.07, 0.03])
    )
    start = jobs["start_time"].to_numpy()[job] + rng.integers(0, 60, n)
    gpu = rng.choice(
        [100.0, 25.0, 50.0, 10.0, 200.0, 800.0, 0.0], n, p=[0.351, 0.216, 0.108, 0.093, 0.013, 0.004, 0.215]
    )
    return pl.DataFrame(
        {
            "job_name": jobs["job_name"].gather(job),
            "task_name": np.where(np.arange(n) < jobs.height, "worker", "ps"),
            "inst_num": size.astype(float),
            "status": rng.choice(["Terminated", "Failed", "Running", "Waiting"], n, p=[0.7, 0.2, 0.095, 0.005]),
            "start_time": start,
            "end_time": start + rng.integers(5, 100_000, n),
            "plan_cpu": 600.0,
            "plan_mem": 29.296875,
            "plan_gpu": gpu,
            "gpu_type": rng.choice(["MISC", "T4", "P100", "V100", "V100M32"], n),
            "job": job,
        }
    ).with_columns(pl.when(pl.col("plan_gpu") > 0).then("plan_gpu").alias("plan_gpu"))


def _instances(
    rng: np.random.Generator, folder: Path, jobs: pl.DataFrame, tasks: pl.DataFrame, machines: pl.Series
) -> None:
    """Instances, and the sensor and metric rows of some of them, written side by side so that workers' names meet."""
    task = np.repeat(np.arange(tasks.height), tasks["inst_num"].to_numpy().astype(int))
    task = np.resize(task, ROWS["instance"])
    names = ("pai_instance_table", "pai_sensor_table", "pai_machine_metric")
    files = [(folder / f"{name}.csv").open("wb") for name in names]
    done = 0
    while done < len(task):
        chunk = _chunk(rng, task[done : done + CHUNK], jobs, tasks, machines)
        done += chunk.height
        kept = {
            k: done * ROWS[k] // ROWS["instance"] - (done - chunk.height) * ROWS[k] // ROWS["instance"] for k in ROWS
        }
        chunk.drop("at").write_csv(files[0], include_header=False)
        _sensors(rng, chunk.sample(kept["sensor"], seed=done)).write_csv(files[1], include_header=False)
        _metrics(rng, chunk.sample(kept["metric"], seed=done)).write_csv(files[2], include_header=False)
    for file in files:
        file.close()


def _chunk(
    rng: np.random.Generator, task: np.ndarray, jobs: pl.DataFrame, tasks: pl.DataFrame, machines: pl.Series
) -> pl.DataFrame:
    n = len(task)
    mine = tasks[task]
    start = mine["start_time"].to_numpy() + rng.integers(0, 300, n)
    known = rng.random(n) < 0.95
    return pl.DataFrame(
        {
            "job_name": mine["job_name"],
            "task_name": mine["task_name"],
            "inst_name": _names(rng, n, 30),
            "worker_name": _names(rng, n, 30),
            "inst_id": jobs["inst_id"].gather(mine["job"]),
            "status": mine["status"],
            "start_time": np.where(known, start, np.nan),
            "end_time": np.where(known, start + rng.integers(1, 90_000, n), np.nan),
            "machine": machines.gather(rng.integers(0, 1897, n)),
            "at": start,
        }
    ).with_columns(pl.col("start_time", "end_time").fill_nan(None))


def _sensors(rng: np.random.Generator, rows: pl.DataFrame) -> pl.DataFrame:
    values = {f"v{k}": rng.exponential(10.0 ** (k % 7), rows.height) for k in range(10)}
    keys = rows.select("job_name", "task_name", "worker_name", "inst_id", "machine", gpu_name=pl.lit("/dev/nvidia0"))
    return keys.with_columns(**values)


def _metrics(rng: np.random.Generator, rows: pl.DataFrame) -> pl.DataFrame:
    values = {f"v{k}": rng.random(rows.height) * 100 for k in range(8)}
    keys = rows.select("worker_name", "machine", start=pl.col("at").cast(pl.Float64), end=pl.col("at") + 600.0)
    return keys.with_columns(**values)
