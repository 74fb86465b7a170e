"""A Python function of your own as a tenant: the suite calls it, one step a call."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fleetlab.devices.errors import BenchError

if TYPE_CHECKING:
    import torch

DEVICE, REHEARSAL = "FLEETLAB_DEVICE", "FLEETLAB_REHEARSAL"  # environment variables of a user's program


def announce(device: str, *, tiny: bool) -> None:
    """Tell programs and modules of the user's own where they run."""
    os.environ[DEVICE] = device
    if tiny:
        os.environ |= {REHEARSAL: "1", "CUDA_VISIBLE_DEVICES": ""}
    elif ":" in device:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        index = int(device.partition(":")[2])
        os.environ["CUDA_VISIBLE_DEVICES"] = seen[index] if len(seen) > index and seen[0] else str(index)


@dataclass
class OwnFunction:
    """A function that is one step; one with a parameter `device` is called once and returns it."""

    TINY: ClassVar[dict[str, Any]] = {}
    callable: str
    items: int = 1  # of a step, if the function does not return their number
    unit: str = "step"

    def setup(self, device: torch.device) -> None:
        """Import it, and build it if it is to be built."""
        found = import_function(self.callable)
        builds = "device" in inspect.signature(found).parameters
        self._step: Callable[[], Any] = found(device=device) if builds else found
        if not callable(self._step):
            msg = f"{self.callable}: returned {type(self._step).__name__}, not a function that is one step"
            raise BenchError(msg)

    def step(self) -> int:
        """Call it; what it returns is its number of items, if it is one."""
        made = self._step()
        return made if type(made) is int else self.items


def import_function(name: str) -> Callable[..., Any]:
    """Import MODULE:FUNCTION from the current folder or the Python path."""
    module, _, of = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), of)
    except (ImportError, AttributeError, ValueError) as e:
        msg = f"{name}: cannot be imported: {e}"
        raise BenchError(msg, hint="MODULE:FUNCTION, in the current folder or on PYTHONPATH") from e
    if not callable(found):
        msg = f"{name}: not a function"
        raise BenchError(msg)
    return found  # type: ignore[no-any-return]
