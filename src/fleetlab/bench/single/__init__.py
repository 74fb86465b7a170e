"""Run one workload alone: training, inference, decoding, small kernels, or a stressor.

On a GPU machine: `python -m fleetlab.bench.single NAME`. Loop and statistics are those of the suite.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fleetlab.bench.options import WorkloadOptions
from fleetlab.bench.single import files
from fleetlab.bench.single.report import SingleReport
from fleetlab.bench.single.settings import (
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
from fleetlab.bench.single.steady import by_batch, steady
from fleetlab.bench.single.train import train
from fleetlab.bench.workloads import make
from fleetlab.devices.files import check_folder
from fleetlab.devices.nvml import GpuSampler
from fleetlab.devices.progress import Progress, silent

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
    made = make(name, tiny=tiny, **settings)  # reports an unknown name or setting first
    check_lengths(name, seconds=seconds, epochs=epochs, steps=steps)
    where = torch_device(device)
    ask = RunSettings(
        name,
        settings if "seed" not in settings_dict(made) else {"seed": seed} | settings,
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
        files.save_text(out / files.STATISTICS, report.to_json())
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
