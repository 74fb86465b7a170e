"""A decoder with a billion weights, one token at a time: every step reads all weights and the whole KV cache.

The shape is that of small open models of 2024 (16 layers of 2048, grouped-query attention, gated feed-forward);
the weights are random, as speed does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from fleetlab.bench.workloads.cuda_graph import Batched


class DecoderLayer(nn.Module):
    """Attention over a full cache, then a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of each row: row, head, size."""
        rows, width = x.shape
        heads = self.qkv(rms_norm(x, (width,))).view(rows, self.heads + 2 * self.groups, self.size)
        return heads.split((self.heads, self.groups, self.groups), dim=1)  # type: ignore[no-any-return]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer, after attention."""
        rows, width = x.shape
        x = x + self.out(attended.reshape(rows, width))
        gate, up = self.gate_up(rms_norm(x, (width,))).chunk(2, dim=-1)
        return x + self.down(silu(gate) * up)  # type: ignore[no-any-return]

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One layer for the newest token of each sequence; the last cache position is its own."""
        q, k, v = (part[:, :, None] for part in self.project(x))
        keys[:, :, -1:] = k
        values[:, :, -1:] = v
        return self.finish(x, scaled_dot_product_attention(q, keys, values, enable_gqa=True))


@contextmanager
def tensors_on(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Create tensors on a device, with numbers of one type."""
    torch.set_default_device(device)
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


@dataclass
class LlmDecode(Batched):
    """Decoding for a batch of sequences of `context` tokens."""

    unit: ClassVar[str] = "token"
    TINY: ClassVar[dict[str, Any]] = {
        "batch": 2,
        "context": 16,
        "layers": 1,
        "width": 32,
        "heads": 4,
        "groups": 2,
        "inner": 64,
        "vocabulary": 64,
    }
    batch: int = 8
    context: int = 2048
    layers: int = 16
    width: int = 2048
    heads: int = 32
    groups: int = 8
    inner: int = 8192
    vocabulary: int = 128256
    graph: bool = True
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Generate weights and a full cache on `device`."""
        with tensors_on(device, torch.bfloat16):
            self.words = nn.Embedding(self.vocabulary, self.width)
            made = (DecoderLayer(self.width, self.heads, self.groups, self.inner) for _ in range(self.layers))
            self.stack = nn.ModuleList(made)
            shape = (self.layers, 2, self.batch, self.groups, self.context, self.width // self.heads)
            self.cache = torch.randn(shape)
            self.tokens = torch.randint(0, self.vocabulary, (self.batch,))
        self.capture(device)

    @torch.no_grad()
    def _step(self) -> None:
        x = self.words(self.tokens)
        for layer, (keys, values) in zip(self.stack, self.cache, strict=True):
            x = layer(x, keys, values)
        self.tokens.copy_((rms_norm(x, (self.width,)) @ self.words.weight.T).argmax(-1))
