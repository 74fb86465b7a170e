"""One real run: up, nodes, pods at their times, wait until all have ended, collect, down."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from pathlib import Path

from realtest.kubernetes.client import PODS, Client
from realtest.kubernetes.kubelets import Kubelets
from realtest.kubernetes.lab import Lab, LabError
from realtest.kubernetes.objects import RATE, Load, Object, controller_of, nodes_of, pods_of
from realtest.kubernetes.profiles import Profile

PATIENCE_S = 120.0  # how long nothing may end while pods are left
EVENTS = "/api/v1/namespaces/default/events"


def run_profile(profile: Profile, out: Path, pods: int, rate: float = RATE) -> None:
    """Run a profile once; `out` then has the objects, the scheduler's log, and a file DONE."""
    out.mkdir(parents=True, exist_ok=True)
    with Lab(out / "lab") as lab:
        about = asyncio.run(_play(profile, lab, out, pods, rate))
    about |= {"profile": profile.name, "summary": profile.summary, "pods": pods, "nodes": profile.nodes}
    about |= {"seed": profile.seed, "rate": rate}
    (out / "run.json").write_text(json.dumps(about, indent=1) + "\n")
    (out / "scheduler.json").write_text(json.dumps(profile.configuration, indent=1) + "\n")
    (out / "DONE").touch()


async def _play(profile: Profile, lab: Lab, out: Path, pods: int, rate: float) -> Object:
    async with Client(lab.url) as client:
        for node in nodes_of(profile.nodes, profile.load):
            await client.create("/api/v1/nodes", node)
        await _classes(client, profile.load)
        log = lab.schedule(profile.configuration)
        await _until_nodes_are_known(log, profile.nodes)
        begun = await client.list(PODS)
        kubelets = Kubelets(client)
        watch = asyncio.create_task(kubelets.follow(begun["metadata"]["resourceVersion"]))
        begin = time.time()
        late = await _submit(client, pods_of(pods, profile.seed, profile.load, rate), rate)
        left = await _drain(kubelets, pods, watch)
        end = time.time()
        watch.cancel()
        _write(out / "nodes.json", (await client.list("/api/v1/nodes"))["items"], "Node")
        _write(out / "pods.json", list(kubelets.pods.values()), "Pod")
        _write(out / "events.json", (await client.list(EVENTS))["items"], "Event")
        (out / "seen.json").write_text(json.dumps(kubelets.seen))
        (out / "changes.json").write_text(json.dumps(kubelets.changes))
    log.rename(out / "scheduler.log")
    return {"begin": begin, "end": end, "late": round(late, 3), "left": left}


async def _classes(client: Client, load: Load) -> None:
    for name, value in load.classes.items():
        one = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        policy = "Never" if name.endswith("never") else "PreemptLowerPriority"
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await client.create(path, one | {"value": value, "preemptionPolicy": policy})
    for app, kind in load.controllers.items():
        await client.create(f"/apis/apps/v1/namespaces/default/{kind.lower()}s", controller_of(app, kind))
    for app, allowed in load.budgets.items():
        path = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        one = {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
        await client.create(path, one)
        status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        await client.status(f"{path}/{app}", status | {"observedGeneration": 1})


async def _until_nodes_are_known(log: Path, nodes: int) -> None:
    for _ in range(240):
        if log.read_text(errors="replace").count("add event for node") >= nodes:
            return
        await asyncio.sleep(0.5)
    msg = f"kube-scheduler did not come up: {log.read_text(errors='replace')[-2000:]}"
    raise LabError(msg)


async def _submit(client: Client, pods: list[Object], rate: float) -> float:
    """Create each pod at its time; return how late the latest was."""
    begin, late = time.monotonic(), 0.0
    sent: set[asyncio.Task[Object]] = set()
    for number, pod in enumerate(pods):
        at = begin + number / rate
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        late = max(late, time.monotonic() - at)
        sent.add(asyncio.create_task(client.create(PODS, pod)))
        if number % 500 == 499:
            print(f"  {number + 1:,} pods submitted, at most {late:.2f} s late", flush=True)
        if len(sent) > 64:
            sent = await _collected(sent)
    await asyncio.gather(*sent)
    return late


async def _collected(sent: set[asyncio.Task[Object]]) -> set[asyncio.Task[Object]]:
    done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*done)
    return waiting


async def _drain(kubelets: Kubelets, pods: int, watch: Awaitable[None]) -> list[str]:
    """Wait until all pods have ended; return those that never did."""
    ended, since = -1, time.monotonic()
    while len(kubelets.ended) < pods and time.monotonic() < since + PATIENCE_S:
        if isinstance(watch, asyncio.Task) and watch.done():
            await watch
        if len(kubelets.ended) != ended:
            ended, since = len(kubelets.ended), time.monotonic()
        await asyncio.sleep(0.5)
    return sorted(kubelets.pods.keys() - kubelets.ended)


def _write(path: Path, items: list[Object], kind: str) -> None:
    for item in items:
        item["metadata"].pop("managedFields", None)
        item |= {"apiVersion": "v1", "kind": kind}
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
