"""Workloads of single kernels: many small ones, an interactive notebook, and stressors of one resource each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fleetlab.gpu.devices.console import BenchError


def capture_graph(step: Callable[[], None], device: torch.device) -> tuple[Callable[[], None], str]:
    """Return a function that replays `step`, and how: `graph`, `eager`, or `eager: ` and why it was not captured."""
    if device.type != "cuda":
        return step, "eager"
    try:
        # Libraries allocate workspaces in their first calls, which a capture does not allow.
        here = torch.cuda.current_stream()
        plain = here == torch.cuda.default_stream()
        # On a dedicated stream, such as that of a green context, the graph must be captured on that stream.
        aside = torch.cuda.Stream() if plain else here  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=None if plain else here):
            step()
        return graph.replay, "graph"
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as e:
        torch.cuda.synchronize()
        step()  # raises if it cannot run eagerly either
        return step, f"eager: {str(e).splitlines()[0][:200]}"


class Batched:
    """Workloads whose step is one batch, captured as a graph if `graph` is set."""

    batch: int
    graph: bool
    how: str

    def _step(self) -> None:
        raise NotImplementedError

    def capture(self, device: torch.device) -> None:
        """Capture a step on the device, after everything else is there."""
        self.run, self.how = capture_graph(self._step, device) if self.graph else (self._step, "eager")

    def step(self) -> int:
        """Run one batch."""
        self.run()
        return self.batch


class Trained(Batched):
    """Training of a classifier in bf16: the loss of the last batch and, to `follow` it, its correct predictions."""

    follow: bool
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def measure_on(self, device: torch.device) -> None:
        """Create loss and correct predictions on the device."""
        self.loss = torch.zeros((), device=device)
        self.hits = torch.zeros((), dtype=torch.long, device=device)

    def learn(self, inputs: Tensor, labels: Tensor) -> None:
        """Take one step of the optimizer."""
        # Casts that autocast caches outside a graph would be stale inside it.
        with torch.autocast(labels.device.type, torch.bfloat16, cache_enabled=False):
            scores = self.model(inputs)
            loss = cross_entropy(scores, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.loss.copy_(loss.detach())
        if self.follow:
            self.hits.copy_((scores.detach().argmax(1) == labels).sum())


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


# --- stressors of one resource each; `duty` is the fraction of time in which a stressor works ------------------------


@dataclass
class Stressor:
    """Duty cycle, common to all stressors."""

    duty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.duty <= 1:
            raise BenchError(f"not a duty cycle: {self.duty}", hint="above 0 and at most 1")

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
