"""Pods of all kinds, asked of a real API server under drawn ResourceQuotas and LimitRanges, and decided again by ours.

Every namespace has a LimitRange or none, and up to three quotas with scopes; pods come one after the other, and none
ends. The controller of quotas writes what is used; the admission plugins of the server decide.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetlab.schedulers.kubernetes.admission import CreatedPod
from fleetlab.schedulers.kubernetes.creations import INVALID, violations, with_defaults
from fleetlab.schedulers.kubernetes.quota import Ledger, counts, unsaid
from fleetlab.schedulers.kubernetes.reader.site_rules import created_pod, limit_range, namespace_quota
from realtest.kubernetes.client import Client
from realtest.kubernetes.lab import Lab, LabError
from realtest.kubernetes.objects import GPU, Object

SCOPES: tuple[list[str], ...] = (
    [],
    [],
    ["BestEffort"],
    ["NotBestEffort"],
    ["Terminating"],
    ["NotTerminating"],
    ["NotBestEffort", "Terminating"],
)
HARD = {
    "pods": (2, 12), "count/pods": (3, 14), "cpu": (2, 20), "requests.cpu": (2, 20), "memory": (2, 20),
    "requests.memory": (2, 20), "limits.cpu": (4, 30), "limits.memory": (4, 30), f"requests.{GPU}": (2, 16),
}  # fmt: skip
IN_GIB = ("memory", "requests.memory", "limits.memory")
EXCEEDED = re.compile(r"exceeded quota: ([\w-]+), requested: (.*?), used: ")
UNSAID = re.compile(r"failed quota: ([\w-]+): must specify (.*)")
BOUND = re.compile(r"(minimum|maximum) ([\w./-]+) usage per|([\w./-]+) (max limit to request ratio) per")
ABOVE = re.compile(r"must be less than or equal to (\S+?) limit")


def _quota(drawn: random.Random, number: int) -> Object:
    best_effort = (scopes := drawn.choice(SCOPES)) == ["BestEffort"]
    names = ["pods"] if best_effort else drawn.sample(list(HARD), drawn.randint(1, 4))
    hard = {name: f"{drawn.randint(*HARD[name])}{'Gi' if name in IN_GIB else ''}" for name in names}
    spec: Object = {"hard": hard, "scopes": scopes} if scopes else {"hard": hard}
    if not scopes and drawn.random() < 0.3:
        operator = drawn.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = ["high"] if operator in ("In", "NotIn") else []
        spec["scopeSelector"] = {
            "matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]
        }
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"quota-{number}"}, "spec": spec}


def _bounds(drawn: random.Random) -> Object:
    items: list[Object] = []
    if drawn.random() < 0.7:
        item: Object = {"type": "Container"}
        if drawn.random() < 0.6:
            item["max"] = {"cpu": str(drawn.choice((2, 3, 4))), "memory": f"{drawn.choice((3, 4))}Gi"}
        if drawn.random() < 0.4:
            item["min"] = {"cpu": "200m"}
        if drawn.random() < 0.6:
            item["defaultRequest"] = {"cpu": "500m"}
            item["default"] = {"cpu": "2"}
        if drawn.random() < 0.3:
            item["maxLimitRequestRatio"] = {"memory": "2"}
        items.append(item)
    if drawn.random() < 0.5:
        items.append({"type": "Pod", drawn.choice(("max", "min")): {"cpu": "2"}})
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": {"limits": items}}


def _container(drawn: random.Random, name: str) -> Object:
    requests: Object = {}
    limits: Object = {}
    for resource, unit, most in (("cpu", "", 3), ("memory", "Gi", 4)):
        low = drawn.randint(1, most)
        if drawn.random() < 0.7:
            requests[resource] = f"{low}{unit}"
        if drawn.random() < 0.5:
            limits[resource] = f"{low + drawn.randint(0, 3)}{unit}"
    if drawn.random() < 0.4:
        requests[GPU] = limits[GPU] = str(drawn.randint(1, 4))
    return {"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}}


def _pod(drawn: random.Random, number: int) -> Object:
    spec: Object = {"containers": [_container(drawn, f"c{k}") for k in range(drawn.choice((1, 1, 2)))]}
    if drawn.random() < 0.2:
        spec["initContainers"] = [_container(drawn, "before")]
    if drawn.random() < 0.15:
        spec["containers"] = [{"name": "c0", "image": "none"}]
        spec.pop("initContainers", None)
    if drawn.random() < 0.3:
        spec["activeDeadlineSeconds"] = 600
    if drawn.random() < 0.3:
        spec["priorityClassName"] = drawn.choice(("high", "low"))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number:03}"}, "spec": spec}


async def run(out: Path, namespaces: int = 60, pods: int = 40, seed: int = 1) -> None:
    """Ask the server, and keep objects and answers."""
    out.mkdir(parents=True, exist_ok=True)
    drawn, kept = random.Random(seed), []
    with Lab(out / "lab") as lab:
        lab.control("resourcequota")
        async with Client(lab.url) as client:
            for name, value in (("high", 1000), ("low", -5)):
                one = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
                await client.create("/apis/scheduling.k8s.io/v1/priorityclasses", one | {"value": value})
            for number in range(namespaces):
                kept.append(await _namespace(client, drawn, f"ns-{number:03}", pods))
                print(f"  {number + 1} namespaces", flush=True)
    (out / "answers.json.gz").write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


async def _namespace(client: Client, drawn: random.Random, name: str, pods: int) -> Object:
    await client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}"
    bounds: list[Object] = []
    if drawn.random() < 0.6:
        with suppress(LabError):  # bounds that contradict each other
            bounds = [await client.create(f"{path}/limitranges", _bounds(drawn))]
    for number in range(drawn.choice((1, 1, 2, 3))):
        await client.create(f"{path}/resourcequotas", _quota(drawn, number))
    for _ in range(240):
        quotas = (await client.list(f"{path}/resourcequotas"))["items"]
        if all(one.get("status", {}).get("hard") for one in quotas):
            break
        await asyncio.sleep(0.1)
    answers = []
    for number in range(pods):
        pod = _pod(drawn, number)
        try:
            await client.create(f"{path}/pods", pod)
            answers.append([pod, ""])
        except LabError as e:
            answers.append([pod, str(e)])
    for one in (*bounds, *quotas):
        one["metadata"] = {key: one["metadata"][key] for key in ("name", "namespace")}
    return {"bounds": bounds, "quotas": quotas, "answers": answers}


# -- the same, by ours -------------------------------------------------------------------------------------------------


def said(answer: str) -> tuple[str, Any]:
    """What the server answered: admitted, or why not."""
    if not answer:
        return "admitted", None
    if found := EXCEEDED.search(answer):
        return "exceeded", (found[1], tuple(sorted(one.split("=")[0] for one in found[2].split(","))))
    if found := UNSAID.search(answer):
        return "unsaid", (found[1], tuple(sorted(found[2].split(","))))
    if bounds := BOUND.findall(answer):
        return "bounds", tuple(sorted({(a or d, b or c) for a, b, c, d in bounds}))
    if above := ABOVE.findall(answer):
        return "bounds", tuple(sorted({(INVALID, name) for name in above}))
    return "other", answer


def decided(kept: Object) -> list[tuple[tuple[str, Any], list[tuple[str, Any]]]]:
    """Each pod of a namespace: what the server said, and what it may say by our rules; quotas are in any order."""
    ranges = [limit_range(one) for one in kept["bounds"]]
    quotas = [namespace_quota(one) for one in kept["quotas"]]
    ledgers = [Ledger([quota]) for quota in quotas]
    pairs = []
    for pod, answer in kept["answers"]:
        item = pod | {"metadata": pod["metadata"] | {"namespace": quotas[0].namespace}}
        asked = with_defaults(created_pod(item), ranges)
        if broken := violations(asked, ranges):
            pairs.append((said(answer), [("bounds", tuple(sorted(set(broken))))]))
        else:
            pairs.append((said(answer), _by_quota(ledgers, asked)))
    return pairs


def _by_quota(ledgers: list[Ledger], asked: CreatedPod) -> list[tuple[str, Any]]:
    """First whether all is said that a quota counts, then amounts; a pod is counted where all have room."""
    mine = [one.quotas[0] for one in ledgers if counts(one.quotas[0], asked)]
    if missing := [("unsaid", (one.name, tuple(names))) for one in mine if (names := unsaid(one, asked))]:
        return missing
    tried = [(one, one.charge(asked)) for one in ledgers]
    over = [("exceeded", (lacks[0][0], tuple(name for _, name in lacks))) for _, lacks in tried if lacks]
    for one, lacks in tried:
        if over and not lacks:
            one.release(asked)
    return over or [("admitted", None)]


def outcome(path: Path) -> tuple[Counter[str], list[Any]]:
    """Count what agrees, by what the server said, and list what does not."""
    found: Counter[str] = Counter()
    wrong = []
    for kept in json.loads(gzip.decompress(path.read_bytes())):
        for server, ours in decided(kept):
            found[server[0]] += 1
            if server not in ours:
                wrong.append((server, ours))
    return found, wrong


if __name__ == "__main__":
    import sys

    asyncio.run(run(Path(sys.argv[1])))
    print(*outcome(Path(sys.argv[1]) / "answers.json.gz"))
