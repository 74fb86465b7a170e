"""Whom the load goes to: a server on this machine, and no other."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

import aiohttp

from fleetlab.devices.errors import BenchError

STARTS = 120.0  # s that a server may take to be ready
SILENT = 2.0  # s after which it is taken to have nothing to say about that


def loopback(url: str, *, batch: int = 1) -> str:
    """The address to send to, by number, so that no name can lead elsewhere later.

    >>> loopback("http://127.0.0.1:8000")
    'http://127.0.0.1:8000/predict'
    """
    parts = _split(url)
    for number in _numbers(parts):
        if not ipaddress.ip_address(number).is_loopback:
            msg = f"not on this machine: `{url}` is {number}"
            raise BenchError(msg, hint="load goes to 127.0.0.1, ::1 or localhost only: run it where the server runs")
    host = f"[{number}]" if ":" in number else number
    path = parts.path if parts.path not in ("", "/") else "/predict" if batch == 1 else "/predict/batch"
    return parts._replace(netloc=f"{host}:{parts.port or 80}", path=path, fragment="").geturl()


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.username is None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        msg = f"not the address of a server: `{url}`"
        raise BenchError(msg, hint="http://127.0.0.1:8000, as `fleetlab bench serve` prints it")
    return parts


def _numbers(parts: SplitResult) -> list[str]:
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as e:
        msg = f"no such host: `{parts.hostname}`: {e}"
        raise BenchError(msg, hint="http://127.0.0.1:8000") from None
    # IPv4 last, which is the one taken: servers listen there unless told otherwise.
    return [str(one[4][0]) for one in sorted(found, key=lambda one: one[0] == socket.AF_INET)]


async def ready(session: aiohttp.ClientSession, url: str, tell: Callable[[str], None]) -> None:
    """Until the server says that it is ready, or has nothing to say; an address where nobody listens is refused."""
    ask = urlsplit(url)._replace(path="/ready", query="").geturl()
    deadline, told = time.monotonic() + STARTS, False
    while (status := await _asked(session, ask)) == 503:
        if time.monotonic() > deadline:
            msg = f"not ready after {STARTS:.0f} s: {ask}"
            raise BenchError(msg, hint="look at what the server says")
        if not told:
            tell("waiting for the server to be ready")
        told = True
        await asyncio.sleep(0.2)
    if not 200 <= status < 300:
        tell(f"it does not say whether it is ready ({ask}: {status or 'no answer'}); going on")


async def _asked(session: aiohttp.ClientSession, ask: str) -> int:
    try:
        async with session.get(ask, timeout=aiohttp.ClientTimeout(total=SILENT), allow_redirects=False) as answer:
            return answer.status
    except aiohttp.ClientConnectorError as e:
        msg = f"nobody listens at {ask.removesuffix('/ready')}: {e.strerror or e}"
        raise BenchError(
            msg, hint="`fleetlab bench serve resnet-infer` starts a server and prints its address"
        ) from None
    except (aiohttp.ClientError, TimeoutError):
        return 0
