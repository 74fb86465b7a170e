"""Replay a step as one CUDA graph, so that kernel launches of the host are not the bottleneck."""

from __future__ import annotations

from collections.abc import Callable

import torch


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
