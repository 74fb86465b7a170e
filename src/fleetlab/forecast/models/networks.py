"""The bodies of the small networks; imported only where torch is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

DILATIONS = (1, 2, 4, 8)


class Recurrent(nn.Module):
    """The state of an LSTM or a GRU after the last step."""

    def __init__(self, kind: str, inputs: int, hidden: int) -> None:
        super().__init__()
        cell: Any = nn.LSTM if kind == "lstm" else nn.GRU
        self.cell = cell(inputs, hidden, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, hidden]."""
        steps, _ = self.cell(rows)
        return steps[:, -1]  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """Convolutions that look back only, each twice as far apart as the one before (Bai, Kolter and Koltun 2018)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, hidden, 1)
        self.layers = nn.ModuleList(nn.Conv1d(hidden, hidden, 3, dilation=d) for d in DILATIONS)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, hidden]."""
        x = self.first(rows.transpose(1, 2))
        for layer, dilation in zip(self.layers, DILATIONS, strict=True):
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * dilation, 0))))
        return torch.as_tensor(x[:, :, -1])


class Headed(nn.Module):
    """A body with dropout and a linear head that begins at zero: untrained, it tells the mean."""

    def __init__(self, body: nn.Module, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.body, self.drop, self.head = body, nn.Dropout(dropout), nn.Linear(hidden, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """From [batch, steps, inputs] to [batch, outputs]."""
        return self.head(self.drop(self.body(rows)))  # type: ignore[no-any-return]
