"""One resource each, on a dial: `duty` is the share of the time that a stressor works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fleetlab.bench.workloads.cuda_graph import captured
from fleetlab.devices.errors import BenchError


@dataclass
class Stressor:
    """What all stressors share: the dial."""

    duty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.duty <= 1:
            msg = f"a duty that is no share of the time: {self.duty}"
            raise BenchError(msg, hint="above 0 and at most 1")

    @property
    def rests(self) -> bool:
        """Not at full duty: then it saturates."""
        return self.duty < 1

    def pause(self, busy: float) -> float:
        """Long enough that `busy` was `duty` of the whole."""
        return busy * (1 / self.duty - 1)


@dataclass
class Gemm(Stressor):
    """Tensor cores and power: bf16 products of square matrices."""

    unit: ClassVar[str] = "flop"
    TINY: ClassVar[dict[str, Any]] = {"width": 32, "depth": 2}
    width: int = 8192
    depth: int = 2

    def setup(self, device: torch.device) -> None:
        """Random numbers: zeros draw less power and run faster."""
        self.a, self.b = (torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16) for _ in range(2))
        self.out = torch.empty_like(self.a)

    def step(self) -> int:
        """`depth` products."""
        for _ in range(self.depth):
            torch.mm(self.a, self.b, out=self.out)
        return 2 * self.width**3 * self.depth


@dataclass
class Hbm(Stressor):
    """Memory bandwidth: a copy within the device, many times the size of its cache."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1}
    mib: int = 2048

    def setup(self, device: torch.device) -> None:
        """From here to there."""
        self.here = torch.randint(0, 255, (self.mib << 20,), dtype=torch.uint8, device=device)
        self.there = torch.empty_like(self.here)

    def step(self) -> int:
        """One copy; a byte read and a byte written count as two."""
        self.there.copy_(self.here)
        return 2 * (self.mib << 20)


@dataclass
class L2(Stressor):
    """The cache: passes over what just fits into it."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1, "depth": 2}
    mib: int = 24
    depth: int = 100

    def setup(self, device: torch.device) -> None:
        """As much as fits."""
        self.here = torch.randn((self.mib << 20) // 4, device=device)
        self.run, _ = captured(self._passes, device)  # a pass is too short for the host to launch it in time

    def _passes(self) -> None:
        for _ in range(self.depth):
            self.here.neg_()

    def step(self) -> int:
        """`depth` passes, each reading and writing all of it."""
        self.run()
        return 2 * (self.mib << 20) * self.depth


@dataclass
class H2d(Stressor):
    """The way from the host: copies out of pinned memory."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1}
    mib: int = 256

    def setup(self, device: torch.device) -> None:
        """Pinned where there is a GPU to pin it for."""
        self.here = torch.randint(0, 255, (self.mib << 20,), dtype=torch.uint8)
        if device.type == "cuda":
            self.here = self.here.pin_memory()
        self.there = torch.empty(self.here.shape, dtype=torch.uint8, device=device)

    def step(self) -> int:
        """One copy."""
        self.there.copy_(self.here, non_blocking=True)
        return self.mib << 20
