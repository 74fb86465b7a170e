"""Where work runs: in this process, or in processes of this machine. `ray_cluster` has the third place.

A worker opens its service once, which loads what all questions need, and then answers one question after the other. The
same question has the same answer in all of them.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, Protocol

import polars as pl

from fleetlab.core import FleetlabError
from fleetlab.studies.runner.shipping import Folder, Packer, Unpacker, code_version

PATIENCE = 10.0  # seconds that a worker has to end by itself
PDEATHSIG = 1  # of prctl(2): which signal to get when the parent is gone
DEATHS = 2  # of workers that ran one question: then it is not chance
SERVICE = "service"  # the file of it
PROGRAM = "fleetlab.studies.runner"  # `__main__` of it calls `main`

Answer = Callable[[Any], Any]


class Service(Protocol):
    """What workers do. It is pickled with all that it has, tables apart."""

    def open(self) -> Answer:
        """Prepare a worker; return what answers a question."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker says: that it is ready, and where; the answer to a question; or what the question raised."""

    value: Any = None
    error: Exception | None = None


class Worker(Protocol):
    """A worker, somewhere, that answers one question at a time."""

    def give(self, question: Any) -> None:  # noqa: ANN401
        """Send it a question."""

    def receive(self) -> Reply | None:
        """Return that it is ready, and then one answer after the other; None: it is dead."""

    def reason(self) -> str:
        """Return why it died."""

    def stop(self, *, now: bool) -> None:
        """End it: when it has noticed that there are no more questions, or at once."""


class Backend(Protocol):
    """Where workers come from."""

    name: str
    most_deaths: int

    def count(self) -> int:
        """Return how many workers there should be now."""

    def start(self) -> Worker:
        """Start one more worker."""

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> list[Worker]:
        """Return the workers that have an answer, waiting for the first."""

    def close(self) -> None:
        """Release the backend."""


def about_this_worker(version: str) -> dict[str, str]:
    """Return what a worker says when it is ready."""
    return {"code": version, "where": socket.gethostname()}


def reply_to(question: Any, answer: Answer) -> Reply:  # noqa: ANN401
    """Answer a question; what it raises is an answer too, but for what is the machine's: another worker may try."""
    try:
        return Reply(answer(question))
    except (MemoryError, OSError):
        raise
    except FleetlabError as e:
        return Reply(error=e)
    except Exception as e:
        e.add_note(f"in a worker:\n{''.join(traceback.format_tb(e.__traceback__))}")
        return Reply(error=e)


# -- this process ----------------------------------------------------------------------------------------------------


class _Here:
    """A worker that answers when it is asked for the answer."""

    def __init__(self, answer: Answer, version: str) -> None:
        self._answer, self._version = answer, version
        self._question: list[Any] = []

    def give(self, question: Any) -> None:  # noqa: ANN401
        self._question = [question]

    def receive(self) -> Reply:
        if not self._question:
            return Reply(about_this_worker(self._version))
        return Reply(self._answer(self._question[0]))

    def reason(self) -> str:
        return ""

    def stop(self, *, now: bool) -> None:
        """Do nothing: it ends with this process."""


class InProcess:
    """One worker: this process. Nothing is pickled, so that functions of a notebook can be in the questions."""

    name = "inline"
    most_deaths = 1

    def __init__(self, service: Service, version: str = "") -> None:
        self._worker = _Here(service.open(), version)

    def count(self) -> int:
        """Return how many workers there should be now."""
        return 1

    def start(self) -> Worker:
        """Return the worker."""
        return self._worker

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> list[Worker]:
        """Return the workers that have an answer: all of them."""
        return list(workers)

    def close(self) -> None:
        """Do nothing."""


# -- processes of this machine ---------------------------------------------------------------------------------------


class _Process:
    """One process and the socket to it."""

    def __init__(self, folder: Path, modules: Sequence[str], env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115  closed when the worker has ended
        # It can import what this process can; files in the current folder do not shadow modules.
        command = [sys.executable, "-P", "-m", PROGRAM, str(theirs.fileno()), str(os.getpid()), str(folder), *modules]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **env},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C is for the parent alone, which ends them
            )
        self.pipe = Connection(ours.detach())

    def give(self, question: Any) -> None:  # noqa: ANN401
        try:
            self.pipe.send_bytes(pickle.dumps(question))
        except OSError:  # dead: `receive` will notice
            return

    def receive(self) -> Reply | None:
        try:
            reply: Reply = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return reply

    def reason(self) -> str:
        status = self._wait()
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last else how

    def stop(self, *, now: bool) -> None:
        self.pipe.close()
        if now:
            self._process.kill()
        self._wait()
        self._stderr.close()

    def _wait(self) -> int:
        try:
            return self._process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Processes:
    """Processes on the cores of this machine: started anew, not forked, as compiled code and frames have threads."""

    name = "local"
    most_deaths = DEATHS

    def __init__(
        self,
        service: Service,
        workers: int,
        *,
        folder: Path | None = None,
        modules: Sequence[str] = (),
        threads: int | None = None,
    ) -> None:
        self._temporary = TemporaryDirectory(prefix="fleetlab-") if folder is None else None
        self._folder = Path(self._temporary.name) if self._temporary else Path(folder or "")
        self._count, self._modules = workers, modules
        self._env = {} if threads is None else {"POLARS_MAX_THREADS": str(threads)}
        try:
            (self._folder / SERVICE).write_bytes(Packer(Folder(self._folder), plans=True).pack(service))
        except (OSError, pl.exceptions.PolarsError) as e:
            msg = f"cannot write what workers read into {self._folder}: {getattr(e, 'strerror', None) or e}"
            raise FleetlabError(msg, hint="look at free space and permissions") from None

    def count(self) -> int:
        """Return how many workers there should be."""
        return self._count

    def start(self) -> Worker:
        """Start one more worker."""
        return _Process(self._folder, self._modules, self._env)

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> list[Worker]:
        """Return the workers that have an answer, waiting for the first."""
        pipes = {w.pipe: w for w in workers if isinstance(w, _Process)}
        return [pipes[p] for p in wait_for(list(pipes), timeout) if isinstance(p, Connection)]

    def close(self) -> None:
        """Remove the files; each worker has ended."""
        if self._temporary is not None:
            self._temporary.cleanup()


def main(fd: str, parent: str, folder: str, *modules: str) -> None:
    """Answer until the parent closes the socket."""
    _end_with(int(parent))
    pipe = Connection(int(fd))
    sys.path.append(str(Path.cwd()))  # own policies may be there, and import modules beside them
    try:
        path = Path(folder)
        service: Service = Unpacker(Folder(path)).unpack((path / SERVICE).read_bytes())
        answer = service.open()
        pipe.send_bytes(pickle.dumps(Reply(about_this_worker(code_version(*modules)))))
        while True:
            pipe.send_bytes(_pickled(reply_to(pickle.loads(pipe.recv_bytes()), answer)))
    except (EOFError, ConnectionError):
        return


def _pickled(reply: Reply) -> bytes:
    try:
        return pickle.dumps(reply)
    except Exception as e:  # an exception of another library, with what cannot be pickled
        error = RuntimeError(f"{type(reply.error or e).__name__}: {reply.error or e}")
        return pickle.dumps(Reply(error=error))


def _end_with(parent: int) -> None:
    """End when the parent is killed; compiled code cannot look for itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
