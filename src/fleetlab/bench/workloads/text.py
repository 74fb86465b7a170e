"""A BERT-base-sized encoder (Devlin et al., 2019, arXiv 1810.04805): fine-tuning on a synthetic task, and inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention

from fleetlab.bench.workloads.cuda_graph import Batched, Trained


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
