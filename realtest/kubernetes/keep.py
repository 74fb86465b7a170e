"""A run as it is kept: the objects as a list that `fleetlab read kubernetes` reads, and the record of decisions.

`python -m realtest.kubernetes.keep build/realtest-kubernetes/*` packs runs into measurements/kubernetes.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from realtest.archives import MEASUREMENTS, pack
from realtest.kubernetes.objects import Object
from realtest.kubernetes.profiles import PROFILES
from realtest.kubernetes.record import table

SPEC = (
    *("initContainers", "priority", "preemptionPolicy", "nodeSelector", "affinity", "tolerations", "nodeName"),
    "topologySpreadConstraints",
)


def keep(folder: Path, out: Path) -> None:
    """Write what is needed to check a run again; deterministic, and small."""
    out.mkdir(parents=True, exist_ok=True)
    about = json.loads((folder / "run.json").read_text())
    profile = PROFILES[about["profile"]]
    nodes = [_node(item) for item in json.loads((folder / "nodes.json").read_text())["items"]]
    pods = [_pod(item) for item in json.loads((folder / "pods.json").read_text())["items"]]
    pods.sort(key=lambda pod: pod["metadata"]["name"])
    whole = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}
    _write(out / "list.json.gz", json.dumps(whole, separators=(",", ":")))
    _write(out / "record.csv.gz", table(folder).write_csv())
    budgets = [
        {"metadata": {"namespace": "default", "name": app}, "spec": {"selector": {"matchLabels": {"app": app}}},
         "status": {"disruptionsAllowed": allowed}}
        for app, allowed in profile.load.budgets.items()
    ]  # fmt: skip
    site = about | {"scheduler": profile.configuration, "budgets": budgets}
    (out / "site.json").write_text(json.dumps(site, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _node(item: Object) -> Object:
    about = {key: item["metadata"][key] for key in ("name", "labels", "creationTimestamp")}
    spec = {"taints": item["spec"]["taints"]} if "taints" in item["spec"] else {}
    return {"kind": "Node", "metadata": about, "spec": spec, "status": {"allocatable": item["status"]["allocatable"]}}


def _pod(item: Object) -> Object:
    kept = ("name", "namespace", "labels", "annotations", "creationTimestamp")
    about = {key: item["metadata"][key] for key in kept}
    if owners := item["metadata"].get("ownerReferences"):
        about["ownerReferences"] = owners
    spec = {key: item["spec"][key] for key in SPEC if key in item["spec"]}
    for part in (*spec.get("initContainers", []), *item["spec"]["containers"]):
        for extra in ("image", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"):
            part.pop(extra, None)
    spec["containers"] = item["spec"]["containers"]
    status = {key: item["status"][key] for key in ("phase", "startTime") if key in item["status"]}
    status["conditions"] = [
        {key: one[key] for key in ("type", "status", "lastTransitionTime")}
        for one in item["status"].get("conditions", [])
    ]
    ends = [one["state"] for one in item["status"].get("containerStatuses", []) if "terminated" in one["state"]]
    status["containerStatuses"] = [
        {"state": {"terminated": {"finishedAt": e["terminated"]["finishedAt"]}}} for e in ends
    ]
    return {"kind": "Pod", "metadata": about, "spec": spec, "status": status}


if __name__ == "__main__":
    for given in map(Path, sys.argv[1:]):
        with TemporaryDirectory() as scratch:
            keep(given, Path(scratch, given.name))
            pack(Path(scratch, given.name), MEASUREMENTS / "kubernetes" / f"{given.name}.tar.gz")
