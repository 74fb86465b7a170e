"""Replay a step as one CUDA graph, so that the host's launches do not limit it."""

from __future__ import annotations

from collections.abc import Callable

import torch


def captured(step: Callable[[], None], device: torch.device) -> tuple[Callable[[], None], str]:
    """What replays `step`, and how: `graph`, `eager`, or `eager: ` with the reason why it could not be captured."""
    if device.type != "cuda":
        return step, "eager"
    try:
        return _capture(step), "graph"
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as e:
        torch.cuda.synchronize()
        step()  # what cannot even run eagerly must say so now
        return step, f"eager: {str(e).splitlines()[0][:200]}"


def _capture(step: Callable[[], None]) -> Callable[[], None]:
    # Libraries make their workspaces in the first calls, which a capture would refuse.
    here = torch.cuda.current_stream()
    plain = here == torch.cuda.default_stream()
    # A stream of one's own, such as that of a green context, is where the graph must be captured to stay there.
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
