"""Skew of users: jobs per user, top 5 %, Gini coefficient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.describe import published
from fleetlab.describe.ecdf import ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import TOP, WHOLE, TraceView
from fleetlab.stats import SHARE, Floats, Interval, bootstrap_units, no_interval

RESAMPLES = 400
FEWEST = 20  # users: with fewer, no interval
POINTS = 200
WEIGHED = ("jobs", "instances", "GPU time")


def users(view: TraceView, section: Section) -> None:
    """Jobs a user, the share of the busiest, Gini's number, and the concentration curve."""
    by_user = _by_user(view)
    if not by_user.height:
        section.absent("users", "not in the log")
        return
    made = ecdf("users", by_user["jobs"].to_numpy())
    section.distributions(
        "jobs per user", [made] if made else [], title="Jobs per user", unit="jobs", x="jobs of a user",
        y="share of users, %",
    )  # fmt: skip
    rows, frames = [], []
    for name in WEIGHED:
        amounts = np.sort(by_user[name].to_numpy())[::-1]
        if amounts.sum() > 0:
            rows.append(_row(name, amounts, view.seed))
            frames.append(_concentration(name, amounts))
    section.tables["users"] = pl.DataFrame(rows, infer_schema_length=None)
    _say(section, rows, by_user.height)
    alt = f"the top 5 % of users submit {rows[0]['top 5 %, %']:.0f} % of the jobs"
    section.figures["skew of users"] = Figure(
        "Share of the top users (concentration curve)", "line", pl.concat(frames), "top users, %", "share, %", alt
    )


def _by_user(view: TraceView) -> pl.DataFrame:
    """What each user has; added up in the order of the jobs, so that the last bits are the same every time."""
    named = view.frame["user"].is_not_null().to_numpy()
    _, of = np.unique(view.frame["user"].to_physical().fill_null(0).to_numpy()[named], return_inverse=True)
    many = view.instances[named]
    time = many * view.milli[named] / WHOLE * np.nan_to_num(view.runtime[named])
    sums = zip(WEIGHED, (np.ones(len(of)), many, time), strict=True)
    return pl.DataFrame({name: np.bincount(of, weights=w).astype(np.float64) for name, w in sums})


def _row(name: str, amounts: Floats, seed: int) -> dict[str, object]:
    """Intervals are over users: they hold for others like them."""
    count = len(amounts)
    top, unequal = (_interval(of, amounts, seed) for of in (top_share, gini))
    row: dict[str, object] = {"weighted by": name, "users": count}
    row |= dict(zip(("top 5 %, %", "low", "high"), (100 * x for x in top), strict=True))
    row |= dict(zip(("Gini", "Gini low", "Gini high"), unequal, strict=True))
    return row | {"top user, %": 100 * float(amounts[0] / amounts.sum())}


def _interval(of: Callable[[Floats], float], amounts: Floats, seed: int) -> Interval:
    if len(amounts) < FEWEST:
        return no_interval(of(amounts))

    def ranked(some: Floats) -> float:
        return of(np.sort(some)[::-1]) if some.any() else np.nan

    return bootstrap_units(amounts, ranked, seed=seed, resamples=RESAMPLES, within=SHARE)


def top_share(ranked: Floats) -> float:
    """The share of the top 5 %, from amounts in falling order.

    >>> top_share(np.array([5.0] + [1.0] * 19))
    0.20833333333333334
    """
    top = max(1, round(TOP * len(ranked)))
    return float(ranked[:top].sum() / ranked.sum())


def gini(ranked: Floats) -> float:
    """Gini's number, from amounts in falling order: 0 if all have as much, near 1 if one has all.

    >>> gini(np.ones(4)), gini(np.array([1.0, 0.0, 0.0, 0.0]))
    (0.0, 0.75)
    """
    count = len(ranked)
    places = np.arange(count, 0, -1)
    return float(2 * (places @ ranked) / (count * ranked.sum()) - (count + 1) / count)


def _concentration(name: str, ranked: Floats) -> pl.DataFrame:
    sums = np.concatenate(([0.0], np.cumsum(ranked))) / ranked.sum()
    at = np.unique(np.geomspace(1, len(sums), POINTS).astype(np.int64) - 1)
    x = 100 * at / (len(sums) - 1)
    return pl.DataFrame({"x": x, "y": 100 * sums[at]}).with_columns(series=pl.lit(name))


def _say(section: Section, rows: list[dict[str, object]], count: int) -> None:
    instances = rows[min(1, len(rows) - 1)]
    interval = Interval(*(float(instances[k]) for k in ("top 5 %, %", "low", "high")))  # type: ignore[arg-type]
    section.say(f"{instances['weighted by']} of the top 5 % of users", interval, "%")
    paper = f" (published: {published.numbers('users')['instances of the top 5 % of users']:.0f} %)"
    section.findings.append(
        f"The top 5 % of {count:,} users have {interval[0]:.3g} % of the {instances['weighted by']}"
        f"{paper if section.like_pai else ''}."
    )
