"""What each goal measures, by mode, with the difference between two modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fleetlab.bench.advise.answers import AnswerValues, answer_values
from fleetlab.bench.advise.goodput import goodput_values
from fleetlab.bench.advise.mix import AskedMix
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.measure import Measure
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.serving import served_mix
from fleetlab.bench.analysis.values import GoalValues, MeasureValues, ServedValues, is_apart
from fleetlab.core import DeviceError


@dataclass(frozen=True, slots=True)
class AdviceGoal:
    """A goal: what it measures, and in which unit."""

    name: str
    what: str
    unit: str
    values: Callable[[Findings, AskedMix], GoalValues]


def _throughput(f: Findings, asked: AskedMix) -> MeasureValues:
    mixes = _closed(f, asked)
    return MeasureValues(f.mixes.stp, _common(f.mixes.stp, mixes), high=True, one=f.mixes.throughput, asked=mixes)


def _worst(f: Findings, asked: AskedMix) -> GoalValues:
    mixes = _closed(f, asked)
    return MeasureValues(f.mixes.worst, _common(f.mixes.worst, mixes), high=True, one=f.mixes.fairness, asked=mixes)


def _cost(f: Findings, asked: AskedMix) -> GoalValues:
    """An item costs 1/STP of what it costs alone, whatever the price."""
    return replace(_throughput(f, asked), inverse=True, less="lower")


def _energy(f: Findings, asked: AskedMix) -> GoalValues:
    mixes = tuple(mix for mix in _closed(f, asked) if len(f.mixes.energy.modes(mix)) > 1)
    if not mixes:
        msg = f"no energy was measured: {asked.words}"
        raise DeviceError(msg, hint="energy is read from the GPU's counter through NVML")
    x = f.mixes.energy
    return MeasureValues(x, _common(x, mixes), high=False, one=f.mixes.joules, less="lower", asked=mixes)


def _tail(f: Findings, asked: AskedMix) -> GoalValues:
    """P99 of open-loop requests if the mix has them, else P95 of inference steps relative to alone."""
    served = served_mix(f.gathered, asked.mixes[0])
    if len(served) > 1:
        return ServedValues(served, f.mixes.noise)
    mixes = tuple(mix for mix in asked.mixes if len(f.mixes.latency.modes(mix)) > 1)
    if not mixes:
        msg = f"no tail latency in two modes: {asked.words}"
        raise DeviceError(msg, hint="it needs an inference tenant, or one with `poisson` requests per second")
    x = f.mixes.latency
    return MeasureValues(x, _common(x, mixes), high=False, one=x.mean, less="shorter", asked=mixes)


def _goodput(f: Findings, asked: AskedMix) -> GoalValues:
    made = goodput_values(f, asked.mixes[0], asked.limits)
    if not made.by:
        msg = f"goodput is that of servers of language models, and none was measured in this mix: {asked.words}"
        raise DeviceError(
            msg, hint='workload = "llm-serve" in a plan has it; requests to other servers have --goal p99'
        )
    return made


def _answer(f: Findings, asked: AskedMix) -> GoalValues:
    made = answer_values(f, asked.mixes[0])
    if not made.by:
        msg = f"time to answer is that of notebooks, and none was measured in this mix: {asked.words}"
        raise DeviceError(msg, hint='workload = "notebook" in a plan has it')
    return made


def _closed(f: Findings, asked: AskedMix) -> tuple[str, ...]:
    mixes = tuple(mix for mix in asked.mixes if len(f.mixes.stp.modes(mix)) > 1)
    if not mixes:
        msg = f"a server answers its arrival rate in every mode in which it keeps up: {asked.words}"
        if behind := _behind(f, asked):
            msg += f"; {behind}"
        raise DeviceError(msg, hint="--goal p99, or goodput of language models; `costs` there is that of a request")
    return mixes


def _behind(f: Findings, asked: AskedMix) -> str:
    """Modes in which it does not keep up, with the rates."""
    found = ServedValues(served_mix(f.gathered, asked.mixes[0]), f.mixes.noise).falls_behind
    return "; ".join(f"under {mode_name(mode)} it {why}" for mode, why in found.items())


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
