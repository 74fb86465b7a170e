"""Run the server until SIGTERM or Ctrl-C, and drain its queue."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json as json_
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from fleetlab.gpu.devices.console import BenchError, Progress, large_import, print_progress
from fleetlab.gpu.serving.server.limits import ServeOptions, ServerLimits
from fleetlab.gpu.serving.server.requests import KnownHosts, RequestError

IDLE = 75  # s of keep-alive: longer than that of clients, so that no request meets a closing connection
LANGUAGE_MODEL = "llm-serve"  # the workload that generates tokens
LAST = 2.0  # s to write the last answers, and for the thread to end


def serve(options: ServeOptions, *, progress: Progress = print_progress) -> None:
    """Serve a workload until SIGTERM or SIGINT; prints its URL on stdout once it is ready."""
    try:
        for package in ("uvicorn", "starlette", "prometheus_client"):
            import_module(package)
    except ImportError as e:
        msg = f"the server needs a package that is not installed: {e.name}"
        raise BenchError(msg, hint="`pip install 'fleetlab[bench]'`") from None
    _room_for(options.connections)
    with _bound(options.host, options.port, progress) as listener:
        how = {name: getattr(options, name) for name in ("tiny", "device", "seed", "batch")}
        load = partial(_load, options.work, words=options.set, **how)
        about = {"work": options.work, "url": _url(listener), "device": options.device, "pid": os.getpid()}
        progress(f"loading {options.work} on {options.device}")
        hosts = KnownHosts(options.host, listener.getsockname()[0], options.allow_host)
        run = ServerRun(about, listener, options, load, hosts, json=options.json)
        asyncio.run(run.run())
    if run.failure is not None:
        raise run.failure
    progress(f"stopped; {run.counts.totals_line()}")
    if run.computing():
        os._exit(0)  # a thread inside a model that never returns would block the exit of the interpreter


def _load(work: str, **how: Any) -> Any:  # noqa: ANN401
    # Importing torch takes seconds: in the background, while /health answers already.
    with large_import():
        from fleetlab.gpu.serving.server.models import load_decoder, load_engine
    return load_decoder(**how) if work == LANGUAGE_MODEL else load_engine(work, **how)


class ServerRun:
    """A running server."""

    def __init__(
        self,
        about: dict[str, Any],
        listener: socket.socket,
        limits: ServerLimits,
        load: Callable[[], Any],
        hosts: KnownHosts,
        *,
        json: bool,
    ) -> None:
        self._hosts = hosts
        self._about, self._listener, self._limits, self._load, self._json = about, listener, limits, load, json
        from fleetlab.gpu.serving.server.counts import ServerCounts

        self.counts = ServerCounts(limits.batch)
        self.failure: BenchError | None = None

    def computing(self) -> bool:
        """Whether the thread is still computing."""
        thread = self._batcher.thread
        return thread is not None and thread.is_alive()

    async def run(self) -> None:
        """Serve from the first connection to the last."""
        from fleetlab.gpu.serving.server.app import ServerState
        from fleetlab.gpu.serving.server.batcher import Batcher
        from fleetlab.gpu.serving.server.generator import TokenGenerator

        loop, self._stop_requested = asyncio.get_running_loop(), asyncio.Event()
        self._signals = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        kind = TokenGenerator if self._about["work"] == LANGUAGE_MODEL else Batcher
        self._batcher: Batcher | TokenGenerator = kind(self._limits, self.counts, loop)
        state = ServerState(self._about["work"], self._about["device"], self._limits, self.counts, self._batcher)
        server = self._server(state)
        serving = loop.create_task(server.serve(sockets=[self._listener]))
        self._batcher.start(self._load, self._loaded)
        await self._stop_requested.wait()
        state.draining = True
        await self._drain()
        server.should_exit = True
        await serving
        await asyncio.to_thread(self._wait_for_thread)

    def _server(self, state: Any) -> Any:  # noqa: ANN401
        import uvicorn

        from fleetlab.gpu.serving.server.app import Connection, app, predict_routes
        from fleetlab.gpu.serving.server.completions import completion_routes
        from fleetlab.gpu.serving.server.counts import GeneratorMetrics
        from fleetlab.gpu.serving.server.generator import TokenGenerator

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                # uvicorn would raise the signal again at the end, and a requested stop is no failure.
                yield

        http: Any = partial(Connection, limits=self._limits, counts=self.counts)
        batcher = self._batcher
        served = (
            app(state, self._hosts, completion_routes(state, batcher), [GeneratorMetrics(batcher)])
            if isinstance(batcher, TokenGenerator)
            else app(state, self._hosts, predict_routes(state, batcher))
        )
        config = uvicorn.Config(
            served,
            http=http,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=int(LAST),
        )
        return Server(config)

    def _stop(self) -> None:
        self._signals += 1
        self._stop_requested.set()

    def _loaded(self, error: Exception | None) -> None:
        if error is not None:
            from fleetlab.gpu.serving.server.batcher import load_error

            self.failure = load_error(error)
            self._stop_requested.set()
            return
        print(
            json_.dumps(self._about) if self._json else f"serving {self._about['work']} on {self._about['url']}",
            flush=True,
        )

    async def _drain(self) -> None:
        """Wait until the queue is empty, time is up, or a second signal arrives."""
        self._batcher.hurry()
        until = asyncio.get_running_loop().time() + self._limits.drain
        while not self._batcher.idle and asyncio.get_running_loop().time() < until and self._signals < 2:
            await asyncio.sleep(0.01)
        msg = f"the server shut down before the input was computed, after {self._limits.drain:g} s"
        self._batcher.stop(RequestError(msg, "draining", hint="use another server"))

    def _wait_for_thread(self) -> None:
        if self._batcher.thread is not None:
            self._batcher.thread.join(LAST)


def _bound(host: str, port: int, progress: Progress) -> socket.socket:
    if not 0 <= port < 65536:  # the system would truncate it
        raise BenchError(f"not a port: {port}", hint="from 0 to 65535; 0 chooses a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With an explicit protocol asyncio disables Nagle's algorithm: otherwise answers may be delayed by 40 ms.
        listener = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as e:
        msg = f"no such address: {host}:{port}: {e}"
        raise BenchError(msg, hint="--host 127.0.0.1 and --port 0 use a free port on this machine") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as e:
        listener.close()
        raise BenchError(f"cannot listen on {host}:{port}: {e.strerror}", hint="--port 0 chooses a free port") from None
    if not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback:
        progress(f"warning: listening on {host}: anyone who can reach this machine can use the server")
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _room_for(connections: int) -> None:
    """Raise the limit on open files: one per connection, twice the maximum, and some more."""
    need = 2 * connections + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        msg = f"too many connections: {connections} need {need} open files, and the system allows {hard}"
        raise BenchError(msg, hint="fewer --connections, or a higher `ulimit -n`")
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
