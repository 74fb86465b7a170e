"""Placement rules: how many instances of an application a node may hold, and how long those wait and run."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.describe.section import Section
from fleetlab.describe.sections.delays import (
    Classes,
    delays_by,
    delays_within_roles,
    seen,
    survival_within_roles,
    survivals,
)
from fleetlab.describe.sections.run_times import draw_survival, or_later
from fleetlab.describe.strata import Strata
from fleetlab.describe.trace_view import TraceView

RULE, NO_RULE = "rule", "none"


def placement_rules(view: TraceView, section: Section) -> None:
    """Delays and runtimes by rule, in all and within the role."""
    rule = view.frame["max_per_node"].to_numpy()
    if not (rule > 0).any():
        section.absent("placement rules", "no instance has one")
        return
    which = {str(r) if r else NO_RULE: rule == r for r in np.unique(rule).tolist()}
    _counts(view, section, which)
    _delays(view, section, which)
    _run_times(view, section, which)


def _counts(view: TraceView, section: Section, which: Classes) -> None:
    """Instances by rule, those of unknown delay included, and the role they are of."""
    every = np.ones(len(view.submit), dtype=bool)
    code = np.select(list(which.values()), list(range(len(which)))).astype(np.int64)
    counts = np.bincount(code, minlength=len(which))
    table = pl.DataFrame({RULE: list(which), "instances": counts, "%": 100 * counts / len(code)})
    shares = Strata.of(view, every).role_shares(code, len(which))
    section.tables["placement rules"] = pl.concat([table, shares], how="horizontal")


def _delays(view: TraceView, section: Section, which: Classes) -> None:
    there = np.isfinite(view.wait)
    known = {name: where for name, where in which.items() if (where & there).any()}
    if len(known) < 2:
        section.absent("delays by placement rule", "fewer than two rules have a known delay")
        return
    delays_by(view, section, RULE, known)
    code = np.select(list(known.values()), list(range(len(known))))[there].astype(np.int64)
    strata, name = Strata.of(view, there), f"delay by {RULE}"
    apart = strata.differences(view.wait[there], code, len(known))
    section.tables[name] = pl.concat(
        [section.tables[name], strata.role_shares(code, len(known)), apart], how="horizontal"
    )
    delays_within_roles(view, section, RULE, known)
    section.findings.append(_reversed(section.tables[name]))


def _reversed(table: pl.DataFrame) -> str:
    """Name a rule that looks one way in all and the other within roles, if there is one."""
    for row in table.iter_rows(named=True):
        raw, within = row["vs others"], row["within role"]
        if raw is not None and within is not None and raw * within < 0:
            low, high = row["within low"], row["within high"]
            sure = f" ({low:,.0f} to {high:,.0f} s)" if low is not None and high is not None else ""
            return (
                f"Instances with rule `{row[RULE]}` wait {abs(raw):,.0f} s {_way(raw)} than others, but within their "
                f"role {abs(within):,.0f} s {_way(within)}{sure}: a rule goes with a role."
            )
    return "No placement rule reverses its effect when compared within roles."


def _way(seconds: float) -> str:
    return "longer" if seconds > 0 else "less"


def _run_times(view: TraceView, section: Section, which: Classes) -> None:
    """Of those that ended; and with those that still run, which count for as long as they were seen."""
    curves = view.curves(view.runtime, which)
    title = "Runtime by placement rule, ended only"
    section.distributions(f"runtime by {RULE}", curves, title=title, unit="s", of=RULE, y="share, %")
    running, _ = seen(view)
    estimates = survivals(view, which)
    if not estimates or not running.any():
        return
    alt = "; ".join(f"median of rule {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
    title = "Runtime by placement rule, including running jobs"
    draw_survival(section, f"runtime by {RULE}, Kaplan–Meier", title, estimates, RULE, alt)
    survival_within_roles(view, section, RULE, which)
