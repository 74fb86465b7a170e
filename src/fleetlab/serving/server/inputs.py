"""Parse and validate the body of a request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.serving.server.errors import RequestError, malformed

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
        inputs: Sequence[ModelInput] = _raw(body, shape)
    else:
        parsed = _parsed(body)
        inputs = [_input(one, shape) for one in _listed(parsed)] if many else (_input(parsed, shape),)
    if len(inputs) != 1 and not many:
        msg = f"expected one input, not {len(inputs)}"
        raise malformed(msg, "send several to /predict/batch")
    if len(inputs) > most:
        msg = f"more inputs than the queue can hold: {len(inputs)} of {most}"
        raise RequestError(msg, "too-large", hint="send them in several requests")
    return inputs


def _parsed(body: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as e:
        msg = f"not JSON: {str(e)[:200]}"
        raise malformed(msg, f"an input is {EXAMPLE}") from None


def _listed(said: object) -> list[Any]:
    if isinstance(said, dict) and set(said) == {"inputs"} and isinstance(said["inputs"], list) and said["inputs"]:
        return said["inputs"]
    msg = "no list of inputs"
    raise malformed(msg, 'send {"inputs": [{"seed": 1}, {"seed": 2}]}')


def _input(said: object, shape: InputShape) -> ModelInput:
    if isinstance(said, dict) and len(said) == 1:
        if "seed" in said:
            return ModelInput(seed=_seed(said["seed"]))
        if "input" in said:
            return ModelInput(row=_numbers(said["input"], shape))
    msg = "not an input" + (f": keys {', '.join(map(str, sorted(said)))[:100]}" if isinstance(said, dict) else "")
    raise malformed(msg, f"an input is {EXAMPLE}")


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        msg = f"not a seed: {str(value)[:40]}"
        raise malformed(msg, "an integer from 0 to below 2^63")
    return value


def _numbers(values: object, shape: InputShape) -> NDArray[Any]:
    if not isinstance(values, list):
        msg = "an input is a flat list of numbers"
        raise malformed(msg, f"{shape.size} of them")
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


def _raw(body: bytes, shape: InputShape) -> list[ModelInput]:
    each = shape.size * shape.dtype.itemsize
    if not body or len(body) % each:
        raise _wrong_length(len(body), shape, "bytes", each)
    rows = np.frombuffer(body, shape.dtype).reshape(-1, shape.size)
    return [ModelInput(row=_within(row, shape)) for row in rows]


def _wrong_length(found: int, shape: InputShape, unit: str, each: int | None = None) -> RequestError:
    what = f"an input has {each or shape.size} {unit}, not {found}"
    return malformed(what, f"{shape.size} {shape.noun}s, as {shape.dtype.name} in a raw body")


def _within(row: NDArray[Any], shape: InputShape) -> NDArray[Any]:
    # Written so that NaN is rejected.
    wrong = ~((row >= 0) & (row < shape.top) & (row == np.floor(row)))
    if wrong.any():
        at = int(wrong.argmax())
        msg = f"not a {shape.noun}: {row[at]} at {at}"
        raise malformed(msg, f"integers from 0 to {shape.top - 1}")
    return row.astype(shape.dtype)
