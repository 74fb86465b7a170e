"""Answers in memory: as compressed JSON, so that what they take is what is counted.

Objects made from JSON take several times its bytes, and how many nobody knows; the bytes themselves are counted
exactly. To open an answer again takes a few milliseconds.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from typing import Any

LEVEL = 1  # figures are mostly digits: more effort saves little


def pack(value: Any) -> bytes:  # noqa: ANN401
    """Return a value as compressed JSON."""
    return zlib.compress(json.dumps(value).encode(), LEVEL)


def unpack(packed: bytes) -> Any:  # noqa: ANN401
    """Undo `pack`."""
    return json.loads(zlib.decompress(packed))


class AnswerCache:
    """Answers by key, of so many bytes at most; the least recently used are dropped first.

    >>> cache = AnswerCache(most=100)
    >>> cache.put("a", pack({"jobs": 3}))
    >>> cache.get("a"), cache.get("b")
    ({'jobs': 3}, None)
    """

    def __init__(self, most: int) -> None:
        self.most, self.bytes = most, 0
        self._packed: OrderedDict[str, bytes] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._packed

    def __len__(self) -> int:
        return len(self._packed)

    def get(self, key: str) -> Any:  # noqa: ANN401
        """Return an answer, or None."""
        if key not in self._packed:
            return None
        self._packed.move_to_end(key)
        return unpack(self._packed[key])

    def put(self, key: str, packed: bytes) -> None:
        """Keep an answer, unless it alone is too large."""
        self.drop(key)
        if len(packed) > self.most:
            return
        self._packed[key] = packed
        self.bytes += len(packed)
        while self.bytes > self.most:
            self.drop(next(iter(self._packed)))

    def drop(self, key: str) -> None:
        """Forget an answer."""
        self.bytes -= len(self._packed.pop(key, b""))
