"""ResNet50 (He et al., 2016, arXiv 1512.03385): training on CIFAR-10 or synthetic images, inference on 224×224."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fleetlab.bench.workloads.cifar import CLASSES, PIXELS, Stored, read_cifar
from fleetlab.bench.workloads.cuda_graph import Batched, Trained


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
    door = [*_conv(3, width, 3 if small else 7, 1 if small else 2), nn.ReLU()]
    layers = door if small else [*door, nn.MaxPool2d(3, 2, 1)]
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
