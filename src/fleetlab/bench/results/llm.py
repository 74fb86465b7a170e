"""Servers of language models: time to first token, time per output token, and goodput, alone and beside others.

TTFT is the time to first token, from the scheduled time. TPOT is the time per output token of a request, (last -
first) / (n - 1); ITL the time between any two of its tokens. Goodput is the share of requests within the goals of both.

A request that the end of the window cut off while it met the goals is undecided. `goodput` leaves these out,
`goodput_least` counts them as missed and `goodput_most` as met. Without a first token, or already beyond a goal, a
request is missed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import ENDINGS, QUANTILES, quantiles
from fleetlab.bench.results.cells import Cell, Schema, mean, neighbors
from fleetlab.bench.results.latency import MAX_LAG, falls_behind, lag_p99, long_windows, sum_times, too_short
from fleetlab.stats import SHARE, Interval, design_effect, wilson

DRAWN = 4  # requests by whose lengths two windows with the same draw are known
NEVER = 3600.0  # s: a token that did not come in the window counts as the longest time of a histogram
SHOWN = [name + ending for name, _ in QUANTILES[:2] for ending in ENDINGS]
LLM: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "servers": pl.Int64}
LLM |= {f"{of}_{column}": pl.Float64 for of in ("ttft", "tpot") for column in SHOWN} | {"goodput": pl.Float64}
Rows = NDArray[np.float64]  # a row per request: tokens of prompt, of output, so far; s to the first and the last


def rows_llm(cells: Iterable[Cell], goals: dict[str, float] | None = None) -> Iterable[dict[str, Any]]:
    """One row per server and neighbors; copies of a server in one cell are pooled."""
    by: dict[tuple[str, str, str, int], list[Cell]] = defaultdict(list)
    for cell in cells:
        seats = [t["seat"] for t in cell["tenants"]]
        for one in cell["tenants"]:
            if "llm" in one:
                count = sum(t["tenant"] == one["tenant"] for t in cell["tenants"])
                by[cell["stage"], one["seat"], neighbors(seats, one["seat"]), count].append(one)
    for (stage, seat, others, count), ones in by.items():
        about = {"stage": stage, "tenant": seat, "beside": others, "servers": count}
        yield about | server_row(long_windows(ones, lambda one: [one]), goals)


@dataclass(frozen=True, slots=True)
class ServedWindows:
    """Requests of servers in their windows: which met the goals, and which ended."""

    goals: dict[str, float]
    first: list[Rows]  # TTFT
    each: list[Rows]  # TPOT
    within: list[NDArray[np.bool_]]
    ended: list[NDArray[np.bool_]]
    on_time: bool  # whether the generator was
    repeats: list[int]  # how many of the windows had the same requests: together they tell of one draw

    @property
    def _decided(self) -> list[NDArray[np.bool_]]:
        return [w[e | ~w] for w, e in zip(self.within, self.ended, strict=True)]

    @property
    def share(self) -> Interval:
        """Share of requests within the goals, without those that the window cut off while they met them."""
        return pooled_share(self._decided, self.repeats)

    @property
    def effective(self) -> tuple[float, float]:
        """Hits and size of the effective sample behind it."""
        value, n = effective_share(self._decided, self.repeats)
        return value * n, n

    @property
    def requests(self) -> int:
        """All of them."""
        return sum(map(len, self.within))

    @property
    def good(self) -> int:
        """Requests that ended within the goals."""
        return sum(int((w & e).sum()) for w, e in zip(self.within, self.ended, strict=True))

    @property
    def least(self) -> float:
        """The share, if all that were cut off had missed the goals."""
        return self.good / self.requests if self.requests else math.nan

    @property
    def most(self) -> float:
        """The share, if all that were cut off had met the goals."""
        return sum(int(w.sum()) for w in self.within) / self.requests if self.requests else math.nan


def served_windows(ones: Sequence[Cell], goals: dict[str, float] | None = None) -> ServedWindows:
    """Judge the requests of servers by their own goals, or by these."""
    limits = ones[0]["llm"]["goals"] | (goals or {})
    windows = [_requests(one["llm"]) for one in ones]
    first, each = [ttft(rows) for rows in windows], [tpot(rows) for rows in windows]
    within = [(a <= limits["ttft"]) & (np.isnan(b) | (b <= limits["tpot"])) for a, b in zip(first, each, strict=True)]
    on_time = (lag := lag_p99(list(ones))) is None or lag < MAX_LAG
    ended = [rows[:, 2] >= rows[:, 1] for rows in windows]
    draws = [tuple(map(tuple, rows[:DRAWN, :2])) for rows in windows]
    return ServedWindows(limits, first, each, within, ended, on_time, [draws.count(draw) for draw in draws])


def server_row(ones: Sequence[Cell], goals: dict[str, float] | None = None) -> dict[str, Any]:
    """Metrics of copies of one server, in all blocks."""
    llms = [one["llm"] for one in ones]
    served = served_windows(ones, goals)
    share = served.share
    return {
        "requests": served.requests,
        "unfinished": sum(int((~e).sum()) for e in served.ended),
        "refused": sum(llm["refused"] for llm in llms),
        **_columns("ttft", served.first, served.repeats),
        **_columns("tpot", [b[~np.isnan(b)] for b in served.each], served.repeats),
        "itl_p99_ms": quantiles(sum_times(llms, "itl"))[0]["p99_ms"],
        "goodput": share.value,
        "goodput_low": share.low,
        "goodput_high": share.high,
        "goodput_least": served.least,
        "goodput_most": served.most,
        "good_per_s": served.good / sum(llm["seconds"] for llm in llms),
        "tokens_per_s": mean(one["rate"] for one in ones),
        "running": mean(llm["running"] for llm in llms),
        "waiting_most": max(llm["waiting_most"] for llm in llms),
        "kv_most": max(llm["kv_most"] / llm["kv_tokens"] for llm in llms),
        "keeps_up": None if too_short(ones) else not any(falls_behind(one, 0.0) for one in ones),
        "valid": served.on_time,
    }


def _requests(llm: dict[str, Any]) -> Rows:
    return np.array(llm["requests"], float).reshape(-1, 5)  # null becomes NaN


def ttft(rows: Rows) -> Rows:
    """Time to first token of each request; infinite if it did not come."""
    return np.where(np.isnan(rows[:, 3]), np.inf, rows[:, 3])


def tpot(rows: Rows) -> Rows:
    """Time per output token of each request; NaN if it has fewer than two.

    >>> tpot(np.array([[9, 5, 5, 0.5, 0.9], [9, 1, 1, 0.5, 0.5]])).round(3).tolist()
    [0.1, nan]
    """
    after = rows[:, 2] - 1
    return np.where(after > 0, (rows[:, 4] - rows[:, 3]) / np.maximum(after, 1), np.nan)


def pooled_share(hits: Sequence[NDArray[np.bool_]], repeats: Sequence[int]) -> Interval:
    """A proportion over several windows, with Wilson's interval for the effective sample size."""
    value, few = effective_share(hits, repeats)
    if not few:
        return Interval(math.nan, math.nan, math.nan)
    return wilson(round(value * few), few)._replace(value=value).clipped(SHARE)


