"""CIFAR-10 in a folder, hand-made: what reads, what is refused, and that it is learnt from."""

import pickle

import numpy as np
import pytest
import torch

from fleetlab.gpu.bench.single import parse_settings, work
from fleetlab.gpu.bench.workloads.images import NAMES, CifarImages, Stored, brightness, read_cifar
from fleetlab.gpu.devices.console import BenchError

CPU = torch.device("cpu")
EACH = 20  # images a file


def part(seed):
    """Images of class k are of brightness 25·k, with a little noise: a child could learn them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, EACH).astype(np.uint8)
    pixels = (25 * labels[:, None] + rng.integers(0, 10, (EACH, 3072))).astype(np.uint8)
    return pixels, labels


def binary(folder):
    folder.mkdir(exist_ok=True)
    for k, name in enumerate(NAMES):
        pixels, labels = part(k)
        (folder / f"{name}.bin").write_bytes(np.column_stack((labels, pixels)).tobytes())
    return folder


def pickled(folder):
    folder.mkdir(exist_ok=True)
    for k, name in enumerate(NAMES):
        pixels, labels = part(k)
        about = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(about, protocol=2))
    return folder


@pytest.mark.parametrize("write", [binary, pickled])
def test_both_versions_say_the_same(write, tmp_path):
    train, test = read_cifar(write(tmp_path))
    assert train.pixels.shape == (5 * EACH, 3, 32, 32)
    pixels, labels = part(0)
    assert (train.labels[:EACH] == labels).all()
    assert (train.pixels[0].ravel() == pixels[0]).all()
    assert (test.labels == part(5)[1]).all()


@pytest.mark.parametrize(("write", "inside"), [(binary, "cifar-10-batches-bin"), (pickled, "cifar-10-batches-py")])
def test_the_folder_around_it_does_too(write, inside, tmp_path):
    write(tmp_path / inside)
    assert len(read_cifar(tmp_path)[0].labels) == 5 * EACH


def test_a_pickle_as_python_2_wrote_it_reads(tmp_path):
    """The genuine files: text is bytes, an array's bytes stand in the pickle as they are."""
    pickled(tmp_path)
    pixels, _ = part(0)
    raw = pixels.tobytes()
    text = b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    text += b"(K\x01" + b"K" + bytes([EACH]) + b"M" + (3072).to_bytes(2, "little") + b"\x86"
    text += b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    text += b"\x89T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    text += b"U\x06labels](" + b"".join(b"K" + bytes([k % 10]) for k in range(EACH)) + b"eu."
    (tmp_path / "data_batch_1").write_bytes(text)
    train, _ = read_cifar(tmp_path)
    assert (train.pixels[:EACH].reshape(EACH, -1) == pixels).all()
    assert train.labels[:EACH].tolist() == [k % 10 for k in range(EACH)]


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (self.path,)


def test_a_pickle_that_would_run_something_runs_nothing(tmp_path):
    pickled(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Evil(str(tmp_path / "evil"))}))
    with pytest.raises(BenchError, match=r"data_batch_3: not a file of CIFAR-10.*refers to `posix.mkdir`"):
        read_cifar(tmp_path)
    assert not (tmp_path / "evil").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def shorten(path):
    path.write_bytes(path.read_bytes()[:-3073])


def mislabel(path):
    path.write_bytes(b"\x0a" + path.read_bytes()[1:])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


