"""A server of a language model, as a client of OpenAI's API sees it."""

import asyncio
import contextlib
import http.client
import json
import socket

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetlab.gpu.serving.server.completions import parse_completion
from fleetlab.gpu.serving.server.requests import RequestError


@pytest.fixture
def stack():
    with contextlib.ExitStack() as open_:
        yield open_


@pytest.fixture(scope="module")
def llm(start, tmp_path_factory):
    with start(tmp_path_factory.mktemp("llm"), "llm-serve", "--batch", "3", "--queue", "40") as house:
        yield house


def complete(house, **said):
    status, _, found = house.ask("POST", "/v1/completions", json.dumps(said))
    return status, found


async def streamed(url, said):
    """Chunks of one answer, without their prefix."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/completions", json=said) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = [line async for line in answer.content]
    assert all(line.startswith(b"data: ") for line in lines if line.strip())
    return [line[6:].strip() for line in lines if line.strip()]


def test_a_whole_answer_has_the_fields_of_the_api(llm):
    status, found = complete(llm, model="llm-serve", prompt="hello", max_tokens=4)
    assert status == 200
    assert list(found) == ["id", "object", "created", "model", "choices", "usage"]
    assert found["object"] == "text_completion"
    assert found["choices"][0] == {"index": 0, "text": found["choices"][0]["text"], "logprobs": None} | {
        "finish_reason": "length"
    }
    assert len(found["choices"][0]["text"].split()) == 4
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}


def test_a_stream_has_a_chunk_per_token_then_usage_then_done(llm):
    said = {"prompt": [1, 2, 3], "max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = asyncio.run(streamed(llm.url, said))
    chunks = [json.loads(chunk) for chunk in chunks]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 4 + ["length"]
    assert (json.loads(usage)["usage"]["completion_tokens"], json.loads(usage)["choices"]) == (5, [])
    assert done == b"[DONE]"
    whole = complete(llm, prompt=[1, 2, 3], max_tokens=5)[1]["choices"][0]["text"]
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole


def test_an_answer_does_not_depend_on_what_is_computed_beside_it(llm):
    """Thirty at once in three slots, each as alone."""
    asked = [{"prompt": [k + 1] * (1 + 7 * k % 90), "max_tokens": 1 + k % 9} for k in range(30)]
    alone = [complete(llm, **said)[1]["choices"][0]["text"] for said in asked]

    async def together():
        async with aiohttp.ClientSession() as session:

            async def one(said):
                async with session.post(f"{llm.url}/v1/completions", json=said) as answer:
                    return (await answer.json())["choices"][0]["text"]

            return await asyncio.gather(*map(one, asked))

    assert asyncio.run(together()) == alone


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "not JSON"),
        ("{}", "no prompt"),
        ('{"prompt": ""}', "an empty prompt"),
        ('{"prompt": [1, -1]}', "not a prompt"),
        ('{"prompt": [1, true]}', "not a prompt"),
        ('{"prompt": ["a", "b"]}', "not a prompt"),
        ('{"prompt": 100000000}', "not a prompt"),
        ('{"prompt": "a", "max_tokens": 0}', "not a number of tokens"),
        ('{"prompt": "a", "max_tokens": 2.5}', "not a number of tokens"),
        ('{"prompt": "a", "temperature": 0.7}', "not supported: temperature 0.7"),
        ('{"prompt": "a", "n": 2}', "not supported: n 2"),
        ('{"prompt": "a", "max_tokens": 600}', "exceed the context of 512"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_reason(llm, said, why):
    status, _, found = llm.ask("POST", "/v1/completions", said)
    assert status == 400
    assert why in found["error"]
    assert found["hint"]


def test_a_prompt_may_be_a_number_of_tokens():
    assert len(parse_completion(b'{"prompt": 300}', 64, 512).prompt) == 300
    with pytest.raises(RequestError):
        parse_completion(b'{"prompt": 513}', 64, 512)


def test_a_client_that_goes_away_frees_its_place(llm):
    body = json.dumps({"prompt": 400, "max_tokens": 100, "stream": True}).encode()
    lines = []
    for _ in range(8):
        line = socket.create_connection(("127.0.0.1", llm.port))
        line.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        lines.append(line)
    lines[0].recv(100)
    before = llm.stats()
    for line in lines:
        line.close()
    after = llm.until(lambda s: s["in_flight"] == 0 and s["running"] == 0)
    assert before["running"] > 0
    assert after["reasons"]["gone"] > 0
    assert after["waiting"] == 0
    assert complete(llm, prompt="still there", max_tokens=1)[0] == 200


def test_a_full_queue_is_refused_and_everything_adds_up(start, tmp_path, law):
    with start(tmp_path, "llm-serve", "--batch", "1", "--queue", "2") as house:

        async def many():
            async with aiohttp.ClientSession() as session:

                async def one(k):
                    said = {"prompt": [k + 1], "max_tokens": 200}
                    async with session.post(f"{house.url}/v1/completions", json=said) as answer:
                        await answer.read()
                        return answer.status, answer.headers.get("Retry-After")

                return await asyncio.gather(*map(one, range(12)))

        found = asyncio.run(many())
        assert {status for status, _ in found} == {200, 429}
        assert all(again == "1" for status, again in found if status == 429)
        stats = house.until(lambda s: s["in_flight"] == 0)
        assert law(stats)
        assert stats["received"] == 12
        assert stats["generation_tokens"] == 200 * stats["answered"]
        assert house.stop() == 0


def test_metrics_tell_tokens_requests_and_the_cache(llm):
    complete(llm, prompt=[1, 2], max_tokens=3)
    found = {m.name: m for m in text_string_to_metric_families(llm.ask("GET", "/metrics")[2])}
    values = {name: next(s.value for s in m.samples if not s.name.endswith("_created")) for name, m in found.items()}
    assert values["fleetlab_serve_generation_tokens"] >= 3
    assert values["fleetlab_serve_num_requests_running"] == 0
    assert 0 <= values["fleetlab_serve_kv_cache_usage_ratio"] <= 1
    assert "fleetlab_serve_time_to_first_token_seconds" in found


def test_a_language_model_lists_itself_and_has_no_predictions(llm):
    assert llm.ask("GET", "/v1/models")[2]["data"][0]["id"] == "llm-serve"
    status, _, found = llm.ask("POST", "/predict", "{}")
    assert status == 404
    assert found["hint"].startswith("/v1/completions")


def test_a_body_above_the_limit_is_refused(start, tmp_path):
    with start(tmp_path, "llm-serve", "--max-body", "0.001") as house:
        assert complete(house, prompt="x" * 2000)[0] == 413


def test_a_stopped_server_ends_streams_without_done(start, tmp_path, stack):
    """The rest of an answer that takes too long is an error event, so that no client takes it for whole."""
    with start(tmp_path, "llm-serve", "--batch", "2", "--drain", "0", "--set", "context=8192") as house:
        line = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
        stack.callback(line.close)
        line.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 8000, "stream": True}))
        answer = line.getresponse()
        answer.readline()
        assert house.stop() == 0
        rest = answer.read()
        assert b"[DONE]" not in rest
        assert b'"reason": "draining"' in rest
