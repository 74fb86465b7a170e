"""Train by epoch; statistics and model are saved after each."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any, cast

import torch

from fleetlab.bench.loops import closed_loop
from fleetlab.bench.single import files
from fleetlab.bench.single.measure import full_window, load_and_warm_up, raise_workload_error
from fleetlab.bench.single.report import (
    FINISHED,
    NOT_A_NUMBER,
    STOPPED,
    Row,
    SingleReport,
    add_quantiles,
    rate_interval,
    step_times,
)
from fleetlab.bench.single.settings import RunSettings, settings_dict
from fleetlab.bench.single.usage import add_energy, add_memory
from fleetlab.devices.clock import Clock, clock_for
from fleetlab.devices.errors import BenchError
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.progress import Progress
from fleetlab.stats import Interval, wilson

PROGRESS_EVERY = 5.0  # s between progress reports


class TrackedTraining:
    """Keeps losses and correct predictions on the device, because reading them would delay each step."""

    def __init__(self, work: Any, steps: int, device: torch.device, progress: Progress) -> None:  # noqa: ANN401
        self.work, self.progress, self.unit = work, progress, work.unit
        self.losses = torch.zeros(steps, device=device)
        self.hits = torch.zeros((), dtype=torch.long, device=device)
        self.done, self.last_report = 0, time.monotonic()

    def begin(self) -> None:
        """Start an epoch."""
        self.work.shuffle()
        self.hits.zero_()
        self.done = 0

    def step(self) -> int:
        """Run one step and record its loss."""
        items: int = self.work.step()
        self.losses[self.done].copy_(self.work.loss)
        self.hits += self.work.hits
        self.done += 1
        if time.monotonic() - self.last_report > PROGRESS_EVERY:
            self.progress(f"  step {self.done:,} of {len(self.losses):,}")
            self.last_report = time.monotonic()
        return items


class Training:
    """One training run."""

    def __init__(self, ask: RunSettings, told: SingleReport, watch: GpuSampler, progress: Progress) -> None:
        self.ask, self.report, self.watch, self.progress = ask, told, watch, progress
        self.work: Any = cast("Any", load_and_warm_up(ask.name, ask.make(follow=True), ask.device))
        self.length = self.work.epoch // self.work.batch
        if not self.length:
            sizes = f"({self.work.epoch:,} {self.work.unit}s) is less than a batch ({self.work.batch:,})"
            msg = f"{ask.name}: an epoch {sizes}"
            raise BenchError(msg, hint="use a smaller --batch")
        told.about["settings"] = settings_dict(self.work)
        self.rows: list[Row] = []
        self.windows: list[Row] = []

    def run(self) -> None:
        """Train all epochs, or until the time limit or Ctrl-C."""
        self.began, clock = time.monotonic(), clock_for(self.ask.device)
        self.until = self.began + (self.ask.seconds or math.inf)
        self.report.ended = STOPPED  # until the end is reached
        followed = TrackedTraining(self.work, self.length, self.ask.device, self.progress)
        try:
            for number, steps in enumerate(self._plan(), 1):
                if time.monotonic() >= self.until or not self._epoch(number, steps, followed, clock):
                    break
        except KeyboardInterrupt:
            if not self.rows:
                raise
            self.report.notes.append(f"stopped: {len(self.rows)} finished epochs are kept")
        else:
            if self.report.ended == STOPPED:
                self.report.ended = FINISHED
        self._sum_up()
        self._keep()

    def _plan(self) -> Iterator[int]:
        """Steps of each epoch."""
        if self.ask.seconds is not None:
            return itertools.repeat(self.length)
        full_window, rest = divmod(self.ask.steps or self.length * (self.ask.epochs or 1), self.length)
        return itertools.chain(itertools.repeat(self.length, full_window), [rest] * bool(rest))

    def _epoch(self, number: int, steps: int, followed: TrackedTraining, clock: Clock) -> bool:
        """Train one epoch; False if training must end."""
        followed.begin()
        fed = closed_loop(followed, clock, steps=steps, until=self.until)  # type: ignore[arg-type]
        raise_workload_error(self.ask.name, fed.error)
        if not fed.ended:
            return False
        losses = followed.losses[: followed.done].cpu()
        if not losses.isfinite().all():
            self._lost(number, 1 + int((~losses.isfinite()).nonzero()[0, 0]))
            return False
        made = full_window(fed)
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
            files.save_model(self.ask.out, self.work.model)
        self.rows.append(row)
        self.windows.append(made)
        self.progress(_epoch_line(row, self.work.unit))
        self._sum_up()
        self._keep()
        return True

    def _lost(self, number: int, step: int) -> None:
        self.report.ended = NOT_A_NUMBER
        kept = f"; epoch {number - 1} is kept" if self.rows and self.ask.out else ""
        words = f"the loss is not a number from step {step} of epoch {number} on: use a lower learning rate{kept}"
        self.report.notes.append(words)
        self.progress(words)

    def _keep(self) -> None:
        if self.ask.out is not None:
            files.save_text(self.ask.out / files.STATISTICS, self.report.to_json())

    def _sum_up(self) -> None:
        """Update the estimates of all epochs so far."""
        told, unit = self.report, self.work.unit
        told.numbers, told.tables = [], {"epochs": self.rows}
        told.about |= {"how": self.work.how, "epochs": len(self.rows), "steps_an_epoch": self.length}
        if not self.rows:
            return
        told.notes = [note for note in told.notes if "n too small" not in note]
        rate, last = rate_interval(self.windows), self.rows[-1]
        told.add("throughput", rate.value, f"{unit}/s", limits=rate)
        told.add("loss, first epoch", self.rows[0]["loss"])
        told.add("loss, last epoch", last["loss"])
        for kind in ("accuracy", "test_accuracy"):
            if kind in last:
                limits = Interval(last[kind], last[f"{kind}_low"], last[f"{kind}_high"])
                told.add(kind.replace("_", " "), last[kind], limits=limits)
        add_quantiles(told, step_times(self.windows), "step")
        active = sum(w["busy"] * w["seconds"] for w in self.windows)
        told.add("device time / wall time", active / (time.monotonic() - self.began))
        add_memory(told, self.ask.device)
        add_energy(told, self.watch, self.windows, unit)


def train(ask: RunSettings, told: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Train; the results are in `told`, and in the folder if there is one."""
    progress(f"{ask.name}: loading")
    Training(ask, told, watch, progress).run()


def _share(name: str, hits: int, of: int) -> Row:
    if not of:
        return {}
    value, low, high = wilson(hits, of)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _epoch_line(row: Row, unit: str) -> str:
    test = f", test accuracy {row['test_accuracy']:.3f}" if "test_accuracy" in row else ""
    return (
        f"epoch {row['epoch']}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}{test}, "
        f"{row['rate']:,.0f} {unit}s/s"
    )
