"""Workers on a Ray cluster: actors, one per core; the traces are in its object store.

The driver hands out cells, receives answers and writes the run store, as it does with processes of its own; so the
store is on the driver's disk only, and a node that is lost takes nothing with it but the cells it was running.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fleetlab.core import FleetlabError, Trace
from fleetlab.studies.sweep.dispatch import CellWorker
from fleetlab.studies.sweep.sources import TraceSource

HINT = (
    "an address such as 10.0.0.1:6379 or ray://head:10001; since Ray 2.59 every process needs the same RAY_AUTH_TOKEN"
)
ANSWERS = 10.0  # seconds that a cluster may take to answer at all
LOOK = 5.0  # seconds between looks at how many cores there are: nodes come and go
DEATHS = 4  # of actors over one cell: nodes may be taken away under it too


class RayActor:
    """What runs on a core of the cluster."""

    def __init__(self, texts: Mapping[str, str], sources: Mapping[str, Any]) -> None:
        from fleetlab.studies.sweep.cell import CellInputs

        self._inputs = CellInputs.with_files(lambda source: _open(import_module("ray").get(sources[source])), texts)

    def ready(self) -> dict[str, Any]:
        """Return the version of the code, when everything is imported."""
        from fleetlab.studies.code_version import code_version
        from fleetlab.studies.sweep.plan import CELL

        return {"code": code_version(CELL), "where": socket.gethostname()}

    def run(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one question."""
        from fleetlab.studies.sweep.cell import run_cell

        return run_cell(question, self._inputs)


class RayWorker:
    """The driver's side of an actor."""

    def __init__(self, ray: Any, handle: Any) -> None:  # noqa: ANN401
        self._ray, self._handle = ray, handle
        self._reason = ""
        self.answer = handle.ready.remote()

    def give(self, question: Mapping[str, Any]) -> None:
        """Send it a question."""
        self.answer = self._handle.run.remote(dict(question))

    def receive(self) -> Mapping[str, Any] | None:
        """Return its next message; None: it is dead, or its node is."""
        try:
            answer: dict[str, Any] = self._ray.get(self.answer)
        except self._ray.exceptions.RayError as e:
            self._reason = " ".join(str(e).split())[:300] or type(e).__name__
            return None
        return answer

    def reason(self) -> str:
        """Return how it died, as Ray reports it."""
        return self._reason

    def stop(self, *, now: bool) -> None:
        """End it; it has nothing to clean up."""
        self._ray.kill(self._handle)


class RayBackend:
    """Actors on a cluster, one per core."""

    name = "ray"
    most_deaths = DEATHS

    def __init__(
        self, sources: Mapping[str, TraceSource], texts: Mapping[str, str], *, address: str | None, workers: int | None
    ) -> None:
        self._ray = _connected(address)
        # Messages of Ray about lost nodes go to stderr: stdout is for results.
        self._quiet = redirect_stdout(sys.stderr)
        self._quiet.__enter__()
        refs = {digest: self._ray.put(_files(source.trace)) for digest, source in sources.items()}
        env = {"env_vars": {"POLARS_MAX_THREADS": "1"}}
        made: Any = self._ray.remote(RayActor).options(num_cpus=1, max_restarts=0, max_task_retries=0, runtime_env=env)
        self._start: Callable[[], Any] = lambda: made.remote(dict(texts), refs)
        self._workers, self._cores, self._looked = workers, 0, -LOOK

    def count(self) -> int:
        """Return the number of cores now; or `workers`, which makes a cluster that can grow do so."""
        if self._workers is not None:
            return self._workers
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._cores = int(self._ray.cluster_resources().get("CPU", 0))
        return self._cores

    def start(self) -> CellWorker:
        """Start one more actor; it waits until a core is free for it."""
        return RayWorker(self._ray, self._start())

    def wait(self, workers: Sequence[CellWorker], timeout: float | None) -> list[CellWorker]:
        """Return the workers that have an answer, waiting for the first."""
        refs = {w.answer: w for w in workers if isinstance(w, RayWorker)}
        done, _ = self._ray.wait(list(refs), num_returns=1, timeout=LOOK if timeout is None else timeout)
        if done:  # and others that have one in the meantime
            done, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return [refs[ref] for ref in done]

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
    """Refuse an address where nothing answers: Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:
        return  # `auto`, `local`, or none: Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=ANSWERS).close()
    except (OSError, ValueError) as e:
        msg = f"cannot reach the Ray cluster: {address}: {getattr(e, 'strerror', None) or e}"
        raise FleetlabError(msg, hint=HINT) from None


def _files(trace: Trace) -> dict[str, Any]:
    """Return the files of a saved trace as arrays, which the object store keeps once per node."""
    with TemporaryDirectory(prefix="fleetlab-") as folder:
        trace.save(folder)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): np.fromfile(path, dtype=np.uint8) for path in files}


def _open(files: Mapping[str, Any]) -> Trace:
    """Undo `_files`; all of it in memory, because an actor may be killed before it could remove a folder."""
    with TemporaryDirectory(prefix="fleetlab-") as folder:
        for name, content in files.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            content.tofile(Path(folder) / name)
        trace = Trace.load(folder)
        return replace(trace, series={name: frame.collect().lazy() for name, frame in trace.series.items()})
