"""The works that can be served, and what computes a batch of their inputs on a device.

All inputs are whole numbers, so that a seed means the same input on every device. A batch is padded to one of a few
sizes, each captured once as a CUDA graph. On the CPU models compute in float32: there the last bits depend on how many
are computed together, and in bf16 these would decide between two scores that are close.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fleetlab.bench.single.settings import place, settings_of
from fleetlab.bench.workloads import make
from fleetlab.bench.workloads.cuda_graph import captured
from fleetlab.bench.workloads.images import ResnetInfer, resnet
from fleetlab.bench.workloads.text import BertInfer, Encoder
from fleetlab.devices.errors import BenchError
from fleetlab.serving.server.inputs import Input, Shape

LOW = 0xFFFFFFFF  # the low 32 bits


class Model(Protocol):
    """All that the server knows of what it serves; a work of one's own needs the same."""

    shape: Shape

    def load(self, device: torch.device) -> None:
        """Put everything on `device`."""

    def classes(self, rows: Tensor) -> Tensor:
        """The class of each row of numbers."""


@dataclass
class Images:
    """A ResNet: pixels by channel, row and column."""

    size: ResnetInfer
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        self.shape = Shape(3 * self.size.pixels**2, 256, "pixel")

    def load(self, device: torch.device) -> None:
        """The model alone."""
        made = resnet(tuple(self.size.blocks), self.size.width, self.size.classes, small=False).eval()
        self.dtype = _precision(device)
        self.model: nn.Module = made.to(device, self.dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def classes(self, rows: Tensor) -> Tensor:
        """Of pixels brought around 0."""
        images = rows.view(-1, 3, self.size.pixels, self.size.pixels).to(self.dtype) / 64 - 2
        return cast("Tensor", self.model(images.contiguous(memory_format=torch.channels_last)).argmax(1))


@dataclass
class Texts:
    """An encoder: tokens of one length."""

    size: BertInfer
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        self.shape = Shape(self.size.length, self.size.vocabulary, "token", "<i4")

    def load(self, device: torch.device) -> None:
        """The model alone."""
        s = self.size
        made = Encoder(
            layers=s.layers, width=s.width, heads=s.heads, vocabulary=s.vocabulary, length=s.length, drop=0.0
        )
        self.model = made.to(device, _precision(device)).eval()

    def classes(self, rows: Tensor) -> Tensor:
        """Of tokens."""
        return cast("Tensor", self.model(rows.long()).argmax(1))


def _precision(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def servable(name: str, *, tiny: bool, settings: dict[str, Any]) -> Model:
    """The work by that name, as a model."""
    if "batch" in settings:
        msg = "the batch of a server is no setting of its work"
        raise BenchError(msg, hint="--batch says how many inputs are computed together")
    work: Any = make(name, tiny=tiny, **settings)
    if isinstance(work, ResnetInfer):
        return Images(work)
    if isinstance(work, BertInfer):
        return Texts(work)
    if all(hasattr(work, part) for part in ("shape", "load", "classes")):
        return cast("Model", work)
    msg = f"not a work that can be served: `{name}`"
    raise BenchError(msg, hint="there are resnet-infer and bert-infer; one of your own has shape, load and classes")


class Engine:
    """One model on one device, with room for one batch."""

    def __init__(self, model: Model, device: torch.device, *, batch: int, graph: bool = True) -> None:
        self.shape, self._model, self._device = model.shape, model, device
        model.load(device)
        numbers = torch.uint8 if self.shape.dtype.itemsize == 1 else torch.int32
        kinds = {"seeds": torch.int64, "given": torch.bool, "answer": torch.int64}
        self._here = {k: torch.zeros(batch, dtype=t, pin_memory=self._on_card) for k, t in kinds.items()}
        self._there = {k: torch.zeros(batch, dtype=t, device=device) for k, t in kinds.items()}
        self._rows = torch.zeros(batch, self.shape.size, dtype=numbers, pin_memory=self._on_card)
        self._raw = self._rows.to(device, copy=True)
        self.how = "eager"
        self._runs = {size: self._made(size, graph=graph) for size in sizes(batch)}
        for size in self._runs:  # the first run of a size is the slow one
            self.classes([Input()] * size)

    @property
    def _on_card(self) -> bool:
        return self._device.type == "cuda"

    def _made(self, size: int, *, graph: bool) -> Callable[[], None]:
        step = partial(self._step, size)
        if not graph:
            return step
        run, self.how = captured(step, self._device)
        return run

    @torch.no_grad()
    def _step(self, size: int) -> None:
        seeds, given, answer = (self._there[k][:size] for k in ("seeds", "given", "answer"))
        rows = torch.where(given[:, None], self._raw[:size], noise(seeds, self.shape).to(self._raw.dtype))
        answer.copy_(self._model.classes(rows))

    def classes(self, inputs: Sequence[Input]) -> list[int]:
        """The class of each input; waits for the device."""
        n = len(inputs)
        self._fill(inputs)
        self._runs[next(size for size in self._runs if size >= n)]()
        answer = self._here["answer"]
        answer.copy_(self._there["answer"], non_blocking=True)
        if self._on_card:
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record()
            done.synchronize()
        return answer[:n].tolist()

    def _fill(self, inputs: Sequence[Input]) -> None:
        rows = [(k, one.row) for k, one in enumerate(inputs) if one.row is not None]
        n = len(inputs)
        self._here["seeds"][:n] = torch.tensor([one.seed for one in inputs])
        self._here["given"].zero_()
        for k, row in rows:
            self._here["given"][k] = True
            self._rows[k] = torch.from_numpy(row)
        if rows:
            self._raw[:n].copy_(self._rows[:n], non_blocking=True)
        for name in ("seeds", "given"):
            self._there[name].copy_(self._here[name], non_blocking=True)

    def memory(self) -> dict[str, int]:
        """MiB of the card that this process holds."""
        if not self._on_card:
            return {}
        held, most = torch.cuda.memory_reserved(self._device), torch.cuda.max_memory_reserved(self._device)
        return {"card_mib": held >> 20, "card_peak_mib": most >> 20}


def sizes(batch: int) -> tuple[int, ...]:
    """Batches that are computed as they are; others are padded to the next.

    >>> sizes(12)
    (1, 2, 4, 8, 12)
    """
    return (*(1 << k for k in range((batch - 1).bit_length())), batch)


def noise(seeds: Tensor, shape: Shape) -> Tensor:
    """The input of each seed, the same wherever it is made.

    The finaliser of MurmurHash3 (Appleby, 2011) over seed and place. Each input has an upper end of its own, dark or
    bright, so that they differ in more than noise.
    """
    own = _mixed((seeds ^ (seeds >> 32)) & LOW)
    places = torch.arange(shape.size, device=seeds.device) * 0x9E3779B9
    numbers = _mixed((own[:, None] + places) & LOW)
    ends = 1 + (_mixed(own ^ 0x5BD1E995) * shape.top >> 32)
    return numbers * ends[:, None] >> 32


def _mixed(x: Tensor) -> Tensor:
    # Products wrap around 64 bits, and their low 32 bits are right all the same.
    x = (x ^ (x >> 16)) * 0x85EBCA6B & LOW
    x = (x ^ (x >> 13)) * 0xC2B2AE35 & LOW
    return x ^ (x >> 16)


def loaded(name: str, *, tiny: bool, words: Sequence[str], device: str, seed: int, batch: int) -> Engine:
    """An engine that is warm; `words` are settings of the work as KEY=VALUE."""
    torch.set_num_threads(1)
    settings = settings_of(name, words)
    model, where = servable(name, tiny=tiny, settings=settings), place(device)
    if where.type == "cuda":
        torch.cuda.set_device(where.index or 0)  # a plain `cuda` has no index, and is the first
    torch.manual_seed(seed)
    return Engine(model, where, batch=batch, graph=settings.get("graph", True))
