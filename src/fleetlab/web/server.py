"""Start the page, say where it is, and end it in order."""

from __future__ import annotations

import asyncio
import contextlib
import json as json_
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from fleetlab.core import FleetlabError

CONNECTIONS = 512  # at once; more are told to come again
LAST = 2  # s for the last answers to be written
MIB = 1 << 20


def web(
    *,
    traces: Path | str | None = None,
    host: str = "127.0.0.1",
    port: int = 8765,
    workers: int = 2,
    upload_mib: int = 64,
    limit: float = 300.0,
    open: bool = False,
    json: bool = False,
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> None:
    """A local page on which what-ifs answer as you drag, until SIGTERM or Ctrl-C; says on stdout where, once it is up.

    `traces` is a folder of saved traces to choose from. Elsewhere than on this machine (`host`) it asks for a token.
    `limit` is how many seconds one piece of work may take.
    """
    for package in ("uvicorn", "starlette"):
        try:
            import_module(package)
        except ImportError as e:
            msg = f"the page needs a package that is not installed: {e.name}"
            raise FleetlabError(msg, hint="`pip install fleetlab[web]`") from None
    root = _checked(traces, workers, upload_mib, limit)
    with _bound(host, port) as door:
        from fleetlab.web.guard import Guard

        guard = Guard.of(door, host)
        page = _Page(door, guard, root=root, workers=workers, upload_bytes=upload_mib * MIB, limit=float(limit))
        asyncio.run(page.run(lambda: _say(door, guard, host, open=open, json=json)))
    tell("stopped")


def _checked(traces: Path | str | None, workers: int, upload_mib: int, limit: float) -> Path | None:
    if not 1 <= workers <= 64:
        msg = f"a page has from 1 to 64 processes, not: {workers}"
        raise FleetlabError(msg, hint="one for each core that it may use")
    if not 1 <= upload_mib <= 4096:
        msg = f"an upload has from 1 to 4,096 MiB, not: {upload_mib}"
        raise FleetlabError(msg, hint="--upload-mib 64")
    if not 1 <= limit <= 86_400:
        msg = f"work may take from 1 to 86,400 seconds, not: {limit}"
        raise FleetlabError(msg, hint="--limit 300")
    if traces is not None and not Path(traces).is_dir():
        msg = f"no such folder: {traces}"
        raise FleetlabError(msg, hint="a folder whose folders are saved traces, as `fleetlab read --out` makes them")
    return None if traces is None else Path(traces)


class _Page:
    """The server from its start to its end."""

    def __init__(self, door: socket.socket, guard: Any, **parts: Any) -> None:  # noqa: ANN401
        self._door, self._guard, self._parts = door, guard, parts

    async def run(self, ready: Callable[[], None]) -> None:
        """Until a signal says stop."""
        server = self._server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, server)
        serving = loop.create_task(server.serve(sockets=[self._door]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        if not serving.done():
            ready()
        await serving

    def _stop(self, server: Any) -> None:  # noqa: ANN401
        server.force_exit = server.should_exit  # a second signal: now
        server.should_exit = True

    def _server(self) -> Any:  # noqa: ANN401
        import uvicorn

        from fleetlab.web.app import app
        from fleetlab.web.desk import Desk

        class Server(uvicorn.Server):
            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                # uvicorn would raise the signal again in the end, and a stop that was asked for is no failure.
                yield

        config = uvicorn.Config(
            app(Desk(**self._parts), self._guard),
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=LAST,
        )
        return Server(config)


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65_536:
        msg = f"no such port: {port}"
        raise FleetlabError(msg, hint="0 to 65535; 0 takes a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol named, asyncio sees that it is TCP and has answers sent at once: else each may wait 40 ms.
        door = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as e:
        msg = f"no such address: {host}: {e}"
        raise FleetlabError(msg, hint="without --host it is seen from this machine alone") from None
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(address)
        door.listen(1024)
    except OSError as e:
        door.close()
        msg = f"cannot listen on {host}:{port}: {e.strerror}"
        raise FleetlabError(msg, hint="--port 0 takes a free one") from None
    return door


def _say(door: socket.socket, guard: Any, host: str, *, open: bool, json: bool) -> None:  # noqa: ANN401
    """Where it is, once; with the token, where it needs one."""
    address, port = door.getsockname()[:2]
    shown = host if address in ("0.0.0.0", "::") and host not in ("", "0.0.0.0", "::") else address
    shown = socket.gethostname() if shown in ("0.0.0.0", "::") else shown
    url = f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"
    entry = f"{url}?token={guard.token}" if guard.token else url
    told = {"url": url, "token": guard.token, "pid": os.getpid()}
    print(json_.dumps(told) if json else f"fleetlab is on {entry}", flush=True)
    if open:
        import webbrowser

        webbrowser.open(entry)
