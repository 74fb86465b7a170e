"""A stand-in for every kubelet: a bound pod runs, and ends after its run time, or when it is asked to go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime

from realtest.kubernetes.client import PODS, Client
from realtest.kubernetes.objects import RUN_TIME, Object


def now() -> str:
    """Return the time as Kubernetes writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelets:
    """Pods as last seen, and those that run."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods: dict[str, Object] = {}
        self.ended: set[str] = set()
        self.seen: dict[str, dict[str, float]] = {}  # when the watch first said so: bound, running, deleted
        self.first: dict[str, float] = {}  # when the watch first told of a pod
        # When a pod that waits was changed, and whether more than its status was: who manages its fields counts too.
        self.changes: list[tuple[float, str, bool]] = []
        self._started: set[str] = set()
        self._leaving: set[str] = set()
        self._managed: dict[str, object] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def follow(self, since: str) -> None:
        """Watch the pods, and act as kubelets do; until it is cancelled."""
        async for change, pod in self.client.watch(PODS, since):
            name = pod["metadata"]["name"]
            managed = pod["metadata"].pop("managedFields", None)
            if change == "MODIFIED" and not pod["spec"].get("nodeName"):
                self.changes.append((time.time(), name, managed != self._managed.get(name)))
            self._managed[name] = managed
            self.pods[name] = pod
            self.first.setdefault(name, time.time())
            self._note(name, change, pod)
            if change == "DELETED":
                self.ended.add(name)
            elif pod["metadata"].get("deletionTimestamp"):
                if name not in self._leaving:
                    self._leaving.add(name)
                    self._spawn(self._remove(name, pod))
            elif pod["spec"].get("nodeName") and name not in self._started:
                self._started.add(name)
                self._spawn(self._run(name, float(pod["metadata"]["annotations"][RUN_TIME])))

    def _note(self, name: str, change: str, pod: Object) -> None:
        times = self.seen.setdefault(name, {})
        reached = {
            "bound": bool(pod["spec"].get("nodeName")),
            "running": bool(pod["status"].get("startTime")),
            "terminating": bool(pod["metadata"].get("deletionTimestamp")),
            "ended": pod["status"].get("phase") in ("Succeeded", "Failed"),
            "deleted": change == "DELETED",
        }
        for what, is_so in reached.items():
            if is_so and what not in times:
                times[what] = time.time()

    def _spawn(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str, seconds: float) -> None:
        begun = now()
        state = {"running": {"startedAt": begun}}
        await self._say(name, "Running", begun, state)
        await asyncio.sleep(seconds)
        if name not in self.ended and not self.pods[name]["metadata"].get("deletionTimestamp"):
            ended = {"terminated": {"exitCode": 0, "startedAt": begun, "finishedAt": now(), "reason": "Completed"}}
            await self._say(name, "Succeeded", begun, ended)
            self.ended.add(name)

    async def _say(self, name: str, phase: str, begun: str, state: Object) -> None:
        container = {"name": "main", "image": "none", "imageID": "", "ready": phase == "Running", "restartCount": 0}
        status = {"phase": phase, "startTime": begun, "containerStatuses": [container | {"state": state}]}
        await self.client.status(f"{PODS}/{name}", status)

    async def _remove(self, name: str, pod: Object) -> None:
        await asyncio.sleep(float(pod["metadata"].get("deletionGracePeriodSeconds", 0)))
        await self.client.delete(f"{PODS}/{name}")
