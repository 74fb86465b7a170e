"""Real PyTorch work to put on a GPU: training, inference, decoding, small kernels, and stressors of one resource each.

A work is a dataclass: its settings are its fields, full size unless told, and `TINY` holds those of a CPU rehearsal.
`setup` puts it on a device, `step` enqueues one step and says how many items that was. A work that `rests` between
steps has `pause(busy)`: the seconds to idle after a step that took `busy` seconds. All inputs are made on the device,
so that no step waits for the host's memory.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from fleetlab.devices.errors import BenchError

if TYPE_CHECKING:
    import torch

# Where each work lives; a module is imported only when its work is asked for.
BY_NAME = {
    "resnet-train": "images:ResnetTrain",
    "resnet-infer": "images:ResnetInfer",
    "bert-train": "text:BertTrain",
    "bert-infer": "text:BertInfer",
    "llm-decode": "decoder:LlmDecode",
    "launch": "small:Launch",
    "interactive": "small:Interactive",
    "gemm": "stressors:Gemm",
    "hbm": "stressors:Hbm",
    "l2": "stressors:L2",
    "h2d": "stressors:H2d",
}


class Work(Protocol):
    """All that a worker knows of what it runs."""

    TINY: ClassVar[dict[str, Any]]
    unit: ClassVar[str]

    def setup(self, device: torch.device) -> None:
        """Put everything on `device`."""

    def step(self) -> int:
        """Enqueue one step; how many items is that?"""


def make(name: str, *, tiny: bool = False, **settings: Any) -> Work:  # noqa: ANN401  a work's settings are its own
    """The work by that name, or one of your own as `module:Class`.

    >>> make("launch", tiny=True).unit
    'kernel'
    """
    kind = _found(name)
    settings = (kind.TINY if tiny else {}) | settings
    known = [f.name for f in fields(kind) if f.init]
    if unknown := sorted(set(settings) - set(known)):
        msg = f"{name}: no such setting: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(known)}")
    return cast("Work", kind(**settings))


def _found(name: str) -> Any:  # noqa: ANN401
    if name not in BY_NAME and ":" not in name:
        msg = f"no work by that name: `{name}`"
        raise BenchError(msg, hint=f"there are {', '.join(BY_NAME)}; or name one of your own as module:Class")
    module, _, of = BY_NAME.get(name, name).partition(":")
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}" if name in BY_NAME else module), of)
    except (ImportError, AttributeError) as e:
        msg = f"{name}: cannot be imported: {e}"
        raise BenchError(msg, hint="PyTorch comes with `pip install fleetlab[bench]`") from e
