"""Values of slurm.conf: lengths of time, names, numbers and weights, as people write them there."""

from __future__ import annotations

import math
import re

from fleetlab.core import TraceError
from fleetlab.schedulers.slurm.reader.accounts import resource
from fleetlab.schedulers.slurm.reader.conf_text import limit

YES = frozenset({"yes", "true", "1", "on"})


def weights_of(text: str, *, per_mib: bool) -> dict[str, float]:
    """Return weights by resource; a weight of memory is for a MiB, or with a suffix for that much.

    >>> weights_of("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", per_mib=True)
    {'cpu': 1.0, 'memory': 0.000244140625, 'gpu': 2.0}
    """
    weights = {}
    for name, _, value in (part.strip().partition("=") for part in text.split(",")):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", value.strip().upper())
        if name and match:
            unit = {"K": 1 / 1024, "G": 1024, "T": 1024**2, "P": 1024**3}.get(match[2], 1) if per_mib else 1
            weights[resource(name)] = float(match[1]) / unit
    return weights


def given(text: str) -> bool:
    """Whether a value says something."""
    return text.strip().lower() not in ("", "none", "n/a", "(null)")


def name_of(text: str) -> str | None:
    """Return a name, or None."""
    return text if given(text) else None


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of a list; ALL is none in particular."""
    return () if not given(text) or text.upper() == "ALL" else words_of(text)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a list."""
    return tuple(word for part in text.split(",") if (word := part.strip()) and given(word))


def whole(text: str, default: float) -> int:
    """Return a whole number, or the default where it is none."""
    return int(text) if text.isdigit() else default  # type: ignore[return-value]


def seconds_of(text: str, default: float, *, seconds: bool = False) -> float:
    """Return a length of time: a number alone is in minutes, or in `seconds`; scontrol writes `300 sec`."""
    text = text.strip().lower()
    if not given(text):
        return default
    if text in ("unlimited", "infinite", "-1"):
        return math.inf
    if match := re.fullmatch(r"(\d+)\s*(sec|min|usec)", text):
        return float(match[1]) * {"sec": 1, "min": 60, "usec": 1e-6}[match[2]]
    if seconds and text.isdigit():
        return float(text)
    try:
        return limit(text) or 0.0
    except ValueError as e:
        msg = f"the configuration has {e}"
        raise TraceError(msg, hint="minutes, minutes:seconds, hours:minutes:seconds or days-hours") from None
