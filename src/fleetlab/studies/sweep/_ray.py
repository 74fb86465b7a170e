"""A Ray cluster: a worker is an actor on one of its cores, and the traces lie in its object store.

The driver hands out cells, hears answers and writes the run store, as it does with processes of its own; so the store
needs to be on the driver's disk only, and a node that is lost takes nothing with it but the cells it had in hand.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from fleetlab.core import FleetlabError
from fleetlab.studies.sweep import _engine
from fleetlab.studies.sweep._packed import Packed
from fleetlab.studies.sweep._sources import Prepared

HINT = (
    "an address such as 10.0.0.1:6379 or ray://head:10001; since Ray 2.59 every process needs the same RAY_AUTH_TOKEN"
)
ANSWERS = 10.0  # seconds that a cluster may take to answer at all
LOOK = 5.0  # seconds between looks at how many cores there are: nodes come and go
DEATHS = 4  # of actors over one cell: nodes may be taken away under it too


class Player:
    """What runs on a core of the cluster."""

    def __init__(self, texts: Mapping[str, str], sources: Mapping[str, Any]) -> None:
        from fleetlab.studies.sweep._cell import Desk

        self._desk = Desk.laid(lambda digest: _shared(import_module("ray").get(sources[digest])), texts)

    def ready(self) -> dict[str, Any]:
        """Said once, when everything is imported."""
        from socket import gethostname

        import_module("fleetlab.sim.simulate")
        from fleetlab.studies.sweep._code import code

        return {"code": code(), "where": gethostname()}

    def play(self, ask: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one question."""
        from fleetlab.studies.sweep._cell import play

        return play(ask, self._desk)


class Actor:
    """The driver's side of one."""

    def __init__(self, ray: Any, handle: Any) -> None:  # noqa: ANN401
        self._ray, self._handle = ray, handle
        self._died = ""
        self.told = handle.ready.remote()

    def give(self, ask: Mapping[str, Any]) -> None:
        """Hand it a question."""
        self.told = self._handle.play.remote(dict(ask))

    def hear(self) -> Mapping[str, Any] | None:
        """What it says; None: it is dead, or its node is."""
        try:
            said: dict[str, Any] = self._ray.get(self.told)
        except self._ray.exceptions.RayError as e:
            self._died = " ".join(str(e).split())[:300] or type(e).__name__
            return None
        return said

    def why(self) -> str:
        """How it died, as Ray tells it."""
        return self._died

    def stop(self, *, now: bool) -> None:
        """End it; it has nothing to clean up."""
        self._ray.kill(self._handle)


class Ray:
    """Actors on a cluster, one a core."""

    name = "ray"
    most_deaths = DEATHS

    def __init__(
        self, prepared: Sequence[Prepared], texts: Mapping[str, str], *, address: str | None, workers: int | None
    ) -> None:
        self._ray = _connected(address)
        # What Ray says of nodes that were lost is talk: stdout is for results.
        self._quiet = redirect_stdout(sys.stderr)
        self._quiet.__enter__()
        sources = {one.source.digest: self._ray.put(_plain(one.tables)) for one in prepared}
        env = {"env_vars": {"POLARS_MAX_THREADS": "1"}}
        made: Any = self._ray.remote(Player).options(num_cpus=1, max_restarts=0, max_task_retries=0, runtime_env=env)
        self._hire: Callable[[], Any] = lambda: made.remote(dict(texts), sources)
        self._workers, self._cores, self._looked = workers, 0, -LOOK

    def count(self) -> int:
        """As many as there are cores now; or as many as were asked for, which makes a cluster that can grow do so."""
        if self._workers is not None:
            return self._workers
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._cores = int(self._ray.cluster_resources().get("CPU", 0))
        return self._cores

    def hire(self) -> _engine.Worker:
        """One more actor; it waits until a core is free for it."""
        return Actor(self._ray, self._hire())

    def listen(self, workers: Sequence[_engine.Worker], timeout: float | None) -> list[_engine.Worker]:
        """Those who have something to say, waiting for the first."""
        refs = {w.told: w for w in workers if isinstance(w, Actor)}
        heard, _ = self._ray.wait(list(refs), num_returns=1, timeout=LOOK if timeout is None else timeout)
        if heard:  # and whoever else has in the meantime
            heard, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return [refs[ref] for ref in heard]

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()
        self._quiet.__exit__(None, None, None)


def _connected(address: str | None) -> Any:  # noqa: ANN401
    try:
        ray = import_module("ray")
    except ImportError:
        msg = "Ray is not installed"
        raise FleetlabError(msg, hint="pip install 'fleetlab[dist]', here and on every node") from None
    _answers(address)
    try:
        ray.init(address=address, namespace="fleetlab", log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, OSError) as e:
        msg = f"cannot reach the Ray cluster: {address or 'on this machine'}: {' '.join(str(e).split())[:200]}"
        raise FleetlabError(msg, hint=HINT) from None
    return ray


def _answers(address: str | None) -> None:
    """Is anybody there? Ray itself would ask for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:
        return  # `auto`, `local`, or none: Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS).close()
    except (OSError, ValueError) as e:
        msg = f"cannot reach the Ray cluster: {address}: {getattr(e, 'strerror', None) or e}"
        raise FleetlabError(msg, hint=HINT) from None


def _plain(tables: Mapping[str, Packed]) -> dict[str, Any]:
    """Tables as arrays and names: the object store hands arrays to all workers of a node without copying them."""
    return {name: (dict(table.columns), dict(table.words)) for name, table in tables.items()}


def _shared(plain: Mapping[str, Any]) -> dict[str, Packed]:
    return {name: Packed(columns, words) for name, (columns, words) in plain.items()}
