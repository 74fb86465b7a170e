"""The probes: each returns what happened to the neighbor, to the tenant that misbehaved, and to a newcomer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetlab.bench.isolation.processes import ProbeTenant, TenantNursery
from fleetlab.bench.isolation.steps import rate_between, read_steps, summarize_steps
from fleetlab.sharing.modes import Share, SharingMode
from fleetlab.sharing.share import Worker

STRESSORS = ("gemm", "hbm", "l2", "h2d")
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

    def __init__(
        self, nursery: TenantNursery, mode: IsolationMode, on: SharingMode, home: Path, *, device: str
    ) -> None:
        self._nursery, self._mode, self._on, self._home, self._device = nursery, mode, on, home, device
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
        tenant = self._nursery.start(self._env, **order)
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
                msg = f"the {part} did not start: {why['detail'] if why else 'no answer'}"
                raise ProbeError(msg)
        return neighbor, aggressor

    def _about(self, *tenants: ProbeTenant) -> Report:
        """What the tenants saw of the GPU, and whether each is attached as the mode requires."""
        ready = [event for tenant in dict.fromkeys(tenants) for event in tenant.events if "pid" in event]
        seen = [{key: e[key] for key in ("part", "sms", "free_mib", "total_mib") if key in e} for e in ready]
        pids = {event["pid"] for event in ready}
        apart = self._on.verify([Worker(self._mode.share, {"pid": pid}) for pid in sorted(pids)])
        return {"attached": not apart, "seen": [one for one in seen if one]}

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
            msg = f"the kernel that hangs did not run: {done}"
            raise ProbeError(msg)
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
            msg = f"memory could not be taken: {full}"
            raise ProbeError(msg)
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
            if work and not _heard(aggressor, "stressed", sum(1 for w in windows if w["stressor"])):
                msg = f"the stressor {work} at {duty} did not end"
                raise ProbeError(msg)
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
            msg = f"nothing was written: {writer.find('failed')}"
            raise ProbeError(msg)
        about = self._about(writer)
        writer.send("free")
        writer.wait("freed", within=20)
        if kind == "exit":
            writer.send("end")
            writer.end(within=10)
        reader = writer if self._mode.lanes else self._start("reader")
        read = reader.wait("read", within=LOAD)
        if read is None:
            msg = f"nothing was read: {reader.find('failed')}"
            raise ProbeError(msg)
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
            msg = "the tenant that misbehaves did not act"
            raise ProbeError(msg)
        return float(event["t"])

    def _newcomer(self, since: float, *, within: float, tries: int = 20) -> Report:
        """Start new processes until one computes a right result; seconds since the event."""
        deadline, failures = time.monotonic() + within, list[str]()
        while len(failures) < tries and (left := deadline - time.monotonic()) > 0:
            tenant = self._nursery.start(self._env, parts=["newcomer"], device=self._device)
            self._tenants.append(tenant)
            event = tenant.wait("good", "wrong", "failed", within=left)
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


def _heard(tenant: ProbeTenant, at: str, times: int, *, within: float = 10.0) -> bool:
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
