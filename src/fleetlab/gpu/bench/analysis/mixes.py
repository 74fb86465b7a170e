"""Throughput, fairness, latency and energy of each mix in each mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from fleetlab.gpu.bench.analysis.measure import Measure, Noise, NoiseSample, SuiteData, alone_noise
from fleetlab.gpu.bench.histogram import Histogram, antt, interval_columns, known_percentile, stp
from fleetlab.gpu.bench.results.cells import BASELINE, CellResult, grouped, mix_name, table
from fleetlab.gpu.bench.results.latency import User, drawn_users
from fleetlab.gpu.bench.results.suite import cell_energy
from fleetlab.stats import UNKNOWN_SPREAD, Interval, Spread, sum_variances

P95 = 0.95


@dataclass(frozen=True, slots=True)
class MixMeasures:
    """Measures by mix and mode; `progress` is by tenant and neighbors."""

    gathered: SuiteData
    noise: Noise
    stp: Measure  # system throughput
    worst: Measure  # progress of the slowest tenant
    antt: Measure  # average normalized turnaround time
    latency: Measure  # P95 of inference steps relative to alone, the worst of them
    energy: Measure  # relative to alone, one after the other
    progress: Measure
    kept: Measure  # the same, also beside open-loop requests
    names: dict[str, tuple[str, ...]]  # tenants of each mix

    def throughput(self, mode: str, mix: str) -> Interval:
        """System throughput; the interval includes the uncertainty of the rates alone."""
        return self.stp.mean(mode, mix, self._own(mode, mix))

    def throughput_spread(self, mode: str, mix: str) -> Spread:
        """Variance of its logarithm."""
        freedom = self.stp.block(mode, mix).freedom
        return sum_variances([self.stp.spread(mode, mix), self._own(mode, mix)]) if freedom else UNKNOWN_SPREAD

    def _own(self, mode: str, mix: str) -> Spread:
        """Contribution of the uncertainty of the rates alone."""
        here = [m for m in self.gathered.mixes() if m.mode == mode and m.mix == mix]
        progress = grouped((t.name, t.progress or 0.0) for m in here for t in m.tenants)
        total = sum(map(sum, progress.values()))
        parts = [(sum(some) / total, self.noise.own(self.gathered, name)) for name, some in progress.items()]
        return sum_variances(Spread(share**2 * s.variance, s.freedom) for share, s in parts)

    def _least_sure(self, mix: str) -> Spread:
        """Variance of the least certain rate alone."""
        return max((self.noise.own(self.gathered, name) for name in self.names[mix]), key=lambda s: s.variance)

    def speed(self, name: str, mode: str, names: tuple[str, ...]) -> Interval | None:
        """Progress of a tenant of a mix of these names; None if it has none."""
        pair = _beside(name, names)
        known = mode in self.kept.modes(pair)
        return self.kept.mean(mode, pair, self.noise.own(self.gathered, name)) if known else None

    def fairness(self, mode: str, mix: str) -> Interval:
        """Progress of the slowest tenant."""
        return self.worst.mean(mode, mix, self._least_sure(mix))

    def turnaround(self, mode: str, mix: str) -> Interval:
        """Average normalized turnaround time."""
        return self.antt.mean(mode, mix, self._least_sure(mix))

    def joules(self, mode: str, mix: str) -> Interval:
        """Energy relative to alone."""
        return self.energy.mean(mode, mix, self._own(mode, mix))

    def item_joules(self, name: str, mode: str, mix: str) -> Interval | None:
        """Energy of an item of a tenant of a mix: that alone, times the energy of the mix relative to alone."""
        alone = self.gathered.alone.joules(name)
        if alone is None or mode not in self.energy.modes(mix):
            return None
        return Interval(*(alone * times for times in self.joules(mode, mix)))

    def shared(self, *, saturating: bool = False, tenants: int | None = None) -> list[str]:
        """Mixes that were measured in at least two modes."""
        return [
            mix
            for mix in self.stp.mixes()
            if len(self.stp.modes(mix)) > 1
            and (not saturating or self.gathered.saturating(self.names[mix]))
            and tenants in (None, len(self.names[mix]))
        ]


def mix_measures(g: SuiteData) -> MixMeasures:
    """Compute all measures."""
    noise, cells = alone_noise(g), g.mixes()
    own = own_times(g)

    def measure(of: Callable[[CellResult], float | None]) -> Measure:
        values = ((m, v) for m in cells if (v := of(m)) is not None)
        return Measure((_sample(g, m, m.mix, v)._replace(blocks=blocks) for m, v, blocks in _once(values)), noise)

    return MixMeasures(
        gathered=g,
        noise=noise,
        stp=measure(lambda m: stp(m.progress)),
        worst=measure(lambda m: min(m.progress)),
        antt=measure(lambda m: antt(m.progress)),
        latency=measure(lambda m: _longer(g, m, own)),
        energy=measure(lambda m: cell_energy(m, g.alone)),
        progress=Measure(_progress(g, cells), noise),
        kept=Measure(_progress(g, g.cells), noise),
        names={m.mix: m.names for m in cells},
    )


def _progress(g: SuiteData, cells: list[CellResult]) -> Iterator[NoiseSample]:
    """Copies of one tenant in one cell share a block: they are one sample."""
    for m in cells:
        for name in dict.fromkeys(m.names) if len(m.tenants) > 1 else ():
            if progress := [t.progress for t in m.tenants if t.name == name and t.progress is not None]:
                value = sum(progress) / len(progress)
                yield _sample(g, m, _beside(name, m.names), value)._replace(of=g.work_of(name))


def _beside(name: str, names: Iterable[str]) -> str:
    """A tenant and its neighbors, of the names of all."""
    others = list(names)
    others.remove(name)
    return f"{name} | {mix_name(others)}"


def _once(values: Iterable[tuple[CellResult, float]]) -> Iterator[tuple[CellResult, float, int]]:
    """One value of blocks in which notebooks had the same users: they repeat the GPU's part, and not what was drawn.

    With the number of these blocks.
    """
    each = ((m, value, k, _users(m, k)) for k, (m, value) in enumerate(values))
    same = grouped(((m.suite, m.mode, m.mix, *users) if users else (k,), (m, value)) for m, value, k, users in each)
    for some in same.values():
        yield some[0][0], math.exp(sum(math.log(max(value, 1e-12)) for _, value in some) / len(some)), len(some)


def _users(m: CellResult, number: int) -> list[User]:
    return drawn_users([t.about for t in m.tenants if "notebook" in t.about], number)


def _sample(g: SuiteData, m: CellResult, mix: str, value: float) -> NoiseSample:
    works = frozenset(g.work_of(name) for name in m.names)
    return NoiseSample(m.mode, mix, g.kind(m.names), works, m.suite, value)


def own_times(g: SuiteData) -> dict[str, Histogram]:
    """Step times of each tenant alone on a GPU."""
    by = grouped((m.alone.name, m.alone.times()) for m in g.cells if m.alone and m.mode == BASELINE)
    return {name: Histogram.sum(many) for name, many in by.items()}


def _longer(g: SuiteData, m: CellResult, own: dict[str, Histogram]) -> float | None:
    """P95 of an inference tenant relative to alone; the worst of several."""
    ratios = []
    for name in {t.name for t in m.tenants if g.kinds[t.name] == "inference"}:
        here = known_percentile(Histogram.sum(t.times() for t in m.tenants if t.name == name), P95)
        alone = known_percentile(own.get(name, Histogram.of([])), P95)
        if here is None or alone is None:
            return None
        ratios.append(here.value / alone.value)
    return max(ratios, default=None)


# --- tables ----------------------------------------------------------------------------------------------------------


def mix_table(x: MixMeasures) -> pl.DataFrame:
    """One row per mix and mode."""
    return table(_mix_row(x, mode, mix) for mix in x.stp.mixes() for mode in x.stp.modes(mix))


def _mix_row(x: MixMeasures, mode: str, mix: str) -> dict[str, Any]:
    here = [m for m in x.gathered.mixes() if m.mode == mode and m.mix == mix]
    util = [m.gpu["util"] for m in here if m.gpu.get("util") is not None]
    watts = [m.gpu["watts"] for m in here if m.gpu.get("watts") is not None]
    return {
        "mix": mix,
        "kind": x.stp.kinds[mix],
        "tenants": len(x.names[mix]),
        "mode": mode,
        "blocks": x.stp.blocks(mode, mix),
        **interval_columns("stp", x.throughput(mode, mix)),
        **interval_columns("worst", x.fairness(mode, mix)),
        **interval_columns("antt", x.turnaround(mode, mix)),
        **interval_columns("p95_times", x.latency.mean(mode, mix) if mode in x.latency.modes(mix) else None),
        **interval_columns("energy_times", x.joules(mode, mix) if mode in x.energy.modes(mix) else None),
        "util": sum(util) / len(util) if util else None,
        "watts": sum(watts) / len(watts) if watts else None,
    }


def progress_table(x: MixMeasures) -> pl.DataFrame:
    """One row per tenant, neighbors and mode: the interference matrix, and larger groups."""
    return table(_progress_row(x, mode, pair) for pair in x.progress.mixes() for mode in x.progress.modes(pair))


def _progress_row(x: MixMeasures, mode: str, pair: str) -> dict[str, Any]:
    tenant, _, beside = pair.partition(" | ")
    about = {"mode": mode, "tenant": tenant, "beside": beside, "blocks": x.progress.blocks(mode, pair)}
    return about | interval_columns("progress", x.progress.mean(mode, pair, x.noise.own(x.gathered, tenant)))
