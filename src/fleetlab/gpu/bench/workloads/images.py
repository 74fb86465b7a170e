"""ResNet50 (He et al., 2016, arXiv 1512.03385): training on CIFAR-10 or synthetic images, inference on 224×224.

CIFAR-10 (Krizhevsky, 2009) is read from a folder: the binary version, or safely the pickles of the Python version. Both
have five training files and one test file; an image is 3072 bytes: red, green, blue, each row by row.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fleetlab.gpu.bench.workloads.kernels import Batched, Trained
from fleetlab.gpu.devices.console import BenchError

PIXELS, CLASSES = 32, 10
IMAGE = 3 * PIXELS * PIXELS  # bytes
NAMES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
INSIDE = {".bin": "cifar-10-batches-bin", "": "cifar-10-batches-py"}  # folders inside the archives
LARGEST = 64 << 20  # bytes; a genuine file has 31 million
SHIFT = 4  # maximum shift in pixels
HINT = "unpack cifar-10-binary.tar.gz and name its folder"

Bytes = NDArray[np.uint8]


class CifarImages(NamedTuple):
    """Images and their classes."""

    pixels: Bytes  # [n, 3, 32, 32]
    labels: Bytes  # [n]


def read_cifar(folder: Path) -> tuple[CifarImages, CifarImages]:
    """Read training and test images."""
    home, ending = _home(folder)
    read = _binary if ending else _pickled
    parts = [_checked(read(path), path) for path in (home / f"{name}{ending}" for name in NAMES)]
    sizes = [len(part.labels) for part in parts]
    if len(set(sizes)) > 1:
        short = NAMES[sizes.index(min(sizes))]
        msg = f"{home / (short + ending)}: truncated: {min(sizes):,} images, others have {max(sizes):,}"
        raise BenchError(msg, hint=HINT)
    pixels, labels = (np.concatenate(kind) for kind in zip(*parts[:-1], strict=True))
    return CifarImages(pixels, labels), parts[-1]


def _home(folder: Path) -> tuple[Path, str]:
    """The folder of the files, and their suffix."""
    for ending, name in INSIDE.items():
        for home in (folder, folder / name):
            if (home / f"{NAMES[0]}{ending}").is_file():
                if missing := [n + ending for n in NAMES if not (home / f"{n}{ending}").is_file()]:
                    raise BenchError(f"{home}: CIFAR-10 is incomplete, missing: {', '.join(missing)}", hint=HINT)
                return home, ending
    raise BenchError(f"{folder}: no CIFAR-10: neither {NAMES[0]}.bin nor {NAMES[0]}", hint=HINT)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise BenchError(f"{path}: too large for CIFAR-10: {path.stat().st_size:,} bytes", hint=HINT)
        return path.read_bytes()
    except OSError as e:
        raise BenchError(f"{path}: {e.strerror or e}", hint=HINT) from None


def _checked(images: CifarImages, path: Path) -> CifarImages:
    if not len(images.labels) or len(images.labels) != len(images.pixels):
        raise BenchError(f"{path}: {len(images.pixels):,} images and {len(images.labels):,} labels", hint=HINT)
    if images.labels.max() >= CLASSES:
        raise BenchError(f"{path}: not CIFAR-10: a label above 9: {images.labels.max()}", hint=HINT)
    return images


def _binary(path: Path) -> CifarImages:
    raw = _bytes(path)
    if len(raw) % (1 + IMAGE):
        raise BenchError(f"{path}: truncated: {len(raw):,} bytes are not a multiple of {1 + IMAGE:,}", hint=HINT)
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + IMAGE)
    return CifarImages(rows[:, 1:].reshape(-1, 3, PIXELS, PIXELS), rows[:, 0])


# --- pickles: untrusted, only arrays are admitted ---------------------------------------------------------------------


class _Plain:
    """A stand-in for an array or its type: it stores its arguments and does nothing."""

    def __init__(self, *about: object) -> None:
        self.about: tuple[Any, ...] = about
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401
        self.state = state


def _latin1(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes for Python 2 in this way.
    if encoding != "latin1":
        raise pickle.UnpicklingError(encoding)
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Plain,
    ("numpy", "dtype"): _Plain,
    ("numpy.core.multiarray", "_reconstruct"): _Plain,
    ("numpy._core.multiarray", "_reconstruct"): _Plain,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    """Allows only the stand-ins above."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"refers to `{module}.{name}`, which images do not need")
        return ADMITTED[module, name]


