"""Step times, and latencies of scheduled requests, from the summed histograms of all blocks.

TTFT is the time to first token, from the scheduled time. TPOT is the time per output token of a request, (last -
first) / (n - 1); ITL the time between any two of its tokens. Goodput is the share of requests within the goals of both.

A request that the end of the window cut off while it met the goals is undecided. `goodput` leaves these out,
`goodput_least` counts them as missed and `goodput_most` as met. Without a first token, or already beyond a goal, a
request is missed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.gpu.bench.histogram import (
    COLUMNS,
    ENDINGS,
    QUANTILES,
    Histogram,
    interval_columns,
    known_percentile,
    quantiles,
)
from fleetlab.gpu.bench.results.cells import CellResult, Record, Schema, grouped, mean, mix_name, neighbors
from fleetlab.stats import Interval, cluster_effect, design_effect, effective_share, geometric_means, share_of_windows

MAX_LAG = 1e-3  # s: with a larger P99 lag the generator was the bottleneck
KEEPS_UP = 0.97  # share of the offered requests that are answered; below it the queue grows as long as one measures
ENDED = 0.9  # share of a language model's requests that end in the window; below it the window is too short to tell
LATENCY: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "n": pl.Int64}
LATENCY |= dict.fromkeys(COLUMNS, pl.Float64)
SERVING: Schema = LATENCY | {"lag_p99_ms": pl.Float64, "unsent": pl.Int64, "keeps_up": pl.Boolean}
SERVING |= {"valid": pl.Boolean}
Recorded = TypeVar("Recorded")  # what a server recorded in a cell, alone or with the cell


def sum_times(ones: Iterable[Record], of: str = "times") -> Histogram:
    """Sum of their histograms."""
    return Histogram.sum(Histogram.from_json(one[of]) for one in ones if of in one)


def rows_latency(cells: Iterable[CellResult]) -> Iterable[dict[str, Any]]:
    """Step times of each tenant in a closed loop, alone and beside others."""
    for (stage, tenant, others), (ones, blocks) in _group_tenants(cells, open_loop=False).items():
        times = sum_times(one for one, _ in ones)
        columns, why = quantiles(times)
        about = {"stage": stage, "tenant": tenant, "beside": others, "blocks": blocks, "n": times.n}
        yield about | columns | {"short": "; ".join(why)}


def rows_serving(cells: Iterable[CellResult]) -> Iterable[dict[str, Any]]:
    """Latencies of each tenant in an open loop, from the scheduled time; offered and answered in requests per second.

    A quantile among requests that had not ended with their window has no value.
    """
    for (stage, tenant, others), (ones, blocks) in _group_tenants(cells, open_loop=True).items():
        sent = [one for one, _ in ones]
        times, lag = sum_times(sent), lag_p99(sent)
        columns, why = quantiles(times, {name: effective_size(sent, name) for name, _ in QUANTILES})
        why = _drop_unended(columns, why, times, sum(map(unfinished, sent)))
        rates = [request_rates(one, cell.window) for one, cell in ones]
        yield {
            "stage": stage,
            "tenant": tenant,
            "beside": others,
            "blocks": blocks,
            "offered": mean(offered for offered, _ in rates),
            "answered": mean(answered for _, answered in rates),
            "n": times.n,
            **columns,
            "lag_p99_ms": None if lag is None else 1000 * lag,
            "unsent": sum(one.get("unsent", 0) for one in sent),
            "keeps_up": keeps_up(ones),
            "valid": None if lag is None else lag < MAX_LAG,
            "short": "; ".join(why),
        }


def _drop_unended(columns: dict[str, float | None], why: list[str], times: Histogram, unended: int) -> list[str]:
    """Take quantiles out that lie among requests that had not ended; why each is missing, and what it is above."""
    for name, p in QUANTILES:
        if cuts(p, times, unended) and (least := columns[f"{name}_ms"]) is not None:
            columns |= dict.fromkeys((name + ending for ending in ENDINGS), None)
            why = [reason for reason in why if not reason.startswith(f"P{100 * p:g} ")]
            why.append(f"P{100 * p:g} is above {least:,.0f} ms: {unended:,} of {times.n:,} requests had not ended")
    return why


def cuts(p: float, times: Histogram, unended: int) -> bool:
    """Whether so many requests had not ended that the quantile lies among them: it has no value then."""
    return unended > (1 - p) * times.n


def request_rates(one: Record, window: float) -> tuple[float, float]:
    """Requests per second that were offered in a window, and that were answered in it."""
    if "llm" in one:
        llm = one["llm"]
        due = len(llm["requests"])
        return due / llm["seconds"], (due - unfinished(one)) / llm["seconds"]
    steps: float = one.get("steps") or 0
    items = one.get("items") or steps  # of a request: its rate is that of items
    offered = float(one.get("offered", steps)) / window if window else 0.0
    return offered, one["rate"] * (steps / items if items else 1.0)


def shortfall(answered: float, offered: float) -> str:
    """How far servers fall behind, in words: both in requests per second."""
    return f"falls behind: {answered:,.0f} of {offered:,.0f} requests/s"


def falls_behind(one: Record, window: float) -> bool:
    """Whether a server answers fewer requests than fall due. Then the generator, in its process, is late as well.

    Of a server of a language model it is requests without a first token: those that have one when the window ends may
    be long, and not late.
    """
    if "llm" in one:
        requests = one["llm"]["requests"]
        return sum(first is not None for _, _, _, first, _ in requests) < KEEPS_UP * len(requests)
    offered, answered = request_rates(one, window)
    return answered < KEEPS_UP * offered


def too_short(ones: Sequence[Record]) -> bool:
    """Whether windows cannot tell if a server of a language model keeps up: few requests end, yet it takes all in.

    It takes requests in as long as it has slots, and all of them become slower: whether that ends is seen only when
    most of them end. On an H200, servers with up to half of their requests within the goals in 7 s had none in 30 s.
    Without a request there is nothing to tell by.
    """
    models = [one for one in ones if "llm" in one]
    if models and not any(one["llm"]["requests"] for one in models):
        return True
    return _cut_short(ones) and not any(falls_behind(one, 0.0) for one in models)


def _cut_short(ones: Sequence[Record]) -> bool:
    due = sum(len(one["llm"]["requests"]) for one in ones if "llm" in one)
    return due - sum(map(unfinished, ones)) < ENDED * due


def long_windows(cells: Sequence[Recorded], servers: Callable[[Recorded], Sequence[Record]]) -> list[Recorded]:
    """Leave out windows in which few requests end, where the same was measured in longer ones.

    By their length, not one by one: of equal windows, those that are left would be the better ones by chance.
    """
    by: dict[float, list[Record]] = defaultdict(list)
    for cell in cells:
        by[_seconds(servers(cell))] += servers(cell)
    cut = max((seconds for seconds, ones in by.items() if _cut_short(ones)), default=-1.0)
    return [cell for cell in cells if _seconds(servers(cell)) > cut] or [
        cell for cell in cells if _seconds(servers(cell)) == cut
    ]


def _seconds(ones: Sequence[Record]) -> float:
    return float(ones[0].get("llm", {}).get("seconds", 0.0))


def keeps_up(ones: Sequence[tuple[Record, CellResult]]) -> bool | None:
    """Whether a server keeps up in each of its cells; None if their windows were too short to tell."""
    if any(falls_behind(one, cell.window) for one, cell in ones):
        return False
    return None if too_short([one for one, _ in ones]) else True


def unfinished(one: Record) -> int:
    """Requests of a server of a language model that had not ended with the window: their latency is above their time.

    Other servers record a request when it ends.
    """
    return sum(got < output for _, output, got, _, _ in one["llm"]["requests"]) if "llm" in one else 0


def effective_size(ones: Sequence[Record], name: str, alike: Sequence[Record] = ()) -> float | None:
    """Effective sample size of a quantile, from how requests wait in groups (`clumps`); None if that is not known.

    Of a cell without a record it is that of the others, or of cells `alike`.
    """
    group_sizes = [one["clumps"][name] for one in (*ones, *alike) if name in one.get("clumps", {})]
    if not group_sizes:
        return None
    usual = sum(group_sizes) / len(group_sizes)
    sizes = [(Histogram.from_json(one["times"]).n, one.get("clumps", {}).get(name, usual)) for one in ones]
    return float(sum(n / group for n, group in sizes))


def lag_p99(ones: Iterable[Record]) -> float | None:
    """P99 of the generator's lag; the maximum if the sample is too small."""
    lags = sum_times(ones, "lag")
    if not lags.n:
        return None
    p99 = known_percentile(lags, 0.99)
    return lags.at(lags.n) if p99 is None else p99.value


