"""What each goal measures by mode, what an item of each tenant costs, and what the goal leaves out.

Tenants that share split each second of the GPU in proportion to their progress, so that an item takes 1 / (STP · rate
alone) GPU seconds, whichever tenant it is of; energy is that alone times the energy of the mix relative to alone, so
that both change by what the goals `cost` and `energy` say. Of a mix of servers alone an item is a request that was
answered, of language models one within the goals. Beside other work a server's share of the GPU is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.advise.goodput import NO_LIMITS, AnswerValues, answer_values, goodput_values
from fleetlab.gpu.bench.advise.mix import MixRequest
from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.measure import Measure
from fleetlab.gpu.bench.analysis.serving import served_mix
from fleetlab.gpu.bench.analysis.values import GoalValues, MeasureValues, ServedValues, is_apart
from fleetlab.gpu.bench.analysis.wording import join_words, mode_name, mode_order, number
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.results.cells import CellResult, TenantResult
from fleetlab.gpu.bench.results.suite import HOUR
from fleetlab.gpu.devices.console import unit_scale
from fleetlab.stats import Interval, no_interval


@dataclass(frozen=True, slots=True)
class AdviceGoal:
    """A goal: what it measures, and in which unit."""

    name: str
    what: str
    unit: str
    values: Callable[[Findings, MixRequest], GoalValues]


def _throughput(f: Findings, request: MixRequest) -> MeasureValues:
    mixes = _closed(f, request)
    return MeasureValues(f.mixes.stp, _common(f.mixes.stp, mixes), high=True, one=f.mixes.throughput, all_mixes=mixes)


def _worst(f: Findings, request: MixRequest) -> GoalValues:
    mixes = _closed(f, request)
    return MeasureValues(f.mixes.worst, _common(f.mixes.worst, mixes), high=True, one=f.mixes.fairness, all_mixes=mixes)


def _cost(f: Findings, request: MixRequest) -> GoalValues:
    """An item costs 1/STP of what it costs alone, whatever the price."""
    return replace(_throughput(f, request), inverse=True, less="lower")


def _energy(f: Findings, request: MixRequest) -> GoalValues:
    mixes = tuple(mix for mix in _closed(f, request) if len(f.mixes.energy.modes(mix)) > 1)
    if not mixes:
        msg = f"no energy was measured: {request.text}"
        raise DeviceError(msg, hint="energy is read from the GPU's counter through NVML")
    x = f.mixes.energy
    return MeasureValues(x, _common(x, mixes), high=False, one=f.mixes.joules, less="lower", all_mixes=mixes)


def _tail(f: Findings, request: MixRequest) -> GoalValues:
    """P99 of open-loop requests if the mix has them, else P95 of inference steps relative to alone."""
    served = served_mix(f.gathered, request.mixes[0])
    if len(served) > 1:
        return ServedValues(served, f.mixes.noise)
    mixes = tuple(mix for mix in request.mixes if len(f.mixes.latency.modes(mix)) > 1)
    if not mixes:
        msg = f"no tail latency in two modes: {request.text}"
        raise DeviceError(msg, hint="it needs an inference tenant, or one with `poisson` requests per second")
    x = f.mixes.latency
    return MeasureValues(x, _common(x, mixes), high=False, one=x.mean, less="shorter", all_mixes=mixes)


def _goodput(f: Findings, request: MixRequest) -> GoalValues:
    values = goodput_values(f, request.mixes[0], request.limits)
    if not values.by:
        msg = f"goodput is that of servers of language models, and none was measured in this mix: {request.text}"
        raise DeviceError(
            msg, hint='workload = "llm-serve" in a plan has it; requests to other servers have --goal p99'
        )
    return values


def _answer(f: Findings, request: MixRequest) -> GoalValues:
    values = answer_values(f, request.mixes[0])
    if not values.by:
        msg = f"time to answer is that of notebooks, and none was measured in this mix: {request.text}"
        raise DeviceError(msg, hint='workload = "notebook" in a plan has it')
    return values


def _closed(f: Findings, request: MixRequest) -> tuple[str, ...]:
    mixes = tuple(mix for mix in request.mixes if len(f.mixes.stp.modes(mix)) > 1)
    if not mixes:
        msg = f"a server answers its arrival rate in every mode in which it keeps up: {request.text}"
        # Modes in which it does not keep up, with the rates
        values = ServedValues(served_mix(f.gathered, request.mixes[0]), f.mixes.noise).falls_behind
        if behind := "; ".join(f"under {mode_name(mode)} it {why}" for mode, why in values.items()):
            msg += f"; {behind}"
        raise DeviceError(msg, hint="--goal p99, or goodput of language models; `costs` there is that of a request")
    return mixes


def _common(measure: Measure, mixes: tuple[str, ...]) -> tuple[str, ...]:
    """The mixes that most modes have, as of a kind of mix in the analysis; all of them if that leaves no two modes."""
    modes, same = measure.common(list(mixes))
    return tuple(same) if len([mode for mode in modes if is_apart(mode)]) > 1 else mixes


GOALS = {
    goal.name: goal
    for goal in (
        AdviceGoal("throughput", "system throughput (STP), 1 is one tenant alone on a GPU", "GPUs", _throughput),
        AdviceGoal("worst", "progress of the slowest tenant, relative to alone", "of alone", _worst),
        AdviceGoal("p99", "tail latency", "", _tail),
        AdviceGoal("goodput", "requests within the goals, of all servers", "requests/s, goodput", _goodput),
        AdviceGoal("answer", "time to answer a cell of a notebook, mean over kinds of cells", "", _answer),
        AdviceGoal("cost", "cost of an item, relative to alone on a GPU", "of alone", _cost),
        AdviceGoal("energy", "energy of the same work, relative to alone", "of alone", _energy),
    )
}


def shown_unit(goal: AdviceGoal, values: GoalValues) -> str:
    """Unit of its values."""
    if isinstance(values, AnswerValues):
        return f"{values.unit}, time to answer"
    if goal.name != "p99":
        return goal.unit
    return "ms, P99 of requests" if isinstance(values, ServedValues) else "times alone, P95 of steps"


# --- energy and cost of an item of each tenant, by mode --------------------------------------------------------------


def cost_rows(f: Findings, request: MixRequest, price: float | None) -> Iterator[dict[str, Any]]:
    """One row per tenant, alone and in each mode; of a mix of servers one per mode. Of several mixes none."""
    if len(request.mixes) == 1:
        mix = request.mixes[0]
        g, x = f.gathered, f.mixes
        for name in dict.fromkeys(x.names.get(mix, ())):
            half = x.noise.measured_again(g, name, len(g.alone.rates[name]))
            wide = Interval(1.0, math.exp(-half), math.exp(half))
            own, unit = g.own(name), g.units[name]
            seconds, joules = _over(1 / own, wide), _over(alone, wide) if (alone := g.alone.joules(name)) else None
            yield {"mode": "alone", "tenant": name} | _columns(unit, seconds, joules, price)
            for mode in filter(is_apart, x.stp.modes(mix)):
                seconds, joules = _over(1 / own, x.throughput(mode, mix)), x.item_joules(name, mode, mix)
                yield {"mode": mode, "tenant": name} | _columns(unit, seconds, joules, price)
        yield from _request_rows(f, request, price)


def _request_rows(f: Findings, request: MixRequest, price: float | None) -> Iterator[dict[str, Any]]:
    mix = request.mixes[0]
    cells = [m for m in f.gathered.cells if m.mix == mix and is_apart(m.mode)]
    if not all(t.is_open_loop for m in cells for t in m.tenants):
        return
    goodput, served = goodput_values(f, mix, request.limits), served_mix(f.gathered, mix)
    for mode in sorted({m.mode for m in cells}, key=mode_order):
        within = mode in goodput.modes
        rate = goodput.value(mode) if within else no_interval(served[mode].answered or 0.0)
        watts = [m.gpu["watts"] for m in cells if m.mode == mode and (m.gpu.get("watts") or 0) > 0]
        if rate.low > 0 or (rate.value > 0 and not math.isfinite(rate.low)):
            joules = _over(sum(watts) / len(watts), rate) if watts else None
            unit = "request within the goals" if within else "request"
            yield {"mode": mode, "tenant": mix} | _columns(unit, _over(1.0, rate), joules, price)


def _over(amount: float, x: Interval) -> Interval:
    return Interval(amount / x.value, amount / x.high, amount / x.low)


def _columns(unit: str, seconds: Interval, joules: Interval | None, price: float | None) -> dict[str, Any]:
    scale, shown = unit_scale(unit)
    row: dict[str, Any] = {"unit": shown}
    row |= interval_columns("gpu_s_per_1000", Interval(*(1000 * s / scale for s in seconds)))
    row |= interval_columns("joules_an_item", Interval(*(j / scale for j in joules)) if joules else None)
    if price is not None:
        row |= interval_columns("cost_per_1000", Interval(*(1000 * s / scale * price / HOUR for s in seconds)))
    return row


# --- what the tenants of a mix get that the goal is not about, by mode -----------------------------------------------


SCHEMA = {"mode": pl.String, "tenant": pl.String, "value": pl.Float64, "of": pl.String}
GOODPUT, ANSWER = "goodput", "answer"
SPEED = "of its speed alone"


def neighbor_rows(f: Findings, mix: str, goal: str, modes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One row per mode and tenant, of tenants that the goal is not about."""
    cells = {mode: [m for m in f.gathered.cells if (m.mode, m.mix) == (mode, mix)] for mode in modes}
    for mode, some in cells.items():
        tenants = [t for m in some for t in m.tenants if not _is_about(f, goal, t)]
        for name in dict.fromkeys(t.name for t in tenants):
            one = next(t for t in tenants if t.name == name)
            if (pair := _value(f, some[0], one)) is not None:
                value, of = pair
                yield {"mode": mode, "tenant": name, **interval_columns("value", value), "of": of}


