"""Ask a Kubernetes API server for lists: by kubectl, with whatever way of signing in it knows, or from inside a pod."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from fleetlab.live.commands import LONGEST_S, SourceError, ask

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE = 500  # objects of one answer
Object = dict[str, Any]


class Api(Protocol):
    """Something that answers a GET."""

    def get(self, path: str) -> str:
        """Return the body of the answer; SourceError if there is none."""

    def server(self) -> str:
        """Return the address of the cluster, without name or password."""


class Kubectl:
    """kubectl, with its own configuration or another."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._words = ["kubectl"]
        self._words += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._words += [f"--context={context}"] if context else []

    def get(self, path: str) -> str:
        """Ask by `kubectl get --raw`."""
        return ask([*self._words, "--request-timeout=50s", "get", "--raw", path])

    def server(self) -> str:
        """Return the address of the cluster, without name or password."""
        view = ask([*self._words, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"])
        return view.strip() or "kubernetes"


class InPod:
    """The API server of the cluster that this process is a pod of."""

    def __init__(self, account: Path = ACCOUNT, url: str | None = None) -> None:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        self._account, self._url = account, url or f"https://{host}:{port}"

    def get(self, path: str) -> str:
        """Ask with the token of the service account, which is renewed on disk now and then."""
        try:
            token = (self._account / "token").read_text("ascii").strip()
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            request = Request(self._url + path, headers={"Authorization": f"Bearer {token}"})
            with urlopen(request, timeout=LONGEST_S, context=context) as answer:
                return str(answer.read().decode("utf-8", "replace"))
        except URLError as e:
            raise SourceError(str(e)) from None
        except (OSError, ValueError) as e:
            raise SourceError(getattr(e, "strerror", None) or str(e)) from None

    def server(self) -> str:
        """Return the address of the cluster."""
        return self._url


def api_of(kubeconfig: Path | None, context: str | None) -> Kubectl | InPod:
    """Return the API server of the pod that this runs in, if it is one and nothing else is named."""
    named = kubeconfig or context or os.environ.get("KUBECONFIG")
    inside = os.environ.get("KUBERNETES_SERVICE_HOST") and (ACCOUNT / "token").is_file()
    return InPod() if inside and not named else Kubectl(kubeconfig, context)


def items(api: Api, path: str, selector: str = "") -> Iterator[Object]:
    """Give the objects of a list, asked for by pages; the list is that of one moment."""
    words, more = f"limit={PAGE}" + (f"&fieldSelector={quote(selector)}" if selector else ""), ""
    while True:
        text = api.get(f"{path}?{words}" + (f"&continue={quote(more)}" if more else ""))
        listed, about = _list(text, path)
        yield from (item for item in listed if isinstance(item, dict))
        more = about.get("continue") or ""
        if not more:
            return


def _list(text: str, path: str) -> tuple[list[Any], Object]:
    """Return the objects of an answer and what it says of the list; a server may write no objects as null."""
    try:
        answer = json.loads(text)
        listed, about = answer["items"], answer.get("metadata") or {}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        listed, about = "", {}
    if not isinstance(listed, list | None) or not isinstance(about, dict):
        msg = f"{path}: no JSON list: {' '.join(text.split())[:80] or 'nothing'}"
        raise SourceError(msg)
    return listed or [], about
