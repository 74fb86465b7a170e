"""Settings of a run, validated before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from fleetlab.gpu.bench.workloads import BenchWorkload, make, workload_class
from fleetlab.gpu.devices.console import BenchError

TRAINING = ("resnet-train", "bert-train")
INFERENCE = ("resnet-infer", "bert-infer")
BATCHES = (1, 2, 4, 8, 16, 32)
Number = TypeVar("Number", int, float)
SECONDS, TINY_SECONDS = 10.0, 1.0  # default length of a window


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Checked."""

    name: str
    settings: dict[str, Any]
    device: torch.device
    seconds: float | None = None
    epochs: int | None = None
    steps: int | None = None
    batches: tuple[int, ...] = ()
    tiny: bool = False
    seed: int = 0
    out: Path | None = None

    @property
    def settle(self) -> float:
        """Seconds before a measurement."""
        return 0.1 if self.tiny else 1.0

    def make(self, **more: Any) -> BenchWorkload:  # noqa: ANN401
        """Make the workload."""
        return make(self.name, tiny=self.tiny, **self.settings | more)

    def window(self) -> dict[str, Any]:
        """Length of one window, in seconds or steps."""
        default = TINY_SECONDS if self.tiny else SECONDS
        return {"seconds": None if self.steps else self.seconds or default, "steps": self.steps, "settle": self.settle}


def settings_dict(work: Any) -> dict[str, Any]:  # noqa: ANN401
    """Settings of a workload."""
    return {f.name: getattr(work, f.name) for f in fields(work) if f.init}


def check_lengths(name: str, *, seconds: float | None, epochs: int | None, steps: int | None) -> None:
    """Check that at most one length is given and above 0, and epochs only for training."""
    given = {"--seconds": seconds, "--epochs": epochs, "--steps": steps}
    given = {word: value for word, value in given.items() if value is not None}
    if len(given) > 1:
        raise BenchError(f"use only one of {', '.join(given)}", hint="seconds, epochs or steps set the length of a run")
    for word, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise BenchError(f"{word} must be above 0: {value}")
    if epochs is not None and name not in TRAINING:
        raise BenchError(f"{name}: has no epochs", hint=f"only {' and '.join(TRAINING)} have; use --seconds or --steps")


def batch_sizes(name: str, batches: Sequence[int] | None, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Batch sizes of an inference workload."""
    if batches is not None and name not in INFERENCE:
        msg = f"{name}: takes one batch size, not several"
        raise BenchError(msg, hint=f"--batch N; --batches is for {' and '.join(INFERENCE)}")
    if batches is not None and "batch" in settings:
        raise BenchError("use only one of --batch and --batches")
    if name not in INFERENCE:
        return ()
    result = tuple(batches if batches is not None else [settings["batch"]] if "batch" in settings else BATCHES)
    if not result or min(result) < 1:
        raise BenchError(f"not batch sizes: {result}", hint="--batches 1,2,4,8")
    return result


def parse_batch_sizes(words: str | None) -> list[int] | None:
    """Parse batch sizes.

    >>> parse_batch_sizes("1,2,4")
    [1, 2, 4]
    """
    try:
        return None if words is None else [int(one) for one in words.split(",")]
    except ValueError:
        raise BenchError(f"not batch sizes: `{words}`", hint="--batches 1,2,4,8") from None


def torch_device(words: str) -> torch.device:
    """Return a device that exists."""
    try:
        device = torch.device(words)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cuda", "cpu"):
        raise BenchError(f"no such device: `{words}`", hint="cuda, cuda:N or cpu")
    count = torch.cuda.device_count() if device.type == "cuda" and torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        msg = f"PyTorch finds no such NVIDIA GPU: `{words}`, of {count}"
        raise BenchError(msg, hint="--device cpu --tiny runs the same workload, small, on the CPU")
    return device


# --- parsing ---------------------------------------------------------------------------------------------------------


def parse_settings(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse `KEY=VALUE` into values of the types of the workload's settings.

    >>> parse_settings("gemm", ["width=64", "duty=0.5"])
    {'width': 64, 'duty': 0.5}
    """
    known = {f.name: f.default for f in fields(workload_class(name)) if f.init and f.default is not MISSING}
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise BenchError(f"not a setting: `{word}`", hint="--set KEY=VALUE, such as --set width=32")
        if key not in known:
            raise BenchError(f"{name}: unknown setting: {key}", hint=f"there are {', '.join(known)}")
        values[key] = _value(name, key, value, known[key])
    return values


def _value(name: str, key: str, value: str, like: object) -> Any:  # noqa: ANN401
    """Parse a value of the same type as the default."""
    least = 0 if key == "seed" else 1
    try:
        if isinstance(like, bool):
            return {"true": True, "yes": True, "false": False, "no": False}[value.lower()]
        if isinstance(like, int):
            return _above(int(value), least - 1)
        if isinstance(like, float):
            return _above(float(value), 0)
        if isinstance(like, tuple):
            return tuple(_above(int(one), 0) for one in value.split(","))
    except (ValueError, KeyError):
        whole = f"an integer of at least {least}"
        kind = {bool: "true or false", int: whole, float: "a number above 0"}.get(type(like), "1,2,3")
        msg = f"{name}: {key} must be {kind}: `{value}`"
        such = ",".join(map(str, like)) if isinstance(like, tuple) else str(like).lower()
        raise BenchError(msg, hint=f"such as --set {key}={such}") from None
    return value


def _above(value: Number, least: int) -> Number:
    if not least < value < math.inf:
        raise ValueError(value)
    return value
