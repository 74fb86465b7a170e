"""Traces of services: delays and runtimes by role, application and placement rule; requests over limits.

Means of delays hang on a few instances, so medians and tails stand beside them. Where a rule is set for a whole
application, applications are drawn again for intervals, not instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core.catalog import RESOURCES
from fleetlab.core.durations import duration, number
from fleetlab.describe.ecdf import Bools, Ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.sections.container_metrics import metrics, names
from fleetlab.describe.sections.run_times import draw_survival, survival
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Ints

LIMITS = "limits"
MOST_ROLES, MOST_APPS = 8, 15
TEN = 10  # the largest delays, of which the share of the sum is told
RULE, NO_RULE = "rule", "none"  # how many instances of an application a node may hold


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
        _rules(view, section)
        _efficiency(view, section)
    metrics(view, section)


def _classes(view: TraceView, column: str, most: int) -> dict[str, Bools]:
    counted = (
        view.frame[column].drop_nulls().cast(pl.String).value_counts().sort("count", column, descending=[True, False])
    )
    return {name: view.is_(column, name) for name in counted[column].head(most).to_list()}


# -- delays and runtimes ----------------------------------------------------------------------------------------------


def _delays(view: TraceView, section: Section, role: str) -> None:
    if not np.isfinite(view.wait).any():
        section.absent("scheduling delays", "starts are not in the log")
        return
    roles = _classes(view, "group", MOST_ROLES)
    complete = np.isfinite(view.wait) & np.isfinite(view.runtime)
    estimates = _delays_by(view, section, role, {"all": None, "complete": complete, **roles})
    _delays_by(view, section, "application", _classes(view, "app", MOST_APPS))
    first, of_roles = estimates[0], estimates[2:]
    section.say("mean scheduling delay", first.mean, "s")
    worst = max(of_roles, key=lambda c: c.mean[0], default=first)
    other = f" ({worst.series}:  {duration(worst.mean[0])})" if len(of_roles) > 1 else ""
    section.findings.append(
        f"The mean scheduling delay is {duration(first.mean[0])}{other}; {100 * first.zero:.3g} % have none; the "
        f"{TEN} longest make up {number(_largest(view, None))} % of the sum."
    )


def _delays_by(view: TraceView, section: Section, of: str, classes: Mapping[str, Bools | None]) -> list[Ecdf]:
    """Delays of each class, with the part of their sum that the ten longest make."""
    curves = view.curves(view.wait, classes)
    name = f"delay by {of}"
    section.distributions(
        name, curves, title=f"Scheduling delay by {of}", unit="s", of=of, x="delay, s", y="share of instances, %"
    )
    if curves:
        tens = pl.Series("10 longest, % of sum", [_largest(view, classes[c.series]) for c in curves])
        section.tables[name] = section.tables[name].with_columns(tens)
    return curves


def _largest(view: TraceView, where: Bools | None) -> float:
    delays = view.wait if where is None else view.wait[where]
    ranked = np.sort(delays[np.isfinite(delays)])
    return 100 * float(ranked[-TEN:].sum() / ranked.sum()) if ranked.sum() else 0.0


def _run_times(view: TraceView, section: Section, role: str) -> None:
    what = "runtime" if role == "role" else "latency"
    for column, of, most in (("group", role, MOST_ROLES), ("app", "application", MOST_APPS)):
        every: dict[str, Bools | None] = {"all": None} if column == "group" else {}
        curves = view.curves(view.runtime, every | _classes(view, column, most))
        title = f"{what.capitalize()} by {of}, ended only"
        section.distributions(f"{what} by {of}", curves, title=title, unit="s", of=of, y="share, %")
    if what == "latency":
        for c in section.compared.get("latency by kind", [])[:1]:
            section.say("P50 latency of requests", c.quantiles[50], "s")
            section.findings.append(
                f"Request latency: P50 {duration(c.quantiles[50][0])}, P99 {duration(c.quantiles[99][0])}."
            )
        return
    _survival(view, section, role)


def _survival(view: TraceView, section: Section, role: str) -> None:
    start = np.isfinite(view.floats("start"))
    running = view.is_("status", "running") & ~np.isfinite(view.runtime) & start
    known = np.isfinite(view.runtime) & start
    estimates = []
    for name, where in _classes(view, "group", MOST_ROLES).items():
        if (known & where).any():
            both = survival(view, running, known, where)[1]
            estimates.append(replace(both, series=name))
    if estimates and running.any():
        alt = "; ".join(f"median of {s.series}: {s.quantile(0.5)[0]:,.0f} s" for s in estimates)
        title = f"Runtime by {role}, including running jobs"
        draw_survival(section, f"runtime by {role}, Kaplan–Meier", title, estimates, role, alt)


# -- placement rules ---------------------------------------------------------------------------------------------------


def _rules(view: TraceView, section: Section) -> None:
    """Delays by how many instances of an application a node may hold; and against others of the same role."""
    there = np.isfinite(view.wait)
    rule = view.frame["max_per_node"].to_numpy()
    if not there.any() or not (rule > 0).any():
        section.absent("placement rules", "no instance with a known delay has one")
        return
    values = [int(r) for r in np.unique(rule[there])]
    _delays_by(view, section, RULE, {str(r) if r else NO_RULE: rule == r for r in values})
    name = f"delay by {RULE}"
    table = section.tables[name].hstack(_apart(view, there, rule.astype(np.int64), values))
    section.tables[name] = table
    section.findings.append(_turned(table))


def _turned(table: pl.DataFrame) -> str:
    """Name a rule that looks one way in all and the other within roles, if there is one."""
    for row in table.iter_rows(named=True):
        raw, within = row["vs others"], row["within role"]
        if raw * within < 0:
            low, high = row["within low"], row["within high"]
            return (
                f"Instances with rule `{row[RULE]}` wait {abs(raw):,.0f} s {_way(raw)} than others, but within their "
                f"role {abs(within):,.0f} s {_way(within)} ({low:,.0f} to {high:,.0f} s)."
            )
    return "No placement rule reverses its effect when compared within roles."


def _way(seconds: float) -> str:
    return "longer" if seconds > 0 else "less"


def _apart(view: TraceView, there: Bools, rule: Ints, values: list[int]) -> pl.DataFrame:
    """How much longer the instances of a rule wait than others, in all and within their role.

    Within roles, differences of means are weighted by n₁n₀/(n₁+n₀), as Mantel and Haenszel's are.
    """
    roles, role = np.unique(view.frame["group"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    apps, app = np.unique(view.frame["app"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    shape = len(apps), len(roles), len(values)
    cell = np.ravel_multi_index((app[there], role[there], np.searchsorted(values, rule[there])), shape)
    counts, sums = (
        np.bincount(cell, weights=w, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)
        for w in (np.ones(len(cell)), view.wait[there])
    )
    blocks = BlockBootstrap.of_units(app[there], len(apps))
    rows = []
    for k in range(len(values)):
        raw = _differences(blocks.weights, counts.sum(1, keepdims=True), sums.sum(1, keepdims=True), k)
        within = _differences(blocks.weights, counts, sums, k)
        interval = blocks.replicates(within).interval()
        row = {"vs others": float(raw[0]), "within role": interval.value}
        rows.append(row | {"within low": interval.low, "within high": interval.high})
    return pl.DataFrame(rows, infer_schema_length=None)


def _differences(weights: Floats, counts: Floats, sums: Floats, k: int) -> Floats:
    """For each draw of applications: mean delay of rule `k` less that of others, within roles."""
    n, s = (np.tensordot(weights, x, axes=1) for x in (counts, sums))  # [draws, roles, rules]
    n1, s1 = n[..., k], s[..., k]
    n0, s0 = n.sum(-1) - n1, s.sum(-1) - s1
    both = (n1 > 0) & (n0 > 0)
    weight = np.where(both, n1 * n0 / np.maximum(n1 + n0, 1), 0.0)
    apart = np.where(both, s1 / np.maximum(n1, 1) - s0 / np.maximum(n0, 1), 0.0)
    total = weight.sum(-1)
    return np.asarray(np.divide((weight * apart).sum(-1), total, out=np.full(len(total), np.nan), where=total > 0))


# -- limits ------------------------------------------------------------------------------------------------------------


def _efficiency(view: TraceView, section: Section) -> None:
    """What is requested over what it is limited to: the mean over instances, and in all."""
    limits = view.trace.series[LIMITS].collect()
    both = view.trace.workload.frame.join(limits, on="job", how="left", suffix="_limit", maintain_order="left")
    codes = view.frame["app"].cast(pl.String).fill_null("").to_numpy()
    apps, app = np.unique(codes, return_inverse=True)
    rows = []
    for column, name in ((r.request, r.title) for r in RESOURCES if r.name != "gpu_memory"):
        if f"{column}_limit" not in both.columns:
            section.absent(f"limits of {name}", "not in the log")
            continue
        request, limit = (both[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in (column, f"{column}_limit"))
        there = np.isfinite(limit) & (limit > 0)
        if not there.any():
            section.absent(f"limits of {name}", "none is set")
            continue
        blocks = BlockBootstrap.of_units(app[there], len(apps))
        interval = blocks.mean(request[there] / limit[there], POSITIVE).interval()
        whole = float(request[there].sum() / limit[there].sum())
        rows.append((name, int(there.sum()), *interval, whole, float((request[there] < limit[there]).mean())))
    columns = ["of", "instances", "request over limit", "low", "high", "in total", "share below"]
    section.tables["request over limit"] = pl.DataFrame(rows, schema=columns, orient="row")
    below = [f"{name} ({value:.3g})" for name, _, value, *_ in rows if value < 1 - 1e-9]
    section.findings.append(
        "Requests equal limits" + (f", but for {', '.join(below)}." if below else " for every resource.")
    )