def _is_about(f: Findings, goal: str, one: TenantResult) -> bool:
    """Whether a goal is about a tenant; without open-loop requests tail latency is that of inference steps."""
    return _of(one) == goal or (goal == "p99" and f.gathered.kinds[one.name] == "inference")


def _of(one: TenantResult) -> str:
    """The goal by which a tenant is judged."""
    if one.is_open_loop:
        return GOODPUT if "llm" in one.about else "p99"
    return ANSWER if "notebook" in one.about else "throughput"


def _value(f: Findings, m: CellResult, one: TenantResult) -> tuple[Interval, str] | None:
    """What a tenant of a cell gets, over all cells of its mix and mode."""
    if "llm" in one.about:
        return goodput_values(f, m.mix, None).value(m.mode), "requests/s within its goals"
    if "notebook" in one.about:
        values = answer_values(f, m.mix)
        return values.value(m.mode), f"{values.unit}, time to answer"
    speed = f.mixes.speed(one.name, m.mode, m.names)
    return None if speed is None else (speed, SPEED)


def neighbor_sentences(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What each of them gets, in words."""
    for tenant, of in dict.fromkeys((row["tenant"], row["of"]) for row in rows):
        here = [row for row in rows if (row["tenant"], row["of"]) == (tenant, of)]
        parts = [f"{_shown(row)} under {mode_name(row['mode'])}" for row in here]
        verb = "keeps" if of == SPEED else "has"
        yield f"Meanwhile {tenant} {verb}, {of}: {join_words(parts)}."


def _shown(row: dict[str, Any]) -> str:
    value = Interval(row["value"], row["value_low"], row["value_high"])
    return number(value) if math.isfinite(value.high - value.low) else f"{value.value:.2f} ({NO_LIMITS})"
