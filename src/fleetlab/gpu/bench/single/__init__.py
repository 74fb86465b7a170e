"""Run one workload alone: training, inference, decoding, small kernels, or a stressor.

On a GPU machine: `python -m fleetlab.gpu.bench.single NAME`. Loop and statistics are those of the suite.
"""

from __future__ import annotations

import itertools
import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.loops import closed_loop
from fleetlab.gpu.bench.options import WorkloadOptions
from fleetlab.gpu.bench.single.settings import (
    INFERENCE,
    TRAINING,
    RunSettings,
    batch_sizes,
    check_lengths,
    parse_batch_sizes,
    parse_settings,
    settings_dict,
    torch_device,
)
from fleetlab.gpu.bench.single.steady import (
    FINISHED,
    NOT_A_NUMBER,
    STOPPED,
    Row,
    SingleReport,
    add_energy,
    add_memory,
    add_quantiles,
    by_batch,
    full_window,
    load_and_warm_up,
    raise_workload_error,
    rate_interval,
    steady,
    step_times,
)
from fleetlab.gpu.bench.workloads import make
from fleetlab.gpu.devices.clock import HostClock, clock_for
from fleetlab.gpu.devices.console import BenchError, Progress, check_folder, replacing, silent
from fleetlab.gpu.devices.nvml import GpuSampler
from fleetlab.stats import Interval, wilson

MODEL, STATISTICS = "model.pt", "statistics.json"


def save_model(out: Path, model: torch.nn.Module) -> None:
    """Save the weights, for `torch.load(…, weights_only=True)`."""
    weights: dict[str, Any] = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    _replace(out / MODEL, lambda beside: torch.save(weights, beside))


