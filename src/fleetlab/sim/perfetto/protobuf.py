"""Protocol buffers, as much of them as a trace needs: single messages, and many alike at once.

The number of bytes of a number is ours to choose: the format allows leading zeros. So all messages of one layout have
the same length, and a million of them are columns of one matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, LENGTH = 0, 1, 2  # how a field is written
Columns = Mapping[str, NDArray[np.generic]]


def varint(value: int, width: int = 0) -> bytes:
    """Return a number, 7 bits in each byte, the lowest first; with zeros up to `width` bytes.

    >>> varint(300).hex(), varint(1, 3).hex()
    ('ac02', '818000')
    """
    if value < 0x80 and width < 2:
        return bytes((value,))
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F)
    parts += [0] * (width - len(parts))
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def number(field: int, value: int) -> bytes:
    """Return a field with a number."""
    return varint(field << 3 | VARINT) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    """Return a field with a text, or with a message."""
    content = value.encode("utf-8", errors="replace") if isinstance(value, str) else value
    return varint(field << 3 | LENGTH) + varint(len(content)) + content


@dataclass(frozen=True, slots=True)
class Number:
    """A field with a number of at most `width` times 7 bits, from a column."""

    field: int
    column: str
    width: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """A field with 8 bytes, a float or a number as the column has it."""

    field: int
    column: str


@dataclass(frozen=True, slots=True)
class Message:
    """A field with a message; what is bytes already is the same in all of them."""

    field: int
    parts: Sequence[Part]


Part = bytes | Number | Fixed | Message


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the bytes of a column go."""

    column: str
    at: int
    width: int  # 0: fixed


def messages(layout: Message, columns: Columns) -> bytes:
    """Return as many messages as the columns have rows."""
    places: list[_Place] = []
    template = _template(layout, places, 0)
    rows = len(next(iter(columns.values())))
    out = np.empty((rows, len(template)), dtype=np.uint8)
    out[:] = np.frombuffer(template, dtype=np.uint8)
    for place in places:
        values = columns[place.column]
        if place.width:
            _put_numbers(out[:, place.at : place.at + place.width], values.astype(np.uint64))
        else:
            fixed = np.ascontiguousarray(values, dtype="<f8" if values.dtype.kind == "f" else "<u8")
            out[:, place.at : place.at + 8] = fixed.view(np.uint8).reshape(rows, 8)
    return out.tobytes()


def _template(part: Part, places: list[_Place], at: int) -> bytes:
    """Return the bytes of a part with zeros in place of columns, which are noted in `places`."""
    if isinstance(part, bytes):
        return part
    if isinstance(part, Message):
        head, size = varint(part.field << 3 | LENGTH), _size(part.parts)
        head += varint(size)
        for inner in part.parts:
            head += _template(inner, places, at + len(head))
        return head
    tag = varint(part.field << 3 | (VARINT if isinstance(part, Number) else FIXED64))
    width = part.width if isinstance(part, Number) else 0
    places.append(_Place(part.column, at + len(tag), width))
    return tag + bytes(width or 8)


def _size(parts: Sequence[Part]) -> int:
    return sum(len(_template(part, [], 0)) for part in parts)


def _put_numbers(out: NDArray[np.uint8], values: NDArray[np.uint64]) -> None:
    width = out.shape[1]
    if len(values) and int(values.max()) >> 7 * width:
        msg = f"a number of a trace has more than {7 * width} bits: {values.max()}"
        raise OverflowError(msg)
    for k in range(width):
        out[:, k] = (values >> np.uint64(7 * k)) & np.uint64(0x7F)
        if k + 1 < width:
            out[:, k] |= 0x80
