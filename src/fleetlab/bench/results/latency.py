"""Step times, and latencies of scheduled requests, from the summed histograms of all blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import polars as pl

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import COLUMNS, ENDINGS, QUANTILES, quantiles
from fleetlab.bench.results.cells import Cell, Schema, is_open_loop, mean, neighbors
from fleetlab.bench.statistics import known_percentile

MAX_LAG = 1e-3  # s: with a larger P99 lag the generator was the bottleneck
KEEPS_UP = 0.97  # share of the offered requests that are answered; below it the queue grows as long as one measures
ENDED = 0.9  # share of a language model's requests that end in the window; below it the window is too short to tell
LATENCY: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "n": pl.Int64}
LATENCY |= dict.fromkeys(COLUMNS, pl.Float64)
SERVING: Schema = LATENCY | {"lag_p99_ms": pl.Float64, "unsent": pl.Int64, "keeps_up": pl.Boolean}
SERVING |= {"valid": pl.Boolean}
Recorded = TypeVar("Recorded")  # what a server recorded in a cell, alone or with the cell


def sum_times(ones: Iterable[Cell], of: str = "times") -> Histogram:
    """Sum of their histograms."""
    return Histogram.sum(Histogram.from_json(one[of]) for one in ones if of in one)


def rows_latency(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    """Step times of each tenant in a closed loop, alone and beside others."""
    for (stage, tenant, others), (ones, blocks) in _group_tenants(cells, open_loop=False).items():
        times = sum_times(one for one, _ in ones)
        found, why = quantiles(times)
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": blocks, "n": times.n}
        yield about | found | {"short": "; ".join(why)}


def rows_serving(cells: Iterable[Cell]) -> Iterable[dict[str, Any]]:
    """Latencies of each tenant in an open loop, from the scheduled time; offered and answered in requests per second.

    A quantile among requests that had not ended with their window has no value.
    """
    for (stage, tenant, others), (ones, blocks) in _group_tenants(cells, open_loop=True).items():
        sent = [one for one, _ in ones]
        times, lag = sum_times(sent), lag_p99(sent)
        found, why = quantiles(times, {name: effective_size(sent, name) for name, _ in QUANTILES})
        why = _drop_unended(found, why, times, sum(map(unfinished, sent)))
        rates = [request_rates(one, cell["window"]) for one, cell in ones]
        yield {
            "stage": stage,
            "tenant": tenant,
            "beside": others,
            "blocks": blocks,
            "offered": mean(offered for offered, _ in rates),
            "answered": mean(answered for _, answered in rates),
            "n": times.n,
            **found,
            "lag_p99_ms": None if lag is None else 1000 * lag,
            "unsent": sum(one.get("unsent", 0) for one in sent),
            "keeps_up": keeps_up(ones),
            "valid": None if lag is None else lag < MAX_LAG,
            "short": "; ".join(why),
        }


def _drop_unended(found: dict[str, float | None], why: list[str], times: Histogram, unended: int) -> list[str]:
    """Take quantiles out that lie among requests that had not ended; why each is missing, and what it is above."""
    for name, p in QUANTILES:
        if cuts(p, times, unended) and (least := found[f"{name}_ms"]) is not None:
            found |= dict.fromkeys((name + ending for ending in ENDINGS), None)
            why = [reason for reason in why if not reason.startswith(f"P{100 * p:g} ")]
            why.append(f"P{100 * p:g} is above {least:,.4g} ms: {unended} of {times.n} requests had not ended")
    return why


def cuts(p: float, times: Histogram, unended: int) -> bool:
    """Whether so many requests had not ended that the quantile lies among them: it has no value then."""
    return unended > (1 - p) * times.n


def request_rates(one: Cell, window: float) -> tuple[float, float]:
    """Requests per second that were offered in a window, and that were answered in it."""
    if "llm" in one:
        llm = one["llm"]
        due = len(llm["requests"])
        return due / llm["seconds"], (due - unfinished(one)) / llm["seconds"]
    steps: float = one.get("steps") or 0
    items = one.get("items") or steps  # of a request: its rate is that of items
    offered = float(one.get("offered", steps)) / window if window else 0.0
    return offered, one["rate"] * (steps / items if items else 1.0)


def falls_behind(one: Cell, window: float) -> bool:
    """Whether a server answers fewer requests than fall due. Then the generator, in its process, is late as well.

    Of a server of a language model it is requests without a first token: those that have one when the window ends may
    be long, and not late.
    """
    if "llm" in one:
        requests = one["llm"]["requests"]
        return sum(first is not None for _, _, _, first, _ in requests) < KEEPS_UP * len(requests)
    offered, answered = request_rates(one, window)
    return answered < KEEPS_UP * offered


def too_short(ones: Sequence[Cell]) -> bool:
    """Whether windows cannot tell if a server of a language model keeps up: few requests end, yet it takes all in.

    It takes requests in as long as it has slots, and all of them become slower: whether that ends is seen only when
    most of them end. On an H200, servers that met their goals in 7 s missed nearly all of them in 30 s.
    """
    return _cut_short(ones) and not any(falls_behind(one, 0.0) for one in ones if "llm" in one)


def _cut_short(ones: Sequence[Cell]) -> bool:
    due = sum(len(one["llm"]["requests"]) for one in ones if "llm" in one)
    return due - sum(map(unfinished, ones)) < ENDED * due


def long_windows(cells: Sequence[Recorded], servers: Callable[[Recorded], Sequence[Cell]]) -> list[Recorded]:
    """Leave out windows in which few requests end, where the same was measured in longer ones.

    By their length, not one by one: of equal windows, those that are left would be the better ones by chance.
    """
    by: dict[float, list[Cell]] = defaultdict(list)
    for cell in cells:
        by[_seconds(servers(cell))] += servers(cell)
    cut = max((seconds for seconds, ones in by.items() if _cut_short(ones)), default=-1.0)
    return [cell for cell in cells if _seconds(servers(cell)) > cut] or [
        cell for cell in cells if _seconds(servers(cell)) == cut
    ]


def _seconds(ones: Sequence[Cell]) -> float:
    return float(ones[0].get("llm", {}).get("seconds", 0.0))


def keeps_up(ones: Sequence[tuple[Cell, Cell]]) -> bool | None:
    """Whether a server keeps up in each of its cells; None if their windows were too short to tell."""
    if any(falls_behind(one, cell["window"]) for one, cell in ones):
        return False
    return None if too_short([one for one, _ in ones]) else True


def unfinished(one: Cell) -> int:
    """Requests of a server of a language model that had not ended with the window: their latency is above their time.

    Other servers record a request when it ends.
    """
    return sum(got < output for _, output, got, _, _ in one["llm"]["requests"]) if "llm" in one else 0


def effective_size(ones: Sequence[Cell], name: str, alike: Sequence[Cell] = ()) -> float | None:
    """Effective sample size of a quantile, from how requests wait in groups (`clumps`); None if that is not known.

    Of a cell without a record it is that of the others, or of cells `alike`.
    """
    known = [one["clumps"][name] for one in (*ones, *alike) if name in one.get("clumps", {})]
    if not known:
        return None
    usual = sum(known) / len(known)
    sizes = [(Histogram.from_json(one["times"]).n, one.get("clumps", {}).get(name, usual)) for one in ones]
    return float(sum(n / group for n, group in sizes))


def lag_p99(ones: Iterable[Cell]) -> float | None:
    """P99 of the generator's lag; the maximum if the sample is too small."""
    lags = sum_times(ones, "lag")
    if not lags.n:
        return None
    known = known_percentile(lags, 0.99)
    return lags.at(lags.n) if known is None else known.value


Groups = dict[tuple[str, str, str], tuple[list[tuple[Cell, Cell]], int]]


def _group_tenants(cells: Iterable[Cell], *, open_loop: bool) -> Groups:
    """Tenants with their cells, by stage, seat and neighbors; and the number of cells."""
    ones: dict[tuple[str, str, str], list[tuple[Cell, Cell]]] = defaultdict(list)
    names: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for cell in cells:
        seats = [t["seat"] for t in cell["tenants"]]
        for one in cell["tenants"]:
            if is_open_loop(one) == open_loop and "times" in one:
                key = (cell["stage"], one["seat"], neighbors(seats, one["seat"]))
                ones[key].append((one, cell))
                names[key].add(cell["cell"])
    return {key: (found, len(names[key])) for key, found in ones.items()}
