"""Continuous batching: in each iteration sequences that ended make room for others (Orca, OSDI '22).

An iteration computes the next token of every running sequence, and prefills waiting prompts in order of arrival, in
parts (chunked prefill), so that both together stay within a budget of tokens: a long prompt delays the others by at
most one budget. A sequence is admitted when a slot of the KV cache is free; the cache never grows. Those beyond wait in
a queue of limited length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fleetlab.bench.llm.model import CachedDecoder
from fleetlab.devices.errors import BenchError


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
            msg = "a request needs a prompt and at least one token of output"
            raise BenchError(msg)
        if len(one.prompt) + one.max_tokens > size.context:
            msg = f"{len(one.prompt)} tokens of prompt and {one.max_tokens} of output exceed {size.context}"
            raise BenchError(msg, hint="a shorter prompt, or a smaller max_tokens")
        if len(self.waiting) >= self._most:
            msg = f"the queue is full: {len(self.waiting)} of {self._most} requests"
            raise QueueFullError(msg)
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
