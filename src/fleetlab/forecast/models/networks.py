"""The bodies of the small networks; imported only where torch is.

Every body sees the window before an origin and nothing after it. Dropout acts before the head, and between the layers
of recurrent networks and of the Transformer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

HEADS = 2  # of attention


class Recurrent(nn.Module):
    """The state of an LSTM or a GRU after the last step; with `depth` layers, that of the last layer."""

    def __init__(self, kind: str, inputs: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        cell: Any = nn.LSTM if kind == "lstm" else nn.GRU
        # Torch warns of dropout in a single layer, where there is nothing between layers.
        self.cell = cell(inputs, width, depth, batch_first=True, dropout=dropout if depth > 1 else 0.0)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, width]."""
        steps, _ = self.cell(rows)
        return steps[:, -1]  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """Convolutions that look back only, each twice as far apart as the one before (Bai, Kolter and Koltun 2018)."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.dilations = tuple(2**layer for layer in range(depth))
        self.first = nn.Conv1d(inputs, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d) for d in self.dilations)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, width]."""
        x = self.first(rows.transpose(1, 2))
        for layer, dilation in zip(self.layers, self.dilations, strict=True):
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * dilation, 0))))
        return torch.as_tensor(x[:, :, -1])


class Transformer(nn.Module):
    """The last step of a Transformer encoder over the window, with sinusoidal positions (Vaswani et al. 2017).

    Layers are normalized before each part (Xiong et al. 2020), so that training needs no warm-up. There is no dropout
    inside a layer: on the CPU it doubles the time.
    """

    def __init__(self, inputs: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, HEADS, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(width)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, width]."""
        steps, width = rows.shape[1], self.first.out_features
        x = self.first(rows) + positions(steps, width)
        # A step never attends to a later one: the state of each depends on the past alone, as in the other bodies.
        later = torch.triu(torch.ones(steps, steps, dtype=torch.bool), diagonal=1)
        for k, layer in enumerate(self.layers):
            x = layer(self.drop(x) if k else x, src_mask=later)
        return self.norm(x[:, -1])  # type: ignore[no-any-return]


def positions(steps: int, width: int) -> torch.Tensor:
    """Sines and cosines of a step's place in the window, from a period of 2π steps to one of 10,000 times that."""
    rates = torch.exp(-math.log(10_000.0) / width * torch.arange(0, width, 2))
    angles = torch.arange(steps)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=2).reshape(steps, -1)


class Headed(nn.Module):
    """A body with dropout and a linear head that begins at zero: untrained, it forecasts the mean."""

    def __init__(self, body: nn.Module, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.body, self.drop, self.head = body, nn.Dropout(dropout), nn.Linear(width, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, outputs]."""
        return self.head(self.drop(self.body(rows)))  # type: ignore[no-any-return]
