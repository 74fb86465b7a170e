"""A hundred thousand requests: none is lost, and the server is no larger after them than it was."""

import asyncio
import os
from collections import Counter

import pytest

REQUESTS = int(os.environ.get("FLEETLAB_SOAK", "100000"))
CLIENTS = 64
SLACK = 4  # MiB that memory may grow between a fifth of the requests and all of them


class Client(asyncio.Protocol):
    """Asks, reads, asks again on the same connection: as little as a client can do, since there are many."""

    def __init__(self, bodies, found, over):
        self.bodies, self.found, self.over, self.read = bodies, found, over, b""

    def connection_made(self, transport):
        self.transport = transport
        self._next()

    def _next(self):
        path, body = next(self.bodies, (None, None))
        if path is None:
            self.transport.close()
        else:
            self.transport.write(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)
            )

    def data_received(self, data):
        self.read += data
        head, ended, body = self.read.partition(b"\r\n\r\n")
        if ended and len(body) == int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            self.found[int(head[9:12])] += 1
            self.read = b""
            self._next()

    def connection_lost(self, e):
        self.over.set_result(e)


def bodies(seeds):
    """Mostly one input, now and then several, now and then none that can be understood."""
    for seed in seeds:
        if seed % 10 == 0:
            yield b"/predict/batch", b'{"inputs": [{"seed": %d}, {"seed": 1}, {"seed": 2}]}' % seed
        elif seed % 10 == 1:
            yield b"/predict", b'{"seed": -%d}' % seed
        else:
            yield b"/predict", b'{"seed": %d}' % seed


async def asked(port, seeds):
    loop, found, left = asyncio.get_running_loop(), Counter(), bodies(seeds)
    ends = [loop.create_future() for _ in range(CLIENTS)]
    for over in ends:
        await loop.create_connection(lambda over=over: Client(left, found, over), "127.0.0.1", port)
    assert set(await asyncio.gather(*ends)) == {None}  # nobody was cut off
    return found


@pytest.mark.validate
def test_memory_is_flat_and_nothing_is_lost_over_a_soak(start, tmp_path, law):
    with start(tmp_path, "bert-infer", "--batch", "64", "--wait", "20") as house:
        early = asyncio.run(asked(house.port, range(REQUESTS // 5)))
        before = house.stats()
        late = asyncio.run(asked(house.port, range(REQUESTS // 5, REQUESTS)))
        after = house.until(lambda s: s["in_flight"] == 0)
        found = early + late
        assert found.total() == after["received"] == REQUESTS
        assert (found[200], found[400]) == (after["answered"], after["refused"])
        assert found[400] == REQUESTS // 10
        assert law(after)
        assert after["rss_mib"] < before["rss_mib"] + SLACK
        assert house.stop() == 0
