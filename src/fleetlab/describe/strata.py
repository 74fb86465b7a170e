"""Comparisons of classes of instances, in all and within their role.

A placement rule or a request is chosen for an application and goes with its role, so a comparison of all instances
mostly compares roles. Within roles, differences of means are weighted by n₁n₀/(n₁+n₀), as Mantel and Haenszel's are,
and ranks are taken inside each role. Applications are resampled for intervals, not instances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.describe.ecdf import Bools
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
        known = scale > 1e-9 * np.maximum(saa.sum(1), 1.0)
        values = np.divide(covariance, scale, out=np.full(len(scale), np.nan), where=known)
        return blocks.replicates(values).interval(CORRELATION)


def _differences(weights: Floats, counts: Floats, sums: Floats, k: int) -> Floats:
    """For each draw of applications: the mean of class `k` less that of others, within roles."""
    n, s = (np.tensordot(weights, x, axes=1) for x in (counts, sums))  # [draws, roles, classes]
    n1, s1 = n[..., k], s[..., k]
    n0, s0 = n.sum(-1) - n1, s.sum(-1) - s1
    both = (n1 > 0) & (n0 > 0)
    weight = np.where(both, n1 * n0 / np.maximum(n1 + n0, 1), 0.0)
    apart = np.where(both, s1 / np.maximum(n1, 1) - s0 / np.maximum(n0, 1), 0.0)
    total = weight.sum(-1)
    return np.asarray(np.divide((weight * apart).sum(-1), total, out=np.full(len(total), np.nan), where=total > 0))
