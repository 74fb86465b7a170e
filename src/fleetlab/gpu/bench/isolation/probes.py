"""The probes: each returns what happened to the neighbor, to the tenant that misbehaved, and to a newcomer.

A neighbor logs each step at once, so that the log survives the death of its process.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.bench.isolation.fork_server import ForkServer, ProbeTenant
from fleetlab.gpu.bench.plans import STRESSORS
from fleetlab.gpu.sharing.modes import Share, SharingMode
from fleetlab.gpu.sharing.mps import Worker

# --- the log of a neighbor: a record per step, written at once, so that it survives the death of its process ----------


GOOD, WRONG, REFUSED, FATAL = range(4)  # how a step ended
RECORD = struct.Struct("<ddB")
KIND = np.dtype([("ended", "<f8"), ("took", "<f8"), ("status", "u1")])


class StepWriter:
    """Append records to a file without a buffer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, ended: float, took: float, status: int) -> None:
        """Write one step: its end on the host's monotonic clock, its length in seconds, and how it ended."""
        os.write(self._file, RECORD.pack(ended, took, status))


def read_steps(path: Path) -> NDArray[Any]:
    """All complete records of a file."""
    data = path.read_bytes() if path.exists() else b""
    return np.frombuffer(data[: len(data) // RECORD.size * RECORD.size], KIND)


def summarize_steps(steps: NDArray[Any], *, acts: float, over: float, tail: float) -> dict[str, Any]:
    """Steps before an event, during it and after it, and how long the neighbor was without a good step."""
    good = steps["ended"][steps["status"] == GOOD]
    later = good[good > acts]
    # The longest time between two good steps, one of which ends after the event
    around = np.concatenate((good[good <= acts][-1:], good[good > acts]))
    return {
        "before": _phase(steps, -np.inf, acts),
        "during": _phase(steps, acts, over),
        "after": _phase(steps, over, over + tail),
        "fatal": bool((steps["status"] == FATAL).any()),
        "next_good_s": round(float(later[0] - acts), 4) if later.size else None,
        "good_after": bool((good > over).any()),
        "longest_gap_s": (round(float(np.diff(around).max()), 4) if around.size > 1 else None),
    }


def rate_between(steps: NDArray[Any], opens: float, closes: float) -> dict[str, Any]:
    """Good steps per second and step times in a window."""
    return _phase(steps, opens, closes) | {"window": round(closes - opens, 4)}


def _phase(steps: NDArray[Any], opens: float, closes: float) -> dict[str, Any]:
    here = steps[(steps["ended"] >= opens) & (steps["ended"] < closes)]
    good = here["took"][here["status"] == GOOD]
    first = max(opens, float(steps["ended"][0] - steps["took"][0])) if steps.size else opens
    span = closes - first if np.isfinite(first) and closes > first else 0.0
    counts = {name: int((here["status"] == k).sum()) for k, name in enumerate(("good", "wrong", "refused", "fatal"))}
    if not good.size:
        return counts | {"per_second": 0.0}
    return counts | {
        "per_second": round(good.size / span, 3) if span else 0.0,
        "median_ms": round(1e3 * float(np.median(good)), 4),
        "max_ms": round(1e3 * float(good.max()), 4),
    }


# --- the probes -------------------------------------------------------------------------------------------------------


DUTIES = (0.25, 0.5, 1.0)
FAULTS = ("kill", "hang", "assert", "illegal-access")
LOAD = 45.0  # s for tenants to be ready
TAIL = 0.8  # s that the neighbor is watched after the event
WHOLE = Share()  # no limits
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class IsolationMode:
    """A sharing mode: of processes, with limits, or of threads of one process on lanes."""

    name: str
    sharing: str
    share: Share = WHOLE
    lanes: str = ""


@dataclass(frozen=True, slots=True)
class ProbeSizes:
    """Times and amounts of a probe, on a GPU or in a rehearsal."""

    settle: float  # s before the event
    hang: float  # s of the kernel that hangs
    window: float  # s beside each stressor
    grow_mib: int  # what the neighbor allocates at each step of the memory probe
    secret_mib: int


ON_GPU = ProbeSizes(settle=0.6, hang=4.0, window=0.4, grow_mib=256, secret_mib=8192)
ON_CPU = ProbeSizes(settle=0.15, hang=0.4, window=0.1, grow_mib=8, secret_mib=4)


class Probe:
    """One cell: tenants in one mode, which are ended however it is left."""

    def __init__(self, server: ForkServer, mode: IsolationMode, on: SharingMode, home: Path, *, device: str) -> None:
        self._server, self._mode, self._on, self._home, self._device = server, mode, on, home, device
        self._env = on.environment(mode.share)
        self._tenants: list[ProbeTenant] = []
        self.size = ON_GPU if device.startswith("cuda") else ON_CPU
        self._steps = home / f"steps-{time.monotonic_ns()}"

    def close(self) -> None:
        """End all tenants."""
        for tenant in self._tenants:
            if not tenant.find("ended"):
                tenant.send("stop")
        for tenant in self._tenants:
            tenant.end(within=0.5)

    def _start(self, *parts: str, **order: Any) -> ProbeTenant:  # noqa: ANN401
        lanes = {"lanes": self._mode.lanes} if self._mode.lanes else {}
        order |= {"parts": list(parts), "device": self._device, "hang_s": self.size.hang, **lanes}
        tenant = self._server.start(self._env, **order)
        self._tenants.append(tenant)
        return tenant

    def _pair(self, **order: Any) -> tuple[ProbeTenant, ProbeTenant]:  # noqa: ANN401
        """Neighbor and aggressor, both ready: two processes, or one with two threads."""
        order["steps"] = str(self._steps)
        if self._mode.lanes:
            both = self._start("neighbor", "aggressor", **order)
            neighbor, aggressor = both, both
        else:
            neighbor, aggressor = self._start("neighbor", **order), self._start("aggressor", **order)
        for tenant, part in ((neighbor, "neighbor"), (aggressor, "aggressor")):
            if tenant.wait("ready", within=LOAD, part=part) is None:
                why = tenant.find("failed")
                raise ProbeError(f"the {part} did not start: {why['detail'] if why else 'no answer'}")
        return neighbor, aggressor

    def _about(self, *tenants: ProbeTenant) -> Report:
        """What the tenants saw of the GPU, and whether each is attached as the mode requires."""
        ready = [event for tenant in dict.fromkeys(tenants) for event in tenant.events if "pid" in event]
        columns = [{key: e[key] for key in ("part", "sms", "free_mib", "total_mib") if key in e} for e in ready]
        pids = {event["pid"] for event in ready}
        apart = self._on.verify([Worker(self._mode.share, {"pid": pid}) for pid in sorted(pids)])
        return {"attached": not apart, "seen": [one for one in columns if one]}

    # --- faults ------------------------------------------------------------------------------------------------------

    def fault(self, kind: str) -> Report:
        """A tenant faults: does the neighbor go on, and when does the GPU serve a new process?"""
        neighbor, aggressor = self._pair(act="fault", fault=kind)
        about = self._about(neighbor, aggressor)
        time.sleep(self.size.settle)
        aggressor.send("go")
        acts = self._acts(aggressor)
        newcomer = self._newcomer(acts, within=self.size.hang + 15)
        done = aggressor.wait("done", "ended", within=self.size.hang + 15)
        over = done["t"] if done else time.monotonic()
        if kind == "hang" and (done is None or done.get("error")):
            raise ProbeError(f"the kernel that hangs did not run: {done}")
        time.sleep(max(over + TAIL - time.monotonic(), 0))
        return about | {
            "aggressor": _end_of(aggressor, done),
            "event_s": round(over - acts, 4),
            "newcomer": newcomer,
            "neighbor": self._neighbor(neighbor, acts, over),
        }

    # --- memory ------------------------------------------------------------------------------------------------------

    def memory(self, kind: str) -> Report:
        """A tenant allocates until it is refused: who else is refused, and until when?"""
        neighbor, aggressor = self._pair(act="memory", grow_mib=self.size.grow_mib)
        about = self._about(neighbor, aggressor)
        before = self._newcomer(time.monotonic(), within=20, tries=1)
        time.sleep(self.size.settle)
        aggressor.send("go")
        acts = self._acts(aggressor)
        full = aggressor.wait("full", "done", "ended", within=60)
        if full is None or full["at"] != "full":
            raise ProbeError(f"memory could not be taken: {full}")
        during = self._newcomer(full["t"], within=6, tries=1)
        time.sleep(max(full["t"] + TAIL - time.monotonic(), 0))
        over = time.monotonic()
        aggressor.send("release")
        aggressor.wait("done", "ended", within=20)
        newcomer = self._newcomer(over, within=10)
        time.sleep(max(over + TAIL - time.monotonic(), 0))
        return about | {
            "aggressor": {key: full[key] for key in ("held_mib", "refused", "detail", "bound_mib", "took_s")},
            "event_s": round(over - acts, 4),
            "newcomer_before": before,
            "newcomer_while_full": during,
            "newcomer": newcomer,
            "neighbor": self._neighbor(neighbor, acts, over),
        }

    # --- performance -------------------------------------------------------------------------------------------------

    def performance(self, kind: str) -> Report:
        """Each stressor at each duty beside the neighbor: good steps per second, relative to alone."""
        neighbor, aggressor = self._pair(act="stress")
        about = self._about(neighbor, aggressor)
        aggressor.send("go")
        self._acts(aggressor)
        windows: list[Report] = []
        for work, duty in [("", 0.0), *((w, d) for w in STRESSORS for d in DUTIES), ("", 0.0)]:
            opens = time.monotonic() + 0.25 * self.size.window
            closes = opens + self.size.window
            if work:
                aggressor.send("stress", work=work, duty=duty, until=closes + 0.02)
            time.sleep(max(closes + 0.03 - time.monotonic(), 0))
            windows.append({"stressor": work, "duty": duty, "opens": opens, "closes": closes})
            if work and not _reached(aggressor, "stressed", sum(1 for w in windows if w["stressor"])):
                raise ProbeError(f"the stressor {work} at {duty} did not end")
        aggressor.send("release")
        neighbor.send("stop")
        steps = read_steps(self._steps)
        for window in windows:
            window |= rate_between(steps, window.pop("opens"), window.pop("closes"))
        errors = [e["error"] for e in aggressor.events if e["at"] == "stressed" and e["error"]]
        return about | {"windows": windows, "errors": errors}

    # --- information -------------------------------------------------------------------------------------------------

    def information(self, kind: str) -> Report:
        """A tenant writes a pattern and frees it: how much of it does the next tenant find?"""
        writer = self._start("writer", secret_mib=self.size.secret_mib, variant=kind)
        written = writer.wait("written", within=LOAD)
        if written is None:
            raise ProbeError(f"nothing was written: {writer.find('failed')}")
        about = self._about(writer)
        writer.send("free")
        writer.wait("freed", within=20)
        if kind == "exit":
            writer.send("end")
            writer.end(within=10)
        reader = writer if self._mode.lanes else self._start("reader")
        read = reader.wait("read", within=LOAD)
        if read is None:
            raise ProbeError(f"nothing was read: {reader.find('failed')}")
        writer.send("end")
        numbers = {key: read[key] for key in ("read_mib", "found_words", "nonzero_words")}
        return about | {
            "written_words": written["words"],
            "found_share": numbers["found_words"] / written["words"],
            **numbers,
        }

    # --- parts of probes ---------------------------------------------------------------------------------------------

    def _acts(self, aggressor: ProbeTenant) -> float:
        event = aggressor.wait("acts", within=10)
        if event is None:
            raise ProbeError("the tenant that misbehaves did not act")
        return float(event["t"])

    def _newcomer(self, since: float, *, within: float, tries: int = 20) -> Report:
        """Start new processes until one computes a right result; seconds since the event."""
        deadline, failures = time.monotonic() + within, list[str]()
        while len(failures) < tries and (remaining := deadline - time.monotonic()) > 0:
            tenant = self._server.start(self._env, parts=["newcomer"], device=self._device)
            self._tenants.append(tenant)
            event = tenant.wait("good", "wrong", "failed", within=remaining)
            ended = tenant.end(within=2.0)
            if event and event["at"] == "good":
                took = {"after_s": round(event["t"] - since, 4), "took_s": round(event["t"] - tenant.events[0]["t"], 4)}
                return {"good": True, **took, "failures": failures}
            failures.append(str(event.get("detail", event["at"])) if event else f"no answer: {ended}")
        return {"good": False, "after_s": None, "failures": failures}

    def _neighbor(self, neighbor: ProbeTenant, acts: float, over: float) -> Report:
        """Stop it, and summarize its steps."""
        ended_before = neighbor.find("ended")
        failed = neighbor.find("failed")
        neighbor.send("stop")
        ended = ended_before or neighbor.end(within=6.0)
        return summarize_steps(read_steps(self._steps), acts=acts, over=over, tail=TAIL) | {
            "survived": ended_before is None and failed is None and not (ended or {}).get("killed", False),
            "error": failed["detail"] if failed else "",
            "exit": ended["status"] if ended else None,
            "stuck": bool(ended and ended.get("killed")),
        }


class ProbeError(Exception):
    """A probe could not be made: the cell is recorded as failed."""


def _end_of(aggressor: ProbeTenant, done: Report | None) -> Report:
    ended = aggressor.find("ended")
    return {"error": (done or {}).get("error", ""), "exit": ended["status"] if ended else None, "done": bool(done)}


def _reached(tenant: ProbeTenant, at: str, times: int, *, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while tenant.count(at) < times and time.monotonic() < deadline and not tenant.find("ended"):
        time.sleep(0.005)
    return tenant.count(at) >= times


PROBES: dict[str, Callable[[Probe, str], Report]] = {
    "memory": Probe.memory,
    "information": Probe.information,
    "performance": Probe.performance,
    "faults": Probe.fault,
}
