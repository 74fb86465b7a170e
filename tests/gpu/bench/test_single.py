"""One work by itself, on the CPU with tiny sizes: real torch, real files, real signals."""

import json
import math
import signal
import subprocess
import sys

import pytest
import torch

from fleetlab.cli import main
from fleetlab.gpu.bench.histogram import Histogram, quantiles
from fleetlab.gpu.bench.single import Training, parse_settings, work
from fleetlab.gpu.bench.single.settings import RunSettings
from fleetlab.gpu.bench.single.steady import SingleReport, raise_workload_error, rate_interval
from fleetlab.gpu.bench.workloads.images import resnet
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.devices.nvml import GpuSampler


def run(name, **asked):
    words = asked.pop("words", ())
    return work(name, settings=parse_settings(name, words), device="cpu", tiny=True, **asked)


def numbers(told):
    return {metric: (value, low, high, unit) for metric, value, low, high, unit in told.numbers}


# --- training --------------------------------------------------------------------------------------------------------

EASY = ("blocks=1", "width=8", "classes=2", "batch=16", "rate=0.05", "epoch=240")
TEXTS = ("batch=32", "length=6", "width=32", "vocabulary=8", "rate=0.003", "epoch=1600")


@pytest.mark.parametrize(("name", "words"), [("resnet-train", EASY), ("bert-train", TEXTS)])
def test_the_loss_falls_and_the_answers_get_better(name, words):
    told = run(name, words=words, epochs=3)
    epochs = told.tables["epochs"]
    assert [row["epoch"] for row in epochs] == [1, 2, 3]
    assert epochs[-1]["loss"] < 0.8 * epochs[0]["loss"]
    assert epochs[-1]["accuracy_low"] > 0.5  # better than a guess between two
    assert epochs[-1]["accuracy"] > epochs[0]["accuracy"]


def test_a_saved_model_answers_as_the_trained_one(tmp_path):
    ask = RunSettings(
        "resnet-train", parse_settings("resnet-train", EASY), torch.device("cpu"), epochs=2, tiny=True, out=tmp_path
    )
    told = SingleReport("resnet-train")
    with GpuSampler(tmp_path / "monitor.jsonl") as watch:
        training = Training(ask, told, watch, lambda _: None)
        training.run()
    again = resnet((1,), 8, 2, small=True)
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    images, labels = training.work.source.draw()
    with torch.no_grad():
        answers = again.eval()(images)
        # Not to the last bit: the trained one keeps its weights in another order in memory.
        assert torch.allclose(answers, training.work.model.eval()(images), atol=1e-4)
    assert (answers.argmax(1) == labels).float().mean() > 0.7
    kept = json.loads((tmp_path / "statistics.json").read_text())
    assert kept["ended"] == "finished"
    assert kept["tables"]["epochs"] == told.tables["epochs"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "statistics.json"]


