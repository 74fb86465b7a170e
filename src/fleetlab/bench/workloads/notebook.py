"""A user of a notebook: cells of four kinds, with time to think after each.

A round is what people do with a table of numbers: load it, clean it, look at it twice, train a small network. The
time to answer of a cell counts on the host's clock, from when the user runs it until its results are back.

Times follow the notebooks for interactive training of Adobe (Carver et al., NotebookOS, ASPLOS 2026): half of the
training tasks take at most 2 minutes, three quarters at most 5, and the median time between the tasks of a session is
5 minutes, of which 3 are left to think (from a summary of the paper). As a lognormal distribution the two quartiles
give a sigma of ln(2.5) / 0.674 = 1.36, which is used for think times, too. A window of seconds would contain no such
cell, so all times are divided by `pace`, 1,200: a median of 0.15 s to think, and of 0.1 s to train. Sharing depends on
how much of the time users compute, which is kept, as long as cells are much longer than a time slice, 1 to 2 ms.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fleetlab.bench.loops import GOLDEN, StepLog
from fleetlab.bench.window import DriveWindow, summarize_window

THINK = 180.0  # s, median
SIGMA = 1.36  # of the logarithm, of think times and of trainings
LONGEST = 8.0  # times the median: longer ones would be cut off by the window
ROUND = ("load", "prepare", "explore", "explore", "train")
CLASSES = 10


@dataclass
class Notebook:
    """One user."""

    unit: ClassVar[str] = "cell"
    TINY: ClassVar[dict[str, Any]] = {
        "rows": 200,
        "columns": 4,
        "width": 8,
        "batch": 16,
        "steps": 2,
        "pace": 18_000.0,
    }
    rows: int = 250_000
    columns: int = 64
    width: int = 1024
    batch: int = 8192
    steps: int = 80  # of a median training: about 0.1 s on an H200
    pace: float = 1200.0
    seed: int = 0
    rests: ClassVar[bool] = True

    def setup(self, device: torch.device) -> None:
        """Generate the file to load, as scaled integers, and start the session."""
        self.device = device
        numbers = np.random.default_rng(self.seed)
        raw = numbers.integers(-3000, 3000, (self.rows, self.columns + 1), dtype=np.int16)
        raw[:, -1] %= CLASSES
        raw[numbers.random(self.rows) < 0.01, 0] = -9999  # missing
        self.file = raw
        self.cells: dict[str, Callable[[int], Tensor]] = {
            "load": self._load,
            "prepare": self._prepare,
            "explore": self._explore,
            "train": self._train,
        }
        self._begin(self.seed)
        for _ in ROUND:
            self.step()
        self._begin(self.seed)

    def _begin(self, seed: int) -> None:
        self.count = 0
        chance = random.Random(seed)
        self._turns = chance.random(), chance.random()  # of the lengths, and of the pauses

    # --- cells -------------------------------------------------------------------------------------------------------

    def _load(self, _: int) -> Tensor:
        """Decode on the host, then copy to the device."""
        table = self.file.astype(np.float32)
        table[table == -9999] = np.nan
        self.table = torch.from_numpy(table).to(self.device)
        return self.table.shape[0] - torch.isnan(self.table).sum()

    @torch.no_grad()
    def _prepare(self, _: int) -> Tensor:
        """Fill gaps with the mean, clip to percentiles, scale, shuffle."""
        x = self.table[:, :-1]
        x = torch.where(torch.isnan(x), x.nanmean(0), x)
        ranked = x.sort(0).values
        low, high = ranked[len(x) // 100], ranked[-len(x) // 100]
        x = x.clamp(low, high)
        order = torch.randperm(len(x), device=self.device)
        self.x = ((x - x.mean(0)) / (x.std(0) + 1e-6))[order]
        self.y = self.table[order, -1].nan_to_num().long().clamp(0, CLASSES - 1)
        return self.x.abs().max()

    @torch.no_grad()
    def _explore(self, _: int) -> Tensor:
        """What plots need: histograms, correlations, group means, and two principal components."""
        bars = torch.stack([self.x[:, k].histc(50, -3, 3) for k in range(self.x.shape[1])])
        spread = self.x.T @ self.x / len(self.x)
        means = torch.zeros(CLASSES, self.x.shape[1], device=self.device).index_add_(0, self.y, self.x)
        _, axes = torch.linalg.eigh(spread)
        points = self.x[:: max(len(self.x) // 5000, 1)] @ axes[:, -2:]
        return torch.cat([part.flatten().cpu() for part in (bars, spread, means, points)]).sum()

    def _train(self, steps: int) -> Tensor:
        """Train a small network from the start, as written in a notebook: eager, with a loss to look at."""
        sizes = (self.x.shape[1], self.width, self.width, CLASSES)
        with self.device:
            layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for k in range(steps):
            at = (k * self.batch) % max(len(self.x) - self.batch, 1)
            loss = cross_entropy(model(self.x[at : at + self.batch]), self.y[at : at + self.batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return loss.detach()

    # --- a session ---------------------------------------------------------------------------------------------------

    def next_cell(self) -> tuple[str, int]:
        """Kind and size of the next cell: the steps of a training, else 1."""
        kind = ROUND[self.count % len(ROUND)]
        size = max(round(self.steps * self._draw(0, self.count // len(ROUND))), 1) if kind == "train" else 1
        return kind, size

    def step(self) -> int:
        """Run the next cell until its result is on the host."""
        kind, size = self.next_cell()
        self.cells[kind](size).item()
        self.count += 1
        return 1

    def pause(self, busy: float) -> float:
        """Time to think, whatever the answer took."""
        return THINK / self.pace * self._draw(1, self.count)

    def _draw(self, of: int, k: int) -> float:
        """The k-th multiple of the median: a golden-ratio sequence, whose distribution is right after a few."""
        share = (self._turns[of] + GOLDEN * k) % 1
        return min(math.exp(SIGMA * NormalDist().inv_cdf(min(max(share, 1e-6), 1 - 1e-6))), LONGEST)

    def drive(self, run: DriveWindow) -> dict[str, Any]:
        """Work until the window ends; the cells that ended in it, with their times to answer."""
        self._begin(run.seed)
        fed, kinds = StepLog(), list[tuple[str, int]]()
        _sleep(run.start + self.pause(0.0), run.until)  # users do not start together
        while (begun := time.monotonic()) < run.until:
            kinds.append(self.next_cell())
            fed.items.append(self.step())
            fed.begun.append(begun)
            fed.ended.append(time.monotonic())
            _sleep(fed.ended[-1] + self.pause(fed.ended[-1] - begun), run.until)
        cells = [
            [kind, size, round(ended - begun, 6)]
            for (kind, size), begun, ended in zip(kinds, fed.begun, fed.ended, strict=True)
            if run.opens <= ended < run.closes
        ]
        return summarize_window(fed, run.opens, run.closes) | {"notebook": {"cells": cells, "pace": self.pace}}


def _sleep(when: float, until: float) -> None:
    if (left := min(when, until) - time.monotonic()) > 0:
        time.sleep(left)
