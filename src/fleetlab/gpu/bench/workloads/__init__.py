"""PyTorch workloads: training, inference, decoding, small kernels, and stressors of one resource each.

A workload is a dataclass: its fields are its settings with full-size defaults, and `TINY` has those for a CPU. `setup`
moves it to a device, and `step` enqueues one step and returns its number of items. A workload that `rests` between
steps has `pause(busy)`: seconds to idle after a step of `busy` seconds. One with its own loop has `drive(window)`,
which returns what `summarize_window` does, and results of its own. Inputs are generated on the device, so that no step
waits for the host's memory.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from fleetlab.gpu.devices.console import BenchError

if TYPE_CHECKING:
    import torch

# Module and class of each workload, imported on use.
BY_NAME = {
    "resnet-train": "images:ResnetTrain",
    "resnet-infer": "images:ResnetInfer",
    "bert-train": "text:BertTrain",
    "bert-infer": "text:BertInfer",
    "llm-decode": "text:LlmDecode",
    "llm-serve": "llm_serve:LlmServe",
    "launch": "kernels:Launch",
    "interactive": "kernels:Interactive",
    "notebook": "llm_serve:Notebook",
    "gemm": "kernels:Gemm",
    "hbm": "kernels:Hbm",
    "l2": "kernels:L2",
    "h2d": "kernels:H2d",
}
# Work of a user's own in a plan; its settings say what it is.
OWN = {"command": "own:OwnCommand", "callable": "own:OwnFunction"}


class BenchWorkload(Protocol):
    """The interface of a workload."""

    TINY: ClassVar[dict[str, Any]]
    unit: ClassVar[str]

    def setup(self, device: torch.device) -> None:
        """Move everything to `device`."""

    def step(self) -> int:
        """Enqueue one step and return its number of items."""


def make(name: str, *, tiny: bool = False, **settings: Any) -> BenchWorkload:  # noqa: ANN401  a work's settings are its own
    """Make a workload by name, or your own as `module:Class`.

    >>> make("launch", tiny=True).unit
    'kernel'
    """
    kind = workload_class(name)
    settings = (kind.TINY if tiny else {}) | settings
    names = [f.name for f in fields(kind) if f.init]
    if unknown := sorted(set(settings) - set(names)):
        raise BenchError(f"{name}: unknown setting: {', '.join(unknown)}", hint=f"there are {', '.join(names)}")
    return cast("BenchWorkload", kind(**settings))


def workload_class(name: str) -> Any:  # noqa: ANN401
    """Import the class of a workload."""
    known = BY_NAME | OWN
    if name not in known and ":" not in name:
        msg = f"unknown workload: `{name}`"
        raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name your own as module:Class")
    module, _, of = known.get(name, name).partition(":")
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}" if name in known else module), of)
    except (ImportError, AttributeError) as e:
        msg = f"{name}: cannot be imported: {e}"
        raise BenchError(msg, hint="PyTorch is part of `pip install 'fleetlab[bench]'`") from e
