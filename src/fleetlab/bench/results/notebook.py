"""Users of notebooks: time to answer by kind of cell, and the slowdown against one user alone on the GPU."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.quantiles import ENDINGS, QUANTILES, quantiles
from fleetlab.bench.results.cells import Cell, Schema, mix_name
from fleetlab.stats import Interval, cluster_effect, geometric_means

SHOWN = [name + ending for name in ("p50", "p95") for ending in ENDINGS]
NOTEBOOK: Schema = {"stage": pl.String, "cell": pl.String, "users": pl.Int64, "beside": pl.String, "n": pl.Int64}
NOTEBOOK |= dict.fromkeys((*SHOWN, "each_ms", "slowdown", "low", "high"), pl.Float64)
User = tuple[float, ...]  # see `drawn_users`
Ran = tuple[int, float, User]  # steps, seconds, and the user
DRAWN = 2
Key = tuple[str, str, int, str]  # stage, kind of cell, users, neighbors


def rows_notebook(cells: Iterable[Cell], baseline: str | None = None) -> Iterable[dict[str, Any]]:
    """One row per kind of cell, number of users and neighbors; all users of a cell are pooled.

    One user alone is that of the same stage, or of the stage `baseline`.
    """
    by = _by_kind(cells)
    # Trainings differ in length, so times per step are compared.
    each = dict(
        zip(by, geometric_means([[max(s / size, 1e-9) for size, s, _ in ran] for ran in by.values()]), strict=True)
    )
    for key in sorted(by, key=lambda k: (k[0], k[3], k[2], k[1])):
        stage, kind, users, others = key
        times = Histogram.of(s for _, s, _ in by[key])
        found, why = quantiles(times, {name: _effective_n(by[key], p) for name, p in QUANTILES})
        yield {
            "stage": stage,
            "cell": kind,
            "users": users,
            "beside": others,
            "n": len(by[key]),
            **{column: found[column] for column in SHOWN},
            "each_ms": 1000 * each[key].value,
            **_slowdown(each[key], each.get((baseline or stage, kind, 1, ""))),
            "short": "; ".join(w for w in why if "P99" not in w),
        }


def _by_kind(cells: Iterable[Cell]) -> dict[Key, list[Ran]]:
    by: dict[Key, list[Ran]] = defaultdict(list)
    for k, cell in enumerate(cells):
        users = [t for t in cell["tenants"] if "notebook" in t]
        others = mix_name([t["seat"] for t in cell["tenants"] if "notebook" not in t])
        for one, who in zip(users, drawn_users(users, k), strict=True):
            for kind, size, seconds in one["notebook"]["cells"]:
                by[cell["stage"], kind, len(users), others].append((size, seconds, who))
    return by


def drawn_users(users: Sequence[Cell], cell: int) -> list[User]:
    """Who each user of a cell is: by the lengths of the first trainings, which are drawn at random.

    Users of other cells who were drawn alike are the same; those of one cell never are. With few trainings the number
    of the cell tells them apart.
    """
    found: list[User] = []
    for one in users:
        lengths = [float(size) for kind, size, _ in one["notebook"]["cells"] if kind == "train"]
        who = (0.0, *lengths[:DRAWN]) if len(lengths) >= DRAWN else (1.0, float(cell))
        found.append((*who, float(sum(other[:-1] == who for other in found))))
    return found


def _effective_n(ran: list[Ran], p: float) -> float | None:
    """Effective sample size of a quantile: cells of one user are alike. None if there is one user."""
    limit = float(np.quantile([seconds for _, seconds, _ in ran], p))
    by: dict[User, list[bool]] = defaultdict(list)
    for _, seconds, user in ran:
        by[user].append(seconds > limit)
    effect = cluster_effect(list(by.values()))
    return None if effect is None else len(ran) / effect


def _slowdown(here: Interval, alone: Interval | None) -> dict[str, float | None]:
    """Ratio of two geometric means, which vary independently."""
    if alone is None:
        return {"slowdown": None, "low": None, "high": None}
    ratio = here.value / alone.value
    reach = math.exp(np.hypot(math.log(here.high / here.value), math.log(alone.high / alone.value)))
    same = here == alone
    return {"slowdown": ratio, "low": None if same else ratio / reach, "high": None if same else ratio * reach}
