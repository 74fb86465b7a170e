"""How far it goes: on fewer SMs, and with more and more of the same."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench.analysis.folders import WHOLE
from fleetlab.bench.analysis.meetings import Gathered, Meeting
from fleetlab.bench.analysis.mixes import Mixes, quantile, spread_out
from fleetlab.bench.analysis.noise import limits, rank, together
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import frame
from fleetlab.stats import Interval

FACTOR = 3.0  # times the tail alone: beyond it, it is broken
CURVE = {"tenant": pl.String, "sms": pl.Int64, "progress": pl.Float64}
SCALE = {"tenant": pl.String, "mode": pl.String, "tenants": pl.Int64, "rate": pl.Float64, "state": pl.String}


def curve_table(x: Mixes) -> pl.DataFrame:
    """Each tenant alone on a part of the SMs; limits are those of any tenant measured again."""
    by: dict[tuple[str, int], list[float]] = defaultdict(list)
    for m in x.gathered.meetings:
        one = m.tenants[0]
        if len(m.tenants) == 1 and one.progress and m.mode != WHOLE and one.about.get("sms"):
            by[one.name, one.about["sms"]].append(one.progress)
    parts = {name: len({sms for of, sms in by if of == name}) for name, _ in by}
    rows = []
    for (name, sms), made in sorted(by.items()):
        if parts[name] > 2:  # all and one part are no curve
            again = x.noise.again[x.gathered.kinds[name] == "launch-bound"].over(len(made))
            found = limits(sum(map(math.log, made)) / len(made), together([again, x.noise.own(x.gathered, name)]))
            rows.append({"tenant": name, "sms": sms, "blocks": len(made), **spread_out("progress", found)})
    return frame(rows, CURVE)


# --- more and more of the same ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crowd:
    """One tenant, in one mode, by how many of it there are."""

    tenant: str
    mode: str
    percentile: float
    rows: list[dict[str, Any]]

    @property
    def held(self) -> int | None:
        """The largest number that surely holds, with all below it."""
        good = None
        for row in self.rows:
            if row["state"] != "holds":
                break
            good = row["tenants"]
        return good

    @property
    def breaks(self) -> dict[str, Any] | None:
        """The first that surely does not."""
        return next((row for row in self.rows if row["state"] in ("breaks", "failed")), None)


def crowds(x: Mixes, *, factor: float = FACTOR) -> list[Crowd]:
    """Every tenant that was measured in at least two sizes of company, its own kind only."""
    by: dict[tuple[str, str], dict[int, list[Meeting]]] = defaultdict(lambda: defaultdict(list))
    for m in x.gathered.meetings:
        if len(set(m.names)) == 1 and not any(t.share for t in m.tenants):
            by[m.names[0], m.mode][len(m.tenants)].append(m)
    found = []
    for (tenant, mode), sizes in sorted(by.items(), key=lambda at: (at[0][0], rank(at[0][1]))):
        if max(sizes) > 2 or (len(sizes) > 1 and any(t.timed for t in next(iter(sizes.values()))[0].tenants)):
            found.append(_crowd(x, tenant, mode, dict(sorted(sizes.items())), by.get((tenant, WHOLE)), factor))
    return found


def _crowd(
    x: Mixes,
    tenant: str,
    mode: str,
    sizes: dict[int, list[Meeting]],
    apart: dict[int, list[Meeting]] | None,
    factor: float,
) -> Crowd:
    timed = next(iter(sizes.values()))[0].tenants[0].timed
    p = 0.99 if timed else 0.95
    # Alone without MPS, where that was measured; else alone in this mode.
    alone = _tail((apart or sizes).get(1) or sizes.get(1, []), p)
    rows: list[dict[str, Any]] = []
    for n, here in sizes.items():
        half = x.noise.measured_again(x.gathered, tenant, len(here))
        rate = sum(t.rate for m in here for t in m.tenants) / len(here)
        total = wider(Interval(rate, rate, rate), half)
        tail = wider(_tail(here, p), half)
        times = Interval(*(v / alone.value for v in tail)) if tail and alone else None
        rows.append(
            {
                "tenant": tenant,
                "mode": mode,
                "tenants": n,
                "blocks": len(here),
                "unit": f"{x.gathered.units[tenant]}/s",
                **spread_out("rate", total),
                "percentile": f"P{100 * p:g}",
                **spread_out("tail_ms", Interval(*(1000 * v for v in tail)) if tail else None),
                **spread_out("times", times),
                "state": _state(times, factor),
            }
        )
    rows += _fallen(x.gathered, tenant, mode, {r["tenants"] for r in rows})
    return Crowd(tenant, mode, p, sorted(rows, key=lambda r: r["tenants"]))


def wider(value: Interval | None, half: float) -> Interval | None:
    """Limits that also hold what the same would differ by when measured again; steps of one cell are not independent.

    >>> wider(Interval(2.0, 1.9, 2.1), 0.0)
    Interval(value=2.0, low=1.9, high=2.1)
    """
    if value is None or math.isnan(half):
        return value
    return Interval(value.value, value.low * math.exp(-half), value.high * math.exp(half))


def _tail(here: list[Meeting], p: float) -> Interval | None:
    return quantile(Histogram.sum(t.times() for m in here for t in m.tenants), p)


def _state(times: Interval | None, factor: float) -> str:
    if times is None:
        return "not known"
    return "holds" if times.high <= factor else "breaks" if times.low > factor else "not known"


def _fallen(g: Gathered, tenant: str, mode: str, there: set[int]) -> Iterator[dict[str, Any]]:
    """Numbers at which a cell failed and none was measured."""
    for f in g.failures:
        n, _, name = f["mix"].rpartition(" ")
        many = int(n) if n.isdigit() else 1
        if name == tenant and f["mode"] == mode and many not in there:
            there.add(many)
            yield {"tenant": tenant, "mode": mode, "tenants": many, "blocks": 0, "state": "failed", "why": f["kind"]}


def scale_table(found: list[Crowd]) -> pl.DataFrame:
    """One row a tenant, mode and number."""
    return frame((row for crowd in found for row in crowd.rows), SCALE)
