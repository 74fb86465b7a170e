"""Work that takes a while: it can be followed and stopped, and many visitors at once each get their own answer."""

import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from .conftest import Client, processes_of, started

SMALL = "trace=folder:small"
FEW = "trace=folder:hostile"  # 400 jobs on 16 GPUs, which wait
SLOW = f"{SMALL}&order=server_filling_srpt&load=10"


def events_of(page, operation):
    told = page.ask(f"/api/operations/{operation}/events").body.decode().split("\n\n")
    return [json.loads(one.removeprefix("data: ")) for one in told if one.startswith("data: ")]


def test_a_job_that_is_stopped_is_over_and_the_next_is_answered(page):
    begun = page.ask("/api/operations", method="POST", body={"kind": "run", "link": SLOW}).json
    assert begun["status"] == "running"
    stopped = page.ask(f"/api/operations/{begun['operation']}", method="DELETE").json
    assert stopped["status"] == "cancelled"
    assert page.ask(f"/api/run?{SMALL}&load=0.9").status == 200


def test_whoever_closes_the_page_no_longer_wants_the_answer(page):
    begun = page.ask("/api/operations", method="POST", body={"kind": "run", "link": SLOW + "&seed=1"}).json
    host, port = page.host.split(":")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(f"GET /api/operations/{begun['operation']}/events HTTP/1.1\r\nHost: {page.host}\r\n\r\n".encode())
        seen = b""
        while b"running" not in seen:
            seen += line.recv(10_000)
    until = time.monotonic() + 60
    while page.ask(f"/api/operations/{begun['operation']}").json["status"] == "running" and time.monotonic() < until:
        time.sleep(0.2)
    assert page.ask(f"/api/operations/{begun['operation']}").json["status"] in ("cancelled", "done")


def test_events_tell_of_progress_before_the_end(page):
    begun = page.ask("/api/operations", method="POST", body={"kind": "describe", "trace": "builtin:2000:3"}).json
    events = events_of(page, begun["operation"])
    assert events[-1]["status"] == "done"
    assert any(one["progress"] and one["progress"]["fraction"] is not None for one in events[:-1])


def test_numbers_come_before_the_figures_and_are_the_same(page):
    page.ask(f"/api/run?{SMALL}")  # the baseline is there
    begun = page.ask("/api/operations", method="POST", body={"kind": "run", "link": f"{SMALL}&load=1.37"}).json
    events = events_of(page, begun["operation"])
    early = [one["progress"]["answer"] for one in events if one["progress"] and "answer" in one["progress"]]
    last = events[-1]["result"]
    assert early
    assert (early[0]["rows"], early[0]["wait_reasons"], early[0]["html"]) == (last["rows"], last["wait_reasons"], "")


def test_fifty_visitors_at_once_each_get_their_own_answer(page):
    loads = [round(0.5 + k / 50, 3) for k in range(50)]

    def ask(load):
        said = Client(page.url, visitor=f"visitor-{load}").ask(f"/api/run?{FEW}&load={load:g}", timeout=300)
        return load, said.status, said.json

    with ThreadPoolExecutor(50) as crew:
        found = list(crew.map(ask, loads))
    assert [status for _, status, _ in found] == [200] * 50
    for load, _, told in found:
        assert told["title"] == ("fifo/greedy" if load == 1 else f"fifo/greedy, load {load:g}")
        assert told["link"].endswith("hostile" if load == 1 else f"&load={load:g}")
    waits = {load: told["rows"][1]["now"]["value"] for load, _, told in found}
    assert waits[max(loads)] > waits[min(loads)]


def test_visitors_do_not_feel_that_all_idle_processes_were_killed(page):
    assert page.ask(f"/api/run?{SMALL}").status == 200
    for pid in (killed := processes_of(page.pid)):
        os.kill(pid, signal.SIGKILL)
    said = [page.ask(f"/api/run?{SMALL}&load={load}") for load in (1.11, 1.12, 1.13)]
    assert len(killed) >= 2
    assert [one.status for one in said] == [200] * 3


def test_a_page_ends_when_it_is_told_to_with_work_going_on(root):
    with started("--traces", root, "--workers", 1) as client:
        client.ask("/api/operations", method="POST", body={"kind": "run", "link": SLOW})
        client.process.terminate()
        _, said = client.process.communicate(timeout=60)
    assert (client.process.returncode, said.strip().splitlines()[-1]) == (0, "stopped")
    assert "Traceback" not in said