def test_the_same_seed_learns_the_same():
    first, second, other = (run("resnet-train", steps=10, seed=seed).tables["epochs"][0]["loss"] for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_steps_are_cut_into_epochs():
    told = run("bert-train", steps=45)  # 40 texts in batches of 2: 20 steps an epoch
    assert [row["steps"] for row in told.tables["epochs"]] == [20, 20, 5]
    assert numbers(told)["step, P50"][0] > 0
    assert "step: n too small for P95: 45 of 59" in told.notes


def test_training_ends_with_its_time():
    told = run("resnet-train", seconds=0.5)
    assert told.ended == "finished"
    assert told.tables["epochs"]


def test_a_loss_that_is_no_number_is_said_and_leaves_the_last_good_model(tmp_path, capsys):
    run("resnet-train", epochs=1, out=tmp_path)
    good = (tmp_path / "model.pt").read_bytes()
    words = f"bench workload resnet-train --device cpu --tiny --rate 1e30 --epochs 4 --json --out {tmp_path}"
    with pytest.raises(SystemExit) as e:
        main(words.split())
    assert e.value.code == 3
    said = json.loads(capsys.readouterr().out)
    assert any("the loss is not a number from step" in note for note in said["notes"])
    assert json.loads((tmp_path / "statistics.json").read_text())["ended"] == "not a number"
    assert (tmp_path / "model.pt").read_bytes() == good


def test_a_batch_larger_than_an_epoch_is_refused():
    with pytest.raises(BenchError, match="an epoch \\(80 images\\) is less than a batch \\(100\\)"):
        run("resnet-train", words=["batch=100"])


def test_stopped_by_hand_it_keeps_the_finished_epochs(tmp_path):
    words = [sys.executable, "-m", "fleetlab.gpu.bench.single", "bert-train", "--device", "cpu", "--tiny"]
    words += ["--epochs", "100000", "--out", str(tmp_path)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            while "epoch 2:" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    kept = json.loads((tmp_path / "statistics.json").read_text())
    assert kept["ended"] == "stopped"
    assert len(kept["tables"]["epochs"]) >= 2
    assert torch.load(tmp_path / "model.pt", weights_only=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "statistics.json"]


# --- works that do the same over and over ----------------------------------------------------------------------------


def test_inference_tells_latency_and_throughput_by_batch_size():
    told = run("bert-infer", batches=[1, 4], steps=80)
    rates, waits = told.tables["throughput"], told.tables["latency"]
    assert [row["batch"] for row in rates] == [row["batch"] for row in waits] == [1, 4]
    for rate, wait in zip(rates, waits, strict=True):
        assert rate["rate_low"] <= rate["rate"] <= rate["rate_high"]
        assert wait["p50_low"] <= wait["p50_ms"] <= wait["p95_ms"]
        assert wait["p99_ms"] is None
        assert wait["short"] == "n too small for P99: 80 of 299"


def test_a_batch_that_does_not_fit_ends_the_row_and_keeps_those_before():
    told = run("resnet-infer", batches=[1, 10**12, 2], steps=5)
    assert [row["batch"] for row in told.tables["throughput"]] == [1]
    assert any("out of memory: requested" in note and "not tried" in note for note in told.notes)


@pytest.mark.parametrize(
    ("name", "metric", "unit"),
    [
        ("llm-decode", "time per token, P50", "ms"),
        ("launch", "throughput", "kernel/s"),
        ("gemm", "throughput", "TFLOP/s"),
        ("hbm", "throughput", "GB/s"),
        ("l2", "throughput", "GB/s"),
        ("h2d", "throughput", "GB/s"),
    ],
)
def test_each_work_tells_its_own_numbers(name, metric, unit):
    value, low, high, of = numbers(run(name, steps=20))[metric]
    assert 0 <= low <= value <= high
    assert value > 0
    assert of == unit


def test_a_rate_is_what_was_done_in_the_time_that_it_took():
    """A product of 32² has 2·32³ operations, and there are two in a step."""
    told = run("gemm", steps=200)
    seconds = 200 * 2 * 2 * 32**3 / (numbers(told)["throughput"][0] * 1e12)
    middle = numbers(told)["step, P50"][0] / 1000
    assert 0.5 * middle * 200 < seconds < 10_000 * middle * 200  # a busy machine may stall it


def test_a_person_is_idle_most_of_the_time():
    told = numbers(run("interactive", steps=40, words=["think=0.02"]))
    assert told["bursts"][0] == 40
    assert told["think time, requested"][0] == 0.02
    assert told["think time, measured"][0] > 0.01
    assert told["active"][0] < told["idle"][0]
    share = told["active"][0] / (told["active"][0] + told["idle"][0])
    assert share == pytest.approx(told["device time / wall time"][0], rel=1e-3)


def test_two_pauses_say_little_but_none_is_below_0():
    _, low, high, _ = numbers(run("interactive", steps=3, words=["think=0.02"]))["think time, measured"]
    assert 0 <= low < high


def test_a_stressor_tells_its_duty_as_asked_and_as_got():
    told = numbers(run("gemm", steps=100, words=["duty=0.25", "width=128"]))
    assert told["duty, requested"][0] == 0.25
    assert told["duty, measured"][0] < 0.5  # a busy machine may take more from either side


def test_works_of_ones_own_run_too(works, monkeypatch):
    monkeypatch.syspath_prepend(str(works.parent))
    told = run("mine:Steady", steps=30)
    value, _, _, unit = numbers(told)["throughput"]
    assert unit == "step/s"
    assert value <= 500  # it sleeps 2 ms


def test_the_limits_of_a_rate_by_hand():
    """Tenths of 9 and 11 under time slicing: mean 10, deviation sqrt(10/9), t(9) = 2.262."""
    told = rate_interval([{"rate": 10.0, "seconds": 2.0, "rates": [9.0, 11.0] * 5}])
    half = 2.262 * (10 / 9) ** 0.5 / 10**0.5
    # A rate is not below 0: toward that, the logarithm has the error.
    assert tuple(told) == pytest.approx((10, 10 * math.exp(-half / 10), 10 + half), rel=1e-3)


def test_percentiles_are_in_milliseconds():
    row, why = quantiles(Histogram.of([0.010] * 100))
    assert row["p50_ms"] == pytest.approx(10, rel=2e-3)
    assert row["p99_ms"] is None
    assert why == ["n too small for P99: 100 of 299"]


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nothing", "unknown workload: `nothing`"),
        ("gemm --set bach=3", "gemm: unknown setting: bach"),
        ("gemm --set width", "not a setting: `width`"),
        ("gemm --set width=wide", "gemm: width must be an integer of at least 1: `wide`"),
        ("gemm --set width=0", "gemm: width must be an integer of at least 1: `0`"),
        ("resnet-infer --batch 0", "resnet-infer: batch must be an integer of at least 1: `0`"),
        ("interactive --set seed=-1", "interactive: seed must be an integer of at least 0: `-1`"),
        ("gemm --set duty=2", "not a duty cycle: 2.0"),
        ("resnet-infer --set graph=perhaps", "resnet-infer: graph must be true or false: `perhaps`"),
        ("resnet-train --set blocks=1,x", "resnet-train: blocks must be 1,2,3: `1,x`"),
        ("resnet-train --rate nan", "resnet-train: rate must be a number above 0: `nan`"),
        ("bert-infer --rate 0.1", "bert-infer: unknown setting: rate"),
        ("bert-infer --data .", "bert-infer: unknown setting: data"),
        ("gemm --epochs 2", "gemm: has no epochs"),
        ("gemm --batches 1,2", "gemm: takes one batch size, not several"),
        ("bert-infer --batches 1,x", "not batch sizes: `1,x`"),
        ("bert-infer --batches 0", "not batch sizes: (0,)"),
        ("bert-infer --batches 1 --batch 2", "use only one of --batch and --batches"),
        ("resnet-train --seconds 1 --steps 2", "use only one of --seconds, --steps"),
        ("gemm --seconds -1", "--seconds must be above 0: -1.0"),
        ("gemm --steps 0", "--steps must be above 0: 0"),
        ("gemm --device tpu", "no such device: `tpu`"),
        ("bert-train --set heads=3", "bert-train: failed: RuntimeError"),
        ("launch --out /dev/null/x", "/dev/null/x: not writable"),
        ("resnet-train --data nowhere", "nowhere: no CIFAR-10"),
    ],
)
def test_a_mistake_is_told_in_words(words, told, capsys):
    asked = words.split() + ([] if "--device" in words else ["--device", "cpu"])
    with pytest.raises(SystemExit) as e:
        main(["bench", "workload", *asked, "--tiny"])
    assert e.value.code == 2
    assert f"error: {told}" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_with_what_to_do_instead():
    with pytest.raises(BenchError, match="no such NVIDIA GPU") as e:
        work("gemm")
    assert "--device cpu" in e.value.hint


def test_what_did_not_fit_is_told_by_its_size():
    e = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of …")
    with pytest.raises(BenchError, match=r"w: out of memory: requested 20\.00 GiB more") as told:
        raise_workload_error("w", e)
    assert "--batch" in told.value.hint


def test_the_command_shows_what_the_work_told(capsys):
    with pytest.raises(SystemExit) as e:
        main(["bench", "workload", "launch", "--device", "cpu", "--tiny", "--steps", "80", "--json"])
    assert e.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["provenance"]["source"] == "launch"
    assert {"metric", "value", "low", "high", "unit"} == set(said["summary"][0])


def test_on_a_measuring_machine_the_same_is_told_without_frames():
    """Nothing that such a machine lacks may be imported."""
    ask = (
        "import sys; sys.modules |= dict.fromkeys(['polars', 'cyclopts', 'rich']); "
        "from fleetlab.gpu.bench.single.__main__ import main; "
        "sys.exit(main('hbm --device cpu --tiny --steps 10'.split()))"
    )
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert "throughput" in said.stdout
    assert "GB/s" in said.stdout
