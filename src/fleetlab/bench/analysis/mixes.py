"""What each mix did in each mode: throughput, fairness, latency and energy, as measures that can be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.bench import statistics
from fleetlab.bench.analysis.folders import WHOLE
from fleetlab.bench.analysis.meetings import Gathered, Meeting
from fleetlab.bench.analysis.noise import UNSEEN, Measure, Noise, Sample, Spread, alone_noise, together
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import frame, listed
from fleetlab.devices.errors import BenchError
from fleetlab.stats import Interval

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Mixes:
    """Measures by mix and mode; `progress` is by tenant and what it sits beside."""

    gathered: Gathered
    noise: Noise
    stp: Measure  # how many cards' worth of work one card did
    worst: Measure  # the least progress of any tenant
    antt: Measure  # how many times as long work took
    latency: Measure  # P95 of the inference tenants' steps over that alone, the worst of them
    energy: Measure  # joules over what the same work takes alone, one after the other
    progress: Measure
    names: dict[str, tuple[str, ...]]  # of each mix

    def throughput(self, mode: str, mix: str) -> Interval:
        """System throughput; its limits know that the rates alone are not exact either."""
        return self.stp.mean(mode, mix, self._own(mode, mix))

    def throughput_spread(self, mode: str, mix: str) -> Spread:
        """Of its log."""
        seen = self.stp.block(mode, mix).freedom
        return together([self.stp.spread(mode, mix), self._own(mode, mix)]) if seen else UNSEEN

    def _own(self, mode: str, mix: str) -> Spread:
        """What the noise of the rates alone does to the sum: each tenant's share of it."""
        made: dict[str, list[float]] = defaultdict(list)
        for m in self.gathered.mixes():
            if m.mode == mode and m.mix == mix:
                for t in m.tenants:
                    made[t.name].append(t.progress or 0.0)
        total = sum(map(sum, made.values()))
        parts = [(sum(made[name]) / total, self.noise.own(self.gathered, name)) for name in made]
        return together(Spread(share**2 * s.variance, s.freedom) for share, s in parts)

    def _least_sure(self, mix: str) -> Spread:
        """The noise of the tenant whose rate alone is the least sure."""
        return max((self.noise.own(self.gathered, name) for name in self.names[mix]), key=lambda s: s.variance)

    def fairness(self, mode: str, mix: str) -> Interval:
        """The least progress of its tenants."""
        return self.worst.mean(mode, mix, self._least_sure(mix))

    def turnaround(self, mode: str, mix: str) -> Interval:
        """How many times as long work took."""
        return self.antt.mean(mode, mix, self._least_sure(mix))

    def joules(self, mode: str, mix: str) -> Interval:
        """Energy of the same work, over that alone."""
        return self.energy.mean(mode, mix, self._own(mode, mix))

    def shared(self, *, saturating: bool = False, tenants: int | None = None) -> list[str]:
        """Mixes that were measured in at least two modes."""
        return [
            mix
            for mix in self.stp.mixes()
            if len(self.stp.modes(mix)) > 1
            and (not saturating or self.gathered.saturating(self.names[mix]))
            and tenants in (None, len(self.names[mix]))
        ]


def mixed(g: Gathered) -> Mixes:
    """Every measure of every mix."""
    noise, found = alone_noise(g), g.mixes()
    watts = _watts_alone(g)
    own = own_times(g)

    def measure(of: Callable[[Meeting], float | None]) -> Measure:
        values = ((m, of(m)) for m in found)
        return Measure((Sample(m.mode, m.mix, g.kind(m.names), m.suite, v) for m, v in values if v is not None), noise)

    return Mixes(
        gathered=g,
        noise=noise,
        stp=measure(lambda m: statistics.stp(m.progress)),
        worst=measure(lambda m: min(m.progress)),
        antt=measure(lambda m: statistics.antt(m.progress)),
        latency=measure(lambda m: _longer(g, m, own)),
        energy=measure(lambda m: _energy(m, watts)),
        progress=Measure(_progress(g, found), noise),
        names={m.mix: m.names for m in found},
    )


def _progress(g: Gathered, found: list[Meeting]) -> Iterator[Sample]:
    """Copies of one tenant in one cell met the same block: they are one sample of it."""
    for m in found:
        for name in dict.fromkeys(m.names):
            made = [t.progress or 0.0 for t in m.tenants if t.name == name]
            others = list(m.names)
            others.remove(name)
            pair = f"{name} | {listed(others)}"
            yield Sample(m.mode, pair, g.kind(m.names), m.suite, sum(made) / len(made))