def _pickled(path: Path) -> CifarImages:
    raw = _bytes(path)
    try:
        # A broken pickle can raise any exception.
        about = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        about = {k.decode() if isinstance(k, bytes) else k: v for k, v in about.items()}
        pixels, labels = _array(about["data"]), np.array([int(x) for x in about["labels"]], np.int64)
    except Exception as e:
        msg = f"{path}: not a file of CIFAR-10, or truncated: {type(e).__name__}: {e}"
        raise BenchError(msg, hint=HINT + "; that version needs no pickles") from None
    if labels.size and not 0 <= labels.min() <= labels.max() <= 255:
        labels = np.full(labels.size, 255)
    return CifarImages(pixels.reshape(-1, 3, PIXELS, PIXELS), labels.astype(np.uint8))


def _array(array: _Plain) -> Bytes:
    """The bytes of a pickled array in its layout."""
    _, shape, kind, by_columns, raw = array.state
    rows, width = shape
    if kind.about[0] not in (b"u1", "u1") or width != IMAGE or not isinstance(raw, bytes):
        raise ValueError(f"not rows of {IMAGE} bytes: {shape}")
    return np.frombuffer(raw, np.uint8).reshape(rows, width, order="F" if by_columns else "C")


def brightness(pixels: Bytes) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation by channel, from value counts: floats of all images would be large."""
    light = np.arange(256) / 255
    counts = np.array([np.bincount(pixels[:, colour].ravel(), minlength=256) for colour in range(3)])
    share = counts / counts.sum(1, keepdims=True)
    mean = share @ light
    spread = np.sqrt((share * (light - mean[:, None]) ** 2).sum(1))
    return mean.astype(np.float32), np.maximum(spread, 1e-3).astype(np.float32)


# --- on the device ---------------------------------------------------------------------------------------------------


class Stored:
    """All images on the device, in random order, randomly flipped and shifted."""

    def __init__(self, images: CifarImages, batch: int, device: torch.device) -> None:
        self.pixels = torch.tensor(images.pixels, device=device)
        self.labels = torch.tensor(images.labels, dtype=torch.long, device=device)
        self.count, self.batch = len(images.labels), batch
        if self.count < batch:
            raise BenchError(f"a batch of {batch:,} from {self.count:,} images", hint="use a smaller batch")
        self.mean, self.spread = (torch.tensor(x, device=device)[:, None, None] for x in brightness(images.pixels))
        self.order = torch.randperm(self.count, device=device)
        self.at = torch.zeros((), dtype=torch.long, device=device)  # on the device, so that a graph can advance it
        self.ahead, self.line = (torch.arange(n, device=device) for n in (batch, PIXELS))
        self.channels = torch.arange(3, device=device)[:, None, None]

    def shuffle(self) -> None:
        """Start an epoch: every image once, in a new order."""
        self.order.copy_(torch.randperm(self.count, device=self.order.device))
        self.at.zero_()

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return the next batch; edges of shifted images repeat the last pixels."""
        rows = self.order[(self.at + self.ahead) % self.count]
        self.at.add_(self.batch)
        down, right = (torch.randint(-SHIFT, SHIFT + 1, (self.batch, 1), device=rows.device) for _ in range(2))
        turned = torch.rand(self.batch, 1, device=rows.device) < 0.5
        y, x = ((self.line + by).clamp(0, PIXELS - 1) for by in (down, right))
        x = torch.where(turned, PIXELS - 1 - x, x)
        cut = self.pixels[rows[:, None, None, None], self.channels, y[:, None, :, None], x[:, None, None, :]]
        return self.scaled(cut), self.labels[rows]

    def scaled(self, pixels: Tensor) -> Tensor:
        """Normalize each channel to the training images."""
        return (pixels.float() / 255 - self.mean) / self.spread


