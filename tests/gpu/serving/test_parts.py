"""What a server is made of: inputs, noise, sizes, books and limits."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from fleetlab.gpu.bench.histogram import Histogram, percentile
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.server.counts import MANY, LatencyCounter, ServerCounts, ServerMetrics, _by_normal, exposition
from fleetlab.gpu.serving.server.limits import ServerLimits
from fleetlab.gpu.serving.server.models import InferenceEngine, seeded_inputs, servable, sizes
from fleetlab.gpu.serving.server.requests import REASONS, InputShape, RequestError, parse_inputs

FOUR = InputShape(4, 100, "token", "<i4")
CPU = torch.device("cpu")


def parsed(said, *, many=False, kind=b"application/json", shape=FOUR, most=8):
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return parse_inputs(body, kind, shape, many=many, most=most)


def test_an_input_is_a_seed_or_numbers():
    assert parsed({"seed": 7})[0] == (7, None)
    assert parsed({"input": [1, 2.0, 3, 99]})[0].row.tolist() == [1, 2, 3, 99]
    assert [i.seed for i in parsed({"inputs": [{"seed": 1}, {"seed": 2}]}, many=True)] == [1, 2]


def test_raw_inputs_are_little_endian_whatever_the_machine():
    rows = parsed(bytes([1, 0, 0, 0] * 8), kind=b"application/octet-stream", many=True)
    assert [r.row.tolist() for r in rows] == [[1] * 4] * 2


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"7", "not an input"),
        (b"[]", "not an input"),
        (b"{}", "not an input"),
        (b'{"sead": 7}', "keys sead"),
        (b'{"seed": 7, "input": [1, 2, 3, 4]}', "keys input, seed"),
        (b'{"seed": -1}', "not a seed: -1"),
        (b'{"seed": 1.5}', "not a seed: 1.5"),
        (b'{"seed": true}', "not a seed: True"),
        (b'{"seed": "7"}', "not a seed: 7"),
        (b'{"seed": 9223372036854775808}', "not a seed"),
        (b'{"input": 5}', "flat list"),
        (b'{"input": [1, 2, 3]}', "4 numbers, not 3"),
        (b'{"input": [1, 2, 3, 4, 5]}', "4 numbers, not 5"),
        (b'{"input": [[1], [2], [3], [4]]}', "one is a list"),
        (b'{"input": [[1], [2, 3], [3], [4]]}', "one is a list"),
        (b'{"input": [1, 2, 3, "4"]}', "one is a str"),
        (b'{"input": [1, 2, 3, null]}', "one is a NoneType"),
        (b'{"input": [true, false, true, true]}', "one is a bool"),
        (b'{"input": [1, 2, 3, 99999999999999999999999]}', "not a"),
        (b'{"input": [1, 2, 3, NaN]}', "not a token: nan at 3"),
        (b'{"input": [1, Infinity, 3, 4]}', "not a token: inf at 1"),
        (b'{"input": [1, 2, 3, 1.5]}', "not a token: 1.5 at 3"),
        (b'{"input": [1, 2, 3, 100]}', "not a token: 100 at 3"),
        (b'{"input": [-1, 2, 3, 4]}', "not a token: -1 at 0"),
    ],
)
def test_what_is_no_input_is_refused_with_its_place(said, why):
    with pytest.raises(RequestError, match=why) as e:
        parsed(said)
    assert e.value.status == 400
    assert e.value.hint


@pytest.mark.parametrize("said", [b"[]", b'{"inputs": []}', b'{"inputs": 5}', b'{"input": [1]}', b'{"inputs": [1]}'])
def test_what_is_no_list_of_inputs_is_refused(said):
    with pytest.raises(RequestError) as e:
        parsed(said, many=True)
    assert e.value.status == 400


def test_more_inputs_than_can_wait_are_too_large():
    with pytest.raises(RequestError, match="9 of 8") as e:
        parsed({"inputs": [{"seed": k} for k in range(9)]}, many=True)
    assert e.value.status == 413


@pytest.mark.parametrize(
    ("body", "why"), [(b"", "16 bytes, not 0"), (bytes(15), "16 bytes, not 15"), (bytes(32), "expected one input")]
)
def test_raw_bodies_of_the_wrong_length_are_refused(body, why):
    with pytest.raises(RequestError, match=why):
        parsed(body, kind=b"application/octet-stream")


def test_raw_tokens_out_of_range_are_refused():
    with pytest.raises(RequestError, match="not a token: -1 at 0"):
        parsed(b"\xff" * 16, kind=b"application/octet-stream")


# --- models ----------------------------------------------------------------------------------------------------------


def test_a_seed_makes_the_same_input_in_any_company():
    shape = InputShape(50, 30522, "token", "<i4")
    together = seeded_inputs(torch.arange(40), shape)
    alone = torch.cat([seeded_inputs(torch.tensor([k]), shape) for k in range(40)])
    assert torch.equal(together, alone)
    assert together.min() >= 0
    assert together.max() < shape.top
    assert len({tuple(row) for row in together.tolist()}) == 40


def test_seeds_beyond_32_bits_are_their_own():
    rows = seeded_inputs(torch.tensor([1, 1 + 2**32, 2**63 - 1]), FOUR._replace(size=30))
    assert len({tuple(row) for row in rows.tolist()}) == 3


def test_noise_is_spread_evenly_below_its_end():
    """With ends uniform on 1…top and numbers uniform below their end, the mean is a quarter of top."""
    rows = seeded_inputs(torch.arange(2000), InputShape(64, 256, "pixel")).double()
    ends = rows.max(1).values
    assert abs(rows.mean() / 256 - 0.25) < 4 * 0.2 / math.sqrt(2000)  # a row's mean has a deviation below 0.2
    assert (ends < 64).float().mean() == pytest.approx(0.25, abs=0.05)


def test_every_batch_has_a_size_to_be_padded_to():
    for batch in range(1, 70):
        found = sizes(batch)
        assert found[-1] == batch
        assert list(found) == sorted(set(found))
        assert all(b <= 2 * a for a, b in pairwise(found))


@pytest.mark.parametrize(("name", "settings"), [("resnet-infer", {"pixels": 16, "classes": 1000}), ("bert-infer", {})])
def test_an_input_has_the_same_class_in_any_batch(name, settings):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    engine = InferenceEngine(servable(name, tiny=True, settings=settings), CPU, batch=5)
    inputs = parsed({"inputs": [{"seed": k} for k in range(60)]}, many=True, most=60)
    alone = [engine.classes([one])[0] for one in inputs]
    for size in (2, 3, 5):
        packs = [inputs[k : k + size] for k in range(0, 60, size)]
        assert [c for pack in packs for c in engine.classes(pack)] == alone
    assert len(set(alone)) > 1


def test_numbers_of_ones_own_and_the_seed_that_makes_them_are_one_input():
    torch.manual_seed(0)
    engine = InferenceEngine(servable("bert-infer", tiny=True, settings={}), CPU, batch=4)
    rows = seeded_inputs(torch.arange(4), engine.shape).tolist()
    seeds = parsed({"inputs": [{"seed": k} for k in range(4)]}, many=True, shape=engine.shape)
    numbers = parsed({"inputs": [{"input": row} for row in rows]}, many=True, shape=engine.shape)
    assert engine.classes([seeds[0], numbers[1], seeds[2], numbers[3]]) == engine.classes(seeds)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("gemm", {}, "workload cannot be served"),
        ("resnett", {}, "unknown work"),
        ("bert-infer", {"widht": 8}, "unknown setting: widht"),
        ("bert-infer", {"batch": 8}, "batch size of a server"),
    ],
)
def test_a_work_that_cannot_be_served_says_so(name, settings, why):
    with pytest.raises(BenchError, match=why) as e:
        servable(name, tiny=True, settings=settings)
    assert e.value.hint


# --- books -----------------------------------------------------------------------------------------------------------


def test_times_counted_up_are_the_histogram_of_all():
    seconds = np.random.default_rng(0).lognormal(-5, 2, 3000)
    times = LatencyCounter()
    for s in [*seconds, 0.0, 1e9]:
        times.add(s)
    whole = Histogram.of([*seconds, 0.0, 1e9])
    assert times.histogram().counts.tolist() == whole.counts.tolist()
    assert times.histogram().buckets.tolist() == whole.buckets.tolist()


@pytest.mark.parametrize("p", [0.5, 0.95, 0.99])
def test_limits_of_many_times_are_the_exact_ones(p):
    times = Histogram.of(np.random.default_rng(1).exponential(0.01, MANY))
    exact, quick = percentile(times, p), _by_normal(times, p)
    assert quick == pytest.approx(tuple(exact), rel=0.005)


def test_few_times_carry_no_percentile():
    times = LatencyCounter()
    for _ in range(100):
        times.add(0.001)
    about = times.about()
    assert about["p95_ms"] == pytest.approx([1, 1, 1], rel=0.002)
    assert about["p99_ms"] == "n too small for P99: 100 of 299"


def test_the_books_add_up_whatever_happens():
    counts = ServerCounts(batch=4)
    for reason in [None, *REASONS]:
        counts.begin()
        counts.end(reason, 0.1)
    counts.begin()
    about = counts.about()
    assert about["received"] == len(REASONS) + 2
    assert about["received"] == about["answered"] + about["refused"] + about["failed"] + about["in_flight"]
    assert (about["answered"], about["in_flight"]) == (1, 1)


def test_metrics_say_what_the_books_say():
    counts = ServerCounts(batch=4)
    for k, seconds in enumerate([0.0001, 0.003, 0.003, 0.2, 70]):
        counts.begin()
        counts.end(None, seconds)
        counts.computed(1 + k % 4, seconds)
    counts.begin()
    counts.end("queue-full", 0)
    text = exposition([ServerMetrics(counts, lambda: 3)])().decode()
    found = {(s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert found["fleetlab_serve_requests_total", "answered"] == 5
    assert found["fleetlab_serve_requests_total", "queue-full"] == 1
    assert found["fleetlab_serve_total_seconds_bucket", "0.0025"] == 1
    assert found["fleetlab_serve_total_seconds_bucket", "0.005"] == 3
    assert found["fleetlab_serve_total_seconds_bucket", "50.0"] == 4
    assert found["fleetlab_serve_total_seconds_bucket", "+Inf"] == 5
    assert found["fleetlab_serve_total_seconds_sum",] == pytest.approx(70.2061)
    assert found["fleetlab_serve_batch_inputs_bucket", "2.0"] == 3
    assert found["fleetlab_serve_batch_inputs_sum",] == 1 + 2 + 3 + 4 + 1
    assert found["fleetlab_serve_queue_inputs",] == 3


# --- the door --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"queue": -1}, {"wait": -0.1}, {"deadline": 0}, {"max_body": float("nan")}, {"drain": -1}]
)
def test_a_limit_that_is_none_is_refused(wrong):
    with pytest.raises(BenchError, match="invalid limit: --"):
        ServerLimits(**wrong)
