"""A language model that serves many requests at once: a decoder with a KV cache of fixed size, and its scheduler.

The cache has a number of slots, one per running sequence, each for `context` tokens; it is allocated once. One step of
decoding computes the next token of the first `batch` slots, over the first `length` positions of the cache: both are
rounded up to a few sizes, so that every step replays a CUDA graph. A slot that is not decoding writes to a spare
position behind its context, which nobody reads. Layers as in `workloads.decoder`, with rotary position embeddings (Su
et al., 2021). Weights are random: speed does not depend on them.

Batching is continuous: in each iteration others take the place of sequences that ended (Orca, OSDI '22). An iteration
computes the next token of every running sequence, and prefills waiting prompts in order of arrival, in parts (chunked
prefill), so that both together stay within a budget of tokens: a long prompt delays the others by at most one budget. A
sequence is admitted when a slot of the KV cache is free; the cache never grows. Those beyond wait in a queue of limited
length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from fleetlab.gpu.bench.workloads.kernels import capture_graph
from fleetlab.gpu.bench.workloads.text import DecoderLayer, tensors_on
from fleetlab.gpu.devices.console import BenchError

ROTARY_BASE = 10_000.0
# Without cuDNN's attention, which builds a plan for each new length of a prompt.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
SHORTEST = 512  # positions: the shortest length with a graph of its own


@dataclass(frozen=True, slots=True)
class DecoderSize:
    """Shape of the model and its cache; the default is that of small open models of 2024 (1.2 billion weights)."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    groups: int = 8  # key and value heads
    inner: int = 8192
    vocabulary: int = 128256
    slots: int = 32  # sequences in the cache
    context: int = 8192  # tokens per sequence, prompt and output together

    def __post_init__(self) -> None:
        for size in fields(self):
            if getattr(self, size.name) < 1:
                raise BenchError(f"not a size of a decoder: {size.name} {getattr(self, size.name)}", hint="1 or more")
        if self.width % (2 * self.heads) or self.heads % self.groups:
            msg = f"not the heads of a decoder: width {self.width}, heads {self.heads}, groups {self.groups}"
            raise BenchError(msg, hint="heads must divide width into even sizes, groups must divide heads")


