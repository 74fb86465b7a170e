"""One real run: up, submit at the set times, wait until all has ended, collect, down."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from fleetlab.core.cluster import Cluster
from fleetlab.core.trace import Trace
from fleetlab.schedulers.slurm.config import Slurm
from realtest.jobs import Act, Job, Replay
from realtest.lab import Lab
from realtest.settings import NODES, Setting
from realtest.trace import replay_of, site_of

SNAPSHOT_S = 10.0
STUCK_S = 90.0  # nothing runs, and what waits for other jobs has not moved: more than the minute of after+1
# Such jobs stay in the queue: they are held, or are above a limit that does not change.
NEVER = (
    *("JobHeldUser", "JobHeldAdmin", "DependencyNeverSatisfied", "PartitionTimeLimit", "PartitionNodeLimit"),
    *("PerJob", "PerNode", "QOSMin", "not permitted"),
)
SPRIO = "%i|%u|%Y|%A|%F|%J|%P|%Q|%T|%N|%a|%f|%j|%p|%q|%t|%y|%r"
SQUEUE = "%i|%T|%r|%p|%Q|%S|%N|%V|%e"
KEY = re.compile(r"\{(\w+)\}")


def run_setting(setting: Setting, lab: Lab, out: Path, jobs: int, nodes: int = NODES) -> None:
    """Run a setting once."""
    about = {"setting": setting.name, "summary": setting.summary, "jobs": jobs, "nodes": nodes}
    about |= {"seed": setting.seed, "load": setting.load}
    run(lab, out, (setting.cluster(nodes), setting.slurm), setting.replay(jobs, nodes), about)


def run_trace(trace: Trace, speed: float, lab: Lab, out: Path, jobs: int | None) -> None:
    """Run a trace once, `speed` times as fast, on its own cluster under its own Slurm."""
    replay = replay_of(trace.workload, speed, jobs)
    run(lab, out, site_of(trace), replay, {"trace": trace.workload.source, "speed": speed, "jobs": len(replay.jobs)})


def run(lab: Lab, out: Path, site: tuple[Cluster, Slurm], replay: Replay, about: dict[str, Any]) -> None:
    """Play on real daemons; what they logged is then in `out`, with a file DONE when it is complete."""
    out.mkdir(parents=True, exist_ok=True)
    lab.up(*site)
    try:
        time.sleep(3)
        begin = int(time.time()) + 2  # a whole second: Slurm's times are whole ones
        (out / "sshare-begin.txt").write_text(lab.run("sshare", "-alP", check=False))
        with Snapshots(lab, out / "snapshots.txt"):
            submit(replay, lab, out / "submitted.jsonl", begin)
            left = drain(lab)
        time.sleep(2)
        collect(lab, out, begin)
        log = (lab.folder / "log" / "slurmctld.log").read_text(errors="replace")
        (out / "slurmctld.log").write_text(log)
    finally:
        lab.down()
    about = {**about, "begin": begin, "end": round(time.time(), 1), "left": left}
    (out / "run.json").write_text(json.dumps(about, indent=1) + "\n")
    (out / "DONE").touch()


def submit(replay: Replay, lab: Lab, log: Path, begin: float) -> None:
    """Submit each job at its time, one after the other, and keep which id it got and how late it was."""
    ids: dict[str, str] = {}
    with log.open("w") as rows:
        for step in replay.steps():
            time.sleep(max(0.0, begin + step.at - time.time()))
            row = _ask(step, ids, lab)
            late = row.pop("asked") - begin - step.at
            rows.write(json.dumps({"at": step.at, "late": round(late, 3), "kind": step.kind, **row}) + "\n")
            rows.flush()


def _ask(step: Job | Act, ids: dict[str, str], lab: Lab) -> dict[str, Any]:
    words = step.command() if isinstance(step, Job) else list(step.words)
    asked = time.time()
    try:
        words = [KEY.sub(lambda found: ids[found[1]], word) for word in words]
    except KeyError as missing:
        return {"asked": asked, "error": f"no id for {missing}"}
    done = subprocess.run(words, env=lab.environment, cwd="/tmp", capture_output=True, text=True, check=False)
    row: dict[str, Any] = {"asked": asked, "took": round(time.time() - asked, 3)}
    if isinstance(step, Job):
        row |= {"key": step.key, "seconds": step.seconds}
        if found := re.search(r"Submitted batch job (\d+)", done.stdout):
            row["id"] = int(found[1])
            ids[step.key] = found[1]
    row["words"] = words[1:]
    if done.returncode:
        row["error"] = done.stderr.strip()[:300]
    return row


def drain(lab: Lab, seconds: float = 420) -> list[str]:
    """Wait until no job runs and none waits but those that never will start; return those left when time is up."""
    end = time.monotonic() + seconds
    moved = time.monotonic()
    while True:
        left = lab.run("squeue", "-h", "-o", "%i %T %r", check=False).splitlines()
        left = [row for row in left if not any(word in row for word in NEVER)]
        if not all(row.endswith("PENDING Dependency") for row in left):
            moved = time.monotonic()
        # One that is to start after another has started waits for ever if that one was cancelled before.
        if not left or time.monotonic() > min(end, moved + STUCK_S):
            return left
        time.sleep(1)


def collect(lab: Lab, out: Path, begin: float) -> None:
    """Gather what Slurm logged, with the script that sites run."""
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begin - 5))
    with as_file(files("fleetlab.schedulers.slurm.reader") / "collect.sh") as script:
        said = subprocess.run(
            ["sh", str(script), "--out", str(out), "--since", since, "--json"],
            env=lab.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    (out / "collect.log").write_text(said.stdout + said.stderr)
    if (out / "sacct.json").exists():
        subprocess.run(["gzip", "-9f", str(out / "sacct.json")], check=True)
    (out / "jobs.txt").write_text(lab.run("scontrol", "-o", "show", "job", "-a", check=False))


class Snapshots:
    """What sprio, sshare and squeue say every few seconds while a run lasts, each with its time."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self.lab, self.path, self.over = lab, path, threading.Event()
        self.thread = threading.Thread(target=self._take, daemon=True)

    def __enter__(self) -> Snapshots:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _take(self) -> None:
        asked = {
            "sprio": ("sprio", "-h", "-o", SPRIO),
            "sshare": ("sshare", "-alP", "-h"),
            "squeue": ("squeue", "-h", "-o", SQUEUE),
            "reservation": ("scontrol", "show", "reservation", "-o"),
        }
        with self.path.open("w") as out:
            while not self.over.wait(SNAPSHOT_S):
                out.write(f"== {time.time():.3f}\n")
                for name, words in asked.items():
                    at = time.time()
                    said = self.lab.run(*words, check=False)
                    out.write(f"-- {name} {at:.3f} {time.time():.3f}\n{said}")
                out.flush()
