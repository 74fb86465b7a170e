"""The server on a real GPU: batches replayed as graphs, in bf16."""

import asyncio

import aiohttp
import pytest
import torch

from fleetlab.gpu.serving.server.models import InferenceEngine, seeded_inputs, servable
from fleetlab.gpu.serving.server.requests import ModelInput

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
CARD = torch.device("cuda")
NAMES = ["resnet-infer", "bert-infer"]


def engine(name, *, batch=8, graph=True):
    torch.manual_seed(0)
    return InferenceEngine(servable(name, tiny=False, settings={}), CARD, batch=batch, graph=graph)


def test_noise_is_the_same_on_the_card_as_on_the_host():
    shape = servable("resnet-infer", tiny=False, settings={}).shape
    seeds = torch.arange(16)
    assert torch.equal(seeded_inputs(seeds.to(CARD), shape).cpu(), seeded_inputs(seeds, shape))


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_answers_as_plain_calls_do(name):
    graphs, plain = engine(name), engine(name, graph=False)
    assert (graphs.how, plain.how) == ("graph", "eager")
    for size in (1, 3, 8):
        inputs = [ModelInput(seed) for seed in range(size)]
        assert graphs.classes(inputs) == plain.classes(inputs), f"{size} inputs"


@pytest.mark.parametrize("name", NAMES)
def test_company_changes_a_class_only_where_two_scores_are_as_good_as_equal(name):
    """bf16 keeps 8 bits, and each batch size may add up in an order of its own."""
    torch.manual_seed(0)
    model = servable(name, tiny=False, settings={})
    model.load(CARD)
    rows = seeded_inputs(torch.arange(64, device=CARD), model.shape)
    scores = _scores(model, rows)
    alone = torch.cat([_scores(model, row[None]) for row in rows])
    off = (scores - alone).abs().max()
    first, second = scores.topk(2, 1).values.unbind(1)
    clear = first - second > 2 * off
    spread = scores.std(1).mean()
    assert off < 0.2 * spread, f"scores differ by {off:.3g} with company; they spread by {spread:.3g}"
    assert torch.equal(scores.argmax(1)[clear], alone.argmax(1)[clear])


@torch.no_grad()
def _scores(model, rows):
    """What the model's last layer says, before the class is taken from it."""
    seen = []
    hook = model.model.register_forward_hook(lambda _module, _rows, out: seen.append(out.float()))
    model.classes(rows)
    hook.remove()
    return seen[0]


async def asked(url, seeds):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(seed):
            async with session.post(f"{url}/predict", json={"seed": seed}) as answer:
                return answer.status, await answer.json()

        return await asyncio.gather(*map(one, seeds))


@pytest.fixture
def served(start, tmp_path):
    """A server that waits for full batches for longer than 200 requests take to arrive, however quick the GPU is."""
    for package in ("uvicorn", "starlette", "prometheus_client"):
        pytest.importorskip(package)
    with start(tmp_path, "resnet-infer", "--batch", "8", "--wait", "5000", device="cuda") as house:
        yield house


def test_a_card_serves_in_batches_and_tells_its_memory(served, law):
    found = asyncio.run(asked(served.url, range(200)))
    stats = served.stats()
    refused = [told for status, told in found if status != 200]
    assert not refused, refused[:3]
    assert stats["batches"] == {"8": 25}, stats
    assert [told["batch"] for _, told in found] == [8] * 200
    assert law(stats), stats
    assert stats["how"] == "graph", stats["how"]
    assert 0 < stats["card_mib"] <= stats["card_peak_mib"], stats


def test_a_server_on_a_card_ends_when_it_is_told(served):
    status = served.stop()
    assert status == 0, f"status {status}: {served.log.read_text()[-500:]}"
