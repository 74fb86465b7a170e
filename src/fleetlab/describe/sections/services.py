"""Traces of services: delays and runtimes by role, application and placement rule; requests over limits.

Means of delays hang on a few instances, so medians and tails stand beside them. Where a rule is set for a whole
application, applications are drawn again for intervals, not instances.
"""

from __future__ import annotations

import numpy as np

from fleetlab.core.durations import duration, number
from fleetlab.describe.ecdf import Bools
from fleetlab.describe.section import Section
from fleetlab.describe.sections.applications import applications
from fleetlab.describe.sections.container_metrics import metrics, names
from fleetlab.describe.sections.delays import MOST_ROLES, TEN, classes, delays_by, largest, seen, survivals
from fleetlab.describe.sections.limits import LIMITS, delays_by_request, limits, requests_by_role
from fleetlab.describe.sections.placement_rules import placement_rules
from fleetlab.describe.sections.run_times import draw_survival, or_later
from fleetlab.describe.trace_view import TraceView


def services(view: TraceView, section: Section) -> None:
    """Put together what is known of services, if the trace is of some."""
    series = view.trace.series
    if not (LIMITS in series or "requests" in series or names(view.trace)):
        section.absent("services", "not a trace of services: no limits, requests or container metrics")
        return
    role = view.role or "kind"
    if len(view.submit):
        _delays(view, section, role)
        _run_times(view, section, role)
    if LIMITS in series:
        placement_rules(view, section)
        limits(view, section)
        requests_by_role(view, section)
        delays_by_request(view, section)
    metrics(view, section)


# -- delays and runtimes ----------------------------------------------------------------------------------------------


def _delays(view: TraceView, section: Section, role: str) -> None:
    if not np.isfinite(view.wait).any():
        section.absent("scheduling delays", "starts are not in the log")
        return
    roles = classes(view, "group", MOST_ROLES)
    complete = np.isfinite(view.wait) & np.isfinite(view.runtime)
    estimates = delays_by(view, section, role, {"all": None, "complete": complete, **roles})
    first, of_roles = estimates[0], estimates[2:]
    section.say("mean scheduling delay", first.mean, "s")
    worst = max(of_roles, key=lambda c: c.mean[0], default=first)
    other = f" ({worst.series}: {duration(worst.mean[0])})" if len(of_roles) > 1 else ""
    section.findings.append(
        f"The mean scheduling delay is {duration(first.mean[0])}{other}; {100 * first.zero:.3g} % have none; the "
        f"{TEN} longest make up {number(largest(view, None))} % of the sum."
    )


def _run_times(view: TraceView, section: Section, role: str) -> None:
    what = "runtime" if role == "role" else "latency"
    every: dict[str, Bools | None] = {"all": None}
    curves = view.curves(view.runtime, every | classes(view, "group", MOST_ROLES))
    title = f"{what.capitalize()} by {role}, ended only"
    section.distributions(f"{what} by {role}", curves, title=title, unit="s", of=role, y="share, %")
    applications(view, section, what)
    if what == "latency":
        for c in section.compared.get("latency by kind", [])[:1]:
            section.say("P50 latency of requests", c.quantiles[50], "s")
            section.findings.append(
                f"Request latency: P50 {duration(c.quantiles[50][0])}, P99 {duration(c.quantiles[99][0])}."
            )
        return
    _survival(view, section, role)


def _survival(view: TraceView, section: Section, role: str) -> None:
    running, _ = seen(view)
    estimates = survivals(view, classes(view, "group", MOST_ROLES))
    if estimates and running.any():
        alt = "; ".join(f"median of {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
        title = f"Runtime by {role}, including running jobs"
        draw_survival(section, f"runtime by {role}, Kaplan–Meier", title, estimates, role, alt)
