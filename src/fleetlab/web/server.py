"""Start the server, print its address, and shut it down in order."""

from __future__ import annotations

import asyncio
import contextlib
import json as json_
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError

HTTP = 80  # the port that browsers leave out
BACKLOG = 4096  # connections that the system keeps until they are accepted
SHUTDOWN = 2  # s for the last answers to be written
MIB = 1 << 20


def web(
    *,
    traces: Path | str | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_host: Sequence[str] = (),
    workers: int = 2,
    upload_mib: int = 64,
    limit: float = 300.0,
    open: bool = False,
    json: bool = False,
) -> None:
    """Serve an interactive page of what-if scenarios, until SIGTERM or Ctrl-C; print its address once it is up.

    Parameters
    ----------
    traces
        A folder of saved traces to choose from.
    host
        Address to listen on. On another than loopback the page asks for a token.
    port
        Port to listen on; 0 takes a free one.
    allow_host
        Further names that it is reached by, as through a proxy; with any, the page asks for a token.
    workers
        Processes that simulate.
    upload_mib
        The largest log that a page may send, in MiB.
    limit
        How many seconds one computation may take.
    open
        Open the page in a browser.
    json
        Print the address as one JSON object.

    Raises
    ------
    FleetlabError
        If it cannot listen there, or the extra `web` is not installed.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.web(port=0)  # doctest: +SKIP
    """
    for package in ("uvicorn", "starlette"):
        try:
            import_module(package)
        except ImportError as e:
            msg = f"the page needs a package that is not installed: {e.name}"
            raise FleetlabError(msg, hint="`pip install 'fleetlab[web]'`") from None
    root = _check(traces, workers, upload_mib, limit)
    with _listen(host, port) as listening:
        from fleetlab.web.guard import Guard

        guard = Guard.of(listening, host, allow_host)
        page = _Page(listening, guard, root=root, workers=workers, upload_bytes=upload_mib * MIB, limit=float(limit))
        asyncio.run(page.run(lambda: _announce(listening, guard, host, open=open, json=json)))
    print("stopped", file=sys.stderr, flush=True)


def _check(traces: Path | str | None, workers: int, upload_mib: int, limit: float) -> Path | None:
    if not 1 <= workers <= 64:
        msg = f"workers is a number from 1 to 64, not: {workers}"
        raise FleetlabError(msg, hint="one per CPU core that the page may use")
    if not 1 <= upload_mib <= 4096:
        raise FleetlabError(f"the largest upload is from 1 to 4,096 MiB, not: {upload_mib}", hint="--upload-mib 64")
    if not 1 <= limit <= 86_400:
        raise FleetlabError(f"the limit is from 1 to 86,400 seconds, not: {limit}", hint="--limit 300")
    if traces is not None and not Path(traces).is_dir():
        msg = f"no such folder: {traces}"
        raise FleetlabError(msg, hint="a folder of saved traces, as `fleetlab read --out` writes them")
    return None if traces is None else Path(traces)


class _Page:
    """The server, from start to shutdown."""

    def __init__(self, listening: socket.socket, guard: Any, **settings: Any) -> None:  # noqa: ANN401
        self._listening, self._guard, self._settings = listening, guard, settings

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until a signal."""
        server = self._server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, server)
        serving = loop.create_task(server.serve(sockets=[self._listening]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        if not serving.done():
            ready()
        await serving

    def _stop(self, server: Any) -> None:  # noqa: ANN401
        server.force_exit = server.should_exit  # a second signal: at once
        server.should_exit = True

    def _server(self) -> Any:  # noqa: ANN401
        import uvicorn

        from fleetlab.web.app import app
        from fleetlab.web.backend import WhatIfBackend
        from fleetlab.web.guard import Connection, ConnectionLimits, allow_open_files

        class PageServer(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                # uvicorn would raise the signal again at the end; an orderly shutdown is no failure.
                yield

        limits = ConnectionLimits()
        limits.most = allow_open_files(limits.most)
        http: Any = partial(Connection, limits=limits)
        config = uvicorn.Config(
            app(WhatIfBackend(**self._settings), self._guard),
            http=http,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN,
        )
        return PageServer(config)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65_536:
        raise FleetlabError(f"no such port: {port}", hint="0 to 65535; 0 takes a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol named, asyncio sets TCP_NODELAY: else an answer may wait 40 ms.
        listening = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as e:
        msg = f"no such address: {host}: {e}"
        raise FleetlabError(msg, hint="without --host, only this machine can reach the page") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as e:
        listening.close()
        raise FleetlabError(f"cannot listen on {host}:{port}: {e.strerror}", hint="--port 0 takes a free one") from None
    return listening


def _announce(listening: socket.socket, guard: Any, host: str, *, open: bool, json: bool) -> None:  # noqa: ANN401
    """Print the address, with the token where there is one."""
    address, port = listening.getsockname()[:2]
    name = host if address in ("0.0.0.0", "::") and host not in ("", "0.0.0.0", "::") else address
    name = socket.gethostname() if name in ("0.0.0.0", "::") else name
    name = f"[{name}]" if ":" in name else name
    url = f"http://{name}/" if port == HTTP else f"http://{name}:{port}/"
    entry = f"{url}?token={guard.token}" if guard.token else url
    message = {"url": url, "token": guard.token, "pid": os.getpid()}
    print(json_.dumps(message) if json else f"fleetlab is on {entry}", flush=True)
    if open:
        import webbrowser

        webbrowser.open(entry)
