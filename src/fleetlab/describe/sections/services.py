"""Of a trace of services: delays and run times by role, application and placement rule, and what is asked of limits.

Means of delays hang on a few instances, so medians and tails stand beside them. Where a rule is set for a whole
application, applications are drawn again for intervals, not instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.catalog import RESOURCES
from fleetlab.describe.ecdf import Bools, Curve
from fleetlab.describe.section import Section, rough, spoken
from fleetlab.describe.sections.container_metrics import metrics, names
from fleetlab.describe.sections.run_times import survival, survival_table
from fleetlab.describe.trace_view import Seen
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Ints

LIMITS = "limits"
MOST_ROLES, MOST_APPS = 8, 15
TEN = 10  # the largest delays, of which the share of the sum is told
RULE, NO_RULE = "rule", "none"  # how many instances of an application a node may hold


def service(seen: Seen, section: Section) -> None:
    """Put together what is known of services, if the trace is of some."""
    series = seen.trace.series
    if not (LIMITS in series or "requests" in series or names(seen.trace)):
        section.lacks("services", "not a trace of services: no limits, requests or metrics of containers")
        return
    role = seen.role or "kind"
    if len(seen.submit):
        _delays(seen, section, role)
        _run_times(seen, section, role)
    if LIMITS in series:
        _rules(seen, section)
        _efficiency(seen, section)
    metrics(seen, section)


def _classes(seen: Seen, column: str, most: int) -> dict[str, Bools]:
    counted = (
        seen.frame[column].drop_nulls().cast(pl.String).value_counts().sort("count", column, descending=[True, False])
    )
    return {name: seen.is_(column, name) for name in counted[column].head(most).to_list()}


# -- delays and run times ----------------------------------------------------------------------------------------------


def _delays(seen: Seen, section: Section, role: str) -> None:
    if not np.isfinite(seen.wait).any():
        section.lacks("scheduling delays", "the log does not tell when jobs started")
        return
    roles = _classes(seen, "group", MOST_ROLES)
    complete = np.isfinite(seen.wait) & np.isfinite(seen.runtime)
    found = _delays_by(seen, section, role, {"all": None, "complete ones": complete, **roles})
    _delays_by(seen, section, "application", _classes(seen, "app", MOST_APPS))
    first, of_roles = found[0], found[2:]
    section.say("mean scheduling delay", first.mean, "s")
    worst = max(of_roles, key=lambda c: c.mean[0], default=first)
    said = f", that of {worst.series} {spoken(worst.mean[0])}" if len(of_roles) > 1 else ""
    section.sentences.append(
        f"The mean scheduling delay is {spoken(first.mean[0])}{said}; {100 * first.zero:.3g} % have none, and the "
        f"{TEN} longest make {rough(_largest(seen, None))} % of all."
    )


def _delays_by(seen: Seen, section: Section, of: str, classes: Mapping[str, Bools | None]) -> list[Curve]:
    """Delays of each class, with the part of their sum that the ten longest make."""
    curves = seen.curves(seen.wait, classes)
    name = f"delay by {of}"
    section.distributions(
        name, curves, title=f"Scheduling delay by {of}", unit="s", of=of, x="delay, s", y="share of instances, %"
    )
    if curves:
        tens = pl.Series("ten longest, % of the sum", [_largest(seen, classes[c.series]) for c in curves])
        section.tables[name] = section.tables[name].with_columns(tens)
    return curves


def _largest(seen: Seen, where: Bools | None) -> float:
    delays = seen.wait if where is None else seen.wait[where]
    ranked = np.sort(delays[np.isfinite(delays)])
    return 100 * float(ranked[-TEN:].sum() / ranked.sum()) if ranked.sum() else 0.0


def _run_times(seen: Seen, section: Section, role: str) -> None:
    what = "run time" if role == "role" else "latency"
    for column, of, most in (("group", role, MOST_ROLES), ("app", "application", MOST_APPS)):
        every: dict[str, Bools | None] = {"all": None} if column == "group" else {}
        curves = seen.curves(seen.runtime, every | _classes(seen, column, most))
        title = f"{what.capitalize()} by {of}, of those that ended"
        section.distributions(f"{what} by {of}", curves, title=title, unit="s", of=of, y="share, %")
    if what == "latency":
        for c in section.compared.get("latency by kind", [])[:1]:
            section.say("median latency of requests", c.quantiles[50], "s")
            section.sentences.append(
                f"Half of the requests take {spoken(c.quantiles[50][0])} or less, one in a hundred more than "
                f"{spoken(c.quantiles[99][0])}."
            )
        return
    _survival(seen, section, role)


def _survival(seen: Seen, section: Section, role: str) -> None:
    start = np.isfinite(seen.floats("start"))
    running = seen.is_("status", "running") & ~np.isfinite(seen.runtime) & start
    known = np.isfinite(seen.runtime) & start
    found = []
    for name, where in _classes(seen, "group", MOST_ROLES).items():
        if (known & where).any():
            both = survival(seen, running, known, where)[1]
            found.append(replace(both, series=name))
    if found and running.any():
        section.tables[f"run time by {role}, Kaplan–Meier"] = survival_table(found, role)
        frame = pl.concat([s.points().filter(pl.col("x") > 0) for s in found])
        alt = "; ".join(f"half of {s.series} have ended after {s.quantile(0.5)[0]:,.0f} s" for s in found)
        section.figures[f"run time by {role}, Kaplan–Meier"] = Figure(
            f"Run time by {role}, still running counted in", "line", frame, "run time, s", "share that has ended, %",
            alt, log_x=True,
        )  # fmt: skip


# -- placement rules ---------------------------------------------------------------------------------------------------


def _rules(seen: Seen, section: Section) -> None:
    """Delays by how many instances of an application a node may hold; and against others of the same role."""
    there = np.isfinite(seen.wait)
    rule = seen.frame["max_per_node"].to_numpy()
    if not there.any() or not (rule > 0).any():
        section.lacks("placement rules", "no instance with a known delay has one")
        return
    values = [int(r) for r in np.unique(rule[there])]
    _delays_by(seen, section, RULE, {str(r) if r else NO_RULE: rule == r for r in values})
    name = f"delay by {RULE}"
    table = section.tables[name].hstack(_apart(seen, there, rule.astype(np.int64), values))
    section.tables[name] = table
    section.sentences.append(_turned(table))


def _turned(table: pl.DataFrame) -> str:
    """Name a rule that looks one way in all and the other within roles, if there is one."""
    for row in table.iter_rows(named=True):
        raw, within = row["against others"], row["within role"]
        if raw * within < 0:
            low, high = row["within low"], row["within high"]
            return (
                f"Instances of rule `{row[RULE]}` wait {abs(raw):,.0f} s {_way(raw)} than others, but within their "
                f"role {abs(within):,.0f} s {_way(within)} ({low:,.0f} to {high:,.0f} s)."
            )
    return "No placement rule changes sides when it is held against others of the same role."


def _way(seconds: float) -> str:
    return "longer" if seconds > 0 else "less"


def _apart(seen: Seen, there: Bools, rule: Ints, values: list[int]) -> pl.DataFrame:
    """How much longer the instances of a rule wait than others, in all and within their role.

    Within roles, differences of means are weighed by n₁n₀/(n₁+n₀), as Mantel and Haenszel's are.
    """
    roles, role = np.unique(seen.frame["group"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    apps, app = np.unique(seen.frame["app"].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
    shape = len(apps), len(roles), len(values)
    cell = np.ravel_multi_index((app[there], role[there], np.searchsorted(values, rule[there])), shape)
    counts, sums = (
        np.bincount(cell, weights=w, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)
        for w in (np.ones(len(cell)), seen.wait[there])
    )
    blocks = BlockBootstrap.of_units(app[there], len(apps))
    rows = []
    for k in range(len(values)):
        raw = _differences(blocks.weights, counts.sum(1, keepdims=True), sums.sum(1, keepdims=True), k)
        within = _differences(blocks.weights, counts, sums, k)
        told = blocks.replicates(within).interval()
        row = {"against others": float(raw[0]), "within role": told.value}
        rows.append(row | {"within low": told.low, "within high": told.high})
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


def _efficiency(seen: Seen, section: Section) -> None:
    """What is requested over what it is limited to: the mean over instances, and in all."""
    limits = seen.trace.series[LIMITS].collect()
    both = seen.trace.workload.frame.join(limits, on="job", how="left", suffix="_limit", maintain_order="left")
    codes = seen.frame["app"].cast(pl.String).fill_null("").to_numpy()
    apps, app = np.unique(codes, return_inverse=True)
    rows = []
    for column, name in ((r.request, r.title) for r in RESOURCES if r.name != "gpu_memory"):
        if f"{column}_limit" not in both.columns:
            section.lacks(f"limits of {name}", "the log does not tell them")
            continue
        request, limit = (both[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in (column, f"{column}_limit"))
        there = np.isfinite(limit) & (limit > 0)
        if not there.any():
            section.lacks(f"limits of {name}", "none is set")
            continue
        blocks = BlockBootstrap.of_units(app[there], len(apps))
        told = blocks.mean(request[there] / limit[there], POSITIVE).interval()
        whole = float(request[there].sum() / limit[there].sum())
        rows.append((name, int(there.sum()), *told, whole, float((request[there] < limit[there]).mean())))
    columns = ["of", "instances", "request over limit", "low", "high", "in all", "share below"]
    section.tables["request over limit"] = pl.DataFrame(rows, schema=columns, orient="row")
    below = [f"{name} ({value:.3g})" for name, _, value, *_ in rows if value < 1 - 1e-9]
    section.sentences.append(
        "Requests equal limits" + (f", but for {', '.join(below)}." if below else " for every resource.")
    )
