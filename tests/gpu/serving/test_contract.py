"""What a client may rely on: addresses, answers, and the same answer for the same input."""

import asyncio
import json
import re

import aiohttp
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from fleetlab.gpu.serving.server.models import seeded_inputs
from fleetlab.gpu.serving.server.requests import InputShape


@pytest.fixture(scope="module")
def bert(start, tmp_path_factory):
    with start(tmp_path_factory.mktemp("bert"), "bert-infer", "--queue", "64") as house:
        yield house


@pytest.fixture(scope="module")
def resnet(start, tmp_path_factory):
    words = ["--set", "pixels=16", "--set", "classes=1000", "--batch", "6"]
    with start(tmp_path_factory.mktemp("resnet"), "resnet-infer", *words) as house:
        yield house


def test_a_server_says_where_it_is_lives_and_is_ready(bert):
    assert re.fullmatch(r"serving bert-infer on http://127\.0\.0\.1:\d+\n", bert.said)
    assert bert.ask("GET", "/health")[::2] == (200, {"alive": True})
    assert bert.ask("GET", "/ready")[::2] == (200, {"ready": True})
    assert bert.ask("HEAD", "/health")[0] == 200


def test_an_answer_says_what_was_found_and_how_long_it_took(bert):
    status, found = bert.predict(seed=7)
    assert status == 200
    assert list(found) == ["class", "batch", "queue_ms", "compute_ms"]
    assert found["class"] in (0, 1)
    assert found["batch"] == 1
    assert found["queue_ms"] >= 2  # nobody else came, and it waited for company
    assert found["compute_ms"] > 0


async def together(url, seeds):
    async with aiohttp.ClientSession() as session:

        async def one(seed):
            async with session.post(f"{url}/predict", json={"seed": seed}) as answer:
                return await answer.json()

        return await asyncio.gather(*map(one, seeds))


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_a_seed_has_the_same_class_whatever_it_is_computed_with(name, request):
    house = request.getfixturevalue(name)
    seeds = range(48)
    alone = [house.predict(seed=seed)[1]["class"] for seed in seeds]
    mixed = asyncio.run(together(house.url, seeds))
    _, batched = house.predict(batch=True, inputs=[{"seed": seed} for seed in seeds])
    assert [one["class"] for one in mixed] == alone
    assert [one["class"] for one in batched["answers"]] == alone
    assert len(set(alone)) > 1
    assert max(one["batch"] for one in batched["answers"]) > 1


def test_inputs_that_come_together_are_computed_together(bert):
    _, found = bert.predict(batch=True, inputs=[{"seed": k} for k in range(20)])
    assert [one["batch"] for one in found["answers"]] == [8] * 16 + [4] * 4


def test_numbers_raw_numbers_and_their_seed_are_one_input(bert):
    shape = InputShape(8, 64, "token", "<i4")
    for seed in range(6):
        row = seeded_inputs(torch.tensor([seed]), shape)[0]
        raw = row.to(torch.int32).numpy().astype("<i4").tobytes()
        expected = bert.predict(seed=seed)[1]["class"]
        assert bert.predict(input=row.tolist())[1]["class"] == expected
        assert bert.ask("POST", "/predict", raw, "application/octet-stream")[2]["class"] == expected


def test_raw_pixels_are_bytes(resnet):
    rows = seeded_inputs(torch.arange(3), InputShape(3 * 16 * 16, 256, "pixel"))
    raw = rows.to(torch.uint8).numpy().tobytes()
    status, _, found = resnet.ask("POST", "/predict/batch", raw, "application/octet-stream")
    assert status == 200
    assert [one["class"] for one in found["answers"]] == [resnet.predict(seed=k)[1]["class"] for k in range(3)]


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("/predict", "{", 400, "not JSON"),
        ("/predict", '{"input": [1, 2]}', 400, "8 numbers, not 2"),
        ("/predict", '{"input": [1, 2, 3, 4, 5, 6, 7, 64]}', 400, "not a token: 64 at 7"),
        ("/predict", '{"input": [1, 2, 3, 4, 5, 6, 7, NaN]}', 400, "not a token: nan at 7"),
        ("/predict/batch", '{"inputs": [{"seed": 1}, {"sead": 2}]}', 400, "keys sead"),
        ("/predict/batch", json.dumps({"inputs": [{"seed": 1}] * 65}), 413, "65 of 64"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_words(bert, path, body, status, why):
    found, headers, told = bert.ask("POST", path, body)
    assert found == status
    assert why in told["error"]
    assert told["hint"]
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("POST", "/predicts", 404, None),
        ("GET", "/predict/", 404, None),
        ("GET", "/predict", 405, "POST"),
        ("DELETE", "/predict/batch", 405, "POST"),
        ("POST", "/stats", 405, "GET"),
    ],
)
def test_wrong_addresses_and_methods_are_told_in_json(bert, method, path, status, allow):
    found, headers, told = bert.ask(method, path)
    assert found == status
    assert set(told) == {"error", "hint", "reason"}
    assert headers.get("allow") == allow


def test_stats_and_metrics_are_the_same_books(bert, law):
    bert.predict(seed=1)
    bert.ask("POST", "/predict", "{")
    stats, text = bert.stats(), bert.ask("GET", "/metrics")[2]
    found = {(s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert law(stats)
    assert stats["in_flight"] == stats["queue"] == 0
    assert found["fleetlab_serve_requests_total", "answered"] == stats["answered"] > 0
    assert found["fleetlab_serve_requests_total", "malformed"] == stats["reasons"]["malformed"] > 0
    assert found["fleetlab_serve_total_seconds_count",] == stats["latency"]["total"]["n"] == stats["answered"]
    assert found["fleetlab_serve_batch_inputs_count",] == sum(stats["batches"].values())
    inputs = sum(int(size) * n for size, n in stats["batches"].items())
    assert found["fleetlab_serve_batch_inputs_sum",] == stats["latency"]["queue"]["n"] == inputs
    assert stats["rss_mib"] > 50
    assert (stats["work"], stats["device"], stats["how"]) == ("bert-infer", "cpu", "eager")
