"""A page that runs, on traces small enough to wait for, and one way to speak to it."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import polars as pl
import pytest

from fleetlab import Cluster, Provenance, Trace, Workload, synthesize

HOSTILE = "<img src=x onerror=alert(1)>"
CSV = b"submit,gpus,took\n" + b"".join(b"%d,%d,%d\n" % (k * 10, 1 + k % 4, 30 + k % 700) for k in range(400))


class Answered(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One visitor of a page."""

    def __init__(self, url: str, visitor: str = "test") -> None:
        self.url, self.visitor, self.pid = url, visitor, 0
        self.host = urlsplit(url).netloc

    def ask(self, path, *, method="GET", body=None, headers=None, timeout=120) -> Answered:
        connection = HTTPConnection(self.host, timeout=timeout)
        sent = {"Fleetlab-Visitor": self.visitor} | (headers or {})
        if isinstance(body, dict):
            body, sent = json.dumps(body), {"Content-Type": "application/json"} | sent
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answered(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def operation(self, **question) -> dict[str, Any]:
        """Ask for work, and follow its events to the end."""
        begun = self.ask("/api/operations", method="POST", body=question)
        assert begun.status in (200, 202), begun.body
        if begun.json["status"] != "running":
            return begun.json
        events = self.ask(f"/api/operations/{begun.json['operation']}/events").body.decode()
        states = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: ")]
        assert all(one["status"] == "running" for one in states[:-1])
        return states[-1]

    def send(self, content: bytes, name: str = "operations.csv", **more) -> Answered:
        """Send a file."""
        query = "&".join([f"name={name}", *(f"{k}={v}" for k, v in more.items())])
        return self.ask(f"/api/uploads?{query}", method="POST", body=content)


def processes_of(pid: int) -> list[int]:
    """The processes that another one has started."""
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


@contextmanager
def started(*words):
    """A page of its own, ended in order."""
    command = [sys.executable, "-m", "fleetlab.cli", "web", "--port", "0", "--json", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            client = Client(json.loads(line)["url"])
            client.pid, client.process, client.started = process.pid, process, json.loads(line)
            yield client
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.fixture(scope="session")
def small() -> Trace:
    """Two thousand jobs on so few nodes that many of them wait."""
    trace = synthesize("pai2020", jobs=2000, seed=1, constrained=1.0)
    kinds = {"MISC": (30, 8), "P100": (20, 2), "T4": (30, 2), "V100": (6, 8), "V100M32": (6, 8)}
    rows = [
        {"node": f"{kind}-{k}", "gpu_type": kind, "gpus": gpus, "cpu_milli": 96_000, "memory_mib": 786_432}
        for kind, (count, gpus) in kinds.items()
        for k in range(count)
    ]
    return replace(trace, cluster=Cluster.of(pl.DataFrame(rows), source="few"))


@pytest.fixture(scope="session")
def hostile() -> Trace:
    """A trace whose every name is markup."""
    jobs = pl.DataFrame({"submit": [float(k) for k in range(400)], "runtime": 30.0, "gpu_milli": 1000}).with_columns(
        user=pl.lit(HOSTILE), group=pl.lit(HOSTILE), gpu_types=pl.lit([HOSTILE])
    )
    work = Workload.of(jobs, source=HOSTILE)
    nodes = Cluster.uniform(4, 4, gpu_type=HOSTILE)
    return Trace(work, Provenance("read", HOSTILE), cluster=nodes, notes=(HOSTILE,))


@pytest.fixture(scope="session")
def root(tmp_path_factory, small, hostile):
    """A folder of saved traces; modules save more into it."""
    root = tmp_path_factory.mktemp("traces")
    small.save(root / "small")
    hostile.save(root / "hostile")
    (root / "not a trace").mkdir()
    return root


@pytest.fixture(scope="module")
def page(root):
    """A page of the module's own: what another module has asked would be answered from memory."""
    with started("--traces", root, "--upload-mib", 2) as client:
        yield client
