"""Small networks that see all series together: LSTM, GRU, Transformer and TCN, in plain torch on the CPU.

They are regularized by dropout, weight decay and early stopping, and begin with the mean: the untrained network is
among those from which the best on the end of the past is taken. Their settings are searched by `tuning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from fleetlab.forecast.demand import Floats, Ints, Panel
from fleetlab.forecast.models.regression import aims, calendar, flows, from_last, persistent

if TYPE_CHECKING:
    import torch

HELD_BACK = 0.15
BATCH = 256

Kind = Literal["lstm", "gru", "transformer", "tcn"]
WINDOWS, WIDTHS = (12, 24, 36), (16, 24, 32)
DROPOUTS, RATES = (0.0, 0.2, 0.4), (1e-3, 2e-3, 5e-3)


@dataclass
class Network:
    """A network of `depth` layers over the last `window` steps of all series and of what stands beside them."""

    name: str
    kind: Kind
    depth: int = 1
    depths: tuple[int, ...] = (1,)  # to search
    window: int = 36
    width: int = 24
    dropout: float = 0.2
    decay: float = 1e-3
    rate: float = 2e-3
    epochs: int = 15
    patience: int = 4
    draws: int = 3  # networks from seeds of their own, whose mean is told: one alone is a matter of luck

    def options(self) -> Mapping[str, Sequence[float]]:
        """The settings that a search varies, and the values of each."""
        return {"window": WINDOWS, "width": WIDTHS, "depth": self.depths, "dropout": DROPOUTS, "rate": RATES}

    def fit(self, past: Panel, *, horizon: int, seed: int) -> Self:
        """Scales, weights, and when to stop."""
        import torch

        self.changes_ = persistent(past.values)
        at = np.arange(min(self.window, len(past) // 4), len(past) - horizon + 1)
        cut = int(len(at) * (1 - HELD_BACK))
        learn = at[: max(1, cut - horizon)]
        aim = aims(past, self.changes_, at, horizon).reshape(len(at), -1)
        self._scales(past, learn, aim[: len(learn)])
        with _quietly(torch, seed):
            rows = torch.from_numpy(self._rows(past, at))
            targets = torch.from_numpy(((aim - self.centre_) / self.spread_).astype(np.float32))
            self.epochs_ = 0  # of training, over all draws
            self.nets_ = [self._trained(rows, targets, len(learn), cut) for _ in range(self.draws)]
        return self

    def predict(self, panel: Panel, at: Ints, *, horizon: int) -> Floats:
        """What the network says, at every step for all series at once."""
        import torch

        predicted = np.empty((len(at), self.centre_.size))
        with _quietly(torch, 0), torch.no_grad():
            for first in range(0, len(at), 4 * BATCH):
                rows = torch.from_numpy(self._rows(panel, at[first : first + 4 * BATCH]))
                predicted[first : first + 4 * BATCH] = (
                    torch.stack([net(rows) for net in self.nets_]).mean(dim=0).numpy()
                )
        forecasts = (predicted * self.spread_ + self.centre_).reshape(len(at), horizon, panel.width)
        return np.asarray(forecasts + from_last(panel, self.changes_, at))

    def _scales(self, past: Panel, learn: Ints, aim: Floats) -> None:
        """Scales of what comes in and goes out, from what is learnt from alone."""
        training = flows(past, self.changes_).reshape(len(past), -1)[: learn[-1] + 1]
        self.scale_ = np.where(training.std(axis=0) > 0, training.std(axis=0), 1.0)
        self.centre_, spread = aim.mean(axis=0), aim.std(axis=0)
        self.spread_ = np.where(spread > 0, spread, 1.0)

    def _rows(self, panel: Panel, at: Ints) -> Any:  # noqa: ANN401 (float32)
        """The last steps before each origin: [origins, window, features]."""
        # The inverse hyperbolic sine is a logarithm that takes zero and both signs: bursts do not drown the rest.
        scaled = np.arcsinh(flows(panel, self.changes_).reshape(len(panel), -1) / self.scale_)
        padded = np.concatenate((np.zeros((self.window, scaled.shape[1])), scaled))
        steps = at[:, None] + np.arange(self.window)[None, :]
        clock = np.repeat(calendar(panel, at)[:, None, :], self.window, axis=1)
        return np.concatenate((padded[steps], clock), axis=2).astype(np.float32)

    def _trained(self, rows: torch.Tensor, targets: torch.Tensor, learn: int, cut: int) -> torch.nn.Module:
        """One network, as it was when what is held back was missed least."""
        import torch

        net = self._network(rows.shape[2], targets.shape[1])
        descent = torch.optim.AdamW(net.parameters(), lr=self.rate, weight_decay=self.decay)
        best, state, waited = float("inf"), deepcopy(net.state_dict()), 0
        for epoch in range(self.epochs + 1):
            if epoch:
                _epoch(net, descent, rows, targets, learn)
                self.epochs_ += 1
            held_back = _loss(net, rows[cut:], targets[cut:])
            if held_back < best:
                best, state, waited = held_back, deepcopy(net.state_dict()), 0
            elif (waited := waited + 1) > self.patience:
                break
        net.load_state_dict(state)
        return net.eval()

    def _network(self, inputs: int, outputs: int) -> torch.nn.Module:
        from fleetlab.forecast.models import networks

        body: torch.nn.Module
        if self.kind == "transformer":
            body = networks.Transformer(inputs, self.width, self.depth, self.dropout)
        elif self.kind == "tcn":
            body = networks.Convolution(inputs, self.width, self.depth)
        else:
            body = networks.Recurrent(self.kind, inputs, self.width, self.depth, self.dropout)
        return networks.Headed(body, self.width, outputs, self.dropout)


def _epoch(
    net: torch.nn.Module, descent: torch.optim.Optimizer, rows: torch.Tensor, targets: torch.Tensor, learn: int
) -> None:
    import torch

    net.train()
    for batch in torch.split(torch.randperm(learn), BATCH):
        descent.zero_grad()
        torch.nn.functional.mse_loss(net(rows[batch]), targets[batch]).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        descent.step()


def _loss(net: torch.nn.Module, rows: torch.Tensor, targets: torch.Tensor) -> float:
    import torch

    net.eval()
    with torch.no_grad():
        parts = [
            float(torch.nn.functional.mse_loss(net(r), w, reduction="sum"))
            for r, w in zip(torch.split(rows, 4 * BATCH), torch.split(targets, 4 * BATCH), strict=True)
        ]
    return sum(parts) / targets.numel()


@contextmanager
def _quietly(torch: Any, seed: int) -> Iterator[None]:  # noqa: ANN401
    """One thread and a seed of our own, and everything as it was afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
