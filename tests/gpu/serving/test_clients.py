"""Clients as they are: too many, too large, too slow, gone. Each is told so, and the others do not feel it."""

import asyncio
import json
import select
import socket
import struct
from collections import Counter
from contextlib import ExitStack

import aiohttp
import pytest

MIB = 1 << 20


@pytest.fixture(scope="module")
def echo(start, tmp_path_factory):
    words = ["--queue", "16", "--batch", "4", "--body-timeout", "2", "--max-body", "0.25", "--connections", "40"]
    with start(tmp_path_factory.mktemp("echo"), "echoes:Echo", *words, "--deadline", "300") as house:
        yield house


@pytest.fixture(autouse=True)
def and_the_server_goes_on(echo, law):
    yield
    status, told = echo.predict(input=[5, 0, 0, 0])
    assert (status, told["class"]) == (200, 5)
    assert law(echo.until(lambda s: s["in_flight"] == 0 and s["queue"] == 0))


def line(echo):
    made = socket.create_connection(("127.0.0.1", echo.port), timeout=60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def rest(made):
    """All that still comes until the server closes; a reset counts as closed."""
    parts = []
    try:
        while part := made.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def post(number, path="/predict"):
    body = json.dumps({"input": [number, 0, 0, 0]}).encode()
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


async def storm(url, begun, clients, each):
    """How often each status came, and the answers that were not one's own."""
    found, wrong, said = Counter(), [], {}

    async def client(session, k):
        for j in range(each):
            number = k * each + j
            async with session.post(f"{url}/predict", json={"input": [number, 0, 0, 0]}) as answer:
                told = await answer.json()
            found[answer.status] += 1
            said[answer.status] = told, answer.headers
            if answer.status == 200 and told["class"] != number:
                wrong.append((number, told))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=30)) as session:
        await asyncio.gather(*(client(session, k) for k in range(clients)), begun)
    return found, wrong, said


def test_at_saturation_every_request_is_answered_or_refused_and_none_is_lost(echo, law):
    before = echo.stats()

    def full():
        """Nothing is computed until the queue was full, so that it was, however slow the clients are."""
        with echo.closed():
            echo.until(lambda s: s["refused"] > before["refused"])

    found, wrong, said = asyncio.run(storm(echo.url, asyncio.to_thread(full), clients=30, each=40))
    after = echo.stats()
    assert set(found) == {200, 429}
    assert not wrong
    assert found.total() == 1200 == after["received"] - before["received"]
    assert found[200] == after["answered"] - before["answered"]
    assert found[429] == after["refused"] - before["refused"] == after["reasons"]["queue-full"]
    assert law(after)
    told, headers = said[429]
    assert "the queue is full" in told["error"]
    assert headers["Retry-After"] == "1"


def test_a_full_queue_refuses_and_what_waits_is_computed_in_order(echo):
    with ExitStack() as lines:

        def sent(number):
            made = lines.enter_context(line(echo))
            made.sendall(post(number))
            return made

        with echo.closed():
            waiting = [sent(0)]
            echo.until(lambda s: s["in_flight"] == 1 and s["queue"] == 0)  # it is computed, and holds up the others
            for k in range(1, 17):
                waiting.append(sent(k))
                echo.until(lambda s, k=k: s["queue"] == k)
            for _ in range(5):
                assert sent(99).recv(100).startswith(b"HTTP/1.1 429 ")
        for k, one in enumerate(waiting):
            answer = one.recv(65536)
            while not answer.endswith(b"}"):
                answer += one.recv(65536)
            told = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert (told["class"], told["batch"]) == (k, 1 if k == 0 else 4)


def test_one_request_does_not_get_part_of_a_full_queue(echo):
    with echo.closed(), line(echo) as first, line(echo) as second:
        first.sendall(post(0))
        echo.until(lambda s: s["in_flight"] == 1 and s["queue"] == 0)
        second.sendall(post(1))
        echo.until(lambda s: s["queue"] == 1)
        assert echo.predict(batch=True, inputs=[{"seed": k} for k in range(16)])[0] == 429
        assert echo.stats()["queue"] == 1


@pytest.mark.parametrize("how", ["closed", "reset", "half-closed"])
def test_a_client_that_went_away_is_counted_and_not_computed_for(echo, how):
    before = echo.stats()
    with echo.closed(), line(echo) as first:
        first.sendall(post(0))
        echo.until(lambda s: s["in_flight"] == 1 and s["queue"] == 0)
        gone = line(echo)
        gone.sendall(post(1))
        echo.until(lambda s: s["queue"] == 1)
        if how == "half-closed":
            gone.shutdown(socket.SHUT_WR)
        elif how == "reset":
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        else:
            gone.close()
        found = echo.until(lambda s: s["failed"] == before["failed"] + 1)
        assert found["reasons"]["gone"] == before["reasons"].get("gone", 0) + 1
    # The first was computed; of the second it is known that it was dropped, so no other batch can follow.
    echo.until(
        lambda s: (
            s["dropped_inputs"] == before["dropped_inputs"] + 1
            and sum(s["batches"].values()) == sum(before["batches"].values()) + 1
        )
    )
    gone.close()


