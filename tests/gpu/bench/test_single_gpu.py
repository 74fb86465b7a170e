"""Works by themselves on a real GPU: as graphs, with its own clock and energy counter."""

import numpy as np
import pytest
import torch

from fleetlab.gpu.bench.single import parse_settings, work
from fleetlab.gpu.bench.workloads.images import NAMES
from fleetlab.gpu.devices.console import BenchError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]


def numbers(told):
    return {metric: value for metric, value, *_ in told.numbers}


def run(name, *words, **asked):
    return work(name, settings=parse_settings(name, words), **asked)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet-train", ["blocks=1,1", "width=16", "batch=64", "classes=2", "rate=0.02", "epoch=6400"]),
        ("bert-train", ["layers=2", "width=64", "heads=2", "length=16", "vocabulary=64", "rate=0.001", "epoch=32000"]),
    ],
)
def test_training_as_a_graph_learns(name, words, tmp_path):
    told = run(name, *words, epochs=3, out=tmp_path)
    epochs = told.tables["epochs"]
    assert told.about["how"] == "graph", told.about
    assert epochs[-1]["loss"] < 0.8 * epochs[0]["loss"], epochs
    assert epochs[-1]["accuracy_low"] > 0.6, epochs[-1]
    assert torch.load(tmp_path / "model.pt", weights_only=True)


def test_real_images_are_drawn_inside_the_graph(tmp_path):
    """Class k is of brightness 25·k; 2,000 images a file."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        labels = rng.integers(0, 10, 2000)
        pixels = 25 * labels[:, None] + rng.integers(0, 10, (2000, 3072))
        (tmp_path / f"{name}.bin").write_bytes(np.column_stack((labels, pixels)).astype(np.uint8).tobytes())
    told = run("resnet-train", f"data={tmp_path}", "blocks=1,1", "width=16", "batch=100", "rate=0.02", epochs=4)
    assert told.about["how"] == "graph", told.about
    epochs = told.tables["epochs"]
    assert epochs[-1]["loss"] < 0.5 * epochs[0]["loss"], epochs
    assert epochs[-1]["test_accuracy"] > 0.5, epochs[-1]


def test_a_stressor_tells_its_rate_and_its_energy():
    told = numbers(run("gemm", seconds=6))
    assert 100 < told["throughput"] < 2000, told  # TFLOP/s of any GPU since 2020
    assert told["duty, measured"] > 0.95, told
    assert 50 < told["power"] < 1500, told
    assert told["energy"] == pytest.approx(told["power"] / told["throughput"], rel=0.05), told


def test_larger_batches_do_more_in_all():
    rows = run("resnet-infer", batches=[1, 32], seconds=2).tables["throughput"]
    assert rows[1]["rate"] > 2 * rows[0]["rate"], rows


def test_what_does_not_fit_is_told_by_its_size():
    with pytest.raises(BenchError, match=r"out of memory: requested .* more, with .* GiB free"):
        run("hbm", "mib=100000000")
