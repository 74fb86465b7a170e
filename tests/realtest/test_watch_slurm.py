"""`fleetlab watch` beside a real Slurm, as an ordinary user, killed again and again: the trace is that of the log."""

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from realtest.lab import Lab, missing
from realtest.run import collect, drain, submit
from realtest.settings import SETTINGS

import fleetlab
from fleetlab.core import Trace

pytestmark = pytest.mark.slurm
JOBS, NODES, KILLS, PORT = 50, 4, 6, 28_817
SETTING = SETTINGS["deps"]  # dependencies, arrays with throttles, jobs that fail


@pytest.fixture(scope="module")
def folder():
    """A folder that other users may enter: pytest closes its own each time that it starts."""
    with TemporaryDirectory(prefix="watch-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture(scope="module")
def lab(folder):
    """A real Slurm; or a word why there is none."""
    if reason := missing():
        pytest.skip(f"no real Slurm here: {reason}")
    made = Lab(folder / "lab", PORT)
    try:
        made.up(SETTING.cluster(NODES), SETTING.slurm)
        yield made
    finally:
        made.down(everything=True)


@pytest.fixture(scope="module")
def environment(lab, folder):
    """Slurm's commands as an ordinary user runs them."""
    folder = folder / "as-ann"
    folder.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sacctmgr", "sshare", "sprio", "sdiag"):
        real = shutil.which(name, path=lab.environment["PATH"])
        (folder / name).write_text(f'#!/bin/sh\nexec setpriv --reuid=ann --regid=ann --clear-groups {real} "$@"\n')
        (folder / name).chmod(0o755)
    return lab.environment | {"PATH": f"{folder}:{lab.environment['PATH']}"}


class Killed:
    """A watch that is killed some seconds after it began, and started again, until all jobs have ended."""

    def __init__(self, environment, out):
        self.environment, self.out, self.kills, self.said = environment, out, 0, ""
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._play)

    def start(self, *more):
        words = [sys.executable, "-m", "fleetlab.cli", "watch", "slurm", "--out", str(self.out), "--every", "1"]
        words += ["--listen", "off", "--predict", "0", "--history", "0.02", *more]
        return subprocess.Popen(
            words, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def _play(self):
        draws = random.Random(2)
        while not self.over.is_set():
            watch = self.start()
            self.over.wait(draws.uniform(2, 20))
            watch.send_signal(signal.SIGKILL)
            self.kills += 1
            self.said += watch.communicate()[1]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def jobs_of(trace):
    """What a trace says of each run of each job, in Unix time."""
    frame = trace.workload.frame.join(trace.names.collect(), on="job")
    frame = frame.with_columns(pl.col("name").str.split("/").list.last())  # a log may name its cluster
    columns = ("submit", "start", "end", "status", "instances", "gpu_milli", "user")
    rows = frame.select("name", *columns).iter_rows(named=True)
    epoch = trace.workload.epoch
    moved = [
        {k: v + epoch if k in ("submit", "start", "end") and v is not None else v for k, v in row.items()}
        for row in rows
    ]
    return sorted(moved, key=lambda row: (row["name"], row["submit"]))


def test_the_trace_of_a_killed_watch_is_that_of_the_whole_log(lab, environment, tmp_path):
    begin = int(time.time()) + 2
    with Killed(environment, tmp_path / "watched") as watch:
        submit(SETTING.replay(JOBS, NODES), lab, tmp_path / "submitted.jsonl", begin)
        # One is put back into the queue while it runs, one is cancelled while it waits.
        running = lab.run("squeue", "-h", "-t", "R", "-o", "%A").split()
        if running:
            lab.run("scontrol", "requeue", running[0], check=False)
        waiting = lab.run("squeue", "-h", "-t", "PD", "-o", "%A").split()
        if waiting:
            lab.run("scancel", waiting[-1])
        drain(lab, 300)
        time.sleep(5)
    last = watch.start("--seconds", "2")
    watch.said += last.communicate(timeout=200)[1]
    assert last.returncode == 0, watch.said
    assert "Traceback" not in watch.said, watch.said
    (tmp_path / "log").mkdir()
    collect(lab, tmp_path / "log", begin)
    log, trace = fleetlab.read(tmp_path / "log", "slurm"), Trace.load(tmp_path / "watched" / "trace")
    print(f"\n{len(log.workload)} jobs in the log, {len(trace.workload)} watched, {watch.kills} kills")
    ended = [row for row in jobs_of(log) if row["status"] not in ("waiting", "running")]
    watched = [row for row in jobs_of(trace) if row["status"] not in ("waiting", "running")]
    assert watch.kills >= KILLS
    assert watched == ended
    assert trace.rejects.height == 0
    assert trace.scheduler is not None
    assert len(trace.cluster) == NODES


def test_a_controller_that_is_down_ends_nothing(lab, environment, tmp_path):
    lab.run(
        "sbatch",
        "--uid=ann",
        "-D",
        "/tmp",
        "-o",
        "/dev/null",
        "-N1",
        "--gpus-per-node=8",
        "-t10",
        "--wrap",
        "sleep 300",
    )
    process = Killed(environment, tmp_path / "watched").start()
    _until(lambda: (tmp_path / "watched" / "store" / "nodes.txt").exists())
    lab.run("scontrol", "shutdown", "slurmctld")
    assert "squeue fails: " in process.stderr.readline()  # Slurm's commands try for a minute
    lab._start("slurmctld")
    while "squeue answers again" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert "Traceback" not in process.communicate()[1]
    trace = Trace.load(tmp_path / "watched" / "trace")
    assert "running" in trace.workload.frame["status"].cast(str).to_list()
    lab.run("scancel", "--user=ann")  # else its step outlives the daemons
    _until(lambda: not lab.run("squeue", "--noheader"))


def _until(ready):
    end = time.monotonic() + 60
    while not ready() and time.monotonic() < end:
        time.sleep(0.5)
