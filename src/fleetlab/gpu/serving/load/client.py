"""The HTTP client of a load: it sends requests to a server on this machine, and no other, and records their end."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import resource
import socket
import time
from urllib.parse import SplitResult, urlsplit

import aiohttp
import numpy as np

from fleetlab.gpu.devices.console import BenchError, Progress
from fleetlab.gpu.serving.load.requests import (
    ANSWERED,
    CLIENT_ERROR,
    GARBLED,
    REFUSED,
    RESET,
    SERVER_ERROR,
    STOPPED,
    TIMEOUT,
    UNREACHABLE,
    RequestLog,
    TokenTimes,
    request_lengths,
)
from fleetlab.gpu.serving.load.settings import LoadSettings

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
        raise BenchError(f"no such host: `{parts.hostname}`: {e}", hint="http://127.0.0.1:8000") from None
    # IPv4 last, which is the one used: servers listen there by default.
    return [str(one[4][0]) for one in sorted(addresses, key=lambda one: one[0] == socket.AF_INET)]


async def wait_until_ready(session: aiohttp.ClientSession, url: str, progress: Progress) -> None:
    """Wait until /ready answers with success; go on without it if the server has none."""
    ask = urlsplit(url)._replace(path="/ready", query="").geturl()
    deadline, waiting = time.monotonic() + STARTS, False
    while (status := await _ready_status(session, ask)) == 503:
        if time.monotonic() > deadline:
            raise BenchError(f"not ready after {STARTS:.0f} s: {ask}", hint="check the output of the server")
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


# --- the HTTP client -------------------------------------------------------------------------------------------------


IDLE = 2.0  # s after which a connection is not reused: servers close idle connections
SPARE = 64  # open files besides connections


def session() -> aiohttp.ClientSession:
    """A session without cookies, proxies or connection limits."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        headers={"Content-Type": "application/json"},
    )


def raise_file_limit(connections: int) -> None:
    """Raise the limit on open files for so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = connections + SPARE
    if soft != resource.RLIM_INFINITY and soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            msg = f"{connections:,} connections exceed the limit on open files of this system: {hard - SPARE:,}"
            raise BenchError(msg, hint="use fewer --connections")
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


class Client:
    """Sends to one URL; a request without a free connection waits, and that counts as latency."""

    def __init__(self, session: aiohttp.ClientSession, url: str, settings: LoadSettings, book: RequestLog) -> None:
        self._session, self._url, self._book = session, url, book
        self._gate = asyncio.Semaphore(settings.connections)
        self._timeout, self._batch = settings.timeout, settings.batch
        self._seed = settings.seed % 1_000_003 * 1_000_000  # another seed sends other inputs

    async def ask(self, k: int, due: float) -> None:
        """Send request `k`, scheduled at `due` on the monotonic clock; raises only its own cancellation."""
        begun, queued = time.monotonic(), self._gate.locked()
        sent = first = done = math.nan
        status, outcome = 0, STOPPED
        try:
            async with asyncio.timeout_at(due + self._timeout), self._gate:
                sent = time.monotonic()
                # Redirects are not followed: they could lead to another machine.
                async with self._session.post(self._url, data=self._body(k), allow_redirects=False) as answer:
                    first, status = time.monotonic(), answer.status
                    await self._read(k, answer)
                    done, outcome = time.monotonic(), outcome_of(status)
        except TimeoutError:
            done, outcome = due + self._timeout, TIMEOUT
        except aiohttp.ClientConnectorError:
            outcome = UNREACHABLE
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError):
            outcome = RESET
        except aiohttp.ClientError:
            outcome = GARBLED
        finally:
            done = time.monotonic() if math.isnan(done) else done
            self._book.write((due, begun, sent, first, done), (outcome, status, queued))
            self._ended(k, due)

    async def _read(self, k: int, answer: aiohttp.ClientResponse) -> None:
        while await answer.content.readany():
            pass

    def _ended(self, k: int, due: float) -> None:
        """After a request was recorded."""

    def _body(self, k: int) -> bytes:
        first = self._seed + k * self._batch
        if self._batch == 1:
            return b'{"seed":%d}' % first
        return b'{"inputs":[%s]}' % b",".join(b'{"seed":%d}' % (first + i) for i in range(self._batch))


class TokenClient(Client):
    """Sends requests to a language model and reads their tokens as they come."""

    def __init__(self, session: aiohttp.ClientSession, url: str, settings: LoadSettings, book: RequestLog) -> None:
        super().__init__(session, url, settings, book)
        assert settings.dataset is not None
        self._lengths = request_lengths(settings.dataset, settings.seed)
        self._flying: dict[int, TokenTimes] = {}

    def _body(self, k: int) -> bytes:
        _, prompt, output = next(self._lengths)
        self._flying[k] = TokenTimes(prompt, output)
        # Lists of tokens are what every such server takes; they are small, so that any vocabulary has them.
        tokens = np.random.default_rng((self._seed, k)).integers(0, 32, prompt).tolist()
        about = {"prompt": tokens, "max_tokens": output, "temperature": 0, "ignore_eos": True, "stream": True}
        return json.dumps(about | {"model": "llm-serve"}).encode()

    async def _read(self, k: int, answer: aiohttp.ClientResponse) -> None:
        if answer.status == 200:
            await self._flying[k].read(answer)
        else:
            await super()._read(k, answer)

    def _ended(self, k: int, due: float) -> None:
        t = self._flying.pop(k, None) or TokenTimes(0, 0)
        self._book.write_tokens(due, (t.prompt, t.output, t.got, t.first, t.last), t.gaps)


def outcome_of(status: int) -> int:
    """The outcome of an HTTP status.

    >>> outcome_of(200) == ANSWERED, outcome_of(429) == outcome_of(503) == REFUSED, outcome_of(500) == SERVER_ERROR
    (True, True, True)
    """
    if 200 <= status < 300:
        return ANSWERED
    if status in (429, 503):
        return REFUSED
    return SERVER_ERROR if status >= 500 else CLIENT_ERROR if status >= 400 else GARBLED
