"""Gather what a Kubernetes cluster says of its pods, nodes and rules by kubectl, which only reads; a file each kind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core.errors import TraceError
from fleetlab.core.files import atomic_write

HINT = "kubectl must reach the cluster: `kubectl get nodes` says whether it does"
TIMEOUT_S = 600.0
KUEUE = ("kueue-manager-config", "-n", "kueue-system")  # where its manifests keep its own configuration
NEEDED = ("pods", "nodes")
# What every cluster has; the API group is part of the name where several may have one.
KINDS = (
    *NEEDED, "events", "jobs.batch", "priorityclasses.scheduling.k8s.io", "resourcequotas", "limitranges",
    "poddisruptionbudgets.policy",
)  # fmt: skip
# What is there if somebody installed it.
CUSTOM = (
    "clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io",
    "resourceflavors.kueue.x-k8s.io", "workloads.kueue.x-k8s.io", "workloadpriorityclasses.kueue.x-k8s.io",
    "admissionchecks.kueue.x-k8s.io", "topologies.kueue.x-k8s.io", "queues.scheduling.volcano.sh",
    "podgroups.scheduling.volcano.sh", "queues.scheduling.run.ai", "podgroups.scheduling.run.ai",
    "jobsets.jobset.x-k8s.io", "pytorchjobs.kubeflow.org", "rayjobs.ray.io",
    "leaderworkersets.leaderworkerset.x-k8s.io", "rayclusters.ray.io", "trainjobs.trainer.kubeflow.org",
    "appwrappers.workload.codeflare.dev", "sparkapplications.sparkoperator.k8s.io",
    "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "resourceslices.resource.k8s.io",
)  # fmt: skip


@dataclass(frozen=True)
class Gathered:
    """What was written, in how many objects, and what could not be read, with kubectl's reason."""

    objects: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def collect(
    out: Path, *, context: str | None = None, config_map: str | None = None, say: Callable[[str], None] = print
) -> Gathered:
    """Write a list for each kind into a folder; what may not be read is left out and said.

    Without pods or nodes it fails in the end, and keeps what was gathered.
    `config_map` names where kube-scheduler's configuration is kept, as NAMESPACE/NAME.
    """
    run = _Kubectl(context)
    there = run.resources()
    out.mkdir(parents=True, exist_ok=True)
    found = Gathered()
    for kind in (*KINDS, *(one for one in CUSTOM if one in there)):
        say(f"{kind} …")
        try:
            text = run.get(kind)
        except TraceError as e:
            found.left_out[kind] = str(e)
            continue
        found.objects[kind] = _write(out / f"{kind}.json", text)
    if config_map:
        _write_configuration(out, run, config_map)
    if "clusterqueues.kueue.x-k8s.io" in there:
        try:
            atomic_write(out / "kueue-config.json", run.call("get", "configmap", *KUEUE, "-o", "json"))
        except TraceError as e:
            found.left_out["Kueue's own configuration"] = str(e)
    for kind, why in found.left_out.items():
        say(f"left out: {kind}: {why}")
    _require(found, out)
    return found


def _require(found: Gathered, out: Path) -> None:
    """Refuse what is no log: one without pods, or whose nodes may not be listed."""
    none = {"pods": "the cluster lists none"} if not found.objects.get("pods") else {}
    for kind, why in (none | found.left_out).items():
        if kind in NEEDED:
            msg = f"no {'job log: no pods' if kind == 'pods' else kind}: {why}"
            raise TraceError(msg, hint=f"`kubectl get {kind} -A` must list them here; the rest is in {out}")


def _write(path: Path, text: str) -> int:
    try:
        items = json.loads(text)["items"]
    except (ValueError, KeyError, TypeError) as e:
        msg = f"kubectl did not print a list for {path.stem}: {e}"
        raise TraceError(msg, hint=HINT) from None
    atomic_write(path, text)
    return len(items)


def _write_configuration(out: Path, run: _Kubectl, name: str) -> None:
    namespace, _, own = name.rpartition("/")
    data = json.loads(run.call("get", "configmap", own, "-n", namespace or "kube-system", "-o", "json")).get("data", {})
    texts = {key: text for key, text in data.items() if "KubeSchedulerConfiguration" in text}
    if not texts:
        msg = f"the ConfigMap {name} has no KubeSchedulerConfiguration: {', '.join(data) or 'nothing'}"
        raise TraceError(msg, hint="NAMESPACE/NAME of the one that kube-scheduler is given with --config")
    for key, text in texts.items():
        atomic_write(out / f"scheduler-{Path(key).name}", text)


class _Kubectl:
    """kubectl, which is only asked to get."""

    def __init__(self, context: str | None) -> None:
        self._words = ["kubectl", *(["--context", context] if context else [])]

    def resources(self) -> set[str]:
        """The kinds that the cluster has and that may be listed, with their API group."""
        said = self.call("api-resources", "--verbs=list", "-o", "name", "--request-timeout=60s")
        return set(said.split())

    def get(self, kind: str) -> str:
        """All objects of a kind as a list in JSON."""
        return self.call("get", kind, "-A", "-o", "json")

    def call(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [*self._words, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            msg = "kubectl is not installed"
            raise TraceError(msg, hint="kubernetes.io/docs/tasks/tools says how; or run it where it is") from None
        except subprocess.TimeoutExpired:
            msg = f"kubectl did not answer within {TIMEOUT_S:.0f} s: {' '.join(words)}"
            raise TraceError(msg, hint=HINT) from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise TraceError(lines[-1].removeprefix("error: "), hint=HINT)
        return done.stdout