Groups = dict[tuple[str, str, str], tuple[list[tuple[Record, CellResult]], int]]


def _group_tenants(cells: Iterable[CellResult], *, open_loop: bool) -> Groups:
    """Tenants with their cells, by stage, seat and neighbors; and the number of cells."""
    ones: dict[tuple[str, str, str], list[tuple[Record, CellResult]]] = defaultdict(list)
    names: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for cell in cells:
        for one in cell.tenants:
            if one.is_open_loop == open_loop and "times" in one.about:
                key = (cell.stage, one.seat, neighbors(cell.seats, one.seat))
                ones[key].append((one.about, cell))
                names[key].add(cell.cell)
    return {key: (tenants, len(names[key])) for key, tenants in ones.items()}


# --- servers of language models and users of notebooks: their latencies, alone and beside others ---------------------


DRAWN = 4  # requests by whose lengths two windows with the same draw are known
NEVER = 3600.0  # s: a token that did not come in the window counts as the longest time of a histogram
SHOWN = [name + ending for name, _ in QUANTILES[:2] for ending in ENDINGS]
LLM: Schema = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "servers": pl.Int64}
LLM |= {f"{of}_{column}": pl.Float64 for of in ("ttft", "tpot") for column in SHOWN} | {"goodput": pl.Float64}
Rows = NDArray[np.float64]  # a row per request: tokens of prompt, of output, so far; s to the first and the last


