"""Save statistics and models atomically."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import replacing

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
