"""Answers about the choice of a mode: isolation, the best mode by kind of workload, and cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetlab.bench.analysis.choice import BETTER
from fleetlab.bench.analysis.costs import cost_table
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.recommend import Recommendation, by_kind, by_serving
from fleetlab.bench.analysis.wording import NOT_MEASURED, count_noun, join_words, number
from fleetlab.stats import Interval


def isolation(f: Findings) -> Iterator[str]:
    """What the slowest tenant keeps, tails, failures and memory."""
    modes, mixes = f.compared()
    x = f.mixes
    if mixes:
        parts = []
        for mode in modes:
            mix = min(mixes, key=lambda mix: x.worst.log(mode, mix))
            parts.append(f"{number(x.fairness(mode, mix))} under {mode_name(mode)} ({mix})")
        share = f"an equal share is {1 / max(len(x.names[mix]) for mix in mixes):.2g}"
        yield f"the lowest progress of any tenant, relative to alone, is {join_words(parts)}; {share}"
    else:
        yield f"progress beside others: {NOT_MEASURED}"
    yield _tails(f)
    failed = {(row["suite"], row["cell"]) for row in f.gathered.failures}
    yield (
        f"{count_noun(len(failed), 'cell')} failed ({join_words(sorted({r['kind'] for r in f.gathered.failures}))})"
        if failed
        else f"none of {count_noun(len(f.gathered.meetings), 'cell')} failed"
    )
    yield _memory(f)
    if not any(mode.startswith("mig") for mode in x.stp.modes()):
        yield f"MIG: {NOT_MEASURED}; `fleetlab bench mig` predicts it from the SM curve"


def _tails(f: Findings) -> str:
    x = f.mixes
    pairs = [mix for mix in x.shared(saturating=True, tenants=2) if x.latency.modes(mix)]
    modes, mixes = x.latency.common(pairs)
    parts = []
    for mode in modes:
        mix = max(mixes, key=lambda mix: x.latency.log(mode, mix))
        parts.append(f"{number(x.latency.mean(mode, mix))} times under {mode_name(mode)} ({mix})")
    if not parts:
        return f"tail latency of inference beside a neighbor: {NOT_MEASURED}"
    return f"P95 step time of inference beside one neighbor, relative to alone, is at most {join_words(parts)}"


def _memory(f: Findings) -> str:
    capped = [m for m in f.gathered.meetings if "~" in m.mode]
    fell = [r for r in f.gathered.failures if r["kind"] == "out-of-memory"]
    if not capped:
        return f"memory limits: {NOT_MEASURED}"
    return f"{count_noun(len(capped), 'cell')} ran with a memory limit, and {len(fell)} ran out of memory"


WANTED = {"throughput": "highest throughput", "fair": "fairest", "latency": "lowest tail latency"}


def kinds_of_workloads(f: Findings) -> Iterator[str]:
    """The best mode of each kind of mix, and of open-loop requests."""
    by: dict[str, list[Recommendation]] = {}
    for advice in by_kind(f.mixes):
        by.setdefault(advice.of, []).append(advice)
    for kind, some in by.items():
        text = "; ".join(f"{WANTED[a.goal]}: {a.sentence()}" for a in some)
        yield f"{kind} ({count_noun(max(a.mixes for a in some), 'mix')}): {text}"
    served = list(by_serving(f))
    if served:
        won = [mode_name(a.choice.best) for a in served if a.verdict == BETTER]
        best = join_words([f"{mode} in {won.count(mode)}" for mode in dict.fromkeys(won)]) if won else "no mode in any"
        yield f"in {count_noun(len(served), 'setting')} of open-loop requests, the lowest P99 has {best}"
    else:
        yield f"open-loop requests beside a background: {NOT_MEASURED}"
    if not by:
        yield f"which mode for which kind: {NOT_MEASURED}, no mix was measured in two modes"


def costs(f: Findings) -> Iterator[str]:
    """GPU hours, energy, and items."""
    modes, mixes = f.compared()
    if not mixes:
        yield f"sharing: {NOT_MEASURED}"
    else:
        yield from _hours(f, modes, mixes)
    yield from _items(f)


def _hours(f: Findings, modes: list[str], mixes: list[str]) -> Iterator[str]:
    x = f.mixes
    parts = []
    for mode in modes:
        stp = x.stp.mean_of(mode, mixes)
        hours = Interval(1 / stp.value, 1 / stp.high, 1 / stp.low)
        money = f", cost {hours.value * f.price:.3g}" if f.price is not None else ""
        parts.append(f"{number(hours)} GPU hours under {mode_name(mode)}{money}")
    yield f"the work of one GPU hour alone takes {join_words(parts)}"
    of = count_noun(len(mixes), "mix")
    gains = [
        f"{sum(x.throughput(mode, mix).low > 1 for mix in mixes)} of {of} under {mode_name(mode)}" for mode in modes
    ]
    yield f"sharing is better than running one after the other (95 % interval above 1) in {join_words(gains)}"
    energy = [
        f"{number(x.energy.mean_of(mode, mixes))} times under {mode_name(mode)}"
        for mode in modes
        if set(mixes) <= set(x.energy.mixes(mode))
    ]
    yield f"energy relative to alone: {join_words(energy) if energy else NOT_MEASURED}"


def _items(f: Findings) -> Iterator[str]:
    table = cost_table(f.mixes, price=f.price)
    served = [r for r in table.iter_rows(named=True) if f.gathered.kinds[r["tenant"]] == "inference"]
    crowd = [r for r in served if r["tenants"] > 1]
    if not crowd:
        yield f"cost of inference beside others: {NOT_MEASURED}"
        return
    best = min(crowd, key=lambda r: r["gpu_s_per_1000"] / _alone(served, r["tenant"]))
    one = _alone(served, best["tenant"])
    money = "" if f.price is None else f", cost {best['cost_per_1000']:.3g}"
    yield (
        f"1,000 {best['unit']}s of {best['tenant']} take {one:.3g} GPU seconds alone and "
        f"{best['gpu_s_per_1000']:.3g} with {best['tenants']} under {mode_name(best['mode'])}{money}"
    )


def _alone(rows: list[dict[str, Any]], tenant: str) -> float:
    """Alone on a whole GPU, or alone in any mode, or with the fewest copies."""
    here = sorted((r["tenants"], r["mode"] != BASELINE, r["gpu_s_per_1000"]) for r in rows if r["tenant"] == tenant)
    return float(here[0][2])
