"""What a request may be: the host names and bodies that are accepted, and the errors of others.

Each reason of an error has one HTTP status and one name in answers, counters and metrics. A page of another site must
not reach a server by a name that leads here. By DNS rebinding a page in a browser on this machine can make a name of
its own lead to 127.0.0.1; the browser then takes this server for the page's own site. The name is in the Host header.
Ports are not checked: a forwarded one has another number.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ErrorKind(NamedTuple):
    """HTTP status, group and retry time of a reason."""

    status: int
    group: str  # refused: not accepted, or expired; failed: accepted, but went wrong
    again: int = 0  # Retry-After, s


REASONS = {
    "malformed": ErrorKind(400, "refused"),
    "slow": ErrorKind(408, "refused"),
    "too-large": ErrorKind(413, "refused"),
    "queue-full": ErrorKind(429, "refused", 1),
    "not-ready": ErrorKind(503, "refused", 1),
    "draining": ErrorKind(503, "refused", 5),
    "deadline": ErrorKind(503, "refused", 1),
    "connections": ErrorKind(503, "refused", 1),
    "out-of-memory": ErrorKind(503, "failed", 1),
    "stuck": ErrorKind(503, "failed", 5),
    "model": ErrorKind(500, "failed"),
    "internal": ErrorKind(500, "failed"),
    "gone": ErrorKind(499, "failed"),  # the client disconnected: nobody receives this status
}


class RequestError(Exception):
    """A request without an answer; the hint says what to do."""

    def __init__(self, error: str, reason: str, *, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.reason, self.hint = error, reason, hint

    @property
    def status(self) -> int:
        """HTTP status."""
        return REASONS[self.reason].status

    def body(self) -> bytes:
        """Response body."""
        return error_body(self.error, self.hint, self.reason)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Additional response headers."""
        again = REASONS[self.reason].again
        return [(b"retry-after", b"%d" % again)] if again else []


def error_body(error: str, hint: str, reason: str) -> bytes:
    """JSON body of an error."""
    return json.dumps({"error": error, "hint": hint, "reason": reason}).encode()


def malformed(error: str, hint: str = "") -> RequestError:
    """An invalid request."""
    return RequestError(error, "malformed", hint=hint)


def client_gone() -> RequestError:
    """A request whose client disconnected."""
    return RequestError("the client disconnected", "gone")


# --- host names that a server answers to -----------------------------------------------------------------------------


