"""Objects in a file that a site applies, or that `kubectl get … -o json` printed: YAML documents or JSON, and lists."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fleetlab.core import TraceError
from fleetlab.traces.kubernetes.objects import Object, members


def documents(text: str, file: str, hint: str) -> Iterator[Object]:
    """Each object of a text; the items of a list apart."""
    for document in _parsed(text, file, hint):
        listed = document.get("items") if isinstance(document, dict) else None
        if isinstance(listed, list):
            yield from (members(one, file) for one in listed)
        elif document is not None:
            yield members(document, file)


def _parsed(text: str, file: str, hint: str) -> list[object]:
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
        msg = f"{file}: not YAML: {' '.join(str(e).split())[:200]}"
        raise TraceError(msg, hint=hint) from None


def title_of(item: Object) -> str:
    """What an object is, to be said in an error: its kind and name, as far as it tells them."""
    about = item.get("metadata")
    kind, own = item.get("kind"), about if isinstance(about, dict) else {}
    name = "/".join(one for one in (own.get("namespace"), own.get("name")) if isinstance(one, str) and one)
    return f"{kind if isinstance(kind, str) else 'object'} {name or 'without a name'}"[:160]
