"""Kill a suite at random moments, and check that the GPU is left as it was found.

    PYTHONPATH=src python3 -m benchmarks.kill_suite --mode mps --kills 10 --out killed

Needs torch and numpy. The suite process gets SIGKILL, every second time with its process group. Each time, all
processes that came of the run must end by themselves (they carry a mark in their environment, and so do daemons and
servers of MPS), GPUs must be as before, and no process may be new on a GPU or of MPS. A last run, which is not killed,
must find nothing left to do but remove directories, and leave none. The command writes killed/kills.json, and exits
with 1 if anything was left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import python_path
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.modes import mps_homes
from fleetlab.gpu.sharing.mps_guard import process_state

MARK = "FLEETLAB_KILLED_RUN"
PATIENCE = 120.0  # s for the processes of a killed run to end
LISTED = 10.0  # s in which nvidia-smi may still list a process that is gone
PLAN = """[suite]
modes = ["{mode}"]
mixes = [["one", "two"]]
blocks = 1
settle = 0.1
window = 0.4
[tenant.one]
workload = "{work}"
[tenant.two]
workload = "{work}"
"""
State = dict[str, Any]
LISTS = ("processes", "mps")  # of the state: process ids


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite to be killed: its plan, options of the command, and environment."""

    plan: Path
    out: Path
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def start(self, mark: str) -> subprocess.Popen[bytes]:
        """Start it; all that comes of it carries the mark."""
        words = [sys.executable, "-m", "fleetlab.gpu.bench.run", str(self.plan), "--out", str(self.out), *self.options]
        env = os.environ | python_path() | dict(self.env) | {MARK: mark}
        with self.out.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)


@dataclass(frozen=True, slots=True)
class Kill:
    """What was left of one killed run."""

    at: float  # s after its start
    ended: bool  # before it could be killed
    cells: int  # finished by then
    healed: float  # s until the last process of the run was gone
    left: list[str]  # processes that were not gone in time
    changed: dict[str, Any]  # state that is not as before: was, is

    @property
    def clean(self) -> bool:
        """Whether nothing was left."""
        return not self.left and not self.changed


def kill_when(
    suite: Suite,
    due: Callable[[float], bool],
    state: Callable[[], State],
    *,
    group: bool = False,
    before: State | None = None,
) -> Kill:
    """Run the suite, kill it (or its process group) when it is due, and wait for what it started."""
    before, mark = before or state(), uuid.uuid4().hex
    suite.out.parent.mkdir(parents=True, exist_ok=True)
    run, began = suite.start(mark), time.monotonic()
    while run.poll() is None and not due(time.monotonic() - began):
        time.sleep(0.005)
    ended, at = run.poll() is not None, time.monotonic() - began
    if not ended:
        (os.killpg if group else os.kill)(run.pid, signal.SIGKILL)
        run.wait()
    began = time.monotonic()
    while (left := marked(mark)) and time.monotonic() < began + PATIENCE:
        time.sleep(0.1)
    healed = time.monotonic() - began
    after = wait_for(before, state)
    path = suite.out / "cells.jsonl"
    cells = len(path.read_text().splitlines()) if path.exists() else 0
    return Kill(round(at, 3), ended, cells, round(healed, 2), left, _changed(before, after))


def wait_for(before: State, state: Callable[[], State]) -> State:
    """The state as soon as it is as before, or the last one: a server of MPS takes seconds to end."""
    until = time.monotonic() + LISTED
    while _changed(before, after := state()) and time.monotonic() < until:
        time.sleep(0.5)
    return after