def rows_llm(cells: Iterable[CellResult], goals: dict[str, float] | None = None) -> Iterable[dict[str, Any]]:
    """One row per server and neighbors; copies of a server in one cell are pooled."""
    by = grouped(
        ((cell.stage, one.seat, neighbors(cell.seats, one.seat), cell.names.count(one.name)), one.about)
        for cell in cells
        for one in cell.tenants
        if "llm" in one.about
    )
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
        return share_of_windows(self._decided, self.repeats)

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


def served_windows(ones: Sequence[Record], goals: dict[str, float] | None = None) -> ServedWindows:
    """Judge the requests of servers by their own goals, or by these."""
    limits = ones[0]["llm"]["goals"] | (goals or {})
    windows = [_requests(one["llm"]) for one in ones]
    first, each = [ttft(rows) for rows in windows], [tpot(rows) for rows in windows]
    within = [(a <= limits["ttft"]) & (np.isnan(b) | (b <= limits["tpot"])) for a, b in zip(first, each, strict=True)]
    on_time = (lag := lag_p99(list(ones))) is None or lag < MAX_LAG
    ended = [rows[:, 2] >= rows[:, 1] for rows in windows]
    draws = [tuple(map(tuple, rows[:DRAWN, :2])) for rows in windows]
    return ServedWindows(limits, first, each, within, ended, on_time, [draws.count(draw) for draw in draws])


def server_row(ones: Sequence[Record], goals: dict[str, float] | None = None) -> dict[str, Any]:
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
        **interval_columns("goodput", share),
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


def _columns(of: str, windows: Sequence[Rows], repeats: Sequence[int]) -> dict[str, float | None]:
    """Quantiles of all windows, in ms, for the effective sample size: requests of one queue wait alike."""
    windows = [np.minimum(w, NEVER) for w in windows]
    times = Histogram.of(np.concatenate(windows))
    nonempty = [(w, k) for w, k in zip(windows, repeats, strict=True) if len(w)]
    effective = {}
    for name, p in QUANTILES:
        effective[name] = sum(len(w) / design_effect(w > np.quantile(w, p)) / k for w, k in nonempty)
    columns, _ = quantiles(times, effective)
    return {f"{of}_{column}": _or_never(columns[column]) for column in SHOWN}