def huge(path):
    with path.open("ab") as file:
        file.truncate(65 << 20)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (cut, r"data_batch_2.bin: truncated: 61,459 bytes are not a multiple of 3,073"),
        (shorten, r"data_batch_2.bin: truncated: 19 images, others have 20"),
        (mislabel, r"data_batch_2.bin: not CIFAR-10: a label above 9: 10"),
        (empty, r"data_batch_2.bin: 0 images and 0 labels"),
        (remove, r"CIFAR-10 is incomplete, missing: data_batch_2.bin"),
        (huge, r"data_batch_2.bin: too large for CIFAR-10"),
    ],
)
def test_what_is_wrong_with_a_binary_file_is_said(harm, told, tmp_path):
    harm(binary(tmp_path) / "data_batch_2.bin")
    with pytest.raises(BenchError, match=told):
        read_cifar(tmp_path)


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"not a pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"data": b"x", b"labels": [1]}),
        pickle.dumps({b"data": np.zeros((1, 5), np.uint8), b"labels": [1]}, protocol=2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.float64), b"labels": [1]}, protocol=2),
    ],
)
def test_what_is_no_pickle_of_images_is_refused(about, tmp_path):
    (pickled(tmp_path) / "test_batch").write_bytes(about)
    with pytest.raises(BenchError, match="test_batch: not a file of CIFAR-10, or truncated"):
        read_cifar(tmp_path)


@pytest.mark.parametrize("labels", [[-1] * EACH, [10] * EACH, [1]])
def test_labels_that_cannot_be_are_refused(labels, tmp_path):
    about = {b"data": part(0)[0], b"labels": labels}
    (pickled(tmp_path) / "test_batch").write_bytes(pickle.dumps(about, protocol=2))
    with pytest.raises(BenchError, match="test_batch"):
        read_cifar(tmp_path)


# --- on the device ---------------------------------------------------------------------------------------------------


def stored(batch=10):
    pixels = np.arange(30 * 3072).reshape(30, 3, 32, 32).astype(np.uint8)
    return Stored(CifarImages(pixels, (np.arange(30) % 10).astype(np.uint8)), batch, CPU)


def test_an_epoch_sees_every_image_once():
    source = stored()
    seen = []
    for _ in range(2):
        source.shuffle()
        order = source.order.clone()
        seen.append([label for _ in range(3) for label in source.draw()[1].tolist()])
        assert sorted(order.tolist()) == list(range(30))
        assert seen[-1] == source.labels[order].tolist()
    assert seen[0] != seen[1]


def test_images_are_turned_and_shifted_but_stay_themselves():
    """A picture whose columns are all different: each drawn row is a run of it, forwards or backwards."""
    torch.manual_seed(1)
    pixels = np.broadcast_to(np.arange(32, dtype=np.uint8) * 8, (40, 3, 32, 32)).copy()
    source = Stored(CifarImages(pixels, np.zeros(40, np.uint8)), 40, CPU)
    drawn, _ = source.draw()
    back = ((drawn * source.spread + source.mean) * 255).round().long()[:, 0, 5] // 8
    steps = back.diff(dim=1)
    assert set(steps.unique().tolist()) <= {-1, 0, 1}
    assert {int(s.sum().sign()) for s in steps} == {-1, 1}
    assert int(back[:, 16].max() - back[:, 16].min()) > 1


def test_brightness_by_hand():
    """Half of the pixels 0 and half 255: mean a half, spread a half; one color all the same: no spread to speak of."""
    pixels = np.zeros((2, 3, 32, 32), np.uint8)
    pixels[0, :2] = 255
    mean, spread = brightness(pixels)
    assert mean.tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert spread.tolist() == pytest.approx([0.5, 0.5, 1e-3])


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(BenchError, match="a batch of 31 from 30 images"):
        stored(31)


def test_real_images_are_learnt_and_tested(tmp_path):
    binary(tmp_path)
    words = [f"data={tmp_path}", "blocks=1", "width=8", "batch=10", "rate=0.01"]
    told = work("resnet-train", settings=parse_settings("resnet-train", words), device="cpu", tiny=True, epochs=8)
    epochs = told.tables["epochs"]
    assert epochs[-1]["loss"] < 0.8 * epochs[0]["loss"]
    assert max(row["test_accuracy"] for row in epochs) > 0.2  # one in ten by chance
    assert told.about["settings"]["pixels"] == 32
    assert all(row["test_accuracy_low"] <= row["test_accuracy"] <= row["test_accuracy_high"] for row in epochs)
