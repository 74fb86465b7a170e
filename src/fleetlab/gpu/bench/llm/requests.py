"""Requests to language models: lengths and arrivals of a trace or as published, and goals of latency.

Published are quantiles of the Azure LLM inference traces of November 2023, one hour (Patel et al., Splitwise, ISCA
2024; CC-BY 4.0): 19,366 requests for conversations and 8,819 for code completion. Prompt and output lengths are hardly
correlated there (rank correlation 0.07 and -0.02), nor are successive gaps (0.06 and 0.00), so that each is drawn by
itself.

A trace is a file with the columns of Azure's, or synthetic: with the distributions of lengths and gaps above, each
drawn by itself: a rate that changes from minute to minute is in the files alone.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetlab.gpu.devices.console import BenchError

METRICS = ("ttft", "tpot", "e2el")


def parse_goals(text: str, metrics: Sequence[str] = METRICS) -> dict[str, float]:
    """Goals in seconds from words in milliseconds.

    >>> parse_goals("ttft:200,tpot:50")
    {'ttft': 0.2, 'tpot': 0.05}
    """
    goals = {}
    for word in text.replace(" ", ",").split(","):
        name, _, ms = word.partition(":")
        try:
            goals[name] = float(ms) / 1000
        except ValueError:
            goals[name] = math.nan
        if name not in metrics or not 0 < goals[name] < math.inf:
            msg = f"not a goal: `{word}`"
            raise BenchError(msg, hint=f"such as ttft:200,tpot:50, in ms; there are {', '.join(metrics)}")
    return goals


# --- lengths and gaps of requests to language models, as published ---------------------------------------------------


class Summary(NamedTuple):
    """Quantiles at LEVELS."""

    prompt: list[float]  # tokens
    output: list[float]  # tokens
    gap_ms: list[float]  # between two requests


_AZURE: dict[str, Any] = json.loads(files("fleetlab.gpu.bench.llm").joinpath("azure.json").read_text("utf-8"))
LEVELS: list[float] = _AZURE.pop("levels")
PUBLISHED = {name: Summary(**quantiles) for name, quantiles in _AZURE.items()}


# --- lengths and arrivals of requests to language models -------------------------------------------------------------


SYNTHETIC = 2000  # requests that are drawn
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """Requests in order of arrival."""

    source: str
    at: NDArray[np.float64]  # s from the first
    prompt: NDArray[np.int64]  # tokens
    output: NDArray[np.int64]  # tokens

    def __len__(self) -> int:
        return len(self.at)

    @property
    def rate(self) -> float:
        """Requests per second."""
        return (len(self) - 1) / float(self.at[-1])

    def fitting(self, context: int) -> RequestTrace:
        """Without requests that exceed a model's context; the others keep their times."""
        fits = self.prompt + self.output <= context
        if fits.sum() < 2:
            msg = f"{self.source}: no requests of at most {context} tokens"
            raise BenchError(msg, hint="a model with a longer context")
        return RequestTrace(self.source, self.at[fits] - self.at[fits][0], self.prompt[fits], self.output[fits])

    def window(self, seconds: float, *, rate: float | None = None, seed: int = 0) -> Iterator[tuple[float, int, int]]:
        """Due time, prompt and output tokens of requests for `seconds`, from a random request on, at a mean rate.

        At the end it goes on with the first request. The times between requests keep their burstiness.
        """
        if rate is not None and not 0 < rate < math.inf:
            raise BenchError(f"not a rate: {rate} per second")
        gaps = np.diff(self.at, append=self.at[-1] + 1 / self.rate) * (1 if rate is None else self.rate / rate)
        k = int(np.random.default_rng((seed, len(self))).integers(len(self)))
        now = float(gaps[k - 1])
        while now < seconds:
            yield now, int(self.prompt[k]), int(self.output[k])
            now += float(gaps[k])
            k = (k + 1) % len(self)


def read_trace(name: str) -> RequestTrace:
    """Read a CSV file with the columns of Azure's traces, or draw requests like theirs: azure-conv, azure-code.

    >>> len(read_trace("azure-conv"))
    2000
    """
    if name in PUBLISHED:
        return _synthetic(name, PUBLISHED[name])
    try:
        with Path(name).open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [c for c in COLUMNS if c not in (rows.fieldnames or [])]:
                msg = f"{name}: not a trace of requests: no column {', '.join(missing)}"
                raise BenchError(msg, hint=f"the columns are {', '.join(COLUMNS)}")
            numbers = [_row(row, name, n) for n, row in enumerate(rows, 2)]
    except (OSError, UnicodeDecodeError) as e:
        msg = f"cannot read the trace of requests: {name}: {getattr(e, 'strerror', None) or e}"
        raise BenchError(msg, hint=f"one of {', '.join(PUBLISHED)}, or a CSV file") from None
    if len(numbers) < 2 or max(numbers)[0] <= min(numbers)[0]:
        raise BenchError(f"{name}: fewer than two requests at different times")
    at, prompt, output = (np.array(column) for column in zip(*sorted(numbers), strict=True))
    return RequestTrace(name, at - at[0], prompt, output)


def _synthetic(name: str, summary: Summary) -> RequestTrace:
    """Draw requests; the same ones every time, in every process that is compared."""
    chance = np.random.default_rng(0).random((3, SYNTHETIC))
    prompt, output, gap_ms = (np.interp(u, LEVELS, q) for u, q in zip(chance, summary, strict=True))
    at = np.cumsum(gap_ms / 1000)
    return RequestTrace(name, at - at[0], prompt.astype(np.int64), output.astype(np.int64))


def _row(row: dict[str, str], name: str, line: int) -> tuple[float, int, int]:
    try:
        # Seven decimals of a second, of which Python reads six.
        at = datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
        prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
    except (ValueError, TypeError) as e:
        raise BenchError(f"{name}: line {line}: {e}") from None
    if prompt < 1 or output < 1:
        raise BenchError(f"{name}: line {line}: tokens must be 1 or more: {prompt}, {output}")
    return at, prompt, output
