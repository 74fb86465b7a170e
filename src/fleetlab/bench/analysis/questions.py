"""Six questions about sharing a card, each answered from what was measured, or with `not measured`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from fleetlab.bench.analysis.advice import Advice, by_kind, common
from fleetlab.bench.analysis.costs import cost_table
from fleetlab.bench.analysis.findings import Findings, overhead
from fleetlab.bench.analysis.folders import WHOLE
from fleetlab.bench.analysis.meetings import spoken
from fleetlab.bench.analysis.noise import Compared
from fleetlab.bench.analysis.scale import Crowd
from fleetlab.bench.analysis.serving import by_serving
from fleetlab.bench.analysis.words import NOT_MEASURED, all_of, capital, more, number, percent, times
from fleetlab.bench.results.cells import frame
from fleetlab.stats import Interval


class Answer(NamedTuple):
    """A question and the sentences that answer it."""

    question: str
    sentences: tuple[str, ...]

    def lines(self) -> list[str]:
        """Each as a sentence."""
        return [f"{capital(s)}." for s in self.sentences]

    def __str__(self) -> str:
        return " ".join(self.lines())


def answers(f: Findings) -> list[Answer]:
    """All six, in order."""
    return [
        Answer("How do the modes change what workloads get done?", tuple(_performance(f))),
        Answer("How many at once can each mode bear?", tuple(_scalability(f))),
        Answer("How well are tenants kept apart?", tuple(_isolation(f))),
        Answer("What does switching between contexts cost under time slicing?", tuple(_switching(f))),
        Answer("Which mode for which kind of work?", tuple(_kinds(f))),
        Answer("What does it cost, and what does it save?", tuple(_costs(f))),
    ]


def answer_table(f: Findings) -> pl.DataFrame:
    """One row a question."""
    return frame({"question": a.question, "answer": str(a)} for a in answers(f))


# --- performance -----------------------------------------------------------------------------------------------------


def _performance(f: Findings) -> Iterator[str]:
    modes, mixes = f.compared()
    if not mixes:
        yield f"{NOT_MEASURED}: no two tenants were measured beside each other and alone"
        return
    x = f.mixes
    if len(modes) == 1:
        for mode in x.stp.modes():
            yield _did(f, mode, x.stp.mixes(mode), "mix")
        yield f"the same mix in another mode: {NOT_MEASURED}"
        return
    for mode in modes:
        yield _did(f, mode, mixes, f.filling())
    said = []
    for mode in modes[1:]:
        c = x.stp.ratio_of(mixes, mode, modes[0])
        said.append(f"{spoken(mode)} did {more(c) if c.differ else _as_much(c)}")
    yield f"against {spoken(modes[0])} and the same {times(len(mixes), f.filling().split()[0])}, {all_of(said)}"


def _as_much(c: Compared) -> str:
    if c.differ is None:
        return f"{more(c)}, which single blocks cannot tell from chance"
    return f"as much ({100 * (c.low - 1):+.1f} to {100 * (c.high - 1):+.1f} %)"


def _did(f: Findings, mode: str, mixes: list[str], what: str) -> str:
    x = f.mixes
    by = sorted(mixes, key=lambda mix: x.stp.log(mode, mix))
    low, high = (x.throughput(mode, mix).value for mix in (by[0], by[-1]))
    first, _, rest = what.partition(" ")
    over = f"{times(len(mixes), first)} {rest}".rstrip()
    span = f"over {over}, from {low:.2f} ({by[0]}) to {high:.2f} ({by[-1]})" if len(by) > 1 else f"with {by[0]}"
    return (
        f"under {spoken(mode)} one card did {number(x.stp.mean_of(mode, mixes))} cards' work {span}; "
        f"work took {number(x.antt.mean_of(mode, mixes))} times as long as alone"
    )


# --- scalability -----------------------------------------------------------------------------------------------------


def _scalability(f: Findings) -> Iterator[str]:
    if not f.crowds:
        yield f"{NOT_MEASURED}: no tenant was measured with more and more of the same"
        return
    for crowd in f.crowds:
        yield _borne(crowd, f.factor)
    for crowd in f.crowds:
        here = [row for row in crowd.rows if row.get("rate")]
        if len(here) > 1 and crowd.percentile == 0.95:
            first, last = here[0], here[-1]
            yield (
                f"under {spoken(crowd.mode)} {last['tenants']} {crowd.tenant} make {last['rate']:,.0f} {last['unit']} "
                f"in all, {last['rate'] / first['rate']:.2f} times what {first['tenants']} makes there"
            )


def _borne(c: Crowd, factor: float) -> str:
    tail = f"P{100 * c.percentile:g}"
    where = f"under {spoken(c.mode)} {c.tenant}"
    holds = f"keeps {tail} within {factor:g} times that alone with up to {c.held}" if c.held else "holds with none"
    most = c.rows[-1]["tenants"]
    if (bad := c.breaks) is None:
        return f"{where} {holds}, of at most {most} measured; where it breaks is {NOT_MEASURED}"
    if bad["state"] == "failed":
        return f"{where} {holds}, and fails with {bad['tenants']}: {bad['why']}"
    here = Interval(bad["times"], bad["times_low"], bad["times_high"])
    return f"{where} {holds}, and breaks with {bad['tenants']}: {number(here)} times"


# --- isolation -------------------------------------------------------------------------------------------------------


def _isolation(f: Findings) -> Iterator[str]:
    modes, mixes = f.compared()
    x = f.mixes
    if mixes:
        said = []
        for mode in modes:
            mix = min(mixes, key=lambda mix: x.worst.log(mode, mix))
            said.append(f"{number(x.fairness(mode, mix))} under {spoken(mode)} ({mix})")
        share = f"an even share is {1 / max(len(x.names[mix]) for mix in mixes):.2g}"
        yield f"the worst-off tenant of any made, of its progress alone, {all_of(said)}; {share}"
    else:
        yield f"progress beside others: {NOT_MEASURED}"
    yield _tails(f)
    failed = {(row["suite"], row["cell"]) for row in f.gathered.failures}
    yield (
        f"{times(len(failed), 'cell')} failed ({all_of(sorted({r['kind'] for r in f.gathered.failures}))})"
        if failed
        else f"none of {times(len(f.gathered.meetings), 'cell')} failed"
    )
    yield _memory(f)
    if not any(mode.startswith("mig") for mode in x.stp.modes()):
        yield f"MIG: {NOT_MEASURED}; `fleetlab bench mig` predicts it from the SM curve"


def _tails(f: Findings) -> str:
    x = f.mixes
    pairs = [mix for mix in x.shared(saturating=True, tenants=2) if x.latency.modes(mix)]
    modes, mixes = common(x.latency, pairs)
    said = []
    for mode in modes:
        mix = max(mixes, key=lambda mix: x.latency.log(mode, mix))
        said.append(f"{number(x.latency.mean(mode, mix))} times under {spoken(mode)} ({mix})")
    if not said:
        return f"the tail of inference beside a neighbour: {NOT_MEASURED}"
    return f"P95 of a step of inference beside one neighbour grew at most to {all_of(said)}"


def _memory(f: Findings) -> str:
    capped = [m for m in f.gathered.meetings if "~" in m.mode]
    fell = [r for r in f.gathered.failures if r["kind"] == "out-of-memory"]
    if not capped:
        return f"limits on memory: {NOT_MEASURED}"
    return f"with a limit on memory {times(len(capped), 'cell')} ran, and {len(fell)} ended out of memory"


# --- switching -------------------------------------------------------------------------------------------------------


def _switching(f: Findings) -> Iterator[str]:
    alike = f.alike(WHOLE)
    lost = overhead(alike)
    if lost is None:
        yield f"{NOT_MEASURED}: no tenant that fills the card was measured beside itself under time slicing"
        return
    yield f"two alike {lost_or_gained(lost)} of the card ({times(len(alike), 'tenant')} that would fill it alone)"
    each = sorted(alike.items(), key=lambda at: at[1][0].value)
    yield "by tenant: " + all_of([f"{name} {percent(_lost(stp))}" for name, (stp, _) in each])
    for crowd in f.crowds:
        if crowd.mode == WHOLE and crowd.percentile == 0.95:
            yield from _crowded(crowd)
    yield _turns(f)


def _turns(f: Findings) -> str:
    """Quantiles are the least, quartiles, P95 and the most."""
    if f.turns is None:
        return f"how long a turn is: {NOT_MEASURED}"
    own, gap = f.turns["slice_ms"], f.turns["gap_ms"]
    idle = 100 * (1 - f.turns["running"])
    return (
        f"by the card's own clock a turn takes {own[2]:.2f} ms ({own[1]:.2f} to {own[3]:.2f} for the middle half), the "
        f"wait for the next {gap[2]:.2f} ms, and {idle:.1f} % of the time is nobody's"
    )


def lost_or_gained(lost: Interval) -> str:
    """A loss below 0 is a gain."""
    if lost.value < 0:
        return f"gain {percent(Interval(-lost.value, -lost.high, -lost.low))}"
    return f"lose {percent(lost)}"


def _lost(stp: Interval) -> Interval:
    return Interval(1 - stp.value, 1 - stp.high, 1 - stp.low)


def _crowded(c: Crowd) -> Iterator[str]:
    here = {row["tenants"]: row["rate"] for row in c.rows if row.get("rate")}
    most = max(here)
    if 1 in here and most > 2:
        yield f"with {most} {c.tenant} at once the card does {here[most] / here[1]:.2f} of what one alone does"


# --- kinds of work ---------------------------------------------------------------------------------------------------

WANTED = {"throughput": "most work", "fair": "fairest", "latency": "shortest tail"}


def _kinds(f: Findings) -> Iterator[str]:
    by: dict[str, list[Advice]] = {}
    for advice in by_kind(f.mixes):
        by.setdefault(advice.of, []).append(advice)
    for kind, some in by.items():
        said = "; ".join(f"{WANTED[a.goal]}: {a.said()}" for a in some)
        yield f"{kind} ({times(max(a.mixes for a in some), 'mix')}): {said}"
    served = list(by_serving(f.served, f.mixes.noise))
    if served:
        won = [spoken(a.modes[0]) for a in served if a.verdict == "better"]
        best = all_of([f"{mode} in {won.count(mode)}" for mode in dict.fromkeys(won)]) if won else "no mode in any"
        yield f"of {times(len(served), 'setting')} of requests by a timetable, the shortest P99 has {best}"
    else:
        yield f"requests by a timetable beside a background: {NOT_MEASURED}"
    if not by:
        yield f"which mode for which kind: {NOT_MEASURED}, no mix was measured in two modes"


# --- cost ------------------------------------------------------------------------------------------------------------


def _costs(f: Findings) -> Iterator[str]:
    modes, mixes = f.compared()
    if not mixes:
        yield f"sharing: {NOT_MEASURED}"
    else:
        yield from _hours(f, modes, mixes)
    yield from _items(f)


def _hours(f: Findings, modes: list[str], mixes: list[str]) -> Iterator[str]:
    x = f.mixes
    said = []
    for mode in modes:
        stp = x.stp.mean_of(mode, mixes)
        hours = Interval(1 / stp.value, 1 / stp.high, 1 / stp.low)
        money = f", {hours.value * f.price:.3g} in money" if f.price is not None else ""
        said.append(f"{number(hours)} GPU hours under {spoken(mode)}{money}")
    yield f"an hour of work, as done alone, takes {all_of(said)}"
    gains = [
        f"{sum(x.throughput(mode, mix).low > 1 for mix in mixes)} of {len(mixes)} under {spoken(mode)}"
        for mode in modes
    ]
    yield f"sharing surely beats one after the other with {all_of(gains)}"
    energy = [
        f"{number(x.energy.mean_of(mode, mixes))} times under {spoken(mode)}"
        for mode in modes
        if set(mixes) <= set(x.energy.mixes(mode))
    ]
    yield f"energy for the same work, against alone: {all_of(energy) if energy else NOT_MEASURED}"


def _items(f: Findings) -> Iterator[str]:
    table = cost_table(f.mixes, price=f.price)
    served = [r for r in table.iter_rows(named=True) if f.gathered.kinds[r["tenant"]] == "inference"]
    crowd = [r for r in served if r["tenants"] > 1]
    if not crowd:
        yield f"the cost of an inference beside others: {NOT_MEASURED}"
        return
    best = min(crowd, key=lambda r: r["gpu_s_per_1000"] / _alone(served, r["tenant"]))
    one = _alone(served, best["tenant"])
    money = "" if f.price is None else f", {best['cost_per_1000']:.3g} in money"
    yield (
        f"1,000 {best['unit']}s of {best['tenant']} take {one:.3g} GPU seconds alone and "
        f"{best['gpu_s_per_1000']:.3g} with {best['tenants']} under {spoken(best['mode'])}{money}"
    )


def _alone(rows: list[dict[str, Any]], tenant: str) -> float:
    """On a card of its own, or failing that alone in any mode, or the least crowded."""
    here = sorted((r["tenants"], r["mode"] != WHOLE, r["gpu_s_per_1000"]) for r in rows if r["tenant"] == tenant)
    return float(here[0][2])
