"""Kubernetes' amounts (`20Gi`, `500M`, `4`) and MPS' (`8G`, `35942M`), as whole numbers."""

from __future__ import annotations

import re
from fractions import Fraction

SUFFIX = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([A-Za-z]{0,2})")
LIMIT = re.compile(r"(\d{1,9})=(\d{1,12})([GM])")


def amount(value: object) -> int | None:
    """Bytes, or pieces; None where it is no amount. What is less than one is rounded up, as Kubernetes does.

    >>> amount("20Gi") // 2**20, amount(4), amount("4 GB")
    (20480, 4, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    found = AMOUNT.fullmatch(str(value))
    if found is None or found[2] not in SUFFIX:
        return None
    exact = Fraction(found[1]) * SUFFIX[found[2]]
    return -(-exact.numerator // exact.denominator)


def whole(value: object) -> int | None:
    """A whole number without a unit, written as number or word; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,12}", value) else None


def limit_mib(value: object) -> int | None:
    """MiB of MPS' limit for the first card.

    >>> limit_mib("0=8G"), limit_mib("0=35942M")
    (8192, 35942)
    """
    found = LIMIT.fullmatch(str(value))
    return None if found is None else int(found[2]) * (1024 if found[3] == "G" else 1)
