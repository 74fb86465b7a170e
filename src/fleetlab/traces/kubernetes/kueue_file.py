"""A file of Kueue's objects, as a site applies it or `kubectl get … -o json` prints it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.kueue import ClusterQueue, Kueue
from fleetlab.traces.kubernetes.kueue import HINT, kueue_object
from fleetlab.traces.kubernetes.objects import MalformedObject, Object, members, title
from fleetlab.traces.kubernetes.scheduler_config import scheduler_of


def read_kueue(path: Path) -> Kueue:
    """Read a file of Kueue's objects, in YAML or JSON; a KubeSchedulerConfiguration places the pods."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"{path.name}: cannot be read: {e}"
        raise TraceError(msg, hint=HINT) from None
    found: list[object] = []
    for number, item in enumerate(_documents(text, path.name), 1):
        try:
            one = _record(members(item, path.name))
        except MalformedObject as e:
            msg = f"{path.name}, {title(item, number)}: {e}"
            raise TraceError(msg, hint=HINT) from None
        if one is not None:
            found.append(one)
    if not any(isinstance(one, ClusterQueue) for one in found):
        msg = f"{path.name}: contains no ClusterQueue"
        raise TraceError(msg, hint=HINT)
    return Kueue.of(*found)


def _documents(text: str, file: str) -> Iterator[object]:
    """Each object of a text; the items of a list apart."""
    for document in _parsed(text, file):
        listed = document.get("items") if isinstance(document, dict) else None
        if isinstance(listed, list):
            yield from listed
        elif document is not None:
            yield document


def _parsed(text: str, file: str) -> list[object]:
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except ValueError:
            pass  # several objects, one after the other, are YAML with `---` between them at best
    try:
        import yaml
    except ImportError:
        msg = f"{file}: YAML needs PyYAML"
        raise TraceError(msg, hint="pip install 'fleetlab[k8s]', or write it as one JSON list") from None
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as e:
        msg = f"{file}: not YAML: {str(e).splitlines()[0]}"
        raise TraceError(msg, hint=HINT) from None


def _record(item: Object) -> object | None:
    """One object as a record; None where it has no say in admission."""
    if item.get("kind") == "KubeSchedulerConfiguration":
        return scheduler_of(item)
    return kueue_object(item)
