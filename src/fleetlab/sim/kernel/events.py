"""The queue of events: what happens when, and at one moment in which order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator

Event = tuple[float, int, int, int]  # time, kind, whom it is about, tag


class EventQueue:
    """Events by time, at one time by kind, and of one kind by number.

    The kinds of a simulation are small integers in the order in which they happen at one moment: node events, ends of
    runs, arrivals, timers. A tag tells an event of a run that was cut short from one that still counts.

    Examples
    --------
    >>> queue = EventQueue([(5.0, 1, 7, 0), (5.0, 0, 9, 0)])
    >>> queue.push(1.0, 1, 8)
    >>> list(queue.pop_until(1.0)), queue.next_time
    ([(1, 8, 0)], 5.0)
    >>> list(queue.pop_until(5.0))
    [(0, 9, 0), (1, 7, 0)]
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._heap = [event for event in events if event[0] < math.inf]
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, time: float, kind: int, number: int, tag: int = 0) -> None:
        """Add an event."""
        heapq.heappush(self._heap, (time, kind, number, tag))

    @property
    def next_time(self) -> float:
        """When something happens next; infinity: nothing does."""
        return self._heap[0][0] if self._heap else math.inf

    def pop_until(self, time: float) -> Iterator[tuple[int, int, int]]:
        """Remove the events up to a time, also those that are added meanwhile: kind, number and tag of each."""
        while self._heap and self._heap[0][0] <= time:
            _, kind, number, tag = heapq.heappop(self._heap)
            yield kind, number, tag

    def pop_alike(self) -> tuple[float, int, list[int]]:
        """Remove the first event, and those of its kind at its time: the time, the kind, and the number of each."""
        time, kind, numbers = *self._heap[0][:2], []
        while self._heap and self._heap[0][:2] == (time, kind):
            numbers.append(heapq.heappop(self._heap)[2])
        return time, kind, numbers
