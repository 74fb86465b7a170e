"""Work that leaves a GPU mostly idle: many small kernels, and a person at a notebook."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch


@dataclass
class Launch:
    """A chain of small products: the host's launches are the limit, not the GPU."""

    unit: ClassVar[str] = "kernel"
    TINY: ClassVar[dict[str, Any]] = {"width": 8, "depth": 4}
    width: int = 256
    depth: int = 50

    def setup(self, device: torch.device) -> None:
        """A matrix that neither grows nor shrinks what it is applied to."""
        self.start = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16)
        self.by = torch.linalg.qr(torch.randn(self.width, self.width))[0].to(device, torch.bfloat16)

    @torch.no_grad()
    def step(self) -> int:
        """Two kernels a link."""
        x = self.start
        for _ in range(self.depth):
            x = torch.tanh(x @ self.by)
        return 2 * self.depth


@dataclass
class Interactive:
    """A person who runs a cell, looks at the answer, and runs the next: think times are exponential."""

    unit: ClassVar[str] = "burst"
    TINY: ClassVar[dict[str, Any]] = {"width": 16, "depth": 2, "think": 0.01}
    width: int = 4096
    depth: int = 40
    think: float = 0.2
    seed: int = 0
    rests: ClassVar[bool] = True

    def setup(self, device: torch.device) -> None:
        """Something to multiply."""
        self.start = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16)
        self.by = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16) / self.width**0.5
        self.chance = random.Random(self.seed)

    @torch.no_grad()
    def step(self) -> int:
        """One burst."""
        x = self.start
        for _ in range(self.depth):
            x = x @ self.by
        return 1

    def pause(self, busy: float) -> float:
        """How long the person thinks, however long the answer took."""
        return self.chance.expovariate(1 / self.think)
