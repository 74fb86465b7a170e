"""One work by itself, as a user would run it: train, ask, decode, launch, or press on one resource, and be told.

On a measuring machine: `python -m fleetlab.bench.single NAME`. What feeds the work and what is counted is the suite's.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fleetlab.bench.single import files as _save
from fleetlab.bench.single.report import Told
from fleetlab.bench.single.settings import ASKED, TRAINED, Ask, lengths, place, settings_of, settled, sizes, sizes_of
from fleetlab.bench.single.steady import by_batch, steady
from fleetlab.bench.single.train import train
from fleetlab.bench.workloads import make
from fleetlab.devices.nvml import Monitor

__all__ = ["Told", "settings_of", "sizes_of", "work"]


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
    tell: Callable[[str], None] = lambda _: None,
) -> Told:
    """Run one work; `settings` are those of the work itself, and `out` keeps the statistics and a trained model."""
    settings = dict(settings or {})
    made = make(name, tiny=tiny, **settings)  # a name or a setting that is not there is told first
    lengths(name, seconds=seconds, epochs=epochs, steps=steps)
    where = place(device)
    ask = Ask(
        name,
        settings if "seed" not in settled(made) else {"seed": seed} | settings,
        where,
        seconds=seconds,
        epochs=epochs,
        steps=steps,
        batches=sizes(name, batches, settings),
        tiny=tiny,
        seed=seed,
        out=out,
    )
    told = Told(name, _about(ask))
    if out is not None:
        _save.folder(out)
    with tempfile.TemporaryDirectory() as home, _one_thread():
        torch.manual_seed(seed)
        with Monitor(Path(home) / "monitor.jsonl", index=where.index or 0) as watch:
            (train if name in TRAINED else by_batch if name in ASKED else steady)(ask, told, watch, tell)
    if out is not None:
        _save.save_text(out / _save.STATISTICS, told.to_json())
    return told


def _about(ask: Ask) -> dict[str, Any]:
    """Enough to run it again."""
    return {
        "settings": settled(ask.make()),
        "asked": {"seconds": ask.seconds, "epochs": ask.epochs, "steps": ask.steps, "batches": ask.batches},
        "tiny": ask.tiny,
        "seed": ask.seed,
        "device": torch.cuda.get_device_name(ask.device) if ask.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """As a worker of the suite has it, so that both tell the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
