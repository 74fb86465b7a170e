"""What was asked for: which work, with which settings, for how long, and where; refused before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from fleetlab.bench.workloads import Work, _found, make
from fleetlab.devices.errors import BenchError

TRAINED = ("resnet-train", "bert-train")
ASKED = ("resnet-infer", "bert-infer")
BATCHES = (1, 2, 4, 8, 16, 32)
Number = TypeVar("Number", int, float)
SECONDS, TINY_SECONDS = 10.0, 1.0  # of a window, where nothing is said


@dataclass(frozen=True, slots=True)
class Ask:
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
        """Seconds that a window waits for the work to be at its speed."""
        return 0.1 if self.tiny else 1.0

    def make(self, **more: Any) -> Work:  # noqa: ANN401
        """The work itself."""
        return make(self.name, tiny=self.tiny, **self.settings | more)

    def window(self) -> dict[str, Any]:
        """How long one window is, in seconds or in steps."""
        default = TINY_SECONDS if self.tiny else SECONDS
        return {"seconds": None if self.steps else self.seconds or default, "steps": self.steps, "settle": self.settle}


def settled(work: Any) -> dict[str, Any]:  # noqa: ANN401
    """A work's settings as they are."""
    return {f.name: getattr(work, f.name) for f in fields(work) if f.init}


def lengths(name: str, *, seconds: float | None, epochs: int | None, steps: int | None) -> None:
    """At most one of the three, above 0, and epochs only where something is learnt."""
    given = {"--seconds": seconds, "--epochs": epochs, "--steps": steps}
    given = {word: value for word, value in given.items() if value is not None}
    if len(given) > 1:
        msg = f"one of them, not both: {', '.join(given)}"
        raise BenchError(msg, hint="seconds, epochs or steps say how long it runs")
    for word, value in given.items():
        if value is not None and not 0 < value < math.inf:
            msg = f"{word} is above 0: {value}"
            raise BenchError(msg)
    if epochs is not None and name not in TRAINED:
        msg = f"{name}: has no epochs"
        raise BenchError(msg, hint=f"{' and '.join(TRAINED)} have; --seconds or --steps say how long others run")


def sizes(name: str, batches: Sequence[int] | None, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The batch sizes to go through, of a work that is asked."""
    if batches is not None and name not in ASKED:
        msg = f"{name}: takes one batch size, not several"
        raise BenchError(msg, hint=f"--batch N; --batches is for {' and '.join(ASKED)}")
    if batches is not None and "batch" in settings:
        msg = "one of them, not both: --batch, --batches"
        raise BenchError(msg)
    if name not in ASKED:
        return ()
    found = tuple(batches if batches is not None else [settings["batch"]] if "batch" in settings else BATCHES)
    if not found or min(found) < 1:
        msg = f"not batch sizes: {found}"
        raise BenchError(msg, hint="--batches 1,2,4,8")
    return found


def sizes_of(words: str | None) -> list[int] | None:
    """Batch sizes by words.

    >>> sizes_of("1,2,4")
    [1, 2, 4]
    """
    try:
        return None if words is None else [int(one) for one in words.split(",")]
    except ValueError:
        msg = f"not batch sizes: `{words}`"
        raise BenchError(msg, hint="--batches 1,2,4,8") from None


def place(words: str) -> torch.device:
    """A device that is there."""
    try:
        device = torch.device(words)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cuda", "cpu"):
        msg = f"no such device: `{words}`"
        raise BenchError(msg, hint="there are cuda, cuda:1 and so on, and cpu")
    count = torch.cuda.device_count() if device.type == "cuda" and torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        msg = f"no NVIDIA GPU on this machine that PyTorch can use: `{words}`, of {count}"
        raise BenchError(msg, hint="--device cpu --tiny runs the same work, small, on the CPU")
    return device


# --- settings by words -----------------------------------------------------------------------------------------------


def settings_of(name: str, words: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` words as the values that the work's settings want.

    >>> settings_of("gemm", ["width=64", "duty=0.5"])
    {'width': 64, 'duty': 0.5}
    """
    known = {f.name: f.default for f in fields(_found(name)) if f.init and f.default is not MISSING}
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            msg = f"not a setting: `{word}`"
            raise BenchError(msg, hint="--set KEY=VALUE, such as --set width=32")
        if key not in known:
            msg = f"{name}: no such setting: {key}"
            raise BenchError(msg, hint=f"there are {', '.join(known)}")
        found[key] = _value(name, key, value, known[key])
    return found


def _value(name: str, key: str, value: str, like: object) -> Any:  # noqa: ANN401
    """A word as a value of the same kind as the default."""
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
        whole = f"a whole number of {least} or more"
        kind = {bool: "true or false", int: whole, float: "a number above 0"}.get(type(like), "1,2,3")
        msg = f"{name}: {key} is {kind}: `{value}`"
        such = ",".join(map(str, like)) if isinstance(like, tuple) else str(like).lower()
        raise BenchError(msg, hint=f"such as --set {key}={such}") from None
    return value


def _above(value: Number, least: int) -> Number:
    if not least < value < math.inf:
        raise ValueError(value)
    return value
