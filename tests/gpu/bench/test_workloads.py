import pytest
import torch

from fleetlab.gpu.bench.workloads import BY_NAME, make
from fleetlab.gpu.bench.workloads.images import ResnetTrain, resnet
from fleetlab.gpu.bench.workloads.text import BertTrain, Encoder, LlmDecode
from fleetlab.gpu.devices.console import BenchError

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_work_steps_on_the_cpu(name):
    work = make(name, tiny=True)
    work.setup(CPU)
    assert work.step() > 0
    assert work.unit


def weights(model):
    return sum(p.numel() for p in model.parameters())


def test_resnet50_has_the_published_number_of_weights():
    with torch.device("meta"):
        assert weights(resnet((3, 4, 6, 3), 64, 1000, small=False)) == 25_557_032


def test_the_encoder_is_of_berts_size():
    """BERT-base has 110 million weights (Devlin et al., 2019), of which a pooler and two token types are not here."""
    with torch.device("meta"):
        made = Encoder(layers=12, width=768, heads=12, vocabulary=30522, length=128, drop=0.1)
    assert weights(made) == pytest.approx(109e6, rel=0.01)


def test_the_decoder_is_of_the_1b_class():
    made = LlmDecode()
    each = made.width * (made.heads + 2 * made.groups) * (made.width // made.heads) + made.width**2
    each += 3 * made.width * made.inner
    assert made.layers * each + made.vocabulary * made.width == pytest.approx(1.24e9, rel=0.01)


@pytest.mark.parametrize(
    ("work", "steps"),
    [
        (ResnetTrain(batch=16, pixels=8, blocks=(1,), width=8, classes=2, rate=0.05), 60),
        (BertTrain(batch=32, length=6, layers=1, width=32, heads=2, vocabulary=8, rate=3e-3), 150),
    ],
)
def test_training_learns(work, steps):
    work.setup(CPU)
    losses = []
    for _ in range(steps):
        work.step()
        losses.append(float(work.loss))
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_decoding_looks_at_the_whole_cache():
    """A change far back in the context changes the next token's scores."""
    work = make("llm-decode", tiny=True)
    work.setup(CPU)
    layer, (keys, values) = work.stack[0], work.cache[0]
    x = work.words(work.tokens).detach()
    with torch.no_grad():
        before = layer(x, keys, values).clone()
        values[:, :, 0] += 50
        assert not torch.allclose(before, layer(x, keys, values))


def test_a_duty_is_a_share_of_the_time():
    work = make("gemm", tiny=True, duty=0.25)
    assert work.rests
    assert work.pause(0.1) == pytest.approx(0.3)
    assert not make("gemm", tiny=True).rests


@pytest.mark.parametrize("duty", [0, -1, 1.5, float("nan")])
def test_a_duty_that_is_no_share_is_refused(duty):
    with pytest.raises(BenchError, match="duty"):
        make("hbm", duty=duty)


def test_an_unknown_work_lists_the_known():
    with pytest.raises(BenchError, match="unknown workload: `resnett`") as e:
        make("resnett")
    assert "resnet-train" in e.value.hint


def test_an_unknown_setting_lists_the_known():
    with pytest.raises(BenchError, match="unknown setting: bach") as e:
        make("resnet-infer", bach=2)
    assert "batch" in e.value.hint


def test_a_work_of_ones_own_that_is_not_there_says_so():
    with pytest.raises(BenchError, match="cannot be imported"):
        make("nowhere:Work")
