"""Six questions about sharing a GPU, answered from the measurements, or with `not measured`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import polars as pl

from fleetlab.gpu.bench.analysis.choice import BETTER, MARGIN, Recommendation, by_kind, by_serving, ratio_interval
from fleetlab.gpu.bench.analysis.findings import Findings, overhead
from fleetlab.gpu.bench.analysis.scale import ScalingCurve, TailGoal, cost_table
from fleetlab.gpu.bench.analysis.wording import (
    NOT_MEASURED,
    capital,
    count_noun,
    join_words,
    lost_or_gained,
    mode_name,
    more,
    number,
)
from fleetlab.gpu.bench.results.cells import BASELINE, table
from fleetlab.stats import Difference, Interval


def performance(f: Findings) -> Iterator[str]:
    """Throughput of each mode, over the pairs that all have."""
    modes, mixes = f.compared()
    if not mixes:
        yield f"{NOT_MEASURED}: no two tenants were measured both together and alone"
        return
    x = f.mixes
    if len(modes) == 1:
        for mode in x.stp.modes():
            yield _throughput_sentence(f, mode, x.stp.mixes(mode), "mix")
        yield f"the same mix in another mode: {NOT_MEASURED}"
        return
    for mode in modes:
        yield _throughput_sentence(f, mode, mixes, f.filling())
    parts = [f"{mode_name(mode)} had {_as_much(x.stp.difference(mixes, mode, modes[0]))}" for mode in modes[1:]]
    same = count_noun(len(mixes), f.filling().split()[0])
    yield f"against {mode_name(modes[0])} and over the same {same}, {join_words(parts)}"


def _as_much(d: Difference) -> str:
    c = ratio_interval(d)
    if not d.freedom:
        return f"{more(c)} throughput, which may be noise: only single blocks were measured"
    match d.decide(math.log1p(MARGIN)):
        case "differ":
            return f"{more(c)} throughput"
        case "equivalent":
            return f"the same throughput ({100 * (c.low - 1):+.1f} to {100 * (c.high - 1):+.1f} %)"
    return f"{more(c)} throughput, which may be noise"


def _throughput_sentence(f: Findings, mode: str, mixes: list[str], what: str) -> str:
    x = f.mixes
    by = sorted(mixes, key=lambda mix: x.stp.log(mode, mix))
    low, high = (x.throughput(mode, mix).value for mix in (by[0], by[-1]))
    first, _, rest = what.partition(" ")
    over = f"{count_noun(len(mixes), first)} {rest}".rstrip()
    span = f"over {over}, from {low:.2f} ({by[0]}) to {high:.2f} ({by[-1]})" if len(by) > 1 else f"with {by[0]}"
    return (
        f"under {mode_name(mode)} the mean system throughput is {number(x.stp.mean_of(mode, mixes))} GPUs {span}; "
        f"the mean slowdown of a tenant is {number(x.antt.mean_of(mode, mixes))}"
    )


def scalability(f: Findings) -> Iterator[str]:
    """How many copies keep the tail latency."""
    if not f.scaling_curves:
        yield f"{NOT_MEASURED}: no tenant with step times was measured with an increasing number of copies"
        return
    for crowd in f.scaling_curves:
        yield _scaling_sentence(crowd, f.goal)
    for crowd in f.scaling_curves:
        here = [row for row in crowd.rows if row.get("rate")]
        if len(here) > 1 and crowd.percentile == 0.95:
            first, last = here[0], here[-1]
            yield (
                f"under {mode_name(crowd.mode)} {last['tenants']} copies of {crowd.tenant} reach "
                f"{last['rate']:,.0f} {last['unit']} in total, "
                f"{last['rate'] / first['rate']:.2f} times that of {first['tenants']}"
            )


def _scaling_sentence(c: ScalingCurve, goal: TailGoal) -> str:
    tail = f"P{100 * c.percentile:g}"
    where = f"under {mode_name(c.mode)} {c.tenant}"
    holds = (
        f"keeps {tail} within {goal} with up to {c.largest_good} {'copy' if c.largest_good == 1 else 'copies'}"
        if c.largest_good
        else "does not meet the latency limit with any number"
    )
    most = c.rows[-1]["tenants"]
    if (bad := c.breaks) is None:
        return f"{where} {holds}, of at most {most} measured; its breaking point is {NOT_MEASURED}"
    if bad["state"] == "failed":
        return f"{where} {holds}, and fails with {bad['tenants']}: {bad['why']}"
    of, unit = ("times", "times") if goal.slo_ms is None else ("tail_ms", "ms")
    if bad["unsent"]:
        return f"{where} {holds}, and does not send all requests with {bad['tenants']}"
    here = Interval(bad[of], bad[f"{of}_low"], bad[f"{of}_high"])
    return f"{where} {holds}, and exceeds it with {bad['tenants']}: {number(here)} {unit}"


def switching(f: Findings) -> Iterator[str]:
    """What time slicing loses, and how long a slice is."""
    alike = f.alike(BASELINE)
    lost = overhead(alike)
    if lost is None:
        yield f"{NOT_MEASURED}: no tenant that saturates the GPU was measured beside itself under time slicing"
        return
    count = count_noun(len(alike), "tenant")
    yield f"two equal tenants {lost_or_gained(lost)} of the GPU, over {count} each of which saturates it alone"
    each = sorted(alike.items(), key=lambda at: at[1][0].value)
    yield "by tenant, " + join_words([f"two {name} {lost_or_gained(_lost(stp))}" for name, (stp, _) in each])
    for crowd in f.scaling_curves:
        if crowd.mode == BASELINE and crowd.percentile == 0.95:
            here = {row["tenants"]: row["rate"] for row in crowd.rows if row.get("rate")}
            most = max(here)
            if 1 in here and most > 2:
                yield f"{most} copies of {crowd.tenant} have {here[most] / here[1]:.2f} of the throughput of one alone"
    yield _slice_length(f)


def _slice_length(f: Findings) -> str:
    """Quantiles are minimum, quartiles, P95 and maximum."""
    if f.turns is None:
        return f"length of a time slice: {NOT_MEASURED}"
    own, gap = f.turns["slice_ms"], f.turns["gap_ms"]
    idle = 100 * (1 - f.turns["running"])
    return (
        f"by the GPU's clock a time slice takes {own[2]:.2f} ms (quartiles {own[1]:.2f} to {own[3]:.2f}), the "
        f"gap to the next one {gap[2]:.2f} ms, and {idle:.1f} % of the time is unused"
    )


def _lost(stp: Interval) -> Interval:
    return Interval(1 - stp.value, 1 - stp.high, 1 - stp.low)


# --- answers about the choice of a mode ------------------------------------------------------------------------------


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
        else f"none of {count_noun(len(f.gathered.cells), 'cell')} failed"
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
    capped = [m for m in f.gathered.cells if "~" in m.mode]
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
    yield from _items(f)


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


# --- six questions about sharing a GPU, answered from the measurements, or with `not measured` -----------------------


class QuestionAnswer(NamedTuple):
    """A question and the sentences of its answer."""

    question: str
    sentences: tuple[str, ...]

    def lines(self) -> list[str]:
        """Each sentence, with a capital and a period."""
        return [f"{capital(s)}." for s in self.sentences]

    def __str__(self) -> str:
        return " ".join(self.lines())


def answers(f: Findings) -> list[QuestionAnswer]:
    """All six, in order."""
    return [
        QuestionAnswer("How does each mode affect throughput?", tuple(performance(f))),
        QuestionAnswer("How many tenants can share a GPU in each mode?", tuple(scalability(f))),
        QuestionAnswer("How well are tenants isolated?", tuple(isolation(f))),
        QuestionAnswer("What is the overhead of context switches under time slicing?", tuple(switching(f))),
        QuestionAnswer("Which mode for which kind of workload?", tuple(kinds_of_workloads(f))),
        QuestionAnswer("What does sharing cost and save?", tuple(costs(f))),
    ]


def answer_table(f: Findings) -> pl.DataFrame:
    """One row per question."""
    return table({"question": a.question, "answer": str(a)} for a in answers(f))
