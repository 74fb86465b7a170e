"""Continuous batching gives the tokens of decoding each sequence alone, without a cache, in double precision."""

import numpy as np
import pytest
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from fleetlab.gpu.bench.llm.engine import CachedDecoder, DecodeEngine, DecoderSize, Generation, QueueFullError, rotate
from fleetlab.gpu.devices.console import BenchError

SMALL = DecoderSize(layers=2, width=32, heads=4, groups=2, inner=48, vocabulary=97, slots=3, context=64)


@pytest.fixture
def model():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    return CachedDecoder(SMALL, torch.device("cpu"), dtype=torch.float64)


@torch.no_grad()
def by_hand(model, prompt, count):
    """Greedy tokens from a forward pass over the whole text for each: no cache, no batch, no chunks."""
    text = list(prompt)
    for _ in range(count):
        x, n = model.words(torch.tensor(text)), len(text)
        cos, sin = model.cos[:n, None], model.sin[:n, None]
        for layer in model.stack:
            q, k, v = layer.project(x)
            q, k, v = (part.transpose(0, 1)[None] for part in (rotate(q, cos, sin), rotate(k, cos, sin), v))
            found = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = layer.finish(x, found[0].transpose(0, 1))
        text.append(int((rms_norm(x[-1], (model.size.width,)) @ model.words.weight.T).argmax()))
    return text[len(prompt) :]


def requests(count, seed):
    chance = np.random.default_rng(seed)
    return [
        Generation(chance.integers(0, 97, chance.integers(1, 40)).tolist(), int(chance.integers(1, 20)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("budget", [3, 5, 16, 200])
def test_tokens_are_those_of_each_sequence_alone_without_a_cache(model, budget):
    """More sequences than slots, arriving while others run, with prompts in parts of every size."""
    engine, chance = DecodeEngine(model, budget=budget), np.random.default_rng(budget)
    todo, there = requests(12, seed=budget), []
    while todo or not engine.idle:
        for _ in range(chance.integers(0, 3)):
            if todo:
                engine.submit(todo[-1])
                there.append(todo.pop())
        engine.step()
    assert [one.tokens for one in there] == [by_hand(model, one.prompt, one.max_tokens) for one in there]


def test_tokens_stay_the_same_where_the_length_of_a_step_is_rounded_up():
    """A sequence that passes 512 positions beside short ones: its steps are then computed over 700."""
    torch.manual_seed(4)
    size = DecoderSize(layers=1, width=16, heads=2, groups=1, inner=16, vocabulary=31, slots=2, context=700)
    model = CachedDecoder(size, torch.device("cpu"), dtype=torch.float64)
    engine = DecodeEngine(model, budget=200)
    asked = [Generation([k % 31 for k in range(n)], 8) for n in (508, 5, 300)]
    for one in asked:
        engine.submit(one)
    while not engine.idle:
        engine.step()
    assert [one.tokens for one in asked] == [by_hand(model, one.prompt, 8) for one in asked]


def test_the_reference_depends_on_the_order_of_tokens(model):
    """Otherwise the proof would hold for a model without positions."""
    assert by_hand(model, [1, 2, 3, 4], 8) != by_hand(model, [4, 2, 3, 1], 8)


def test_a_cancelled_sequence_frees_its_slot_and_leaves_the_others_as_they_are(model):
    engine = DecodeEngine(model, budget=8)
    gone, kept, late = requests(3, seed=1)
    gone.max_tokens = 20
    for one in (gone, kept):
        engine.submit(one)
    while not gone.tokens:
        engine.step()
    engine.cancel(gone)
    engine.submit(late)
    while not engine.idle:
        engine.step()
    assert len(gone.tokens) < 20
    assert [one.tokens for one in (kept, late)] == [by_hand(model, one.prompt, one.max_tokens) for one in (kept, late)]
    assert engine.kv_tokens == 0


def test_an_iteration_stays_within_the_budget_and_the_cache(model):
    engine = DecodeEngine(model, budget=7)
    for one in requests(9, seed=2):
        engine.submit(one)
    while not engine.idle:
        before = {one: one.prefilled for one in (*engine.waiting, *engine.prefilling)}
        decoding = len(engine.running)
        engine.step()
        assert sum(one.prefilled - was for one, was in before.items()) + decoding <= 7
        assert engine.kv_tokens <= engine.kv_capacity
        assert len(engine.running) + len(engine.prefilling) <= 3


def test_a_full_queue_refuses_and_a_request_that_never_fits_is_an_error(model):
    engine = DecodeEngine(model, queue=1)
    engine.submit(Generation([1], 5))
    with pytest.raises(QueueFullError, match="the queue is full: 1 of 1"):
        engine.submit(Generation([1], 5))
    with pytest.raises(BenchError, match="60 tokens of prompt and 5 of output exceed 64"):
        engine.submit(Generation([1] * 60, 5))
    with pytest.raises(BenchError, match="at least one token"):
        engine.submit(Generation([1], 0))


def test_a_budget_below_the_slots_is_refused(model):
    with pytest.raises(BenchError, match="budget of 2 tokens"):
        DecodeEngine(model, budget=2)


def test_a_size_that_cannot_be_is_refused():
    with pytest.raises(BenchError, match="not the heads"):
        DecoderSize(width=30, heads=4)
    with pytest.raises(BenchError, match="slots 0"):
        DecoderSize(slots=0)