# --- ResNet50 --------------------------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    """A bottleneck block with a residual connection."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        self.body = nn.Sequential(
            *_conv(inside, width, 1, 1),
            nn.ReLU(),
            *_conv(width, width, 3, stride),
            nn.ReLU(),
            *_conv(width, wide, 1, 1),
        )
        same = stride == 1 and inside == wide
        self.short = nn.Identity() if same else nn.Sequential(*_conv(inside, wide, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return torch.relu(self.body(x) + self.short(x))


def _conv(inside: int, outside: int, size: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inside, outside, size, stride, size // 2, bias=False), nn.BatchNorm2d(outside)


def resnet(blocks: tuple[int, ...], width: int, classes: int, *, small: bool) -> nn.Module:
    """A bottleneck ResNet; (3, 4, 6, 3) is ResNet50. `small` images are not downsampled at the input."""
    stem = [*_conv(3, width, 3 if small else 7, 1 if small else 2), nn.ReLU()]
    layers = stem if small else [*stem, nn.MaxPool2d(3, 2, 1)]
    inside = width
    for stage, count in enumerate(blocks):
        here = width << stage
        for k in range(count):
            layers.append(Bottleneck(inside, here, 2 if stage and not k else 1))
            inside = 4 * here
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


EXAMINED = 500  # batch size of the test


class Synthetic:
    """Synthetic images, new for every batch: the pattern of a class plus noise."""

    def __init__(self, batch: int, classes: int, pixels: int, device: torch.device) -> None:
        self.classes = classes
        self.patterns = torch.randn(classes, 3, pixels, pixels, device=device)
        self.noise = torch.empty(batch, 3, pixels, pixels, device=device)
        self.labels = torch.empty(batch, dtype=torch.long, device=device)

    def shuffle(self) -> None:
        """Do nothing: images never repeat."""

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return a batch and its classes."""
        self.labels.random_(0, self.classes)
        return self.noise.normal_() + self.patterns[self.labels], self.labels


@dataclass
class ResnetTrain(Trained):
    """Training on synthetic images, or on CIFAR-10 in the folder `data`, with bf16 autocast."""

    unit: ClassVar[str] = "image"
    TINY: ClassVar[dict[str, Any]] = {
        "batch": 4,
        "pixels": 8,
        "blocks": (1, 1, 1, 1),
        "width": 8,
        "rate": 0.01,
        "epoch": 80,
    }
    batch: int = 256
    pixels: int = 32
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 10
    rate: float = 0.05
    graph: bool = True
    epoch: int = 50_000  # images; the size of CIFAR-10
    data: str = ""
    follow: bool = False  # count correct predictions in `hits`
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Create model, optimizer and images on `device`."""
        real = read_cifar(Path(self.data)) if self.data else None
        if real is not None:
            self.pixels, self.classes, self.epoch = PIXELS, CLASSES, len(real[0].labels)
        model = resnet(tuple(self.blocks), self.width, self.classes, small=True).train()
        self.model: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate, momentum=0.9, weight_decay=5e-4)
        self.source: Synthetic | Stored = (
            Stored(real[0], self.batch, device) if real else Synthetic(self.batch, self.classes, self.pixels, device)
        )
        self.test = None if real is None else tuple(torch.tensor(x, device=device) for x in real[1])
        self.measure_on(device)
        self.capture(device)

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        drawn, labels = self.source.draw()
        images = drawn.contiguous(memory_format=torch.channels_last)
        self.learn(images, labels)

    def shuffle(self) -> None:
        """Start an epoch."""
        self.source.shuffle()

    @torch.no_grad()
    def examine(self) -> tuple[int, int] | None:
        """Correct predictions on test images, and their number; None for synthetic images."""
        if self.test is None or not isinstance(self.source, Stored):
            return None
        pixels, labels = self.test
        hits = torch.zeros((), dtype=torch.long, device=labels.device)
        self.model.eval()
        try:
            for at in range(0, len(labels), EXAMINED):
                scores = self.model(self.source.scaled(pixels[at : at + EXAMINED]))
                hits += (scores.argmax(1) == labels[at : at + EXAMINED]).sum()
        finally:
            self.model.train()
        return int(hits), len(labels)


@dataclass
class ResnetInfer(Batched):
    """Classification of a batch of images in bf16."""

    unit: ClassVar[str] = "image"
    TINY: ClassVar[dict[str, Any]] = {"pixels": 32, "blocks": (1, 1, 1, 1), "width": 8, "classes": 10}
    batch: int = 1
    pixels: int = 224
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    graph: bool = True
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Create model and images on `device`."""
        model = resnet(tuple(self.blocks), self.width, self.classes, small=False).eval()
        model = model.to(device, torch.bfloat16)
        self.model: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images = torch.randn(self.batch, 3, self.pixels, self.pixels, device=device, dtype=torch.bfloat16)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.answer = torch.empty(self.batch, dtype=torch.long, device=device)
        self.capture(device)

    @torch.no_grad()
    def _step(self) -> None:
        self.answer.copy_(self.model(self.images).argmax(1))
