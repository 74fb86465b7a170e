"""The HTTP client: sends requests, waits for their end, and records them."""

from __future__ import annotations

import asyncio
import json
import math
import resource
import time

import aiohttp
import numpy as np

from fleetlab.devices.errors import BenchError
from fleetlab.serving.load.requests import (
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
)
from fleetlab.serving.load.settings import LoadSettings
from fleetlab.serving.load.tokens import TokenTimes, request_lengths

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
