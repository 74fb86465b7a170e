"""A file of Kueue's objects, as a site applies it or `kubectl get … -o json` prints it."""

from __future__ import annotations

from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.kueue import ClusterQueue, Kueue
from fleetlab.traces.kubernetes.documents import documents, title_of
from fleetlab.traces.kubernetes.kueue import HINT, kueue_object
from fleetlab.traces.kubernetes.objects import MalformedObject, Object
from fleetlab.traces.kubernetes.scheduler_config import scheduler_of


def read_kueue(path: Path) -> Kueue:
    """Read a file of Kueue's objects, in YAML or JSON; a KubeSchedulerConfiguration places the pods."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    found: list[object] = []
    for item in _objects(text, path.name):
        try:
            one = _record(item)
        except MalformedObject as e:
            msg = f"{path.name}, {title_of(item)}: {e}"
            raise TraceError(msg, hint=HINT) from None
        if one is not None:
            found.append(one)
    if not any(isinstance(one, ClusterQueue) for one in found):
        msg = f"{path.name}: contains no ClusterQueue"
        raise TraceError(msg, hint=HINT)
    return Kueue.of(*found)


def _objects(text: str, file: str) -> list[Object]:
    try:
        return list(documents(text, file, HINT))
    except MalformedObject as e:
        msg = f"{file}: {e}"
        raise TraceError(msg, hint=HINT) from None


def _record(item: Object) -> object | None:
    """One object as a record; None where it has no say in admission."""
    if item.get("kind") == "KubeSchedulerConfiguration":
        return scheduler_of(item)
    return kueue_object(item)