def effective_share(hits: Sequence[NDArray[np.bool_]], repeats: Sequence[int]) -> tuple[float, int]:
    """A proportion over several windows, and its effective sample size; 0 if there is nothing.

    Windows with the same requests are worth one: they repeat what the GPU did, not what was asked of it.
    """
    n = sum(map(len, hits))
    if not n:
        return math.nan, 0
    few = max(math.floor(sum(len(h) / design_effect(h) / k for h, k in zip(hits, repeats, strict=True))), 1)
    return sum(int(h.sum()) for h in hits) / n, few


def _columns(of: str, windows: Sequence[Rows], repeats: Sequence[int]) -> dict[str, float | None]:
    """Quantiles of all windows, in ms, for the effective sample size: requests of one queue wait alike."""
    windows = [np.minimum(w, NEVER) for w in windows]
    times = Histogram.of(np.concatenate(windows))
    known = [(w, k) for w, k in zip(windows, repeats, strict=True) if len(w)]
    effective = {}
    for name, p in QUANTILES:
        effective[name] = sum(len(w) / design_effect(w > np.quantile(w, p)) / k for w, k in known)
    found, _ = quantiles(times, effective)
    return {f"{of}_{column}": _or_never(found[column]) for column in SHOWN}


def _or_never(ms: float | None) -> float | None:
    return math.inf if ms is not None and ms >= 1000 * NEVER * 0.99 else ms