class CachedDecoder:
    """Weights, cache, and the two computations: `prefill` of a prompt, and `decode` of the next tokens."""

    def __init__(self, size: DecoderSize, device: torch.device, *, dtype: torch.dtype | None = None) -> None:
        self.size, self.device = size, device
        self.dtype = dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        with tensors_on(device, self.dtype):
            self.words = nn.Embedding(size.vocabulary, size.width)
            layers = (DecoderLayer(size.width, size.heads, size.groups, size.inner) for _ in range(size.layers))
            self.stack = nn.ModuleList(layers)
            head = size.width // size.heads
            self.cache = torch.zeros(size.layers, 2, size.slots, size.groups, size.context + 1, head)
        angles = torch.arange(size.context + 1)[:, None] * ROTARY_BASE ** (-torch.arange(0, head, 2) / head)
        self.cos, self.sin = (part.to(device, self.dtype) for part in (angles.cos(), angles.sin()))
        self.tokens = torch.zeros(size.slots, dtype=torch.long, device=device)
        # Tokens of a slot that are in the cache: the position of its next token. `context` marks a slot at rest.
        self.positions = torch.full((size.slots,), size.context, device=device)
        self._rows = torch.arange(size.slots, device=device)
        self._places = torch.arange(size.context, device=device)
        self._runs: dict[tuple[int, int], Callable[[], None]] = {}
        self.how = "eager"

    def capture(self) -> None:
        """Capture every size of a decoding step as a CUDA graph; on a CPU steps stay eager."""
        if self.device.type != "cuda":
            return
        for batch in steps_up_to(1, self.size.slots):
            for length in steps_up_to(SHORTEST, self.size.context):
                self._runs[batch, length], self.how = capture_graph(partial(self._decode, batch, length), self.device)

    def begin(self, slot: int, position: int) -> None:
        """Let a slot decode from its next step on."""
        self.positions[slot] = position

    def rest(self, slot: int) -> None:
        """Let a slot decode no more."""
        self.positions[slot] = self.size.context

    def decode(self, batch: int, length: int) -> None:
        """Compute the next token of slots 0 to `batch`, none of which has more than `length` tokens."""
        key = round_up(batch, 1, self.size.slots), round_up(length, SHORTEST, self.size.context)
        run = self._runs.get(key)
        if run is None:
            self._decode(*key)
        else:
            run()

    @torch.no_grad()
    def _decode(self, batch: int, length: int) -> None:
        rows, at = self._rows[:batch], self.positions[:batch]
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        unseen = (self._places[:length] > at[:, None])[:, None, None]
        x = self.words(self.tokens[:batch])
        for layer, (keys, values) in zip(self._layers(), self.cache, strict=True):
            q, k, v = layer.project(x)
            keys[rows, :, at] = rotate(k, cos, sin)
            values[rows, :, at] = v
            read = keys[:batch, :, :length], values[:batch, :, :length]
            x = layer.finish(x, self._attend(rotate(q, cos, sin), *read, unseen))
        self.tokens[:batch] = self._next(x)
        self.positions[:batch] = (at + 1).clamp(max=self.size.context)

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, unseen: Tensor) -> Tensor:
        """Attention of one query per sequence, in two products over the cache as it lies in memory."""
        batch, heads, head = q.shape
        grouped = q.view(batch, self.size.groups, heads // self.size.groups, head) * head**-0.5
        scores = (grouped @ keys.transpose(-1, -2)).masked_fill(unseen, -torch.inf)
        weights: Tensor = scores.softmax(-1, dtype=torch.promote_types(self.dtype, torch.float32)).to(self.dtype)
        attended: Tensor = weights @ values
        return attended.reshape(batch, heads * head)

    @torch.no_grad()
    def prefill(self, slot: int, tokens: Tensor, start: int) -> None:
        """Put a part of a prompt into the cache, after the `start` tokens that are there; its next token is kept."""
        n = len(tokens)
        end = start + n
        cos, sin = self.cos[start:end][:, None], self.sin[start:end][:, None]
        visible = self._places[:end] <= self._places[start:end, None] if start else None
        x = self.words(tokens)
        for layer, (keys, values) in zip(self._layers(), self.cache, strict=True):
            q, k, v = layer.project(x)
            keys[slot, :, start:end] = rotate(k, cos, sin).transpose(0, 1)
            values[slot, :, start:end] = v.transpose(0, 1)
            # Heads are repeated, because the fast kernels take a mask or groups, not both.
            repeat = self.size.heads // self.size.groups
            k, v = (part[slot, :, :end].repeat_interleave(repeat, 0)[None] for part in (keys, values))
            q = rotate(q, cos, sin).transpose(0, 1)[None]
            with sdpa_kernel(KERNELS):
                attended = scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=visible is None)
            x = layer.finish(x, attended[0].transpose(0, 1))
        self.tokens[slot] = self._next(x[-1:])[0]

    def _next(self, x: Tensor) -> Tensor:
        return (rms_norm(x, (self.size.width,)) @ self.words.weight.T).argmax(-1)

    def _layers(self) -> Any:  # noqa: ANN401  a ModuleList does not know its type
        return self.stack


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of heads, by halves."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def steps_up_to(low: int, high: int) -> list[int]:
    """Sizes with graphs of their own: doubled from `low`, and `high`.

    >>> steps_up_to(512, 3000)
    [512, 1024, 2048, 3000]
    """
    sizes = []
    while low < high:
        sizes.append(low)
        low *= 2
    return [*sizes, high]


def round_up(value: int, low: int, high: int) -> int:
    """The smallest of `steps_up_to` that holds a value."""
    return next(size for size in steps_up_to(low, high) if size >= value)


# --- continuous batching ---------------------------------------------------------------------------------------------


class QueueFullError(Exception):
    """No room for another sequence."""


