"""`POST /v1/completions`: the completions of OpenAI's API, as far as a model with random weights can have them.

Answers stream as server-sent events. Decoding is greedy and always gives `max_tokens` tokens. A prompt is text (a token
per byte), a list of tokens, or a number: so many random tokens.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fleetlab.gpu.serving.server.app import CLOSE, GONE, GetRoute, ServerState, method_not_allowed, read_body, send_json
from fleetlab.gpu.serving.server.generator import TokenGenerator, TokenStream
from fleetlab.gpu.serving.server.requests import RequestError, malformed

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
EXAMPLE = '{"prompt": "some text", "max_tokens": 16, "stream": true}'
# What would change the answer, and the only values that this server has.
FIXED: dict[str, tuple[Any, ...]] = {
    "n": (1, None),
    "best_of": (1, None),
    "echo": (False, None),
    "logprobs": (None,),
    "suffix": (None, ""),
    "stop": (None, []),
    "temperature": (0, None),
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A validated request."""

    prompt: NDArray[np.int64]
    max_tokens: int
    stream: bool
    usage: bool  # a last chunk with the number of tokens


def parse_completion(body: bytes, vocabulary: int, context: int) -> Completion:
    """Read the body of a request."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise malformed(f"not JSON: {str(e)[:200]}", f"a request is {EXAMPLE}") from None
    if not isinstance(request, dict) or "prompt" not in request:
        raise malformed("no prompt", f"a request is {EXAMPLE}")
    for name, values in FIXED.items():
        if name in request and request[name] not in values:
            msg = f"not supported: {name} {str(request[name])[:40]}"
            raise malformed(msg, f"{name} is {json.dumps(values[0])}: decoding is greedy, one answer per request")
    most = request.get("max_tokens", 16)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise malformed(f"not a number of tokens: max_tokens {str(most)[:40]}", "an integer from 1 up")
    options = request.get("stream_options") or {}
    usage = bool(options.get("include_usage")) if isinstance(options, dict) else False
    return Completion(_prompt(request["prompt"], vocabulary, context), most, bool(request.get("stream", False)), usage)


def _prompt(prompt: object, vocabulary: int, context: int) -> NDArray[np.int64]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]  # a batch of one
    if isinstance(prompt, str):
        tokens = np.frombuffer(prompt.encode("utf-8", "replace"), np.uint8).astype(np.int64) % vocabulary
    elif isinstance(prompt, int) and not isinstance(prompt, bool) and 1 <= prompt <= context:
        tokens = np.random.default_rng(prompt).integers(0, vocabulary, prompt)
    elif isinstance(prompt, list) and all(type(token) is int and 0 <= token < vocabulary for token in prompt):
        tokens = np.array(prompt, np.int64)
    else:
        msg = f"not a prompt: {str(prompt)[:40]}"
        raise malformed(msg, f"text, a list of tokens from 0 to {vocabulary - 1}, or a number of tokens to {context}")
    if not len(tokens):
        raise malformed("an empty prompt", "at least one token")
    return tokens


class CompletionsRoute:
    """Answers and counts requests."""

    def __init__(self, state: ServerState, generator: TokenGenerator) -> None:
        self._state, self._generator, self._numbers = state, generator, count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await method_not_allowed(scope, send, b"POST")
            return
        began, counts = time.monotonic(), self._state.counts
        counts.begin()
        why: str | None = "internal"
        try:
            why = await self._answer(scope, receive, send)
        except asyncio.CancelledError:
            why = "gone"
            raise
        finally:
            scope.pop(GONE, None)
            counts.end(why, time.monotonic() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> str | None:
        """Returns the reason of an error; None if all tokens were sent."""
        reply = CompletionReply(self._state.work, next(self._numbers), send)
        try:
            request, stream = await self._begin(scope, receive)
            scope[GONE] = stream.client_gone
            await (reply.stream if request.stream else reply.whole)(request, stream)
        except RequestError as e:
            if e.reason != "gone":
                await reply.error(e, closing=self._state.draining)
            return e.reason
        except Exception as e:  # our own bugs must be answered and counted, too
            await reply.error(RequestError(f"the server failed: {type(e).__name__}: {str(e)[:200]}", "internal"))
            return "internal"
        return None

    async def _begin(self, scope: Scope, receive: Receive) -> tuple[Completion, TokenStream]:
        state = self._state
        if "crowded" in scope["state"]:
            msg = f"more than {state.limits.connections} connections"
            raise RequestError(msg, "connections", hint="use fewer connections, and reuse them")
        size = state.engine().model.size
        self._generator.room_for(1)
        body, _ = await read_body(scope, receive, state.limits)
        request = parse_completion(body, size.vocabulary, size.context)
        state.engine()  # a shutdown may have begun meanwhile
        stream = self._generator.put(request.prompt, request.max_tokens)
        state.counts.accepted += 1
        return request, stream


class CompletionReply:
    """The answer to one request, as a whole or in chunks."""

    def __init__(self, model: str, number: int, send: Send) -> None:
        self._about = {"id": f"cmpl-{number}", "object": "text_completion", "created": int(time.time()), "model": model}
        self._send, self._begun = send, False

    async def whole(self, request: Completion, stream: TokenStream) -> None:
        """Wait for all tokens."""
        tokens = []
        while (token := await stream.next()) is not None:
            tokens.append(token)
        text = "".join(f" {token}" for token in tokens)
        body = self._about | {"choices": [_choice(text, "length")], "usage": _usage(request)}
        await send_json(self._send, 200, json.dumps(body).encode(), [])

    async def stream(self, request: Completion, stream: TokenStream) -> None:
        """Send each token when it is there."""
        remaining = request.max_tokens
        while (token := await stream.next()) is not None:
            remaining -= 1
            await self._event(self._about | {"choices": [_choice(f" {token}", None if remaining else "length")]})
        if request.usage:
            await self._event(self._about | {"choices": [], "usage": _usage(request)})
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def error(self, e: RequestError, *, closing: bool = False) -> None:
        """An error as the answer or, if tokens were sent already, as the last event: then without [DONE]."""
        if not self._begun:
            await send_json(self._send, e.status, e.body(), [*e.headers(), *([CLOSE] if closing else [])])
        else:
            await self._send({"type": "http.response.body", "body": b"data: %b\n\n" % e.body()})

    async def _event(self, about: dict[str, Any]) -> None:
        if not self._begun:
            self._begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": STREAM})
        body = b"data: %b\n\n" % json.dumps(about).encode()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


def _usage(request: Completion) -> dict[str, int]:
    prompt, output = len(request.prompt), request.max_tokens
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def completion_routes(state: ServerState, generator: TokenGenerator) -> list[Route]:
    """Routes of a server of a language model."""
    models = {"object": "list", "data": [{"id": state.work, "object": "model", "owned_by": "fleetlab"}]}
    return [
        Route("/v1/completions", CompletionsRoute(state, generator)),
        Route("/v1/models", GetRoute(lambda: JSONResponse(models))),
    ]
