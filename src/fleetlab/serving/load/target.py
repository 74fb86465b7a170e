"""The target of a load: a server on this machine, and no other."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from urllib.parse import SplitResult, urlsplit

import aiohttp

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress

STARTS = 120.0  # s for a server to become ready
SILENT = 2.0  # s to wait for an answer of /ready


def loopback(url: str, *, path: str = "/predict") -> str:
    """The URL with a numeric address, so that a name cannot resolve elsewhere later.

    >>> loopback("http://127.0.0.1:8000")
    'http://127.0.0.1:8000/predict'
    """
    parts = _split(url)
    for number in _numbers(parts):
        if not ipaddress.ip_address(number).is_loopback:
            msg = f"not on this machine: `{url}` is {number}"
            raise BenchError(
                msg, hint="load is sent only to 127.0.0.1, ::1 or localhost: run it on the server's machine"
            )
    host = f"[{number}]" if ":" in number else number
    path = parts.path if parts.path not in ("", "/") else path
    return parts._replace(netloc=f"{host}:{parts.port or 80}", path=path, fragment="").geturl()


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        msg = f"not the URL of a server: `{url}`"
        raise BenchError(msg, hint="such as http://127.0.0.1:8000, as `fleetlab bench serve` prints it")
    return parts


def _numbers(parts: SplitResult) -> list[str]:
    try:
        addresses = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        msg = f"no such host: `{parts.hostname}`: {e}"
        raise BenchError(msg, hint="http://127.0.0.1:8000") from None
    # IPv4 last, which is the one used: servers listen there by default.
    return [str(one[4][0]) for one in sorted(addresses, key=lambda one: one[0] == socket.AF_INET)]


async def wait_until_ready(session: aiohttp.ClientSession, url: str, progress: Progress) -> None:
    """Wait until /ready answers with success; go on without it if the server has none."""
    ask = urlsplit(url)._replace(path="/ready", query="").geturl()
    deadline, waiting = time.monotonic() + STARTS, False
    while (status := await _ready_status(session, ask)) == 503:
        if time.monotonic() > deadline:
            msg = f"not ready after {STARTS:.0f} s: {ask}"
            raise BenchError(msg, hint="check the output of the server")
        if not waiting:
            progress("waiting for the server to be ready")
        waiting = True
        await asyncio.sleep(0.2)
    if not 200 <= status < 300:
        progress(f"the server does not report readiness ({ask}: {status or 'no answer'}); continuing")


async def _ready_status(session: aiohttp.ClientSession, ask: str) -> int:
    try:
        async with session.get(ask, timeout=aiohttp.ClientTimeout(total=SILENT), allow_redirects=False) as answer:
            return answer.status
    except aiohttp.ClientConnectorError as e:
        msg = f"no server at {ask.removesuffix('/ready')}: {e.strerror or e}"
        raise BenchError(msg, hint="`fleetlab bench serve resnet-infer` starts a server and prints its URL") from None
    except (aiohttp.ClientError, TimeoutError):
        return 0
