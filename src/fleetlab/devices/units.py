"""Readable units for large counts: TFLOP and GB."""

from __future__ import annotations

SCALE = {"flop": (1e-12, "TFLOP"), "byte": (1e-9, "GB")}


def unit_scale(unit: str) -> tuple[float, str]:
    """Return the factor and the name of the unit to print a count in.

    >>> unit_scale("flop"), unit_scale("image")
    ((1e-12, 'TFLOP'), (1, 'image'))
    """
    return SCALE.get(unit, (1, unit))
