"""Train, epoch by epoch: each finished one is on disk before the next begins, so that whatever ends it loses little."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from fleetlab.bench.loops import saturate
from fleetlab.bench.single import files as _save
from fleetlab.bench.single.measure import raised, ready, whole
from fleetlab.bench.single.report import FINISHED, NOT_A_NUMBER, STOPPED, Row, Told, rate_of, tell_quantiles, times_of
from fleetlab.bench.single.settings import Ask, settled
from fleetlab.bench.single.usage import tell_energy, tell_memory
from fleetlab.devices.clock import Clock, clock_of
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import Monitor
from fleetlab.stats import Interval, wilson

Tell = Callable[[str], None]
SPEAK = 5.0  # s between two words about an epoch that goes on


class Followed:
    """A training whose losses and right answers stay on the device, where reading them would hold up each step."""

    def __init__(self, work: Any, steps: int, device: torch.device, tell: Tell) -> None:  # noqa: ANN401
        self.work, self.tell, self.unit = work, tell, work.unit
        self.losses = torch.zeros(steps, device=device)
        self.hits = torch.zeros((), dtype=torch.long, device=device)
        self.done, self.said = 0, time.monotonic()

    def begin(self) -> None:
        """A new epoch."""
        self.work.shuffle()
        self.hits.zero_()
        self.done = 0

    def step(self) -> int:
        """One step, and what came of it."""
        items: int = self.work.step()
        self.losses[self.done].copy_(self.work.loss)
        self.hits += self.work.hits
        self.done += 1
        if time.monotonic() - self.said > SPEAK:
            self.tell(f"  step {self.done:,} of {len(self.losses):,}")
            self.said = time.monotonic()
        return items


class Training:
    """One run."""

    def __init__(self, ask: Ask, told: Told, watch: Monitor, tell: Tell) -> None:
        self.ask, self.told, self.watch, self.tell = ask, told, watch, tell
        self.work: Any = cast("Any", ready(ask.name, ask.make(follow=True), ask.device))
        self.length = self.work.epoch // self.work.batch
        if not self.length:
            msg = f"{ask.name}: an epoch of {self.work.epoch:,} {self.work.unit}s holds no batch of {self.work.batch:,}"
            raise BenchError(msg, hint="a smaller --batch")
        told.about["settings"] = settled(self.work)
        self.rows: list[Row] = []
        self.windows: list[Row] = []

    def run(self) -> None:
        """All epochs, or as many as there is time and patience for."""
        self.began, clock = time.monotonic(), clock_of(self.ask.device)
        self.until = self.began + (self.ask.seconds or math.inf)
        self.told.ended = STOPPED  # until it is not
        followed = Followed(self.work, self.length, self.ask.device, self.tell)
        try:
            for number, steps in enumerate(self._plan(), 1):
                if time.monotonic() >= self.until or not self._epoch(number, steps, followed, clock):
                    break
        except KeyboardInterrupt:
            if not self.rows:
                raise
            self.told.notes.append(f"stopped by hand: {len(self.rows)} epochs were finished and kept")
        else:
            if self.told.ended == STOPPED:
                self.told.ended = FINISHED
        self._sum_up()
        self._keep()

    def _plan(self) -> Iterator[int]:
        """How many steps each epoch has."""
        if self.ask.seconds is not None:
            return itertools.repeat(self.length)
        whole, rest = divmod(self.ask.steps or self.length * (self.ask.epochs or 1), self.length)
        return itertools.chain(itertools.repeat(self.length, whole), [rest] * bool(rest))

    def _epoch(self, number: int, steps: int, followed: Followed, clock: Clock) -> bool:
        """Train through one; False if it came to nothing."""
        followed.begin()
        fed = saturate(followed, clock, steps=steps, until=self.until)  # type: ignore[arg-type]
        raised(self.ask.name, fed.error)
        if not fed.ended:
            return False
        losses = followed.losses[: followed.done].cpu()
        if not losses.isfinite().all():
            self._lost(number, 1 + int((~losses.isfinite()).nonzero()[0, 0]))
            return False
        made = whole(fed)
        row = {
            "epoch": number,
            "steps": followed.done,
            "loss": float(losses.mean()),
            **_share("accuracy", int(followed.hits), followed.done * self.work.batch),
            **_share("test_accuracy", *(self.work.examine() or (0, 0))),
            "rate": made["rate"],
            "seconds": made["seconds"],
        }
        if self.ask.out is not None:
            _save.save_model(self.ask.out, self.work.model)
        self.rows.append(row)
        self.windows.append(made)
        self.tell(_said(row, self.work.unit))
        self._sum_up()
        self._keep()
        return True

    def _lost(self, number: int, step: int) -> None:
        self.told.ended = NOT_A_NUMBER
        kept = f"; epoch {number - 1} is kept" if self.rows and self.ask.out else ""
        words = f"the loss is not a number from step {step} of epoch {number} on: try a lower rate{kept}"
        self.told.notes.append(words)
        self.tell(words)

    def _keep(self) -> None:
        if self.ask.out is not None:
            _save.save_text(self.ask.out / _save.STATISTICS, self.told.to_json())

    def _sum_up(self) -> None:
        """The numbers of all epochs so far."""
        told, unit = self.told, self.work.unit
        told.numbers, told.tables = [], {"epochs": self.rows}
        told.about |= {"how": self.work.how, "epochs": len(self.rows), "steps_an_epoch": self.length}
        if not self.rows:
            return
        told.notes = [note for note in told.notes if "n too small" not in note]
        rate, last = rate_of(self.windows), self.rows[-1]
        told.add("throughput", rate.value, f"{unit}/s", limits=rate)
        told.add("loss, first epoch", self.rows[0]["loss"])
        told.add("loss, last epoch", last["loss"])
        for kind in ("accuracy", "test_accuracy"):
            if kind in last:
                limits = Interval(last[kind], last[f"{kind}_low"], last[f"{kind}_high"])
                told.add(kind.replace("_", " "), last[kind], limits=limits)
        tell_quantiles(told, times_of(self.windows), "step")
        active = sum(w["busy"] * w["seconds"] for w in self.windows)
        told.add("device time / wall time", active / (time.monotonic() - self.began))
        tell_memory(told, self.ask.device)
        tell_energy(told, self.watch, self.windows, unit)


def train(ask: Ask, told: Told, watch: Monitor, tell: Tell) -> None:
    """Train as asked; what came of it is in `told`, and in the folder if one was named."""
    tell(f"{ask.name}: loading")
    Training(ask, told, watch, tell).run()


def _share(name: str, hits: int, of: int) -> Row:
    if not of:
        return {}
    value, low, high = wilson(hits, of)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _said(row: Row, unit: str) -> str:
    test = f", on test images {row['test_accuracy']:.3f}" if "test_accuracy" in row else ""
    return (
        f"epoch {row['epoch']}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}{test}, "
        f"{row['rate']:,.0f} {unit}s/s"
    )
