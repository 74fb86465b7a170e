"""Steps that are replayed as one CUDA graph, so that kernel launches of the host are not the bottleneck."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def capture_graph(step: Callable[[], None], device: torch.device) -> tuple[Callable[[], None], str]:
    """Return a function that replays `step`, and how: `graph`, `eager`, or `eager: ` and why it was not captured."""
    if device.type != "cuda":
        return step, "eager"
    try:
        return _capture(step), "graph"
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as e:
        torch.cuda.synchronize()
        step()  # raises if it cannot run eagerly either
        return step, f"eager: {str(e).splitlines()[0][:200]}"


def _capture(step: Callable[[], None]) -> Callable[[], None]:
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
    return graph.replay


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
