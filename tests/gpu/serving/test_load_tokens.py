"""Load on a language model: metrics against a server whose times are known, and against our own."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from fleetlab.gpu.bench.llm.requests import parse_goals, read_trace
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.load.generator import arrival_schedule
from fleetlab.gpu.serving.load.result import load_result
from fleetlab.gpu.serving.load.search import measure
from fleetlab.gpu.serving.load.settings import LoadOptions, LoadSettings

FIRST, EACH = 0.06, 0.015  # s


async def answer(request):
    """First token after 60 ms, then one each 15 ms; those with an odd prompt end without [DONE]."""
    said = await request.json()
    reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await reply.prepare(request)
    begin = asyncio.get_running_loop().time() + FIRST
    for k in range(said["max_tokens"]):
        await asyncio.sleep(max(begin + EACH * k - asyncio.get_running_loop().time(), 0))
        await reply.write(b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "text": " x"}]}).encode())
    await reply.write(b"data: %b\n\n" % json.dumps({"choices": [], "usage": {}}).encode())
    if len(said["prompt"]) % 2 == 0:
        await reply.write(b"data: [DONE]\n\n")
    return reply


@pytest.fixture(scope="module")
def known():
    """The URL of a server in a thread of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    where = []

    async def serve():
        app = web.Application()
        app.router.add_post("/v1/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        where.extend((runner, site._server.sockets[0].getsockname()[1]))
        ready.set()

    thread = threading.Thread(target=lambda: (loop.run_until_complete(serve()), loop.run_forever()), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield f"http://127.0.0.1:{where[1]}"
    asyncio.run_coroutine_threadsafe(where[0].cleanup(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


def load(url, dataset, **how):
    return measure(
        LoadSettings(url=url, dataset=dataset, seconds=2.0, warmup=0.2, lag=1.0, **({"rate": 15.0} | how))
    ).to_json()


def test_times_are_those_of_a_server_whose_times_are_known(known):
    found = load(known, "random:8,9", goals="ttft:500,tpot:100")["tokens"]
    middle = {name: told["p50"][0] for name, told in found["percentiles"].items()}
    assert middle["ttft"] == pytest.approx(FIRST, abs=0.03)
    assert middle["tpot"] == pytest.approx(EACH, rel=0.2)
    assert middle["itl"] == pytest.approx(EACH, rel=0.3)
    assert middle["e2el"] == pytest.approx(FIRST + 8 * EACH, abs=0.05)
    assert found["output_tokens"] == 9 * found["counts"]["ttft"]
    assert found["good"][0] == 1.0


def test_goodput_needs_every_goal(known):
    """No token comes within 30 ms, every one of the later within 100."""
    found = load(known, "random:8,4", goals="ttft:30,tpot:100")["tokens"]
    assert (found["good"][0], found["goodput"][0]) == (0, 0)


def test_an_answer_without_its_end_is_a_failure(known):
    found = load(known, "random:7,4", goals="ttft:500")
    assert found["failed"] == found["offered"] > 0
    assert found["outcomes"] == {"reset": found["offered"]}
    assert found["tokens"]["good"][0] == 0


def test_lengths_and_arrivals_of_a_dataset_are_replayed():
    settings = LoadSettings(url="", dataset="azure-conv", arrivals="dataset", rate=20.0, seconds=50, warmup=0)
    due = arrival_schedule(settings).due
    assert len(due) == pytest.approx(1000, rel=0.2)
    own = [at * read_trace("azure-conv").rate / 20 for at, _, _ in read_trace("azure-conv").window(100, seed=0)]
    assert due[:50] == pytest.approx(own[:50])


def test_our_own_server_is_measured_over_http(start, tmp_path, known):
    with start(tmp_path, "llm-serve", "--batch", "4") as house:
        found = load(house.url, "random:20,6", rate=10.0, goals="ttft:5000")
    assert found["answered"] == found["offered"]
    assert found["tokens"]["output_tokens"] == 6 * found["offered"]
    shown = load_result(found)
    assert {"TTFT P50", "TPOT P50", "output tokens"} <= {e.metric for e in shown.summary()}
    assert shown.tables()["tokens"].height == 16


@pytest.mark.parametrize("words", ["ttft", "ttft:0", "speed:3", "ttft:1,", "ttft:x"])
def test_a_goal_that_is_none_is_refused(words):
    with pytest.raises(BenchError, match="not a goal"):
        parse_goals(words)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"goodput": "ttft:3"}, "need a dataset"),
        ({"arrivals": "dataset"}, "need a dataset"),
        ({"dataset": "azure-conv", "batch": 2}, "one input"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words, why):
    with pytest.raises(BenchError, match=why):
        LoadOptions(url="http://127.0.0.1:1", rate=1.0, **words).settings()


@pytest.mark.parametrize("dataset", ["random:3", "random:0,5", "nowhere.csv"])
def test_a_dataset_that_is_none_is_refused_before_anything_is_sent(dataset):
    with pytest.raises(BenchError, match=r"not a dataset|cannot read"):
        load("http://127.0.0.1:1", dataset)
