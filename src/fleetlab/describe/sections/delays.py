"""Delays and runtimes of classes of instances: by role, application and placement rule.

A placement rule or a request is chosen for an application and goes with its role, so a comparison of all instances
mostly compares roles. Within roles, differences of means are weighted by n₁n₀/(n₁+n₀), as Mantel and Haenszel's are,
and ranks are taken inside each role. Applications are resampled for intervals, not instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetlab.describe.curves import Bools, Ecdf, Survival, ecdf, table
from fleetlab.describe.section import Section
from fleetlab.describe.sections.run_times import draw_survival, or_later, survival, survival_table
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import BlockBootstrap, Floats, Interval, Ints

CORRELATION = -1.0, 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """The role and the application of each instance, as codes."""

    role: Ints
    roles: tuple[str, ...]
    app: Ints
    apps: int

    @classmethod
    def of(cls, view: TraceView, where: Bools) -> Strata:
        """Of some of the jobs of a trace."""
        (roles, role), (apps, app) = (
            np.unique(view.frame[c].cast(pl.String).fill_null("").to_numpy(), return_inverse=True)
            for c in ("group", "app")
        )
        return cls(role[where], tuple(roles.tolist()), app[where], len(apps))

    @property
    def blocks(self) -> BlockBootstrap:
        """Applications to resample."""
        return BlockBootstrap.of_units(self.app, self.apps)

    def role_shares(self, code: Ints, count: int) -> pl.DataFrame:
        """Return, for each class, the percentage of its instances in each role."""
        shape = count, len(self.roles)
        cells = np.bincount(np.ravel_multi_index((code, self.role), shape), minlength=count * len(self.roles))
        shares = 100 * cells.reshape(shape) / np.maximum(cells.reshape(shape).sum(1, keepdims=True), 1)
        return pl.DataFrame({f"{name}, %": shares[:, k] for k, name in enumerate(self.roles)})

    def differences(self, values: Floats, code: Ints, count: int) -> pl.DataFrame:
        """Return, for each class, how much its mean is above that of the others, in all and within roles."""
        shape = self.apps, len(self.roles), count
        cell = np.ravel_multi_index((self.app, self.role, code), shape)
        counts, sums = (
            np.bincount(cell, weights=w, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)
            for w in (np.ones(len(cell)), values)
        )
        blocks, rows = self.blocks, []
        for k in range(count):
            raw = _differences(blocks.weights[:1], counts.sum(1, keepdims=True), sums.sum(1, keepdims=True), k)
            within = blocks.replicates(_differences(blocks.weights, counts, sums, k)).interval()
            row = {"vs others": float(raw[0]), "within role": within.value}
            rows.append(row | {"within low": within.low, "within high": within.high})
        return pl.DataFrame(rows, infer_schema_length=None).fill_nan(None)

    def rank_correlations(self, x: Floats, y: Floats) -> tuple[Interval, Interval]:
        """Return Spearman's rank correlation of two values: of all instances, and of ranks inside each role."""
        together = np.zeros(len(x), dtype=np.int64)
        return self._correlation(x, y, together), self._correlation(x, y, self.role)

    def _correlation(self, x: Floats, y: Floats, stratum: Ints) -> Interval:
        ranked = pl.DataFrame({"x": x, "y": y, "stratum": stratum}).with_columns(
            pl.col("x", "y").rank("average").over("stratum")
        )
        a, b = ranked["x"].to_numpy(), ranked["y"].to_numpy()
        strata = int(stratum.max(initial=0)) + 1
        cell = self.app * strata + stratum
        sums = [
            np.bincount(cell, weights=w, minlength=self.apps * strata).reshape(self.apps, strata)
            for w in (np.ones(len(a)), a, b, a * a, b * b, a * b)
        ]
        blocks = self.blocks
        n, sa, sb, saa, sbb, sab = (blocks.weights @ s for s in sums)  # [replicates, strata]
        many = np.maximum(n, 1.0)
        covariance, of_a, of_b = ((s - p / many).sum(1) for s, p in ((sab, sa * sb), (saa, sa * sa), (sbb, sb * sb)))
        scale = np.sqrt(np.maximum(of_a, 0.0) * np.maximum(of_b, 0.0))
        # What remains of a variance of 0 is rounding.
        varies = scale > 1e-9 * np.maximum(saa.sum(1), 1.0)
        values = np.divide(covariance, scale, out=np.full(len(scale), np.nan), where=varies)
        return blocks.replicates(values).interval(CORRELATION)


