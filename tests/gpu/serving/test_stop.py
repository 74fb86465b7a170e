"""How a server fails, waits too long and ends."""

import http.client
import signal
import threading
import time


class Asked(threading.Thread):
    """A request under way in a thread of its own."""

    def __init__(self, house, **said):
        super().__init__()
        self.house, self.said, self.found = house, said, None
        self.start()

    def run(self):
        self.found = self.house.predict(**self.said)

    def status(self):
        self.join(60)
        return self.found[0]


def test_a_server_that_is_told_to_stop_finishes_what_it_has(start, tmp_path):
    with start(tmp_path, "echoes:Echo", "--batch", "2", "--drain", "60") as house:
        with house.closed():
            asked = [Asked(house, input=[k, 0, 0, 0]) for k in range(9)]
            house.until(lambda s: s["accepted"] == 9)
            house.process.send_signal(signal.SIGTERM)
            house.until(lambda s: not s["ready"])
            assert house.ask("GET", "/health")[0] == 200
            assert house.ask("GET", "/ready")[0] == 503
            status, headers, told = house.ask("POST", "/predict", '{"seed": 1}')
            assert (status, told["reason"], headers["connection"]) == (503, "draining", "close")
        assert [one.status() for one in asked] == [200] * 9
        assert sorted(one.found[1]["class"] for one in asked) == list(range(9))
        assert house.process.wait(60) == 0
        assert "10 requests: 9 answered, 1 refused, 0 failed" in house.log.read_text()


def test_a_server_that_cannot_finish_in_time_refuses_the_rest_and_ends(start, tmp_path):
    with start(tmp_path, "echoes:Echo", "--batch", "2", "--drain", "0.3") as house, house.closed():
        asked = [Asked(house, input=[k, 0, 0, 0]) for k in range(5)]
        house.until(lambda s: s["accepted"] == 5)
        assert house.stop() == 0
        assert [one.status() for one in asked] == [503] * 5
        assert {one.found[1]["reason"] for one in asked} == {"draining"}


def test_a_second_signal_ends_the_wait(start, tmp_path):
    with start(tmp_path, "echoes:Echo", "--drain", "1000") as house, house.closed():
        asked = Asked(house, seed=1)
        house.until(lambda s: s["in_flight"] == 1)
        house.process.send_signal(signal.SIGINT)
        house.until(lambda s: not s["ready"])
        house.process.send_signal(signal.SIGINT)
        assert asked.status() == 503
        assert house.process.wait(60) == 0


def test_a_model_that_fails_is_told_and_the_server_goes_on(start, tmp_path, law):
    # Four sizes are tried before it is ready: these are the calls from the fifth on.
    with start(tmp_path, "echoes:Echo", "--set", "fall=5:memory,7:bad-luck") as house:
        found = [house.predict(input=[3, 0, 0, 0]) for _ in range(4)]
        assert [status for status, _ in found] == [503, 200, 500, 200]
        assert found[0][1]["reason"] == "out-of-memory"
        assert "Tried to allocate 20 GiB" in found[0][1]["error"]
        assert found[2][1]["error"] == "the model failed: ValueError: bad-luck"
        stats = house.stats()
        assert stats["reasons"] == {"out-of-memory": 1, "model": 1}
        assert stats["failed"] == 2
        assert law(stats)


def test_what_waits_too_long_is_refused_and_a_model_that_hangs_is_told(start, tmp_path, law):
    with start(tmp_path, "echoes:Echo", "--batch", "1", "--deadline", "2") as house:
        with house.closed():
            first = Asked(house, input=[1, 0, 0, 0])
            house.until(lambda s: s["in_flight"] == 1 and s["queue"] == 0)
            late = Asked(house, input=[2, 0, 0, 0])
            assert (first.status(), first.found[1]["reason"]) == (503, "stuck")
            assert (late.status(), late.found[1]["reason"]) == (503, "deadline")
            assert house.ask("GET", "/ready")[0] == 503
            assert house.stats()["timed_out"] == 1
        end = time.monotonic() + 60
        while house.ask("GET", "/ready")[0] != 200:
            assert time.monotonic() < end
        assert house.predict(input=[3, 0, 0, 0])[1]["class"] == 3
        assert law(house.stats())


def test_an_idle_connection_does_not_hold_up_the_end(start, tmp_path):
    with start(tmp_path, "echoes:Echo") as house:
        line = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
        line.request("GET", "/health")
        line.getresponse().read()
        assert house.stop() == 0
        assert line.sock.recv(1) == b""
        line.close()
