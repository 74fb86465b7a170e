"""What to set for a mode: replicas, limits of each tenant, or a MIG layout with its predicted speeds.

Placement rules and memory are those of the profile tables. Of all layouts that hold the mix, the one whose slowest
tenant is predicted to be fastest, or whose tenants are in total; speeds on instances are predicted from runs on fewer
SMs, not measured.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from fleetlab.gpu.bench.advise.mix import MixRequest, busy_alone, mix_modes
from fleetlab.gpu.bench.analysis.choice import ModeChoice
from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.measure import PACE, SuiteData
from fleetlab.gpu.bench.analysis.serving import ENOUGH, llm_table
from fleetlab.gpu.bench.analysis.wording import count_noun, number
from fleetlab.gpu.bench.histogram import interval_columns
from fleetlab.gpu.bench.profile.mig import GpuSlice, on_slice, stretch_curve
from fleetlab.gpu.bench.results.cells import BASELINE, gpu_share, rates_by_sms
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig.layouts import MigGpu, MigProfile, layout_name, maximal_layouts, mig_gpu, place
from fleetlab.gpu.sharing.modes import MIG
from fleetlab.stats import Interval

MIB = 1024  # per GiB
POINTS = 3  # numbers of SMs that make a curve


@dataclass(frozen=True, slots=True)
class MigAssignment:
    """A profile for each tenant, in their order, and the predicted speed of each; None if it is not known."""

    gpu: MigGpu
    profiles: tuple[MigProfile, ...]
    speeds: tuple[Interval | None, ...]

    @property
    def layout(self) -> str:
        """As `fleetlab share mig apply` takes it."""
        return layout_name(place(self.gpu, [p.name for p in self.profiles]))


def assign_profiles(
    g: SuiteData, names: Sequence[str], mib: Sequence[int], *, total: bool = False
) -> MigAssignment | str:
    """The best layout for tenants that need so much memory, 0 if it is not known; or why there is none.

    The best has the fastest slowest tenant, or, for the total, the highest sum of speeds.
    """
    try:
        gpu = mig_gpu(g.gpu_name)
    except BenchError:
        return f"the tables have no MIG profiles of {g.gpu_name}"
    predicted = {name: _speeds(g, gpu, name) for name in dict.fromkeys(names)}
    best: tuple[tuple[float, ...], tuple[MigProfile, ...]] | None = None
    for some in _choices(gpu, len(names)):
        if all(need <= p.memory_gib * MIB for need, p in zip(mib, some, strict=True)):
            each = [predicted[name].get(p.name) for name, p in zip(names, some, strict=True)]
            # Without a prediction a tenant counts by its SMs, and those that hold more memory get larger instances.
            speeds = [speed.value if speed else p.sms / gpu.sms for speed, p in zip(each, some, strict=True)]
            memory = sum(need * p.sms for need, p in zip(mib, some, strict=True))
            first, then = (math.fsum, min) if total else (min, math.fsum)
            score = (first(speeds), then(speeds), memory)
            if best is None or score > best[0]:
                best = score, some
    if best is None:
        most = max(len(layout) for layout in maximal_layouts(gpu))
        if len(names) > most:
            return f"{gpu.name} has at most {most} instances, for {len(names)} tenants"
        return f"no layout of {gpu.name} holds instances of {', '.join(f'{need:,}' for need in sorted(mib))} MiB"
    result = tuple(predicted[name].get(p.name) for name, p in zip(names, best[1], strict=True))
    return MigAssignment(gpu, best[1], result)


def _choices(gpu: MigGpu, n: int) -> Iterator[tuple[MigProfile, ...]]:
    """Profiles for `n` tenants in their order, of all layouts, each once."""
    layouts = dict.fromkeys(tuple(sorted((p.profile for p in one), key=lambda p: p.id)) for one in maximal_layouts(gpu))
    yield from dict.fromkeys(some for instances in layouts for some in permutations(instances, n))


def has_profiles(card: str) -> bool:
    """Whether the tables have the MIG profiles of a GPU."""
    try:
        return bool(mig_gpu(card))
    except BenchError:
        return False


def _speeds(g: SuiteData, gpu: MigGpu, name: str) -> dict[str, Interval]:
    """Predicted speed of a tenant by profile; empty if its work was not measured on several numbers of SMs."""
    curves = {of: curve for of in _same_work(g, name) if len(curve := _curve(g, of)) >= POINTS}
    if not curves:
        return {}
    of = name if name in curves else next(iter(curves))
    used = gpu_share((m for m in g.cells if m.names == (of,) and m.mode == BASELINE), "memory_util")
    busy = 1.0 if of == name else busy_alone(g, name)
    stretch = stretch_curve(curves[of])
    parts = [GpuSlice(p.name, p.sms / gpu.sms, p.size / gpu.sizes) for p in gpu.plain()]
    return {part.name: on_slice(stretch, used, part, busy) for part in parts}


def _same_work(g: SuiteData, name: str) -> list[str]:
    """The tenant, and those of the same work that step without pause."""
    work = g.work_of(name)
    full = [of for of in g.kinds if not set(PACE) & set(json.loads(g.settings.get(of, "{}")))]
    return [name, *(of for of in full if of != name and g.work_of(of) == work)]


def _curve(g: SuiteData, name: str) -> dict[int, float]:
    """Rates by number of SMs, alone as a client of MPS."""
    here = [m.tenants[0] for m in g.cells if m.names == (name,) and m.mode.startswith("mps")]
    return rates_by_sms(one for one in here if not one.is_open_loop)


def layout_rows(layout: MigAssignment | str, names: Sequence[str], held: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Settings: the layout, and the profile of each tenant."""
    if isinstance(layout, str):
        yield {"for": "GPU", "setting": "MIG layout", "value": "none", "why": layout}
        return
    why = (
        f"by the profile table of {layout.gpu.name}; predicted, not measured: fleetlab share mig apply {layout.layout}"
    )
    yield {"for": "GPU", "setting": "MIG layout", "value": layout.layout, "why": why}
    for name, profile, speed, mib in zip(names, layout.profiles, layout.speeds, held, strict=True):
        memory = f"{profile.memory_gib * MIB:,.0f} MiB" + (f" for the {mib:,} that it held" if mib else "")
        value = "speed not predicted: no runs on fewer SMs" if speed is None else f"predicted speed {_shown(speed)}"
        yield {"for": name, "setting": "MIG profile", "value": profile.name, "why": f"{memory}; {value}"}


