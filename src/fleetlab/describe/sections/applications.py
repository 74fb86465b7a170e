"""Applications of a trace of services, all of them, by how long their instances wait and run."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.describe.ecdf import Bools, Ecdf, ecdf, table
from fleetlab.describe.section import Section
from fleetlab.describe.sections.delays import classes, seen, survivals, with_tails
from fleetlab.describe.sections.run_times import survival_table
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import Floats

MOST_DRAWN = 15  # applications in a figure, those with the most instances
MOST_RANKED = 2000  # applications in a table
APP = "application"


def applications(view: TraceView, section: Section, what: str) -> None:
    """Rank applications by mean delay, and by runtime or latency; figures have those with the most instances."""
    apps = classes(view, "app", MOST_RANKED)
    if not apps:
        section.absent("applications", "not in the log")
        return
    _sizes(section, apps)
    if np.isfinite(view.wait).any():
        curves = _drawn(view, section, "delay", view.wait, apps)
        rows = with_tails(table(curves, APP), view, [apps[c.series] for c in curves])
        section.tables[f"delay by {APP}"] = rows.sort("mean", APP, descending=[True, False])
    curves = _drawn(view, section, what, view.runtime, apps)
    if curves:
        section.tables[f"{what} by {APP}"] = table(curves, APP).sort("P50", APP, descending=[True, False])
    if what == "runtime" and seen(view)[0].any():
        _ranked_survival(view, section, apps)


def _sizes(section: Section, apps: dict[str, Bools]) -> None:
    made = ecdf("applications", np.array([where.sum() for where in apps.values()], dtype=np.float64))
    section.distributions(
        f"instances per {APP}", [made] if made else [], title=f"Instances of an {APP}", unit="instances", of="what",
        x=f"instances of an {APP}", y=f"share of {APP}s, %",
    )  # fmt: skip


def _drawn(view: TraceView, section: Section, what: str, values: Floats, apps: dict[str, Bools]) -> list[Ecdf]:
    """The curves of all applications, of which the first are drawn."""
    curves = view.curves(values, apps)
    title = f"{what.capitalize()} by {APP}: the {MOST_DRAWN} with the most instances"
    section.distributions(
        f"{what} by {APP}", curves[:MOST_DRAWN], title=title, unit="s", of=APP, y="share of instances, %", tabled=False
    )
    return curves


def _ranked_survival(view: TraceView, section: Section, apps: dict[str, Bools]) -> None:
    """With those that still run: longest median first, and before them those whose median the log does not reach."""
    estimates = survivals(view, apps)
    if not estimates:
        return
    rows = survival_table(estimates, APP)
    medians = pl.col("P50").fill_null(np.inf)
    section.tables[f"runtime by {APP}, Kaplan–Meier"] = rows.sort(
        medians, "restricted mean", APP, descending=[True, True, False]
    )
    if beyond := rows["P50"].null_count():
        section.findings.append(
            f"{beyond:,} of {rows.height:,} applications run so long that the log does not reach their median runtime."
        )
