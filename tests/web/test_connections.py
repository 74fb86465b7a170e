"""Clients that are slow, silent or many: they are dropped, and the others do not feel it."""

import asyncio
import contextlib
import resource
from collections import Counter
from functools import partial

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fleetlab.web.guard import Connection, ConnectionLimits, allow_open_files

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
HALF_BODY = (
    b"POST /api/operations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)
HALF_FILE = b"POST /api/uploads?name=a.csv HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999\r\n\r\nsubmit,gpus\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
PATIENCE = 60  # s after which a test gives up


@pytest.fixture(autouse=True)
def _open_files():
    allow_open_files(4000)


async def opened(port, sent=b""):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def rest(connection):
    """All that comes until the server closes; a reset counts as closed."""
    reader, writer = connection
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def status_of(said):
    return int(said.split(b" ", 2)[1]) if said else None


async def ask(port, sent=LAST):
    return status_of(await rest(await opened(port, sent)))


# --- the page itself ---------------------------------------------------------------------------------------------


def test_limits_drop_half_a_request_within_twenty_seconds():
    limits = ConnectionLimits()
    assert limits.head <= 20
    assert 2 * limits.body <= 20  # at worst it stops just after the first look


def test_600_half_requests_are_dropped_and_others_are_answered_meanwhile(page):
    port, host = int(page.host.rpartition(":")[2]), page.host.encode()
    head, body, file, whole = (one.replace(b"127.0.0.1", host) for one in (HALF_HEAD, HALF_BODY, HALF_FILE, LAST))

    async def story():
        halves = [await opened(port, half) for half in (head, body, file) for _ in range(200)]
        meanwhile = [await ask(port, whole) for _ in range(20)]
        burst = Counter(await asyncio.gather(*(ask(port, whole) for _ in range(1000))))
        held = sum(not reader.at_eof() for reader, _ in halves)
        ends = await asyncio.gather(*(rest(half) for half in halves))
        return meanwhile, burst, held, Counter(map(status_of, ends)), await ask(port, whole)

    meanwhile, burst, held, ends, after = asyncio.run(story())
    assert meanwhile == [200] * 20
    assert burst == {200: 1000}
    assert held > 0  # else nobody was asked meanwhile
    assert ends == {408: 600}
    assert after == 200


# --- the limits, on a small server -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(limits, answer=b"hello"):
    """The port of a server with these limits, and the pieces of bodies that have come."""
    bodies = []

    async def hello(request):
        if request.method == "POST":
            bodies.extend([part async for part in request.stream()])
        return PlainTextResponse(answer)

    app = Starlette(routes=[Route("/{path:path}", hello, methods=["GET", "POST"])])
    config = uvicorn.Config(app, http=partial(Connection, limits=limits), lifespan="off", log_config=None, port=0)
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1], bodies
    finally:
        server.should_exit = True
        await task


def run(limits, story, **more):
    async def told():
        async with serving(limits, **more) as (port, bodies):
            return await asyncio.wait_for(story(port, bodies), PATIENCE)

    return asyncio.run(told())


def test_silence_from_the_start_is_closed_without_a_word():
    async def story(port, _):
        return await rest(await opened(port))

    assert run(ConnectionLimits(head=0.05), story) == b""


def test_a_second_request_that_does_not_arrive_is_dropped_too():
    async def story(port, _):
        reader, writer = await opened(port, WHOLE)
        first = await reader.readuntil(b"hello")
        writer.write(HALF_HEAD)
        return status_of(first), status_of(await rest((reader, writer)))

    assert run(ConnectionLimits(head=0.05), story) == (200, 408)


def test_a_slow_body_that_keeps_coming_is_taken_and_one_that_stops_is_dropped():
    part = b"x" * 1000

    async def story(port, bodies):
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 10000\r\n\r\n"
        steady, stops = await opened(port, head), await opened(port, head + part)
        for _ in range(10):
            steady[1].write(part)
            await steady[1].drain()
            await asyncio.sleep(0.1)
        return status_of(await rest(steady)), status_of(await rest(stops)), sum(map(len, bodies))

    assert run(ConnectionLimits(body=1.0, least=500), story) == (200, 408, 10_000)


def test_whoever_does_not_read_a_long_answer_is_cut_off():
    long = b"x" * (64 << 20)

    async def story(port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
        writer.write(LAST)
        await asyncio.sleep(1.0)  # it reads a little, as the system does for it
        said = await rest((reader, writer))
        return status_of(said), len(said) < len(long)

    assert run(ConnectionLimits(unread=0.2), story, answer=long) == (200, True)


def test_of_too_many_connections_the_oldest_that_waits_goes_and_the_new_one_is_answered():
    async def story(port, _):
        halves = [await opened(port, HALF_HEAD) for _ in range(20)]
        await asyncio.sleep(0.2)
        new = [await ask(port) for _ in range(5)]
        first = status_of(await rest(halves[0]))
        last = halves[-1][0].at_eof()
        for _, writer in halves:
            writer.close()
        return new, first, last

    assert run(ConnectionLimits(most=20), story) == ([200] * 5, 503, False)


def test_where_all_others_are_being_answered_the_new_one_is_told_to_come_again():
    async def story(port, _):
        posts = [await opened(port, HALF_BODY) for _ in range(5)]
        await asyncio.sleep(0.2)
        new = await ask(port)
        for _, writer in posts:
            writer.close()
        await asyncio.sleep(0.2)
        return new, await ask(port)

    assert run(ConnectionLimits(most=5), story) == (503, 200)


def test_the_limit_of_open_files_decides_how_many_connections_there_can_be(monkeypatch):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    assert allow_open_files(2048) == 800
    assert asked == [(1000, 1000)]
