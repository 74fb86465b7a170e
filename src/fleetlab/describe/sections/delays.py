"""Scheduling delays and runtimes of classes of instances: tables that the sections of services share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.describe.ecdf import Bools, Ecdf, table
from fleetlab.describe.section import Section
from fleetlab.describe.sections.run_times import survival, survival_table
from fleetlab.describe.survival import Survival
from fleetlab.describe.trace_view import TraceView

MOST_ROLES = 8
TEN = 10  # the largest delays, of which the share of the sum is told
ROLE = "role"

Classes = Mapping[str, Bools]


def classes(view: TraceView, column: str, most: int | None = None) -> dict[str, Bools]:
    """Which jobs have each value of a column, the most common values first."""
    counted = (
        view.frame[column].drop_nulls().cast(pl.String).value_counts().sort("count", column, descending=[True, False])
    )
    return {name: view.is_(column, name) for name in counted[column].head(most or counted.height).to_list()}


def delays_by(view: TraceView, section: Section, of: str, which: Mapping[str, Bools | None]) -> list[Ecdf]:
    """Delays of each class, with the part of their sum that the ten longest make."""
    curves = view.curves(view.wait, which)
    name = f"delay by {of}"
    section.distributions(
        name, curves, title=f"Scheduling delay by {of}", unit="s", of=of, x="delay, s", y="share of instances, %"
    )
    if curves:
        section.tables[name] = with_tails(section.tables[name], view, [which[c.series] for c in curves])
    return curves


def with_tails(rows: pl.DataFrame, view: TraceView, which: list[Bools | None]) -> pl.DataFrame:
    """Add the part of the sum of delays that the ten longest make: means hang on them."""
    return rows.with_columns(pl.Series("10 longest, % of sum", [largest(view, where) for where in which]))


def largest(view: TraceView, where: Bools | None) -> float:
    """The part of the sum of delays that the ten longest make, in percent."""
    delays = view.wait if where is None else view.wait[where]
    ranked = np.sort(delays[np.isfinite(delays)])
    return 100 * float(ranked[-TEN:].sum() / ranked.sum()) if ranked.sum() else 0.0


def delays_within_roles(view: TraceView, section: Section, of: str, which: Classes) -> None:
    """The same inside each role, where there are several: a class that goes with a role is compared there."""
    frames = []
    for role, mine in _roles(view):
        inside = {name: mine & of_class for name, of_class in which.items()}
        if curves := view.curves(view.wait, inside):
            rows = with_tails(table(curves, of), view, [inside[c.series] for c in curves])
            frames.append(_of_role(rows, role))
    if frames:
        section.tables[f"delay by {of} and role"] = pl.concat(frames, how="diagonal_relaxed")


def _roles(view: TraceView) -> list[tuple[str, Bools]]:
    roles = list(classes(view, "group", MOST_ROLES).items())
    return roles if len(roles) > 1 else []


def _of_role(rows: pl.DataFrame, role: str) -> pl.DataFrame:
    return rows.select(pl.lit(role).alias(ROLE), pl.all())


# -- runtimes, of which some have not ended ----------------------------------------------------------------------------


def seen(view: TraceView) -> tuple[Bools, Bools]:
    """Which jobs still ran when the log ended, and which ran for a known time; both were seen to start."""
    start = np.isfinite(view.floats("start"))
    running = view.is_("status", "running") & ~np.isfinite(view.runtime) & start
    return running, np.isfinite(view.runtime) & start


def survivals(view: TraceView, which: Classes) -> list[Survival]:
    """Kaplan and Meier's estimate of the runtime of each class of which some job was seen to start."""
    running, known = seen(view)
    return [
        replace(survival(view, running, known, where)[1], series=name)
        for name, where in which.items()
        if ((known | running) & where).any()
    ]


def survival_within_roles(view: TraceView, section: Section, of: str, which: Classes) -> None:
    """The same inside each role, where there are several."""
    frames = []
    for role, mine in _roles(view):
        if estimates := survivals(view, {name: mine & of_class for name, of_class in which.items()}):
            frames.append(_of_role(survival_table(estimates, of), role))
    if frames:
        section.tables[f"runtime by {of} and role, Kaplan–Meier"] = pl.concat(frames, how="diagonal_relaxed")
