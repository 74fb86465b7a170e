"""Kubernetes quantities: `100m`, `1.5`, `2Gi`, `129e6`; exact, as fractions."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from fleetlab.traces.kubernetes.objects import MalformedObject, display

MOST = 2**63 - 1  # what Kubernetes itself allows

_FORM = re.compile(r"([+-]?)(\d{1,40}\.?\d{0,40}|\.\d{1,40})(|[EPTGMK]i|[numkMGTPE]|[eE][+-]?\d{1,3})")
_SUFFIX = {"": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_SUFFIX |= {letter: Fraction(1000 ** (k + 1)) for k, letter in enumerate("kMGTPE")}
_SUFFIX |= {f"{letter}i": Fraction(1024 ** (k + 1)) for k, letter in enumerate("KMGTPE")}


def quantity(value: object, where: str) -> Fraction:
    """An amount, exactly; Malformed if it is none, negative, or more than Kubernetes can count.

    >>> quantity("1536Mi", "memory") == quantity("1.5Gi", "memory")
    True
    """
    amount: Fraction | None = None
    if isinstance(value, str):
        amount = _parsed(value)
    elif (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and isfinite(value)):
        amount = Fraction(value)
    if amount is None:
        msg = f"`{where}` is not a quantity: {display(value)}"
        raise MalformedObject(msg)
    if not 0 <= amount <= MOST:
        msg = f"`{where}` is negative or larger than Kubernetes allows: {display(value)}"
        raise MalformedObject(msg)
    return amount


@lru_cache(4096)
def _parsed(text: str) -> Fraction | None:
    form = _FORM.fullmatch(text.strip())
    if not form:
        return None
    sign, number, suffix = form.groups()
    scale = _SUFFIX.get(suffix)
    if scale is None:
        scale = Fraction(10) ** int(suffix[1:])
    return Fraction(f"{sign}{number}") * scale
