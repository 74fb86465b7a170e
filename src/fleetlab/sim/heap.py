"""Heaps of (key, item): the lowest key first, ties to the lower item. Several may lie in one pair of arrays."""

from __future__ import annotations

from fleetlab.sim.jit import inner
from fleetlab.sim.layout import Floats, Ints


@inner
def push(keys: Floats, heap: Ints, at: int, size: int, key: float, item: int) -> None:
    """Add an item to the heap that begins at `at` and has `size` entries."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if keys[at + up] < key or (keys[at + up] == key and heap[at + up] < item):
            break
        keys[at + i], heap[at + i] = keys[at + up], heap[at + up]
        i = up
    keys[at + i], heap[at + i] = key, item


@inner
def sink(keys: Floats, heap: Ints, at: int, size: int, i: int, key: float, item: int) -> None:
    """Put an item where entry `i` of a heap was, or further down."""
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        if down + 1 < size:
            a, b = keys[at + down], keys[at + down + 1]
            down += b < a or (b == a and heap[at + down + 1] < heap[at + down])
        if key < keys[at + down] or (key == keys[at + down] and item < heap[at + down]):
            break
        keys[at + i], heap[at + i] = keys[at + down], heap[at + down]
        i = down
    keys[at + i], heap[at + i] = key, item


@inner
def pop(keys: Floats, heap: Ints, at: int, size: int) -> None:
    """Remove the first entry of the heap that begins at `at` and has `size` entries."""
    sink(keys, heap, at, size - 1, 0, keys[at + size - 1], heap[at + size - 1])


@inner
def remove(keys: Floats, heap: Ints, at: int, size: int, i: int) -> None:
    """Remove the entry at position `i` of the arrays from the heap that begins at `at`."""
    key, item = keys[at + size - 1], heap[at + size - 1]
    i -= at
    while i > 0:
        up = (i - 1) >> 1
        if keys[at + up] < key or (keys[at + up] == key and heap[at + up] < item):
            break
        keys[at + i], heap[at + i] = keys[at + up], heap[at + up]
        i = up
    sink(keys, heap, at, size - 1, i, key, item)


@inner
def heapify(keys: Floats, heap: Ints, size: int) -> None:
    """Make a heap of the first `size` entries, in place."""
    for i in range(size // 2 - 1, -1, -1):
        sink(keys, heap, 0, size, i, keys[i], heap[i])
