"""Items that are counted by the trillion, and how one speaks of them."""

from __future__ import annotations

SCALE = {"flop": (1e-12, "TFLOP"), "byte": (1e-9, "GB")}


def scaled(unit: str) -> tuple[float, str]:
    """By how much to multiply a count of this unit, and what it then counts.

    >>> scaled("flop"), scaled("image")
    ((1e-12, 'TFLOP'), (1, 'image'))
    """
    return SCALE.get(unit, (1, unit))