def _or_never(ms: float | None) -> float | None:
    return math.inf if ms is not None and ms >= 1000 * NEVER * 0.99 else ms


# --- users of notebooks ----------------------------------------------------------------------------------------------


NOTEBOOK: Schema = {"stage": pl.String, "cell": pl.String, "users": pl.Int64, "beside": pl.String, "n": pl.Int64}
NOTEBOOK |= dict.fromkeys((*SHOWN, "each_ms", "slowdown", "low", "high"), pl.Float64)
User = tuple[float, ...]  # see `drawn_users`
Ran = tuple[int, float, User]  # steps, seconds, and the user
DRAWN_TRAININGS = 2
Key = tuple[str, str, int, str]  # stage, kind of cell, users, neighbors


def rows_notebook(cells: Iterable[CellResult], baseline: str | None = None) -> Iterable[dict[str, Any]]:
    """One row per kind of cell, number of users and neighbors; all users of a cell are pooled.

    One user alone is that of the same stage, or of the stage `baseline`.
    """
    by = grouped(_of_users(cells))
    # Trainings differ in length, so times per step are compared.
    each = dict(
        zip(by, geometric_means([[max(s / size, 1e-9) for size, s, _ in ran] for ran in by.values()]), strict=True)
    )
    for key in sorted(by, key=lambda k: (k[0], k[3], k[2], k[1])):
        stage, kind, users, others = key
        times = Histogram.of(s for _, s, _ in by[key])
        columns, why = quantiles(times, {name: _effective_n(by[key], p) for name, p in QUANTILES})
        yield {
            "stage": stage,
            "cell": kind,
            "users": users,
            "beside": others,
            "n": len(by[key]),
            **{column: columns[column] for column in SHOWN},
            "each_ms": 1000 * each[key].value,
            **_slowdown(each[key], each.get((baseline or stage, kind, 1, ""))),
            "short": "; ".join(w for w in why if "P99" not in w),
        }


def _of_users(cells: Iterable[CellResult]) -> Iterator[tuple[Key, Ran]]:
    for k, cell in enumerate(cells):
        users = [t.about for t in cell.tenants if "notebook" in t.about]
        others = mix_name([t.seat for t in cell.tenants if "notebook" not in t.about])
        for one, who in zip(users, drawn_users(users, k), strict=True):
            for kind, size, seconds in one["notebook"]["cells"]:
                yield (cell.stage, kind, len(users), others), (size, seconds, who)


def drawn_users(users: Sequence[Record], cell: int) -> list[User]:
    """Who each user of a cell is: by the lengths of the first trainings, which are drawn at random.

    Users of other cells who were drawn alike are the same; those of one cell never are. With few trainings the number
    of the cell tells them apart.
    """
    drawn: list[User] = []
    for one in users:
        lengths = [float(size) for kind, size, _ in one["notebook"]["cells"] if kind == "train"]
        who = (0.0, *lengths[:DRAWN_TRAININGS]) if len(lengths) >= DRAWN_TRAININGS else (1.0, float(cell))
        drawn.append((*who, float(sum(other[:-1] == who for other in drawn))))
    return drawn


def _effective_n(ran: list[Ran], p: float) -> float | None:
    """Effective sample size of a quantile: cells of one user are alike. None if there is one user."""
    limit = float(np.quantile([seconds for _, seconds, _ in ran], p))
    effect = cluster_effect(list(grouped((user, seconds > limit) for _, seconds, user in ran).values()))
    return None if effect is None else len(ran) / effect


def _slowdown(here: Interval, alone: Interval | None) -> dict[str, float | None]:
    """Ratio of two geometric means, which vary independently."""
    if alone is None:
        return {"slowdown": None, "low": None, "high": None}
    ratio = here.value / alone.value
    reach = math.exp(np.hypot(math.log(here.high / here.value), math.log(alone.high / alone.value)))
    same = here == alone
    return {"slowdown": ratio, "low": None if same else ratio / reach, "high": None if same else ratio * reach}