def layout_sentence(layout: MigAssignment | str, names: Sequence[str]) -> str:
    """The layout in words."""
    if isinstance(layout, str):
        return f"MIG: no layout can be named, {layout}."
    speeds = "speeds relative to alone are predicted" if any(layout.speeds) else "nothing predicts its speeds"
    return f"A layout that holds this mix, not measured: {profiles_of(layout, names)}; {speeds}."


def profiles_of(layout: MigAssignment, names: Sequence[str]) -> str:
    """The profile of each tenant, and its predicted speed."""
    each = zip(names, layout.profiles, layout.speeds, strict=True)
    return ", ".join(f"{p.name} for {name}" + (f" ({_shown(s)})" if s else "") for name, p, s in each)


def _shown(speed: Interval) -> str:
    return f"{speed.value:.2f}, {speed.low:.2f} to {speed.high:.2f}"


# --- what to set for a mode ------------------------------------------------------------------------------------------


HEADROOM, CONTEXT = 1.1, 512  # of the memory that a tenant was seen to hold; MiB of its context, which count too
MPS_CLIENTS = 48  # of one MPS server on Volta and newer, by NVIDIA's documentation
REPLICAS = "sharing.mps.resources[].replicas"


def setting_rows(f: Findings, mode: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Settings of the mode, and of each tenant."""
    n = len(names)
    kind = mode.partition("@")[0].partition("!")[0].partition("~")[0]
    percents, low = re.findall(r"@(\d+)(?!\d|sms)", mode), "!1" in mode
    if kind == "time-slicing":
        yield _row(
            "GPU", "sharing.timeSlicing.resources[].replicas", n, "one replica for each tenant; it has no limits"
        )
    elif kind == "mps":
        yield _replicas(percents, n)
    if mode == "mig":
        one = all(name in f.gathered.kinds for name in names)  # tenants, not classes of them
        layout = mig_layout(f, names) if one else "a layout is that of one mix: ask for one of them"
        yield from layout_rows(layout, names, [_memory(f, name) for name in names])
        return
    if mode.startswith("mig:"):
        yield _row("GPU", "MIG layout", mode.removeprefix("mig:"), "as measured, in the order of the tenants")
    yield from _fits(f, mode, names)
    for name in dict.fromkeys(names):
        if percents:
            why = "an upper limit of its SMs" + (", as measured" if len(percents) == 1 else "; one each, as measured")
            yield _row(name, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", " or ".join(percents), why)
        elif kind == "mps":
            yield _row(name, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", "measured without a limit")
        if low and f.gathered.kinds.get(name) == "training":
            yield _row(name, "CUDA_MPS_CLIENT_PRIORITY", "1", "below the inference tenant")
        if kind == "mps" and (held := _memory(f, name)):
            mib = round(held * HEADROOM) + CONTEXT
            yield _row(name, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"0={mib}M", f"it held {held:,} MiB, and its context")


def mig_layout(f: Findings, names: tuple[str, ...], *, total: bool = False) -> MigAssignment | str:
    """A layout with room for what each tenant was seen to hold, and its context; or why there is none."""
    needs = [round(mib * HEADROOM) + CONTEXT if mib else 0 for mib in (_memory(f, name) for name in names)]
    return assign_profiles(f.gathered, names, needs, total=total)


def _replicas(percents: list[str], n: int) -> dict[str, Any]:
    """Replicas of the device plugin, if they give this mode: it always limits each client to 100 / replicas %."""
    given = 100 // n
    if set(percents) == {str(given)}:
        return _row("GPU", REPLICAS, n, f"the device plugin limits each to {given} % of SMs, as measured")
    other = "without limits" if not percents else f"at {' and '.join(percents)} %"
    why = f"the device plugin would limit each to {given} % of SMs, which is not MPS {other}: "
    return _row("GPU", REPLICAS, "none", why + "start the MPS daemon and set the environment of each tenant")


def _row(of: str, setting: str, value: object, why: str) -> dict[str, Any]:
    return {"for": of, "setting": setting, "value": str(value), "why": why}


def _memory(f: Findings, name: str) -> int:
    """The most memory that a tenant was seen to hold, MiB; 0 if that is not known."""
    sizes = [t.about.get("memory_mib") or 0 for m in f.gathered.cells for t in m.tenants if t.name == name]
    return int(max(sizes, default=0))


def _fits(f: Findings, mode: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """How often the mix fits: by memory with a context for each tenant, and by the clients of an MPS server."""
    sizes = [_memory(f, name) for name in names]
    card = max((_card_mib(s.about) for s in f.gathered.suites), default=0)
    if all(sizes) and card:
        needed = sum(sizes) + CONTEXT * len(names)
        by_memory, by_clients = card // needed, MPS_CLIENTS // len(names)
        limited = mode.startswith("mps") and by_clients < by_memory
        times = count_noun(by_clients if limited else by_memory, "time")
        by = f"at most {MPS_CLIENTS} clients of MPS" if limited else f"by memory, with {CONTEXT} MiB of context each"
        yield _row("GPU", "memory", f"{needed:,} of {card:,} MiB", f"would hold this mix {times}: {by}")
    for row in llm_table(f.gathered).iter_rows(named=True) if len(set(names)) == 1 else ():
        if (row["tenant"], row["mode"], row["servers"]) == (names[0], mode, len(names)):
            yield _within_goals(row)
    for curve in f.scaling_curves:
        if set(names) == {curve.tenant} and curve.largest_good:
            why = f"P{100 * curve.percentile:g} within {f.goal} under {curve.mode}"
            yield _row("GPU", "replicas, at most", curve.largest_good, why)


def _within_goals(row: dict[str, Any]) -> dict[str, Any]:
    """Whether so many servers meet their goals."""
    low, high = row["goodput_low"], row["goodput_high"]
    met = "yes" if low >= ENOUGH else "no" if high < ENOUGH else "not known"
    why = f"{100 * ENOUGH:g} % of requests within the goals; measured {row['goodput']:.2f} ({low:.2f} to {high:.2f})"
    return _row("GPU", f"{row['servers']} servers fit", met, why)


def _card_mib(about: dict[str, Any]) -> int:
    """Memory of the GPU, as a worker saw it."""
    seats = [seat for stage in about.get("stages") or [] for seat in (stage.get("seats") or {}).values()]
    return max((int(seat.get("card_mib") or 0) for seat in seats), default=0)


# --- what a mix would have on MIG instances --------------------------------------------------------------------------


PREDICTED = "predicted"
LIMITS = "limits of a predicted value are those of its model (P90 of its errors on published tables), not a 95 % CI"
# Latency on an instance depends on how requests queue for fewer SMs, of which no measurement on instances is at hand.
TAILS = {"p99": "tail latency", "answer": "the time to answer"}
MEASURE = "`fleetlab bench suite PLAN --allow-mig` measures it, with `mig:LAYOUT` among the modes of the plan"
OF_SPEEDS: dict[str, Callable[[list[float]], float]] = {
    "throughput": math.fsum,
    "worst": min,
    "cost": lambda speeds: 1 / math.fsum(speeds),
}


@dataclass(frozen=True, slots=True)
class MigPrediction:
    """The value of a goal on the best layout of instances, or why there is none."""

    layout: str = ""
    value: Interval | None = None
    each: str = ""  # the profile of each tenant
    why: str = ""

    def row(self) -> dict[str, Any]:
        """As a row of the choice."""
        nothing = interval_columns("margin", None)
        value = interval_columns("value", self.value)
        return {"mode": f"{MIG}{self.layout}", **value, **nothing, "verdict": PREDICTED, "more_blocks": None}

    def sentence(self, choice: ModeChoice, unit: str) -> str:
        """The value in words, and whether it would be ahead."""
        if self.value is None:
            return f"MIG was not measured, and {self.why}."
        best = choice.values[choice.best].value
        ahead = self.value.high < best if choice.less else self.value.low > best
        more = (
            "; if that holds it is ahead of all measured modes: `fleetlab bench mig plan` measures it" if ahead else ""
        )
        return f"MIG, predicted and not measured: {number(self.value)} {unit}, with {self.each}{more}."


def predict_mig(f: Findings, request: MixRequest, goal: str) -> MigPrediction | None:
    """Predict a goal on instances; None if some were measured, or the GPU is not known to have them."""
    if not has_profiles(f.gathered.gpu_name) or any(mode.startswith(MIG) for mode in mix_modes(f, request)):
        return None
    if goal not in OF_SPEEDS:
        what = TAILS.get(goal, goal)
        return MigPrediction(why=f"{what} on its instances is not predicted; {MEASURE}")
    if len(request.mixes) > 1:
        return MigPrediction(why="a layout is that of one mix")
    layout = mig_layout(f, request.names, total=goal != "worst")
    if isinstance(layout, str):
        return MigPrediction(why=layout)
    value = goal_value(layout, goal)
    if value is None:
        return MigPrediction(why="its speeds are not predicted: not every tenant was measured alone on fewer SMs")
    return MigPrediction(layout.layout, value, profiles_of(layout, request.names))


def goal_value(layout: MigAssignment, goal: str) -> Interval | None:
    """The value of a goal from the speeds of all tenants; their limits are taken to be reached together."""
    speeds = [speed for speed in layout.speeds if speed is not None]
    if len(speeds) < len(layout.speeds):
        return None
    ends = [OF_SPEEDS[goal]([speed[k] for speed in speeds]) for k in range(3)]
    return Interval(ends[0], min(ends[1:]), max(ends[1:]))
