"""Answers about throughput: how each mode affects it, with how many tenants, and what context switches cost."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fleetlab.bench.analysis.choice import MARGIN, ratio_interval
from fleetlab.bench.analysis.findings import Findings, overhead
from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.scale import ScalingCurve, TailGoal
from fleetlab.bench.analysis.wording import NOT_MEASURED, count_noun, join_words, lost_or_gained, more, number
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
            yield from _many_copies(crowd)
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


def _many_copies(c: ScalingCurve) -> Iterator[str]:
    here = {row["tenants"]: row["rate"] for row in c.rows if row.get("rate")}
    most = max(here)
    if 1 in here and most > 2:
        yield f"{most} copies of {c.tenant} have {here[most] / here[1]:.2f} of the throughput of one alone"
