"""The engine with CUDA graphs on a real GPU."""

import pytest
import torch

from fleetlab.gpu.bench.llm.engine import CachedDecoder, DecodeEngine, DecoderSize, Generation

from .test_engine import by_hand

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
SIZE = DecoderSize(layers=3, width=128, heads=4, groups=2, inner=256, vocabulary=997, slots=5, context=1024)


def test_tokens_of_graphs_are_those_of_each_sequence_alone_without_a_cache():
    """In double precision, with prompts in parts, and more sequences than slots."""
    torch.manual_seed(1)
    model = CachedDecoder(SIZE, torch.device("cuda"), dtype=torch.float64)
    model.capture()
    engine = DecodeEngine(model, budget=300)
    chance = torch.Generator().manual_seed(2)
    asked = [
        Generation(torch.randint(0, 997, (n,), generator=chance).tolist(), 12) for n in (1, 700, 40, 512, 513, 90, 310)
    ]
    for one in asked:
        engine.submit(one)
    while not engine.idle:
        engine.step()
    with torch.device("cuda"):
        expected = [by_hand(model, one.prompt, one.max_tokens) for one in asked]
    assert model.how == "graph", model.how
    wrong = [len(one.prompt) for one, tokens in zip(asked, expected, strict=True) if one.tokens != tokens]
    assert not wrong, f"other tokens after prompts of {wrong} tokens"
