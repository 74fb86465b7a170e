"""Traces of services: delays and runtimes by class, requests over limits, and container metrics.

Means of delays hang on a few instances, so medians and tails stand beside them. Where a rule is set for a whole
application, applications are drawn again for intervals, not instances.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from fleetlab.core.catalog import RESOURCES
from fleetlab.core.catalog.columns import Resource
from fleetlab.core.durations import duration, number
from fleetlab.describe.curves import Bools, Ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.sections.delays import (
    MOST_ROLES,
    ROLE,
    TEN,
    Strata,
    applications,
    classes,
    delays_by,
    delays_within_roles,
    largest,
    observed_starts,
    placement_rules,
    survivals,
)
from fleetlab.describe.sections.nodes import metrics, names
from fleetlab.describe.sections.run_times import draw_survival, or_later
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import POSITIVE, Floats, Ints

LIMITS = "limits"
ALL = "all"
MOST_VALUES = 8  # of a request, each a class of its own; of more, quartiles are
EFFECTS = ("rdma", "disk")  # resources of which the other sections say nothing


def limits(view: TraceView, section: Section) -> None:
    """What is requested over what it is limited to: the mean over instances, and in all; then by role."""
    both = view.trace.workload.frame.join(
        view.trace.series[LIMITS].collect(), on="job", how="left", suffix="_limit", maintain_order="left"
    )
    roles: dict[str, Bools] = classes(view, "group", MOST_ROLES)
    every = np.ones(len(view.submit), dtype=bool)
    rows = [row for r in _limited(section, both) for row in _over_limit(view, both, r, {ALL: every, **roles})]
    columns = [ROLE, "of", "instances", "request over limit", "low", "high", "in total", "share below"]
    table = pl.DataFrame(rows, schema=columns, orient="row")
    section.tables["request over limit"] = table.filter(pl.col(ROLE) == ALL).drop(ROLE)
    if len(roles) > 1:
        section.tables["request over limit by role"] = table.filter(pl.col(ROLE) != ALL)
    below = [f"{name} ({value:.3g})" for role, name, _, value, *_ in rows if role == ALL and value < 1 - 1e-9]
    section.findings.append(
        "Requests equal limits" + (f", but for {', '.join(below)}." if below else " for every resource.")
    )


def _limited(section: Section, both: pl.DataFrame) -> Iterator[Resource]:
    for r in RESOURCES:
        if r.name == "gpu_memory":
            continue
        if f"{r.request}_limit" not in both.columns:
            section.absent(f"limits of {r.title}", "not in the log")
        elif not (both[f"{r.request}_limit"].fill_null(0) > 0).any():
            section.absent(f"limits of {r.title}", "none is set")
        else:
            yield r


Row = tuple[str, str, int, float, float, float, float, float]


def _over_limit(view: TraceView, both: pl.DataFrame, r: Resource, which: dict[str, Bools]) -> Iterator[Row]:
    request, limit = (both[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in (r.request, f"{r.request}_limit"))
    for role, where in which.items():
        there = where & np.isfinite(limit) & (limit > 0)
        if there.any():
            blocks = Strata.of(view, there).blocks
            interval = blocks.mean(request[there] / limit[there], POSITIVE).interval()
            whole = float(request[there].sum() / limit[there].sum())
            below = float((request[there] < limit[there]).mean())
            yield role, r.title, int(there.sum()), *interval, whole, below


# -- requests by role --------------------------------------------------------------------------------------------------


def requests_by_role(view: TraceView, section: Section) -> None:
    """What instances of each role request, of every resource that any of them does."""
    roles = classes(view, "group", MOST_ROLES)
    rows = []
    for r in RESOURCES:
        values = _requested(view, r)
        if values.any():
            curves = view.curves(values, roles)
            rows += [_request_row(section, r, c) for c in curves]
            section.distributions(
                f"{r.title} requested by role", curves, title=f"{r.title} requested by role", unit=r.unit,
                x=f"{r.title} of an instance, {r.unit}", y="share of instances, %", log_x=False, tabled=False,
            )  # fmt: skip
    if rows:
        section.tables["requests by role"] = pl.DataFrame(rows, infer_schema_length=None)


def _requested(view: TraceView, r: Resource) -> Floats:
    return view.trace.workload.frame[r.request].cast(pl.Float64).to_numpy() / r.scale


def _request_row(section: Section, r: Resource, c: Ecdf) -> dict[str, object]:
    row: dict[str, object] = {ROLE: c.series, "of": r.title, "unit": r.unit, "instances": c.count}
    row |= dict(zip(("mean", "low", "high"), c.mean, strict=True))
    row |= {f"P{p}": c.quantiles[p][0] for p in (10, 50, 90, 95)} | {"largest": c.largest}
    published = section.published(f"{r.title} requested by role")
    return row | ({"mean, published": published.get(c.series)} if section.has_published else {})


# -- delays by request -------------------------------------------------------------------------------------------------


def delays_by_request(view: TraceView, section: Section) -> None:
    """How delays go with the request of RDMA and of disk: by class, and as one rank correlation."""
    there, rows = np.isfinite(view.wait), []
    for r in (r for r in RESOURCES if r.name in EFFECTS):
        values = _requested(view, r)
        if not there.any() or len(np.unique(values[there])) < 2:
            section.absent(f"delay by {r.title} request", "no two instances with a known delay differ in it")
            continue
        _by_class(view, section, r, values, there)
        raw, within = Strata.of(view, there).rank_correlations(values[there], view.wait[there])
        rows.append((r.title, int(there.sum()), *raw, *within))
        section.findings.append(_effect(r.title, raw.value, within))
    if rows:
        columns = ["request", "instances", "rank correlation", "low", "high"]
        within_columns = ["within role", "within low", "within high"]
        table = pl.DataFrame(rows, schema=[*columns, *within_columns], orient="row")
        section.tables["requests and delay"] = table.fill_nan(None)


def _effect(title: str, raw: float, within: tuple[float, float, float]) -> str:
    value, low, high = within
    if not np.isfinite(value):
        return f"{title} requests do not differ within a role: their effect on delay cannot be told from the role's."
    sure = f" (95 % CI {_two(low)} to {_two(high)})" if np.isfinite([low, high]).all() else ""
    return (
        f"Rank correlation of delay with {title} requested: {_two(raw)} in all, {_two(value)}{sure} within roles; "
        "requests go with the role and the application, so this is no effect of the request alone."
    )


def _two(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no minus before 0


def _by_class(view: TraceView, section: Section, r: Resource, values: Floats, there: Bools) -> None:
    code, names = request_classes(values, there)
    which = {name: code == k for k, name in enumerate(names)}
    of = f"{r.title} request"
    delays_by(view, section, of, which)
    strata, name = Strata.of(view, there), f"delay by {of}"
    differences = strata.differences(view.wait[there], code[there], len(names))
    parts = [section.tables[name], strata.role_shares(code[there], len(names)), differences]
    section.tables[name] = pl.concat(parts, how="horizontal").rename({of: f"{of}, {r.unit}"})
    delays_within_roles(view, section, of, which)


def request_classes(values: Floats, there: Bools) -> tuple[Ints, list[str]]:
    """The class of each value, -1 where it does not count, and the names of classes in rising order.

    >>> request_classes(np.array([1.0, 0.25, 1.0, 9.0]), np.array([True, True, True, False]))
    (array([ 1,  0,  1, -1]), ['0.25', '1'])
    """
    distinct = np.unique(values[there])
    if len(distinct) <= MOST_VALUES:
        code, names = np.searchsorted(distinct, values), [f"{x:g}" for x in distinct]
    else:
        edges = np.unique(np.quantile(values[there], (0.25, 0.5, 0.75), method="inverted_cdf"))
        edges = edges[edges < distinct[-1]]
        code = np.searchsorted(edges, values)
        pairs = zip(_next(distinct, edges[:-1]), edges[1:], strict=True)
        between = [f"{a:g} to {b:g}" if a < b else f"{a:g}" for a, b in pairs]
        names = [f"{edges[0]:g} or less", *between, f"above {edges[-1]:g}"]
    return np.where(there, code, -1).astype(np.int64), names


def _next(distinct: Floats, edges: Floats) -> Floats:
    """The least value above each edge."""
    return distinct[np.searchsorted(distinct, edges, side="right")]


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
    running, _ = observed_starts(view)
    estimates = survivals(view, classes(view, "group", MOST_ROLES))
    if estimates and running.any():
        alt = "; ".join(f"median of {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
        title = f"Runtime by {role}, including running jobs"
        draw_survival(section, f"runtime by {role}, Kaplan–Meier", title, estimates, role, alt)
