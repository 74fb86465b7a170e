"""Workloads that can be served, and the engine that computes batches on a device.

All inputs are integers, so that a seed gives the same input on every device. A batch is padded to one of a few
sizes, each captured once as a CUDA graph. On a CPU models compute in float32: the last bits depend on the batch size,
and in bf16 they would decide between two close scores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fleetlab.gpu.bench.llm.engine import DecodeEngine
from fleetlab.gpu.bench.single.settings import parse_settings, torch_device
from fleetlab.gpu.bench.workloads import make
from fleetlab.gpu.bench.workloads.images import ResnetInfer, resnet
from fleetlab.gpu.bench.workloads.kernels import capture_graph
from fleetlab.gpu.bench.workloads.text import BertInfer, Encoder
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.serving.server.requests import InputShape, ModelInput

LOW = 0xFFFFFFFF  # the low 32 bits


class ServedModel(Protocol):
    """The interface of a served model; your own workload implements it."""

    shape: InputShape

    def load(self, device: torch.device) -> None:
        """Move everything to `device`."""

    def classes(self, rows: Tensor) -> Tensor:
        """Return the class of each row."""


@dataclass
class ResnetModel:
    """A ResNet: pixels by channel, row and column."""

    size: ResnetInfer
    shape: InputShape = field(init=False)

    def __post_init__(self) -> None:
        self.shape = InputShape(3 * self.size.pixels**2, 256, "pixel")

    def load(self, device: torch.device) -> None:
        """Load the model."""
        module = resnet(tuple(self.size.blocks), self.size.width, self.size.classes, small=False).eval()
        self.dtype = _precision(device)
        self.model: nn.Module = module.to(device, self.dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def classes(self, rows: Tensor) -> Tensor:
        """Normalize pixels and classify."""
        images = rows.view(-1, 3, self.size.pixels, self.size.pixels).to(self.dtype) / 64 - 2
        return cast("Tensor", self.model(images.contiguous(memory_format=torch.channels_last)).argmax(1))


@dataclass
class BertModel:
    """An encoder: token sequences of fixed length."""

    size: BertInfer
    shape: InputShape = field(init=False)

    def __post_init__(self) -> None:
        self.shape = InputShape(self.size.length, self.size.vocabulary, "token", "<i4")

    def load(self, device: torch.device) -> None:
        """Load the model."""
        s = self.size
        encoder = Encoder(
            layers=s.layers, width=s.width, heads=s.heads, vocabulary=s.vocabulary, length=s.length, drop=0.0
        )
        self.model = encoder.to(device, _precision(device)).eval()

    def classes(self, rows: Tensor) -> Tensor:
        """Classify tokens."""
        return cast("Tensor", self.model(rows.long()).argmax(1))


def _precision(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def servable(name: str, *, tiny: bool, settings: dict[str, Any]) -> ServedModel:
    """Make the model of a workload."""
    if "batch" in settings:
        raise BenchError("the batch size of a server is not a setting of its workload", hint="use --batch")
    work: Any = make(name, tiny=tiny, **settings)
    if isinstance(work, ResnetInfer):
        return ResnetModel(work)
    if isinstance(work, BertInfer):
        return BertModel(work)
    if all(hasattr(work, part) for part in ("shape", "load", "classes")):
        return cast("ServedModel", work)
    msg = f"workload cannot be served: `{name}`"
    raise BenchError(msg, hint="resnet-infer, bert-infer, llm-serve, or your own class with shape, load and classes")


class InferenceEngine:
    """One model on one device, with buffers for one batch."""

    def __init__(self, model: ServedModel, device: torch.device, *, batch: int, graph: bool = True) -> None:
        self.shape, self._model, self._device = model.shape, model, device
        model.load(device)
        numbers = torch.uint8 if self.shape.dtype.itemsize == 1 else torch.int32
        kinds = {"seeds": torch.int64, "given": torch.bool, "answer": torch.int64}
        self._here = {k: torch.zeros(batch, dtype=t, pin_memory=self._on_card) for k, t in kinds.items()}
        self._there = {k: torch.zeros(batch, dtype=t, device=device) for k, t in kinds.items()}
        self._rows = torch.zeros(batch, self.shape.size, dtype=numbers, pin_memory=self._on_card)
        self._raw = self._rows.to(device, copy=True)
        self.how = "eager"
        self._runs = {size: self._runner(size, graph=graph) for size in sizes(batch)}
        for size in self._runs:  # warm up: the first run of a size is slow
            self.classes([ModelInput()] * size)

    @property
    def _on_card(self) -> bool:
        return self._device.type == "cuda"

    def _runner(self, size: int, *, graph: bool) -> Callable[[], None]:
        step = partial(self._step, size)
        if not graph:
            return step
        run, self.how = capture_graph(step, self._device)
        return run

    @torch.no_grad()
    def _step(self, size: int) -> None:
        seeds, given, answer = (self._there[k][:size] for k in ("seeds", "given", "answer"))
        rows = torch.where(given[:, None], self._raw[:size], seeded_inputs(seeds, self.shape).to(self._raw.dtype))
        answer.copy_(self._model.classes(rows))

    def classes(self, inputs: Sequence[ModelInput]) -> list[int]:
        """Compute the class of each input; waits for the device."""
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

    def _fill(self, inputs: Sequence[ModelInput]) -> None:
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
        """GPU memory of this process in MiB."""
        if not self._on_card:
            return {}
        held, most = torch.cuda.memory_reserved(self._device), torch.cuda.max_memory_reserved(self._device)
        return {"card_mib": held >> 20, "card_peak_mib": most >> 20}


def sizes(batch: int) -> tuple[int, ...]:
    """Batch sizes that are computed without padding.

    >>> sizes(12)
    (1, 2, 4, 8, 12)
    """
    return (*(1 << k for k in range((batch - 1).bit_length())), batch)


def seeded_inputs(seeds: Tensor, shape: InputShape) -> Tensor:
    """Generate the input of each seed, the same on every device.

    The finalizer of MurmurHash3 (Appleby, 2011) over seed and position. Each input has its own upper bound, dark or
    bright, so that inputs differ in more than noise.
    """
    own = _murmur_mix((seeds ^ (seeds >> 32)) & LOW)
    places = torch.arange(shape.size, device=seeds.device) * 0x9E3779B9
    numbers = _murmur_mix((own[:, None] + places) & LOW)
    ends = 1 + (_murmur_mix(own ^ 0x5BD1E995) * shape.top >> 32)
    return numbers * ends[:, None] >> 32


def _murmur_mix(x: Tensor) -> Tensor:
    # Products wrap around 64 bits; their low 32 bits are still right.
    x = (x ^ (x >> 16)) * 0x85EBCA6B & LOW
    x = (x ^ (x >> 13)) * 0xC2B2AE35 & LOW
    return x ^ (x >> 16)


def load_decoder(*, tiny: bool, words: Sequence[str], device: str, seed: int, batch: int) -> DecodeEngine:
    """Make a warm language model with `batch` slots."""
    settings = parse_settings("llm-serve", words)
    if "slots" in settings:
        raise BenchError("the slots of a server are its batch size", hint="use --batch")
    work: Any = make("llm-serve", tiny=tiny, **settings | {"slots": batch})
    work.setup(_seeded_device(device, seed))
    return DecodeEngine(work.model, budget=work.budget, queue=sys.maxsize)  # the server has its own limit


def load_engine(name: str, *, tiny: bool, words: Sequence[str], device: str, seed: int, batch: int) -> InferenceEngine:
    """Make a warm engine; `words` are settings of the workload as KEY=VALUE."""
    settings = parse_settings(name, words)
    model, where = servable(name, tiny=tiny, settings=settings), _seeded_device(device, seed)
    return InferenceEngine(model, where, batch=batch, graph=settings.get("graph", True))


def _seeded_device(device: str, seed: int) -> torch.device:
    torch.set_num_threads(1)
    where = torch_device(device)
    if where.type == "cuda":
        torch.cuda.set_device(where.index or 0)  # plain `cuda` has no index and means the first GPU
    torch.manual_seed(seed)
    return where