def _differences(weights: Floats, counts: Floats, sums: Floats, k: int) -> Floats:
    """For each draw of applications: the mean of class `k` less that of others, within roles."""
    n, s = (np.tensordot(weights, x, axes=1) for x in (counts, sums))  # [draws, roles, classes]
    n1, s1 = n[..., k], s[..., k]
    n0, s0 = n.sum(-1) - n1, s.sum(-1) - s1
    both = (n1 > 0) & (n0 > 0)
    weight = np.where(both, n1 * n0 / np.maximum(n1 + n0, 1), 0.0)
    difference = np.where(both, s1 / np.maximum(n1, 1) - s0 / np.maximum(n0, 1), 0.0)
    total = weight.sum(-1)
    return np.asarray(np.divide((weight * difference).sum(-1), total, out=np.full(len(total), np.nan), where=total > 0))


MOST_ROLES = 8
TEN = 10  # the largest delays, whose share of the sum is shown
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


def observed_starts(view: TraceView) -> tuple[Bools, Bools]:
    """Which jobs still ran when the log ended, and which ran for a known time; the log has the start of both."""
    start = np.isfinite(view.floats("start"))
    running = view.is_("status", "running") & ~np.isfinite(view.runtime) & start
    return running, np.isfinite(view.runtime) & start


def survivals(view: TraceView, which: Classes) -> list[Survival]:
    """Kaplan and Meier's estimate of the runtime of each class of which some job was seen to start."""
    running, measured = observed_starts(view)
    return [
        replace(survival(view, running, measured, where)[1], series=name)
        for name, where in which.items()
        if ((measured | running) & where).any()
    ]


def survival_within_roles(view: TraceView, section: Section, of: str, which: Classes) -> None:
    """The same inside each role, where there are several."""
    frames = []
    for role, mine in _roles(view):
        if estimates := survivals(view, {name: mine & of_class for name, of_class in which.items()}):
            frames.append(_of_role(survival_table(estimates, of), role))
    if frames:
        section.tables[f"runtime by {of} and role, Kaplan–Meier"] = pl.concat(frames, how="diagonal_relaxed")


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
        curves = _curves_by_app(view, section, "delay", view.wait, apps)
        rows = with_tails(table(curves, APP), view, [apps[c.series] for c in curves])
        section.tables[f"delay by {APP}"] = rows.sort("mean", APP, descending=[True, False])
    curves = _curves_by_app(view, section, what, view.runtime, apps)
    if curves:
        section.tables[f"{what} by {APP}"] = table(curves, APP).sort("P50", APP, descending=[True, False])
    if what == "runtime" and observed_starts(view)[0].any():
        _ranked_survival(view, section, apps)


def _sizes(section: Section, apps: dict[str, Bools]) -> None:
    curve = ecdf("applications", np.array([where.sum() for where in apps.values()], dtype=np.float64))
    section.distributions(
        f"instances per {APP}", [curve] if curve else [], title=f"Instances of an {APP}", unit="instances", of="what",
        x=f"instances of an {APP}", y=f"share of {APP}s, %",
    )  # fmt: skip


def _curves_by_app(view: TraceView, section: Section, what: str, values: Floats, apps: dict[str, Bools]) -> list[Ecdf]:
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
    with_delay = {name: where for name, where in which.items() if (where & there).any()}
    if len(with_delay) < 2:
        section.absent("delays by placement rule", "fewer than two rules have a known delay")
        return
    delays_by(view, section, RULE, with_delay)
    code = np.select(list(with_delay.values()), list(range(len(with_delay))))[there].astype(np.int64)
    strata, name = Strata.of(view, there), f"delay by {RULE}"
    differences = strata.differences(view.wait[there], code, len(with_delay))
    section.tables[name] = pl.concat(
        [section.tables[name], strata.role_shares(code, len(with_delay)), differences], how="horizontal"
    )
    delays_within_roles(view, section, RULE, with_delay)
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
    running, _ = observed_starts(view)
    estimates = survivals(view, which)
    if not estimates or not running.any():
        return
    alt = "; ".join(f"median of rule {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
    title = "Runtime by placement rule, including running jobs"
    draw_survival(section, f"runtime by {RULE}, Kaplan–Meier", title, estimates, RULE, alt)
    survival_within_roles(view, section, RULE, which)