@pytest.mark.parametrize("part", [b"", b"POST /predict HT", b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-"])
def test_headers_that_do_not_come_are_not_waited_for(echo, part):
    before = echo.stats()
    with line(echo) as made:
        made.sendall(part)
        answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "slow"
    assert echo.stats()["connections"]["slow"] == before["connections"]["slow"] + 1


def test_dribbled_headers_do_not_win_time(echo):
    with line(echo) as made:
        made.settimeout(0.05)
        answer = b""
        for _ in range(1200):  # a minute at the most, though the server waits two seconds
            try:
                made.sendall(b"G")
                answer = made.recv(65536)
                break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("the connection was left open")
    assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ")


def test_a_second_request_on_a_connection_must_come_in_time_too(echo):
    with line(echo) as made:
        made.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
        answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


@pytest.mark.parametrize("length", [b"Content-Length: 30", b"Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_not_waited_for(echo, length):
    before = echo.stats()["reasons"].get("slow", 0)
    with line(echo) as made:
        made.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n")
        answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 2 s" in answer
    assert echo.stats()["reasons"]["slow"] == before + 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_refused_and_its_sender_sees_it(echo, chunked):
    before = echo.stats()["rss_mib"]
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (64 * MIB)
    piece = b"%x\r\n%b\r\n" % (65536, bytes(65536)) if chunked else bytes(65536)
    with line(echo) as made:
        made.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n")
        for _ in range(1024):
            if select.select([made], [], [], 0)[0]:
                break
            made.sendall(piece)
        answer = made.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert echo.stats()["rss_mib"] < before + 30


def test_a_body_of_the_largest_size_is_read(echo):
    status, _, told = echo.ask("POST", "/predict", b"{" + b" " * (MIB // 4 - 1))
    assert (status, told["reason"]) == (400, "malformed")
    assert echo.ask("POST", "/predict", b"{" + b" " * (MIB // 4))[0] == 413


def on_and_on(made, piece):
    for _ in range(1_000_000):
        made.sendall(piece)


def test_a_body_without_end_is_cut(echo):
    with line(echo) as made:
        made.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"%x\r\n%b\r\n" % (65536, bytes(65536))
        with pytest.raises(OSError, match=r"reset|[Bb]roken pipe|aborted"):
            on_and_on(made, piece)


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 5 + b"\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000,
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_told_so(echo, words):
    with line(echo) as made:
        made.sendall(words)
        answer = rest(made)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "not an HTTP request"


def test_requests_sent_at_once_on_one_connection_are_answered_in_order(echo):
    with line(echo) as made:
        made.sendall(post(1) + post(2) + post(3).replace(b"localhost", b"localhost\r\nConnection: close"))
        answer = rest(made)
    told = [json.loads(part.partition(b"}")[0] + b"}") for part in answer.split(b"\r\n\r\n")[1:]]
    assert [one["class"] for one in told] == [1, 2, 3]


def test_a_client_that_asks_first_whether_to_send_is_told_to(echo):
    head, _, body = post(4).partition(b"\r\n\r\n")
    with line(echo) as made:
        made.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert made.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        made.sendall(body)
        assert made.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_too_many_connections_may_look_but_not_ask(echo):
    echo.until(lambda s: s["connections"]["open"] <= 1)
    with ExitStack() as lines:
        for _ in range(40):
            made = lines.enter_context(line(echo))
            made.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert made.recv(65536).startswith(b"HTTP/1.1 200 ")
        status, headers, told = echo.ask("POST", "/predict", '{"seed": 1}')
        assert (status, told["reason"]) == (503, "connections")
        assert headers["retry-after"] == "1"
        assert echo.ask("GET", "/ready")[0] == 200


def with_host(echo, host):
    """The status of a prediction that was asked for under a name."""
    with line(echo) as made:
        made.sendall(post(7).replace(b"Host: localhost", b"Connection: close\r\nHost: " + host))
        return int(rest(made).split()[1])


def test_the_server_answers_to_its_own_names_and_not_to_those_that_lead_here_by_trickery(echo):
    own = (b"localhost", b"LOCALHOST:9000", b"127.0.0.1", b"[::1]:80", b"127.0.0.1:%d" % echo.port)
    assert [with_host(echo, host) for host in own] == [200] * len(own)
    others = (b"evil.example", b"127.0.0.1.evil.example:8000", b"localhost:1@evil.example", b"10.0.0.1", b"here")
    assert [with_host(echo, host) for host in others] == [421] * len(others)
