"""Stressors of one resource each; `duty` is the fraction of time in which a stressor works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fleetlab.bench.workloads.cuda_graph import capture_graph
from fleetlab.devices.errors import BenchError


@dataclass
class Stressor:
    """Duty cycle, common to all stressors."""

    duty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.duty <= 1:
            msg = f"not a duty cycle: {self.duty}"
            raise BenchError(msg, hint="above 0 and at most 1")

    @property
    def rests(self) -> bool:
        """Whether it pauses: below full duty."""
        return self.duty < 1

    def pause(self, busy: float) -> float:
        """Pause after which `busy` is the fraction `duty` of the time."""
        return busy * (1 / self.duty - 1)


@dataclass
class Gemm(Stressor):
    """Tensor cores and power: bf16 products of square matrices."""

    unit: ClassVar[str] = "flop"
    TINY: ClassVar[dict[str, Any]] = {"width": 32, "depth": 2}
    width: int = 8192
    depth: int = 2

    def setup(self, device: torch.device) -> None:
        """Create random matrices: zeros draw less power and run faster."""
        self.a, self.b = (torch.randn(self.width, self.width, device=device, dtype=torch.bfloat16) for _ in range(2))
        self.out = torch.empty_like(self.a)

    def step(self) -> int:
        """Compute `depth` products."""
        for _ in range(self.depth):
            torch.mm(self.a, self.b, out=self.out)
        return 2 * self.width**3 * self.depth


@dataclass
class Hbm(Stressor):
    """Memory bandwidth: a copy within the device, much larger than its cache."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1}
    mib: int = 2048

    def setup(self, device: torch.device) -> None:
        """Allocate source and target."""
        self.here = torch.randint(0, 255, (self.mib << 20,), dtype=torch.uint8, device=device)
        self.there = torch.empty_like(self.here)

    def step(self) -> int:
        """Copy once; reads and writes both count."""
        self.there.copy_(self.here)
        return 2 * (self.mib << 20)


@dataclass
class L2(Stressor):
    """L2 cache: passes over data that just fit into it."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1, "depth": 2}
    mib: int = 24
    depth: int = 100

    def setup(self, device: torch.device) -> None:
        """Allocate the data."""
        self.here = torch.randn((self.mib << 20) // 4, device=device)
        self.run, _ = capture_graph(self._passes, device)  # a pass is too short to launch one by one

    def _passes(self) -> None:
        for _ in range(self.depth):
            self.here.neg_()

    def step(self) -> int:
        """Make `depth` passes, each reading and writing all data."""
        self.run()
        return 2 * (self.mib << 20) * self.depth


@dataclass
class H2d(Stressor):
    """Host-to-device transfers from pinned memory."""

    unit: ClassVar[str] = "byte"
    TINY: ClassVar[dict[str, Any]] = {"mib": 1}
    mib: int = 256

    def setup(self, device: torch.device) -> None:
        """Allocate pinned memory if there is a GPU."""
        self.here = torch.randint(0, 255, (self.mib << 20,), dtype=torch.uint8)
        if device.type == "cuda":
            self.here = self.here.pin_memory()
        self.there = torch.empty(self.here.shape, dtype=torch.uint8, device=device)

    def step(self) -> int:
        """Copy once."""
        self.there.copy_(self.here, non_blocking=True)
        return self.mib << 20
