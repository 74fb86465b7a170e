"""A watch that is killed again and again, beside a cluster that goes on, keeps every job once."""

import random
import signal
import subprocess
import sys
import time

import pytest
from tests.live.cluster import drawn, install

from fleetlab.core import Trace


def start(env, out, *words):
    command = [sys.executable, "-m", "fleetlab.cli", "watch", "slurm", "--out", str(out), "--every", "0.2"]
    command += ["--listen", "off", "--predict", "0", "--history", "0.01", *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def play(tmp_path, kills, alive):
    """Kill a watch at random moments, each some seconds after its start; then let it finish. Return jobs and trace."""
    draws = random.Random(kills)
    length = kills * (alive[0] + alive[1]) / 2
    jobs = drawn(int(length * 6), time.time() - 1, 1 / 6, 4.0)
    env = install(tmp_path / "bin", jobs) | {"FAILING": "0.1"}
    out, said = tmp_path / "watched", ""
    for _ in range(kills):
        watch = start(env, out)
        time.sleep(draws.uniform(*alive))
        watch.send_signal(signal.SIGKILL)
        said += watch.communicate()[1]
    time.sleep(max(0.0, max(job["end"] for job in jobs) + 2.5 - time.time()))
    last = start(env | {"FAILING": "0"}, out, "--seconds", "1")
    said += last.communicate(timeout=120)[1]
    assert last.returncode == 0, said
    assert "Traceback" not in said, said
    return jobs, Trace.load(out / "trace")


def check(jobs, trace):
    names = trace.names.collect()
    frame = trace.workload.frame.join(names, on="job")
    assert sorted(names["name"].to_list(), key=int) == [str(job["id"]) for job in jobs]
    epoch = trace.workload.epoch
    ends = {name: end + epoch for name, end in frame.select("name", "end").iter_rows()}
    assert ends == {str(job["id"]): int(job["end"]) for job in jobs}
    starts = {
        name: None if start is None else start + epoch for name, start in frame.select("name", "start").iter_rows()
    }
    assert starts == {str(job["id"]): None if job["start"] is None else int(job["start"]) for job in jobs}


def test_killed_three_times_it_has_every_job_once(tmp_path):
    check(*play(tmp_path, 3, (0.5, 4.0)))


@pytest.mark.validate
def test_killed_at_twenty_random_moments_it_has_every_job_once(tmp_path):
    jobs, trace = play(tmp_path, 20, (0.3, 5.0))
    print(f"\n{len(jobs)} jobs, {trace.rejects.height} rejects")
    check(jobs, trace)
