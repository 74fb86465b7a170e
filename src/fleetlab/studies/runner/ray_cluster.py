"""Workers on a Ray cluster: actors, one per core; tables are in its object store, once per node.

This process hands out questions, receives answers and keeps them, as it does with processes of its own; so a node that
is lost takes nothing with it but the questions that it worked on.
"""

from __future__ import annotations

import io
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import FleetlabError
from fleetlab.studies.runner.backends import Reply, Service, Worker, about_this_worker, reply_to
from fleetlab.studies.runner.shipping import Packer, Unpacker

HINT = (
    "an address such as 10.0.0.1:6379 or ray://head:10001; since Ray 2.59 every process needs the same RAY_AUTH_TOKEN"
)
ANSWERS = 10.0  # seconds that a cluster may take to answer at all
LOOK = 5.0  # seconds between looks at how many cores there are: nodes come and go
DEATHS = 4  # of actors over one question: nodes may be taken away under it too
OBJECTS = 1 << 30  # bytes of the object store of a cluster that is started for this process alone
HERE = {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1", "object_store_memory": OBJECTS}


class ObjectStore:
    """Tables in the object store of a cluster; all of it in memory, as an actor may be killed at any time."""

    def __init__(self, ray: Any, refs: dict[str, Any]) -> None:  # noqa: ANN401
        self._ray, self.refs = ray, refs

    def put_table(self, table: pl.DataFrame) -> str:
        """Put a table."""
        buffer = io.BytesIO()
        table.write_ipc(buffer, compression="uncompressed")
        return self.put_bytes(buffer.getvalue())

    def put_bytes(self, content: bytes) -> str:
        """Put bytes."""
        key = str(len(self.refs))
        self.refs[key] = self._ray.put(np.frombuffer(content, dtype=np.uint8))
        return key

    def table(self, key: str) -> pl.DataFrame:
        """Get a table."""
        return pl.read_ipc(io.BytesIO(self.content(key)))

    def content(self, key: str) -> bytes:
        """Get bytes."""
        return bytes(self._ray.get(self.refs[key]))


class Actor:
    """What runs on a core of the cluster."""

    def __init__(self, service: bytes, refs: dict[str, Any], modules: Sequence[str]) -> None:
        store = ObjectStore(import_module("ray"), refs)
        self._answer = Unpacker(store).unpack(service).open()
        self._modules = modules

    def ready(self) -> Reply:
        """Return the version of the code, when everything is imported."""
        from fleetlab.studies.runner.shipping import code_version

        return Reply(about_this_worker(code_version(*self._modules)))

    def run(self, question: Any) -> Reply:  # noqa: ANN401
        """Answer one question."""
        return reply_to(question, self._answer)


class _ActorHandle:
    """An actor, as the process that started it has it."""

    def __init__(self, ray: Any, handle: Any) -> None:  # noqa: ANN401
        self._ray, self._handle = ray, handle
        self._reason = ""
        self.answer = handle.ready.remote()

    def give(self, question: Any) -> None:  # noqa: ANN401
        self.answer = self._handle.run.remote(question)

    def receive(self) -> Reply | None:
        try:
            reply: Reply = self._ray.get(self.answer)
        except self._ray.exceptions.RayError as e:
            self._reason = " ".join(str(e).split())[:300] or type(e).__name__
            return None
        return reply

    def reason(self) -> str:
        return self._reason

    def stop(self, *, now: bool) -> None:
        """End it; it has nothing to clean up."""
        self._ray.kill(self._handle)


class RayCluster:
    """Actors on a cluster, one per core."""

    name = "ray"
    most_deaths = DEATHS

    def __init__(
        self,
        service: Service,
        *,
        address: str | None,
        workers: int | None,
        modules: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self._ray = _connected(address)
        # Messages of Ray about lost nodes go to stderr: stdout is for results.
        self._quiet = redirect_stdout(sys.stderr)
        self._quiet.__enter__()
        store = ObjectStore(self._ray, {})
        packed = Packer(store, plans=False).pack(service)
        env: Mapping[str, Any] = {} if threads is None else {"env_vars": {"POLARS_MAX_THREADS": str(threads)}}
        remote: Any = self._ray.remote(Actor)
        actor = remote.options(num_cpus=1, max_restarts=0, max_task_retries=0, runtime_env=dict(env))
        self._start: Callable[[], Any] = lambda: actor.remote(packed, store.refs, tuple(modules))
        self._workers, self._cores, self._looked = workers, 0, -LOOK

    def count(self) -> int:
        """Return the number of cores now; or `workers`, which makes a cluster that can grow do so."""
        if self._workers is not None:
            return self._workers
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._cores = int(self._ray.cluster_resources().get("CPU", 0))
        return self._cores

    def start(self) -> Worker:
        """Start one more actor; it waits until a core is free for it."""
        return _ActorHandle(self._ray, self._start())

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> list[Worker]:
        """Return the workers that have an answer, waiting for the first."""
        refs = {w.answer: w for w in workers if isinstance(w, _ActorHandle)}
        done, _ = self._ray.wait(list(refs), num_returns=1, timeout=LOOK if timeout is None else timeout)
        if done:  # and others that have one in the meantime
            done, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return [refs[ref] for ref in done]

    def close(self) -> None:
        """Leave the cluster; one that was started for this process ends."""
        self._ray.shutdown()
        self._quiet.__exit__(None, None, None)


def _connected(address: str | None) -> Any:  # noqa: ANN401
    try:
        ray = import_module("ray")
    except ImportError:
        msg = "Ray is not installed"
        raise FleetlabError(msg, hint="pip install 'fleetlab[dist]', here and on every node") from None
    _answers(address)
    where = HERE if address is None and "RAY_ADDRESS" not in os.environ else {"address": address}
    try:
        ray.init(**where, namespace="fleetlab", log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, OSError) as e:
        msg = f"cannot reach the Ray cluster: {address or 'on this machine'}: {' '.join(str(e).split())[:200]}"
        raise FleetlabError(msg, hint=HINT) from None
    return ray


def _answers(address: str | None) -> None:
    """Refuse an address where nothing answers: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:
        return  # `auto`, `local`, or none: Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS).close()
    except (OSError, ValueError) as e:
        msg = f"cannot reach the Ray cluster: {address}: {getattr(e, 'strerror', None) or e}"
        raise FleetlabError(msg, hint=HINT) from None
