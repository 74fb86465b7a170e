"""Read CIFAR-10 (Krizhevsky, 2009) from a folder: the binary version, or safely the pickles of the Python version.

Both have five training files and one test file; an image is 3072 bytes: red, green, blue, each row by row.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fleetlab.devices.errors import BenchError

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
                    msg = f"{home}: CIFAR-10 is incomplete, missing: {', '.join(missing)}"
                    raise BenchError(msg, hint=HINT)
                return home, ending
    msg = f"{folder}: no CIFAR-10: neither {NAMES[0]}.bin nor {NAMES[0]}"
    raise BenchError(msg, hint=HINT)


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            msg = f"{path}: too large for CIFAR-10: {path.stat().st_size:,} bytes"
            raise BenchError(msg, hint=HINT)
        return path.read_bytes()
    except OSError as e:
        msg = f"{path}: {e.strerror or e}"
        raise BenchError(msg, hint=HINT) from None


def _checked(found: CifarImages, path: Path) -> CifarImages:
    if not len(found.labels) or len(found.labels) != len(found.pixels):
        msg = f"{path}: {len(found.pixels):,} images and {len(found.labels):,} labels"
        raise BenchError(msg, hint=HINT)
    if found.labels.max() >= CLASSES:
        msg = f"{path}: not CIFAR-10: a label above 9: {found.labels.max()}"
        raise BenchError(msg, hint=HINT)
    return found


def _binary(path: Path) -> CifarImages:
    raw = _bytes(path)
    if len(raw) % (1 + IMAGE):
        msg = f"{path}: truncated: {len(raw):,} bytes are not a multiple of {1 + IMAGE:,}"
        raise BenchError(msg, hint=HINT)
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
            msg = f"refers to `{module}.{name}`, which images do not need"
            raise pickle.UnpicklingError(msg)
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


def _array(told: _Plain) -> Bytes:
    """The bytes of a pickled array in its layout."""
    _, shape, kind, by_columns, raw = told.state
    rows, width = shape
    if kind.about[0] not in (b"u1", "u1") or width != IMAGE or not isinstance(raw, bytes):
        msg = f"not rows of {IMAGE} bytes: {shape}"
        raise ValueError(msg)
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
            msg = f"a batch of {batch:,} from {self.count:,} images"
            raise BenchError(msg, hint="use a smaller batch")
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
