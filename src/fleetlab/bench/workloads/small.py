"""Workloads that leave a GPU mostly idle: many small kernels, and an interactive notebook."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import torch


@dataclass
class Launch:
    """A chain of small products, limited by kernel launches of the host."""

    unit: ClassVar[str] = "kernel"
    TINY: ClassVar[dict[str, Any]] = {"width": 8, "depth": 4}
    width: int = 256
    depth: int = 50

    def setup(self, device: torch.device) -> None:
        """Create an orthogonal matrix, which keeps magnitudes."""
        self.start = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16)
        self.by = torch.linalg.qr(torch.randn(self.width, self.width))[0].to(device, torch.bfloat16)

    @torch.no_grad()
    def step(self) -> int:
        """Launch two kernels per link."""
        x = self.start
        for _ in range(self.depth):
            x = torch.tanh(x @ self.by)
        return 2 * self.depth


@dataclass
class Interactive:
    """An interactive user: bursts with exponential think times."""

    unit: ClassVar[str] = "burst"
    TINY: ClassVar[dict[str, Any]] = {"width": 16, "depth": 2, "think": 0.01}
    width: int = 4096
    depth: int = 40
    think: float = 0.2
    seed: int = 0
    rests: ClassVar[bool] = True

    def setup(self, device: torch.device) -> None:
        """Create a matrix."""
        self.start = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16)
        self.by = torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16) / self.width**0.5
        self.chance = random.Random(self.seed)

    @torch.no_grad()
    def step(self) -> int:
        """Run one burst."""
        x = self.start
        for _ in range(self.depth):
            x = x @ self.by
        return 1

    def pause(self, busy: float) -> float:
        """Think time, independent of the length of the burst."""
        return self.chance.expovariate(1 / self.think)