HOST = re.compile(r"(?P<name>[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
REMEMBERED = 64  # headers that were accepted


class KnownHosts:
    """The names of one server; by an address of loopback it is always known.

    >>> local = KnownHosts("127.0.0.1", "127.0.0.1", ["lab.example"])
    >>> [local.accepts(host) for host in (b"localhost:9000", b"[::1]", b"lab.example", b"evil.example", b"10.0.0.1")]
    [True, True, True, False, False]
    """

    def __init__(self, host: str, address: str, allowed: Iterable[str]) -> None:
        self._local = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        own = () if self._local else (host, socket.gethostname(), socket.getfqdn())
        self._names = {name.lower() for name in ("localhost", *own, *allowed)}
        self._accepted: set[bytes] = set()

    def accepts(self, header: bytes) -> bool:
        """Whether a Host header names this server."""
        if header in self._accepted:  # nearly every request: the check must not cost time
            return True
        match = HOST.fullmatch(header.decode("latin-1").lower())
        known = match is not None and self._is_known(match["name"].strip("[]"))
        if known and len(self._accepted) < REMEMBERED:
            self._accepted.add(header)
        return known

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._local  # rebinding needs a name, not an address


# --- parse and validate the body of a request ------------------------------------------------------------------------


RAW = b"application/octet-stream"
EXAMPLE = '{"seed": 7} or {"input": [...]}'


class InputShape(NamedTuple):
    """The input of a model: `size` integers from 0 to below `top`."""

    size: int
    top: int
    noun: str  # what one integer is: pixel or token
    raw: str = "u1"  # numpy dtype of a raw body: u1 or <i4

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of raw bodies and of the copy to the device."""
        return np.dtype(self.raw)


class ModelInput(NamedTuple):
    """Integers, or the seed to generate them from."""

    seed: int = 0
    row: NDArray[Any] | None = None


def parse_inputs(body: bytes, kind: bytes, shape: InputShape, *, many: bool, most: int) -> Sequence[ModelInput]:
    """Parse one input, or `many`; at most `most`."""
    if kind.startswith(RAW):
        each = shape.size * shape.dtype.itemsize
        if not body or len(body) % each:
            raise _wrong_length(len(body), shape, "bytes", each)
        rows = np.frombuffer(body, shape.dtype).reshape(-1, shape.size)
        inputs: Sequence[ModelInput] = [ModelInput(row=_within(row, shape)) for row in rows]
    else:
        parsed = _parsed(body)
        inputs = [_input(one, shape) for one in _listed(parsed)] if many else (_input(parsed, shape),)
    if len(inputs) != 1 and not many:
        raise malformed(f"expected one input, not {len(inputs)}", "send several to /predict/batch")
    if len(inputs) > most:
        msg = f"more inputs than the queue can hold: {len(inputs)} of {most}"
        raise RequestError(msg, "too-large", hint="send them in several requests")
    return inputs


def _parsed(body: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as e:
        raise malformed(f"not JSON: {str(e)[:200]}", f"an input is {EXAMPLE}") from None


def _listed(value: object) -> list[Any]:
    if isinstance(value, dict) and set(value) == {"inputs"} and isinstance(value["inputs"], list) and value["inputs"]:
        return value["inputs"]
    raise malformed("no list of inputs", 'send {"inputs": [{"seed": 1}, {"seed": 2}]}')


def _input(value: object, shape: InputShape) -> ModelInput:
    if isinstance(value, dict) and len(value) == 1:
        if "seed" in value:
            return ModelInput(seed=_seed(value["seed"]))
        if "input" in value:
            return ModelInput(row=_numbers(value["input"], shape))
    msg = "not an input" + (f": keys {', '.join(map(str, sorted(value)))[:100]}" if isinstance(value, dict) else "")
    raise malformed(msg, f"an input is {EXAMPLE}")


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise malformed(f"not a seed: {str(value)[:40]}", "an integer from 0 to below 2^63")
    return value


def _numbers(values: object, shape: InputShape) -> NDArray[Any]:
    if not isinstance(values, list):
        raise malformed("an input is a flat list of numbers", f"{shape.size} of them")
    if len(values) != shape.size:
        raise _wrong_length(len(values), shape, "numbers")
    try:
        row = np.asarray(values)
    except (ValueError, OverflowError):
        row = np.asarray("")
    if row.ndim != 1 or row.dtype.kind not in "iuf":
        msg = f"not a flat list of numbers: one is a {next(_strangers(values), 'number too large')}"
        raise malformed(msg, f"{shape.size} integers from 0 to {shape.top - 1}")
    return _within(row, shape)


def _strangers(values: list[Any]) -> Any:  # noqa: ANN401
    """Types of the values that are not numbers."""
    return (type(v).__name__ for v in values if isinstance(v, bool) or not isinstance(v, int | float))


def _wrong_length(length: int, shape: InputShape, unit: str, each: int | None = None) -> RequestError:
    what = f"an input has {each or shape.size} {unit}, not {length}"
    return malformed(what, f"{shape.size} {shape.noun}s, as {shape.dtype.name} in a raw body")


def _within(row: NDArray[Any], shape: InputShape) -> NDArray[Any]:
    # Written so that NaN is rejected.
    wrong = ~((row >= 0) & (row < shape.top) & (row == np.floor(row)))
    if wrong.any():
        at = int(wrong.argmax())
        raise malformed(f"not a {shape.noun}: {row[at]} at {at}", f"integers from 0 to {shape.top - 1}")
    return row.astype(shape.dtype)