def kill_often(suite: Suite, state: Callable[[], State], *, kills: int, seed: int) -> dict[str, Any]:
    """Let it run once to know its length, kill it at random moments, and let it run again."""
    before = state()
    length = whole_run(replace(suite, out=suite.out / "first"))
    first = wait_for(before, state)
    chance, done = random.Random(seed), []
    for k in range(kills):
        # One moment in each tenth of the run: start, loading, measuring and restoring are all hit.
        moment = length * (k + chance.random()) / kills
        again = replace(suite, out=suite.out / f"kill-{k}")
        done.append(kill_when(again, moment.__le__, state, group=bool(k % 2), before=before))
        print(f"killed after {moment:5.2f} s: {'clean' if done[-1].clean else asdict(done[-1])}", file=sys.stderr)
    whole_run(replace(suite, out=suite.out / "last"))
    homes = [str(home) for home in mps_homes()]
    journals = [name for name in records.names("mig-") if (records.read(name) or {}).get("temporary")]
    whole = {"first": _changed(before, first), "last": _changed(before, wait_for(before, state))}
    last = {"homes": homes, "journals": journals, "as_before": not whole["last"], "changed": whole}
    return {
        "length": round(length, 2),
        "kills": [asdict(one) | {"clean": one.clean} for one in done],
        "last": last,
        "clean": all(one.clean for one in done) and not homes and not journals and not any(whole.values()),
    }


def unclean(result: dict[str, Any]) -> str:
    """What was left, in one line; empty if nothing was."""
    said = [
        f"kill {k} after {one['at']} s left {one['left'] or one['changed']}"
        for k, one in enumerate(result["kills"])
        if not one["clean"]
    ]
    said += [f"the {name} run, not killed, changed {one}" for name, one in result["last"]["changed"].items() if one]
    said += [
        f"{what} left at the end: {result['last'][what]}" for what in ("homes", "journals") if result["last"][what]
    ]
    return "; ".join(said)


def _changed(before: State, after: State) -> State:
    """What is not as before: was, is. Of processes only new ones count: one that was ending is not missed."""
    same = {key: after[key] == was if key not in LISTS else set(after[key]) <= set(was) for key, was in before.items()}
    return {key: [before[key], after[key]] for key in before if not same[key]}


def whole_run(suite: Suite) -> float:
    """Run it to its end; returns the seconds that it took."""
    suite.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    status = suite.start(uuid.uuid4().hex).wait(timeout=600)
    if status or any(c["status"] != "ok" for c in _cells(suite.out)):
        log = suite.out.with_suffix(".log").read_text(errors="replace")
        msg = f"the suite failed with status {status}: {log[-2000:]}"
        raise SystemExit(msg)
    return time.monotonic() - began


def _cells(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]


def marked(mark: str) -> list[str]:
    """Living processes with the mark in their environment."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if process_state(int(folder.name)) != "Z" and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(f"{folder.name} {(folder / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()}")
        except OSError:
            continue
    return found


def card_state() -> State:
    """Settings of the GPUs, processes on them, and living processes of MPS; empty without a GPU."""
    try:
        gpus, busy = nvidia_smi.gpus(), nvidia_smi.processes()
    except nvidia_smi.NoGpu:
        gpus, busy = [], []
    names = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            # One that has ended and that nobody reaps holds nothing of the GPU.
            if name.startswith("nvidia-cuda-mps") and process_state(int(folder.name)) not in ("", "Z"):
                names[folder.name] = name
        except OSError:
            continue
    return {
        "gpus": [asdict(one) | {"used_mib": None} for one in gpus],
        "processes": sorted(p.pid for p in busy),
        "mps": names,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Kill a suite and report; exit status 1 if anything was left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kill_suite", description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="mps", help="a sharing mode, as in a plan")
    parser.add_argument("--work", default="launch", help="workload of both tenants")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(words)
    options.out.mkdir(parents=True, exist_ok=True)
    plan = options.out / "killed.toml"
    plan.write_text(PLAN.format(mode=options.mode, work=options.work))
    allow = ("--allow-mig",) if options.mode.startswith("mig:") else ()
    suite = Suite(plan, options.out, ("--device", options.device, *allow))
    result = kill_often(suite, card_state, kills=options.kills, seed=options.seed)
    result |= {"mode": options.mode, "seed": options.seed, "state": card_state()}
    (options.out / "kills.json").write_text(json.dumps(result, indent=1))
    clean = sum(one["clean"] for one in result["kills"])
    print(f"{clean} of {options.kills} killed runs left nothing; the last run: {result['last']}")
    print(unclean(result), end="\n" * bool(unclean(result)), file=sys.stderr)
    return 0 if result["clean"] else 1


if __name__ == "__main__":
    sys.exit(main())
