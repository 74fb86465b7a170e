"""Transformers: a BERT-base-sized encoder, trained and used, and a decoder with a billion weights.

The encoder (Devlin et al., 2019, arXiv 1810.04805) is fine-tuned on a synthetic task. The shape of the decoder is that
of small open models of 2024 (16 layers of 2048, grouped-query attention, gated feed-forward); its weights are random,
as speed does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, rms_norm, scaled_dot_product_attention, silu

from fleetlab.gpu.bench.workloads.kernels import Batched, Trained


class EncoderLayer(nn.Module):
    """A transformer layer."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, drop
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.after_looking, self.after_thinking = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        drop = self.drop if self.training else 0.0
        attended = scaled_dot_product_attention(q, k, v, dropout_p=drop).transpose(1, 2).reshape(batch, length, width)
        x = self.after_looking(x + dropout(self.out(attended), drop, self.training))
        return self.after_thinking(x + dropout(self.down(gelu(self.up(x))), drop, self.training))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Tokens to scores of two classes."""

    def __init__(self, *, layers: int, width: int, heads: int, vocabulary: int, length: int, drop: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.first = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(EncoderLayer(width, heads, drop) for _ in range(layers)))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the scores of a batch."""
        return self.head(self.layers(self.first(self.tokens(tokens) + self.places))[:, 0])  # type: ignore[no-any-return]


TINY_DECODER = {"layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 64, "vocabulary": 64}
SMALL: dict[str, Any] = {"batch": 2, "length": 8, "layers": 1, "width": 16, "heads": 2, "vocabulary": 64}


@dataclass
class BertTrain(Trained):
    """Fine-tuning: classify whether most tokens are from the first half of the vocabulary."""

    unit: ClassVar[str] = "sequence"
    TINY: ClassVar[dict[str, Any]] = SMALL | {"epoch": 40}
    batch: int = 32
    length: int = 128
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30522
    rate: float = 2e-5
    graph: bool = True
    epoch: int = 67_000  # texts; about the size of SST-2, a common dataset for fine-tuning
    follow: bool = False  # count correct predictions in `hits`
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Create model, optimizer and texts on `device`."""
        self.model = _encoder(self, 0.1).to(device).train()
        on_gpu = device.type == "cuda"
        graph = on_gpu and self.graph
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate, capturable=graph, fused=on_gpu)
        self.tokens = torch.zeros(self.batch, self.length, dtype=torch.long, device=device)
        self.measure_on(device)
        self.capture(device)

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.tokens.random_(0, self.vocabulary)
        labels = ((self.tokens < self.vocabulary // 2).sum(1) > self.length // 2).long()
        self.learn(self.tokens, labels)

    def shuffle(self) -> None:
        """Do nothing: texts never repeat."""

    def examine(self) -> None:
        """None: there are no test texts."""


@dataclass
class BertInfer(Batched):
    """Classification of a batch of texts in bf16."""

    unit: ClassVar[str] = "sequence"
    TINY: ClassVar[dict[str, Any]] = SMALL
    batch: int = 8
    length: int = 128
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 30522
    graph: bool = True
    how: str = field(init=False, default="")

    def setup(self, device: torch.device) -> None:
        """Create model and texts on `device`."""
        self.model = _encoder(self, 0.0).to(device, torch.bfloat16).eval()
        self.tokens = torch.randint(0, self.vocabulary, (self.batch, self.length), device=device)
        self.answer = torch.empty(self.batch, dtype=torch.long, device=device)
        self.capture(device)

    @torch.no_grad()
    def _step(self) -> None:
        self.answer.copy_(self.model(self.tokens).argmax(1))


def _encoder(size: BertTrain | BertInfer, drop: float) -> Encoder:
    return Encoder(
        layers=size.layers,
        width=size.width,
        heads=size.heads,
        vocabulary=size.vocabulary,
        length=size.length,
        drop=drop,
    )


# --- a decoder, one token at a time: every step reads all weights and the whole KV cache ------------------------------


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
    TINY: ClassVar[dict[str, Any]] = {"batch": 2, "context": 16} | TINY_DECODER
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
            layers = (DecoderLayer(self.width, self.heads, self.groups, self.inner) for _ in range(self.layers))
            self.stack = nn.ModuleList(layers)
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
