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
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import ENDINGS, QUANTILES, quantiles
from fleetlab.bench.results.cells import Cell, Schema, mean, neighbors
from fleetlab.bench.results.latency import MAX_LAG, lag_p99, sum_times
from fleetlab.stats import SHARE, Interval, design_effect, wilson

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
        yield about | server_row(ones, goals)


def server_row(ones: Sequence[Cell], goals: dict[str, float] | None = None) -> dict[str, Any]:
    """Metrics of copies of one server, in all blocks."""
    llms = [one["llm"] for one in ones]
    windows = [_requests(llm) for llm in llms]
    first, each = [ttft(rows) for rows in windows], [tpot(rows) for rows in windows]
    limits = llms[0]["goals"] | (goals or {})
    within = [(a <= limits["ttft"]) & (np.isnan(b) | (b <= limits["tpot"])) for a, b in zip(first, each, strict=True)]
    ended = [rows[:, 2] >= rows[:, 1] for rows in windows]
    share = pooled_share([w[e | ~w] for w, e in zip(within, ended, strict=True)])
    requests, met = sum(map(len, windows)), sum(int(w.sum()) for w in within)
    good = sum(int((w & e).sum()) for w, e in zip(within, ended, strict=True))
    seconds = sum(llm["seconds"] for llm in llms)
    return {
        "requests": requests,
        "unfinished": sum(int((~e).sum()) for e in ended),
        "refused": sum(llm["refused"] for llm in llms),
        **_columns("ttft", first),
        **_columns("tpot", [b[~np.isnan(b)] for b in each]),
        "itl_p99_ms": quantiles(sum_times(llms, "itl"))[0]["p99_ms"],
        "goodput": share.value,
        "goodput_low": share.low,
        "goodput_high": share.high,
        "goodput_least": good / requests if requests else math.nan,
        "goodput_most": met / requests if requests else math.nan,
        "good_per_s": good / seconds,
        "tokens_per_s": mean(one["rate"] for one in ones),
        "running": mean(llm["running"] for llm in llms),
        "waiting_most": max(llm["waiting_most"] for llm in llms),
        "kv_most": max(llm["kv_most"] / llm["kv_tokens"] for llm in llms),
        "valid": (lag := lag_p99(list(ones))) is None or lag < MAX_LAG,
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


def pooled_share(hits: Sequence[NDArray[np.bool_]]) -> Interval:
    """A proportion over several windows, with Wilson's interval for the effective sample size."""
    n = sum(map(len, hits))
    if not n:
        return Interval(math.nan, math.nan, math.nan)
    value = sum(int(h.sum()) for h in hits) / n
    few = max(math.floor(sum(len(h) / design_effect(h) for h in hits)), 1)
    return wilson(round(value * few), few)._replace(value=value).clipped(SHARE)


def _columns(of: str, windows: Sequence[Rows]) -> dict[str, float | None]:
    """Quantiles of all windows, in ms, for the effective sample size: requests of one queue wait alike."""
    windows = [np.minimum(w, NEVER) for w in windows]
    times = Histogram.of(np.concatenate(windows))
    effective = {
        name: sum(len(w) / design_effect(w > np.quantile(w, p)) for w in windows if len(w)) for name, p in QUANTILES
    }
    found, _ = quantiles(times, effective)
    return {f"{of}_{column}": _or_never(found[column]) for column in SHOWN}


def _or_never(ms: float | None) -> float | None:
    return math.inf if ms is not None and ms >= 1000 * NEVER * 0.99 else ms