def save_text(path: Path, text: str) -> None:
    """Save text."""
    _replace(path, lambda beside: beside.write_text(text, "utf-8"))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write atomically, with errors for users."""
    try:
        with replacing(path) as temporary:
            write(temporary)
    except (OSError, RuntimeError) as e:  # torch raises the latter for a full disk
        msg = f"{path}: cannot be written: {e}"
        raise BenchError(msg, hint="check free space; the previous file is unchanged") from None


# --- train by epoch; statistics and model are saved after each -------------------------------------------------------


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

    def __init__(self, ask: RunSettings, report: SingleReport, watch: GpuSampler, progress: Progress) -> None:
        self.ask, self.report, self.watch, self.progress = ask, report, watch, progress
        self.work: Any = cast("Any", load_and_warm_up(ask.name, ask.make(follow=True), ask.device))
        self.length = self.work.epoch // self.work.batch
        if not self.length:
            sizes = f"({self.work.epoch:,} {self.work.unit}s) is less than a batch ({self.work.batch:,})"
            raise BenchError(f"{ask.name}: an epoch {sizes}", hint="use a smaller --batch")
        report.about["settings"] = settings_dict(self.work)
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

    def _epoch(self, number: int, steps: int, followed: TrackedTraining, clock: HostClock) -> bool:
        """Train one epoch; False if training must end."""
        followed.begin()
        log = closed_loop(followed, clock, steps=steps, until=self.until)  # type: ignore[arg-type]
        raise_workload_error(self.ask.name, log.error)
        if not log.ended:
            return False
        losses = followed.losses[: followed.done].cpu()
        if not losses.isfinite().all():
            self._lost(number, 1 + int((~losses.isfinite()).nonzero()[0, 0]))
            return False
        window = full_window(log)
        row = {
            "epoch": number,
            "steps": followed.done,
            "loss": float(losses.mean()),
            **_share("accuracy", int(followed.hits), followed.done * self.work.batch),
            **_share("test_accuracy", *(self.work.examine() or (0, 0))),
            "rate": window["rate"],
            "seconds": window["seconds"],
        }
        if self.ask.out is not None:
            save_model(self.ask.out, self.work.model)
        self.rows.append(row)
        self.windows.append(window)
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
            save_text(self.ask.out / STATISTICS, self.report.to_json())

    def _sum_up(self) -> None:
        """Update the estimates of all epochs so far."""
        report, unit = self.report, self.work.unit
        report.numbers, report.tables = [], {"epochs": self.rows}
        report.about |= {"how": self.work.how, "epochs": len(self.rows), "steps_an_epoch": self.length}
        if not self.rows:
            return
        report.notes = [note for note in report.notes if "n too small" not in note]
        rate, last = rate_interval(self.windows), self.rows[-1]
        report.add("throughput", rate.value, f"{unit}/s", limits=rate)
        report.add("loss, first epoch", self.rows[0]["loss"])
        report.add("loss, last epoch", last["loss"])
        for kind in ("accuracy", "test_accuracy"):
            if kind in last:
                limits = Interval(last[kind], last[f"{kind}_low"], last[f"{kind}_high"])
                report.add(kind.replace("_", " "), last[kind], limits=limits)
        add_quantiles(report, step_times(self.windows), "step")
        active = sum(w["busy"] * w["seconds"] for w in self.windows)
        report.add("device time / wall time", active / (time.monotonic() - self.began))
        add_memory(report, self.ask.device)
        add_energy(report, self.watch, self.windows, unit)


def train(ask: RunSettings, report: SingleReport, watch: GpuSampler, progress: Progress) -> None:
    """Train; the results are in `told`, and in the folder if there is one."""
    progress(f"{ask.name}: loading")
    Training(ask, report, watch, progress).run()


def _share(name: str, hits: int, of: int) -> Row:
    if not of:
        return {}
    return interval_columns(name, Interval(*wilson(hits, of)))


def _epoch_line(row: Row, unit: str) -> str:
    test = f", test accuracy {row['test_accuracy']:.3f}" if "test_accuracy" in row else ""
    return (
        f"epoch {row['epoch']}: loss {row['loss']:.4f}, accuracy {row['accuracy']:.3f}{test}, "
        f"{row['rate']:,.0f} {unit}s/s"
    )


__all__ = ["SingleReport", "parse_batch_sizes", "parse_settings", "run_workload", "work"]


def run_workload(options: WorkloadOptions, *, progress: Progress = silent) -> SingleReport:
    """Run one workload as the command line asks for it."""
    return work(
        options.name,
        settings=parse_settings(options.name, options.words),
        seconds=options.seconds,
        epochs=options.epochs,
        steps=options.steps,
        batches=parse_batch_sizes(options.batches),
        device=options.device,
        tiny=options.tiny,
        seed=options.seed,
        out=options.out,
        progress=progress,
    )


def work(
    name: str,
    *,
    settings: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batches: Sequence[int] | None = None,
    device: str = "cuda",
    tiny: bool = False,
    seed: int = 0,
    out: Path | None = None,
    progress: Progress = silent,
) -> SingleReport:
    """Run one workload with its `settings`; `out` keeps the statistics and a trained model."""
    settings = dict(settings or {})
    workload = make(name, tiny=tiny, **settings)  # reports an unknown name or setting first
    check_lengths(name, seconds=seconds, epochs=epochs, steps=steps)
    where = torch_device(device)
    ask = RunSettings(
        name,
        settings if "seed" not in settings_dict(workload) else {"seed": seed} | settings,
        where,
        seconds=seconds,
        epochs=epochs,
        steps=steps,
        batches=batch_sizes(name, batches, settings),
        tiny=tiny,
        seed=seed,
        out=out,
    )
    report = SingleReport(name, _about(ask))
    if out is not None:
        check_folder(out)
    with tempfile.TemporaryDirectory() as home, _one_thread():
        torch.manual_seed(seed)
        with GpuSampler(Path(home) / "monitor.jsonl", index=where.index or 0) as watch:
            (train if name in TRAINING else by_batch if name in INFERENCE else steady)(ask, report, watch, progress)
    if out is not None:
        save_text(out / STATISTICS, report.to_json())
    return report


def _about(ask: RunSettings) -> dict[str, Any]:
    """Settings and versions, enough to repeat it."""
    return {
        "settings": settings_dict(ask.make()),
        "asked": {"seconds": ask.seconds, "epochs": ask.epochs, "steps": ask.steps, "batches": ask.batches},
        "tiny": ask.tiny,
        "seed": ask.seed,
        "device": torch.cuda.get_device_name(ask.device) if ask.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread, as in a worker of the suite, so that results are comparable."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