@dataclass(slots=True, eq=False)
class Generation:
    """A prompt, and the tokens generated from it."""

    prompt: Sequence[int] | NDArray[np.int64]
    max_tokens: int
    tag: Any = None  # whatever the caller needs to know it by
    slot: int = -1
    prefilled: int = 0  # tokens of the prompt in the cache
    tokens: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether all its tokens are there."""
        return len(self.tokens) >= self.max_tokens


class NewToken(NamedTuple):
    """A token of a sequence."""

    of: Generation
    token: int
    last: bool


class DecodeEngine:
    """The scheduler of one model; not thread-safe: one thread submits, cancels and steps."""

    def __init__(self, model: CachedDecoder, *, budget: int = 2048, queue: int = 256) -> None:
        if budget < model.size.slots:
            msg = f"a budget of {budget} tokens is less than the {model.size.slots} slots decode in one iteration"
            raise BenchError(msg, hint="a larger token budget, or fewer slots")
        self.model, self.budget, self._most = model, budget, queue
        self.waiting: deque[Generation] = deque()
        self.prefilling: deque[Generation] = deque()
        self.running: dict[int, Generation] = {}
        self._free = set(range(model.size.slots))

    def submit(self, one: Generation) -> None:
        """Queue a sequence; `QueueFullError` if there is no room, an error if it can never fit."""
        size = self.model.size
        if not len(one.prompt) or one.max_tokens < 1:
            raise BenchError("a request needs a prompt and at least one token of output")
        if len(one.prompt) + one.max_tokens > size.context:
            msg = f"{len(one.prompt)} tokens of prompt and {one.max_tokens} of output exceed {size.context}"
            raise BenchError(msg, hint="a shorter prompt, or a smaller max_tokens")
        if len(self.waiting) >= self._most:
            raise QueueFullError(f"the queue is full: {len(self.waiting)} of {self._most} requests")
        self.waiting.append(one)

    def cancel(self, one: Generation) -> None:
        """Forget a sequence, and free its slot."""
        for queue in (self.waiting, self.prefilling):
            if one in queue:
                queue.remove(one)
        self._release(one)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return not (self.waiting or self.prefilling or self.running)

    @property
    def kv_tokens(self) -> int:
        """Tokens in the cache."""
        held = [*self.running.values(), *self.prefilling]
        return sum(one.prefilled + max(len(one.tokens) - 1, 0) for one in held)

    @property
    def kv_capacity(self) -> int:
        """Tokens that the cache can hold."""
        return self.model.size.slots * self.model.size.context

    def step(self) -> list[NewToken]:
        """Run one iteration; returns the new tokens, in the order of the slots."""
        self._admit()
        decoded = sorted(self.running.values(), key=lambda one: one.slot)
        if decoded:
            longest = max(len(one.prompt) + len(one.tokens) for one in decoded)
            self.model.decode(decoded[-1].slot + 1, longest)
        begun = self._prefill(self.budget - len(decoded))
        if not decoded and not begun:
            return []
        tokens = self.model.tokens.tolist()  # waits for the device
        return [self._emit(one, tokens[one.slot]) for one in (*decoded, *begun)]

    def _admit(self) -> None:
        while self.waiting and self._free:
            one = self.waiting.popleft()
            one.slot = min(self._free)  # the lowest, so that batches stay small
            self._free.remove(one.slot)
            self.prefilling.append(one)

    def _prefill(self, budget: int) -> list[Generation]:
        """Prefill prompts in order, in parts; returns those whose first token is there."""
        begun = []
        while self.prefilling and budget > 0:
            one = self.prefilling[0]
            part = one.prompt[one.prefilled : one.prefilled + budget]
            self.model.prefill(one.slot, torch.as_tensor(part, device=self.model.device), one.prefilled)
            one.prefilled += len(part)
            budget -= len(part)
            if one.prefilled == len(one.prompt):
                self.prefilling.popleft()
                self.running[one.slot] = one
                self.model.begin(one.slot, one.prefilled)
                begun.append(one)
        return begun

    def _emit(self, one: Generation, token: int) -> NewToken:
        one.tokens.append(token)
        if one.ended:
            self._release(one)
        return NewToken(one, token, one.ended)

    def _release(self, one: Generation) -> None:
        if one.slot < 0:
            return
        self.model.rest(one.slot)
        self.running.pop(one.slot, None)
        self._free.add(one.slot)
        one.slot = -1
