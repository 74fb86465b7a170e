"""A timeline of a whole cluster before it is drawn: what its rows and colors are, and tiles of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SMALLEST = 64_000  # bytes that a timeline may have whatever else a page holds
LARGEST = 3_400_000  # bytes of tiles: 4.5 MB in a page, where three bytes are four letters


@dataclass(frozen=True, slots=True)
class TimelineFigure:
    """GPUs × time, and below it the queue: drawn by the script of a page.

    `about` has plain values: span, levels of rows, nodes, colors, queue and arrivals. `tiles` has compressed planes by
    `LEVEL/ZOOM/COLUMN/BLOCK/PLANE`; of the levels and zooms in `about["held"]`, a tile that is not there is empty.
    """

    title: str
    about: Mapping[str, Any]
    alt: str  # what it shows, in a sentence
    tiles: Mapping[str, bytes] = field(default_factory=dict)
