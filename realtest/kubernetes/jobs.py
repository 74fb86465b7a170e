"""Jobs under a ResourceQuota: a real API server refuses their pods, and the real Job controller tries again.

kube-controller-manager runs with the controllers of Jobs and quotas alone. What is kept is when each Job was created,
when its pods were refused and created, and when they ended; `compare` plays the same Jobs by our rules.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.schedulers.kubernetes.admission import Container, CreatedPod, NamespaceQuota
from fleetlab.schedulers.kubernetes.config import JOB_BACKOFF, SchedulingNode, SchedulingPod
from fleetlab.schedulers.kubernetes.loop import Loop, Site
from fleetlab.schedulers.kubernetes.quota import Owners
from realtest.kubernetes.client import PODS, Client
from realtest.kubernetes.kubelets import Kubelets
from realtest.kubernetes.lab import Lab
from realtest.kubernetes.objects import GPU, RUN_TIME, Load, Object, nodes_of

JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
HARD = 16  # GPUs that the pods of the namespace may have together
NAME = "gpus"
# When the controller failed: `E1117 20:11:12.123456 … pods "job-00001-" is forbidden: exceeded quota: gpus, …`
FAILED = re.compile(r"^E(\d{4} [\d:.]+).*Error syncing job: pods \"(job-\d+)-.*exceeded quota: (\w+)", re.MULTILINE)


def jobs_of(count: int, seed: int, over: float) -> list[dict[str, Any]]:
    """Draw Jobs of 1 to 3 pods that come within so many seconds."""
    drawn = random.Random(seed)
    at = sorted(drawn.uniform(0, over) for _ in range(count))
    return [
        {"name": f"job-{k:05}", "at": at[k], "gpus": drawn.choice((2, 4, 4, 8)),
         "pods": drawn.choice((1, 1, 1, 1, 2, 3)), "run": round(min(60.0, 3 + drawn.expovariate(1 / 12)), 2)}
        for k in range(count)
    ]  # fmt: skip


def _job(one: dict[str, Any]) -> Object:
    amounts = {GPU: str(one["gpus"]), "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": {GPU: amounts[GPU]}}}
    pod = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"annotations": {RUN_TIME: str(one["run"])}}, "spec": pod}
    spec = {"parallelism": one["pods"], "completions": one["pods"], "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": one["name"]}, "spec": spec}


async def run(out: Path, count: int = 40, seed: int = 1, over: float = 90.0, patience: float = 480.0) -> None:
    """Run Jobs, and write down what became of them."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = jobs_of(count, seed, over)
    with Lab(out / "lab") as lab:
        async with Client(lab.url) as client:
            for node in nodes_of(40, Load()):
                await client.create("/api/v1/nodes", node)
            lab.schedule({"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "kind": "KubeSchedulerConfiguration"})
            log = lab.control("job", "resourcequota")
            hard = {f"requests.{GPU}": str(HARD)}
            quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": NAME}, "spec": {"hard": hard}}
            await client.create(QUOTAS, quota)
            await _until_counted(client)
            kubelets = Kubelets(client)
            watch = asyncio.create_task(kubelets.follow((await client.list(PODS))["metadata"]["resourceVersion"]))
            begin = time.time()
            for one in jobs:
                await asyncio.sleep(max(0.0, begin + one["at"] - time.time()))
                await client.create(JOBS, _job(one))
                one["created"] = time.time() - begin
            wanted, end = sum(one["pods"] for one in jobs), time.time() + patience
            while len(kubelets.ended) < wanted and time.time() < end:
                await asyncio.sleep(0.5)
            watch.cancel()
            _keep(out, jobs, kubelets, log, begin)


async def _until_counted(client: Client) -> None:
    """Wait until the quota controller has written what is used."""
    for _ in range(240):
        if (await client.list(f"{QUOTAS}/{NAME}")).get("status", {}).get("hard"):
            return
        await asyncio.sleep(0.5)


def _keep(out: Path, jobs: list[dict[str, Any]], kubelets: Kubelets, log: Path, begin: float) -> None:
    year = datetime.now().year
    refusals: dict[str, list[float]] = {}
    for stamp, name, _ in FAILED.findall(log.read_text(errors="replace")):
        at = datetime.strptime(f"{year}{stamp}", "%Y%m%d %H:%M:%S.%f").timestamp()
        refusals.setdefault(name, []).append(round(at - begin, 3))
    for one in jobs:
        mine = [name for name in kubelets.pods if name.startswith(one["name"])]
        times = [kubelets.seen[name] for name in mine]
        one["refused"] = refusals.get(one["name"], [])
        one["started"] = sorted(round(kubelets.first[name] - begin, 3) for name in mine)
        one["held"] = [
            round(t["ended"] - kubelets.first[name], 3) for name, t in zip(mine, times, strict=True) if "ended" in t
        ]
    (out / "jobs.json").write_text(json.dumps({"quota": HARD, "jobs": jobs}, indent=0))


def compare(path: Path, seed: int = 1) -> dict[str, Any]:
    """Play the Jobs of a run by our rules: when pods are created, really and simulated, and between refusals."""
    kept = json.loads(path.read_text())
    jobs = kept["jobs"]
    rows = [(k, one) for k, one in enumerate(jobs) for _ in range(one["pods"])]
    asked = [CreatedPod("default", (Container({GPU: one["gpus"]}, {GPU: one["gpus"]}),)) for _, one in rows]
    pods = [SchedulingPod(str(n), requests={GPU: one["gpus"]}) for n, (_, one) in enumerate(rows)]
    node = SchedulingNode("all", {"cpu": 10**6, "memory": 2**50, GPU: 10**4, "pods": 10**4})
    held = [
        one["held"][k - first] if k - first < len(one["held"]) else one["run"]
        for k, (first, one) in enumerate(_firsts(rows))
    ]
    loop = Loop(Site([node]), pods, held, seed)
    quota = NamespaceQuota("default", NAME, {f"requests.{GPU}": kept["quota"]})
    loop.owners = Owners([quota], asked, [k for k, _ in rows], JOB_BACKOFF["1.20"])
    placed = loop.play([one["created"] for _, one in rows])
    real = np.array([at for one in jobs for at in one["started"]])
    mine = [sorted(placed.start[n] for n, (k, _) in enumerate(rows) if k == number) for number in range(len(jobs))]
    ours = np.array([at for starts in mine for at in starts])
    single = [one for one in jobs if one["pods"] == 1]
    gaps = [
        (n, b - a) for one in single for n, (a, b) in enumerate(zip(one["refused"], one["refused"][1:], strict=False))
    ]
    return {"real": real, "ours": ours, "gaps": gaps, "refusals": sum(len(one["refused"]) for one in jobs)}


def _firsts(rows: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """For each pod the number of the first of its Job, and the Job."""
    first: dict[int, int] = {}
    return [(first.setdefault(k, n), one) for n, (k, one) in enumerate(rows)]


if __name__ == "__main__":
    import sys

    folder = Path(sys.argv[1])
    asyncio.run(run(folder))
    found = compare(folder / "jobs.json")
    print(len(found["real"]), found["refusals"], np.abs(found["real"] - found["ours"]).max())
