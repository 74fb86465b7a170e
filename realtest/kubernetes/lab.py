"""etcd, kube-apiserver and kube-scheduler on loopback, each ended by its process id when the lab ends or gets SIGTERM.

etcd is a package of Debian; the other two are built from Debian's source package: docs/deploy.md says how. No other
controller runs, and no kubelet: nodes are objects that nobody watches over, and `kubelets` ends the pods.
"""

from __future__ import annotations

import atexit
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

TOKEN = "lab"
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "openssl")
# No controller would take the taint of a new node away, and none makes the service accounts that pods run as.
ADMISSION = "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"
# What was decided, in which order, every score, and each request to the API server: the files that say so.
VERBOSITY = ("--v=3", "--vmodule=generic_scheduler=10,round_trippers=6")


class LabError(RuntimeError):
    """A program did not come up, or refused."""


def missing() -> str:
    """Name the programs that are not installed."""
    return ", ".join(name for name in PROGRAMS if not shutil.which(name))


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


class Lab:
    """The programs of one run; `url` answers once it is entered."""

    def __init__(self, folder: Path, options: Sequence[str] = (ADMISSION, "--authorization-mode=AlwaysAllow")) -> None:
        self.folder, self.options = folder, options
        self.url = ""
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Lab:
        self.folder.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
        atexit.register(self.down)
        store, peer, port = (free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{port}"
        try:
            self._etcd(f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peer}")
            self._server(f"http://127.0.0.1:{store}", port)
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.down()

    def down(self) -> None:
        """End what was started, the last first; one that ended stays off the list if this is interrupted."""
        while self._running:
            process = self._running[-1]
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._running.pop()
        atexit.unregister(self.down)

    def schedule(self, configuration: dict[str, Any]) -> Path:
        """Start kube-scheduler with a configuration; return its log."""
        home = self.folder
        connection = {"kubeconfig": str(home / "kubeconfig"), "qps": 1000, "burst": 2000}
        whole = configuration | {"clientConnection": connection, "leaderElection": {"leaderElect": False}}
        whole |= {"healthzBindAddress": f"127.0.0.1:{free_port()}", "metricsBindAddress": f"127.0.0.1:{free_port()}"}
        (home / "scheduler.json").write_text(json.dumps(whole))
        (home / "kubeconfig").write_text(json.dumps(kubeconfig(self.url)))
        words = ["kube-scheduler", f"--config={home / 'scheduler.json'}", "--secure-port=0", *VERBOSITY]
        return self._start(words, "scheduler.log")

    def control(self, *controllers: str) -> Path:
        """Start kube-controller-manager with some controllers alone; return its log."""
        home = self.folder
        (home / "kubeconfig").write_text(json.dumps(kubeconfig(self.url)))
        words = ["kube-controller-manager", f"--kubeconfig={home / 'kubeconfig'}", "--leader-elect=false"]
        words += [
            f"--controllers={','.join(controllers)}",
            "--port=0",
            "--secure-port=0",
            "--kube-api-qps=200",
            "--v=2",
        ]
        return self._start(words, "controllers.log")

    def _etcd(self, client: str, peer: str) -> None:
        words = ["etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}"]
        words += [f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", "--unsafe-no-fsync"]
        self._start(words, "etcd.log")

    def _server(self, store: str, port: int) -> None:
        home = self.folder
        (home / "tokens").write_text(f"{TOKEN},lab,lab,system:masters\n")
        subprocess.run(["openssl", "genrsa", "-out", home / "key", "2048"], check=True, capture_output=True)
        words = ["kube-apiserver", f"--etcd-servers={store}", f"--cert-dir={home / 'certificates'}"]
        words += ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--token-auth-file={home / 'tokens'}"]
        words += ["--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://lab"]
        words += [f"--service-account-key-file={home / 'key'}", f"--service-account-signing-key-file={home / 'key'}"]
        log = self._start([*words, *self.options], "server.log")
        end = time.monotonic() + 120
        while not self._ready():
            if time.monotonic() > end or self._running[-1].poll() is not None:
                msg = f"kube-apiserver did not come up: {log.read_text(errors='replace')[-2000:]}"
                raise LabError(msg)
            time.sleep(0.5)

    def _ready(self) -> bool:
        request = Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urlopen(request, timeout=5, context=own_certificate()) as answer:
                return bool(answer.read() == b"ok")
        except (URLError, OSError):
            return False

    def _start(self, words: list[str], log: str) -> Path:
        path = self.folder / log
        with path.open("wb") as out:
            self._running.append(subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT))
        return path


def own_certificate() -> ssl.SSLContext:
    """Accept the certificate that the server on loopback wrote for itself."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def kubeconfig(url: str) -> dict[str, Any]:
    """Say how to reach the server, in the words of a kubeconfig file."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "lab", "user": {"token": TOKEN}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