def own_times(g: Gathered) -> dict[str, Histogram]:
    """How long each tenant's steps take on a card of its own."""
    by: dict[str, list[Histogram]] = defaultdict(list)
    for m in g.meetings:
        if len(m.tenants) == 1 and m.mode == WHOLE:
            by[m.tenants[0].name].append(m.tenants[0].times())
    return {name: Histogram.sum(many) for name, many in by.items()}


def quantile(times: Histogram, p: float) -> Interval | None:
    """The quantile with its limits, or None where there are too few times to carry it."""
    try:
        return statistics.percentile(times, p)
    except BenchError:
        return None


def _longer(g: Gathered, m: Meeting, own: dict[str, Histogram]) -> float | None:
    """How many times as long as alone the P95 of an inference tenant is; of several, the worst."""
    found = []
    for name in {t.name for t in m.tenants if g.kinds[t.name] == "inference"}:
        here = quantile(Histogram.sum(t.times() for t in m.tenants if t.name == name), P95)
        alone = quantile(own.get(name, Histogram.of([])), P95)
        if here is None or alone is None:
            return None
        found.append(here.value / alone.value)
    return max(found, default=None)


# --- energy ----------------------------------------------------------------------------------------------------------


def _watts_alone(g: Gathered) -> dict[str, float]:
    by: dict[str, list[float]] = defaultdict(list)
    for m in g.meetings:
        if len(m.tenants) == 1 and m.mode == WHOLE and (m.gpu.get("watts") or 0) > 0:
            by[m.tenants[0].name].append(m.gpu["watts"])
    return {name: sum(x) / len(x) for name, x in by.items()}


def _energy(m: Meeting, watts: dict[str, float]) -> float | None:
    """A second of the mix does `progress` seconds of each tenant's work; alone these would take their own power."""
    if not (m.gpu.get("watts") or 0) > 0 or any(name not in watts for name in m.names):
        return None
    apart = sum((t.progress or 0.0) * watts[t.name] for t in m.tenants)
    return float(m.gpu["watts"]) / apart if apart > 0 else None


# --- tables ----------------------------------------------------------------------------------------------------------


def mix_table(x: Mixes) -> pl.DataFrame:
    """One row a mix and mode."""
    return frame(_mix_row(x, mode, mix) for mix in x.stp.mixes() for mode in x.stp.modes(mix))


def _mix_row(x: Mixes, mode: str, mix: str) -> dict[str, Any]:
    here = [m for m in x.gathered.mixes() if m.mode == mode and m.mix == mix]
    util = [m.gpu["util"] for m in here if m.gpu.get("util") is not None]
    watts = [m.gpu["watts"] for m in here if m.gpu.get("watts") is not None]
    return {
        "mix": mix,
        "kind": x.stp.kinds[mix],
        "tenants": len(x.names[mix]),
        "mode": mode,
        "blocks": x.stp.blocks(mode, mix),
        **spread_out("stp", x.throughput(mode, mix)),
        **spread_out("worst", x.fairness(mode, mix)),
        **spread_out("antt", x.turnaround(mode, mix)),
        **spread_out("p95_times", x.latency.mean(mode, mix) if mode in x.latency.modes(mix) else None),
        **spread_out("energy_times", x.joules(mode, mix) if mode in x.energy.modes(mix) else None),
        "util": sum(util) / len(util) if util else None,
        "watts": sum(watts) / len(watts) if watts else None,
    }


def spread_out(name: str, value: Interval | None) -> dict[str, float | None]:
    """A value and its limits as three columns."""
    found = value or (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


def progress_table(x: Mixes) -> pl.DataFrame:
    """One row a tenant, what it sits beside, and a mode: the interference matrix, and larger groups."""
    return frame(_progress_row(x, mode, pair) for pair in x.progress.mixes() for mode in x.progress.modes(pair))


def _progress_row(x: Mixes, mode: str, pair: str) -> dict[str, Any]:
    tenant, _, beside = pair.partition(" | ")
    about = {"mode": mode, "tenant": tenant, "beside": beside, "blocks": x.progress.blocks(mode, pair)}
    return about | spread_out("progress", x.progress.mean(mode, pair, x.noise.own(x.gathered, tenant)))
