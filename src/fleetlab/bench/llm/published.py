"""Lengths and gaps of requests to language models, as published: quantiles.

Of the Azure LLM inference traces of November 2023, one hour (Patel et al., Splitwise, ISCA 2024; CC-BY 4.0): 19,366
requests for conversations and 8,819 for code completion. Prompt and output lengths are hardly correlated there (rank
correlation 0.07 and -0.02), nor are successive gaps (0.06 and 0.00), so that each is drawn by itself.
"""

from __future__ import annotations

from typing import NamedTuple

# fmt: off
LEVELS = (
    0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75,
    0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.998, 0.999, 1,
)


class Summary(NamedTuple):
    """Quantiles at LEVELS."""

    prompt: tuple[int, ...]  # tokens
    output: tuple[int, ...]  # tokens
    gap_ms: tuple[float, ...]  # between two requests


PUBLISHED = {
    "azure-conv": Summary(
        prompt=(
            2, 29, 120, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130, 1189, 1315,
            1876, 2734, 4075, 4083, 4092, 4142, 4831, 5652, 6212, 14050,
        ),
        output=(
            7, 16, 28, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 430,
            451, 522, 601, 643, 916, 954, 1000,
        ),
        gap_ms=(
            0.0, 0.5, 1.8, 6.3, 16.1, 26.4, 36.5, 48.3, 60.7, 73.5, 87.3, 101.9, 118.4, 137.6, 158.7, 183.2,
            213.6, 246.7, 288.8, 345.9, 420.7, 478.0, 565.2, 705.0, 889.7, 1034.2, 1249.2, 1411.2, 4314.6,
        ),
    ),
    "azure-code": Summary(
        prompt=(
            3, 17, 44, 75, 147, 232, 386, 578, 770, 938, 1075, 1261, 1469, 1690, 1909, 2164, 2433, 2745, 3192,
            3919, 5186, 6097, 7302, 7435, 7436, 7436, 7436, 7437, 7437,
        ),
        output=(
            6, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 29, 39, 55, 69, 90, 145, 252, 361,
            666, 824, 1899,
        ),
        gap_ms=(
            0.0, 0.0, 0.1, 0.1, 0.2, 0.9, 1.2, 2.1, 3.3, 5.3, 15.1, 38.2, 63.8, 89.6, 95.0, 97.9, 100.1, 104.0,
            160.1, 198.8, 272.9, 302.2, 400.8, 674.1, 2205.1, 9978.3, 41406.0, 79232.5, 217169.0,
        ),
    ),
}
# fmt: on
