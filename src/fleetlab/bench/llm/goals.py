"""Latency goals of requests to a language model, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fleetlab.devices.errors import BenchError

METRICS = ("ttft", "tpot", "e2el")


def parse_goals(words: str, metrics: Sequence[str] = METRICS) -> dict[str, float]:
    """Goals in seconds from words in milliseconds.

    >>> parse_goals("ttft:200,tpot:50")
    {'ttft': 0.2, 'tpot': 0.05}
    """
    goals = {}
    for word in words.replace(" ", ",").split(","):
        name, _, ms = word.partition(":")
        try:
            goals[name] = float(ms) / 1000
        except ValueError:
            goals[name] = math.nan
        if name not in metrics or not 0 < goals[name] < math.inf:
            msg = f"not a goal: `{word}`"
            raise BenchError(msg, hint=f"such as ttft:200,tpot:50, in ms; there are {', '.join(metrics)}")
    return goals
