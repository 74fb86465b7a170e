"""Kubernetes' amounts (`20Gi`, `500M`, `4`) and MPS' (`8G`, `35942M`), as whole numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction

SUFFIX = {"": Fraction(1)}
SUFFIX |= {sign: Fraction(1000) ** n for n, sign in enumerate("num kMGTPE", -3) if sign != " "}
SUFFIX |= {f"{sign}i": Fraction(1024) ** n for n, sign in enumerate("KMGTPE", 1)}
AMOUNT = re.compile(r"([+-]?\d{1,18}(?:\.\d{0,18})?)(?:[eE]([+-]?\d{1,2})|([A-Za-z]{0,2}))")
LIMIT = re.compile(r"(\d{1,9})=(\d{1,12})([GM])")


def exact(value: object) -> Fraction | None:
    """An amount as Kubernetes reads it, to the last digit; None where it is none.

    >>> str(exact("500m")), str(exact(-1.5)), str(exact("1e3")), exact("4 GB")
    ('1/2', '-3/2', '1000', None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = AMOUNT.fullmatch(str(value))
    if match is None or (match[3] or "") not in SUFFIX:
        return None
    return Fraction(match[1]) * (Fraction(10) ** int(match[2]) if match[2] else SUFFIX[match[3] or ""])


def amount(value: object) -> int | None:
    """Bytes, or pieces; None where it is no amount. What is less than one is rounded up, as Kubernetes does.

    >>> amount("20Gi") // 2**20, amount(4), amount("4 GB")
    (20480, 4, None)
    """
    value_exact = exact(value)
    return None if value_exact is None or value_exact < 0 else math.ceil(value_exact)


def whole(value: object) -> int | None:
    """A whole number without a unit, written as number or word; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,12}", value) else None


def limit_mib(value: object) -> int | None:
    """MiB of MPS' limit for the first GPU.

    >>> limit_mib("0=8G"), limit_mib("0=35942M")
    (8192, 35942)
    """
    match = LIMIT.fullmatch(str(value))
    return None if match is None else int(match[2]) * (1024 if match[3] == "G" else 1)
