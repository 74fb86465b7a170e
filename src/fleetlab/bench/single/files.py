"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fleetlab.devices.errors import BenchError

MODEL, STATISTICS = "model.pt", "statistics.json"


def folder(out: Path) -> Path:
    """A folder that can be written to, known before hours are spent."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial = out / f".{uuid.uuid4().hex[:8]}"
        trial.touch()
        trial.unlink()
    except OSError as e:
        msg = f"{out}: cannot be written to: {e.strerror or e}"
        raise BenchError(msg, hint="name another folder with --out") from None
    return out


def save_model(out: Path, model: torch.nn.Module) -> None:
    """The weights, which `torch.load(…, weights_only=True)` reads anywhere."""
    weights: dict[str, Any] = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    _replace(out / MODEL, lambda beside: torch.save(weights, beside))


def save_text(path: Path, text: str) -> None:
    """Text, in place of what was there."""
    _replace(path, lambda beside: beside.write_text(text, "utf-8"))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Beside it, onto the disk, and then in its place: a reader sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, RuntimeError) as e:  # torch tells of a full disk by the latter
        msg = f"{path}: cannot be written: {e}"
        raise BenchError(msg, hint="look at free space; what was saved before is still there") from None
    finally:
        beside.unlink(missing_ok=True)
