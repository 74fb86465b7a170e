"""A MIG layout for a mix: a profile for each tenant that holds its memory, with its predicted speed.

Placement rules and memory are those of the profile tables. Of all layouts that hold the mix, the one whose slowest
tenant is predicted to be fastest, or whose tenants are in total; speeds on instances are predicted from runs on fewer
SMs, not measured.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from fleetlab.bench.advise.mix import busy_alone
from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.suite_data import PACE, SuiteData
from fleetlab.bench.profile.slice_model import GpuSlice, on_slice, stretch_curve
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.layouts import layout_name, maximal_layouts, place
from fleetlab.sharing.mig.models import mig_gpu
from fleetlab.sharing.mig.profiles import MigGpu, MigProfile
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
    known = {name: _speeds(g, gpu, name) for name in dict.fromkeys(names)}
    best: tuple[tuple[float, ...], tuple[MigProfile, ...]] | None = None
    for some in _choices(gpu, len(names)):
        if all(need <= p.memory_gib * MIB for need, p in zip(mib, some, strict=True)):
            each = [known[name].get(p.name) for name, p in zip(names, some, strict=True)]
            # Without a prediction a tenant counts by its SMs, and those that hold more memory get larger instances.
            speeds = [speed.value if speed else p.sms / gpu.sms for speed, p in zip(each, some, strict=True)]
            room = sum(need * p.sms for need, p in zip(mib, some, strict=True))
            first, then = (math.fsum, min) if total else (min, math.fsum)
            score = (first(speeds), then(speeds), room)
            if best is None or score > best[0]:
                best = score, some
    if best is None:
        return _no_layout(gpu, names, mib)
    found = tuple(known[name].get(p.name) for name, p in zip(names, best[1], strict=True))
    return MigAssignment(gpu, best[1], found)


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


def _no_layout(gpu: MigGpu, names: Sequence[str], mib: Sequence[int]) -> str:
    most = max(len(layout) for layout in maximal_layouts(gpu))
    if len(names) > most:
        return f"{gpu.name} has at most {most} instances, for {len(names)} tenants"
    return f"no layout of {gpu.name} holds instances of {', '.join(f'{need:,}' for need in sorted(mib))} MiB"


def _speeds(g: SuiteData, gpu: MigGpu, name: str) -> dict[str, Interval]:
    """Predicted speed of a tenant by profile; empty if its work was not measured on several numbers of SMs."""
    curves = {of: curve for of in _same_work(g, name) if len(curve := _curve(g, of)) >= POINTS}
    if not curves:
        return {}
    of = name if name in curves else next(iter(curves))
    memory = [m.gpu["memory_util"] / 100 for m in g.meetings if _alone(m, of) and m.gpu.get("memory_util") is not None]
    used, busy = float(np.median(memory)) if memory else 1.0, 1.0 if of == name else busy_alone(g, name)
    stretch = stretch_curve(curves[of])
    parts = [GpuSlice(p.name, p.sms / gpu.sms, p.size / gpu.sizes) for p in gpu.plain()]
    return {part.name: on_slice(stretch, used, part, busy) for part in parts}


def _same_work(g: SuiteData, name: str) -> list[str]:
    """The tenant, and those of the same work that step without pause."""
    work = g.work_of(name)
    full = [of for of in g.kinds if not set(PACE) & set(json.loads(g.settings.get(of, "{}")))]
    return [name, *(of for of in full if of != name and g.work_of(of) == work)]


def _alone(m: Any, name: str) -> bool:  # noqa: ANN401
    return bool(m.names == (name,) and m.mode == BASELINE)


def _curve(g: SuiteData, name: str) -> dict[int, float]:
    """Rates by number of SMs, alone as a client of MPS."""
    by: dict[int, list[float]] = defaultdict(list)
    for m in g.meetings:
        one = m.tenants[0]
        if m.names == (name,) and m.mode.startswith("mps") and one.about.get("sms") and not one.is_open_loop:
            by[one.about["sms"]].append(math.log(one.rate))
    return {sms: math.exp(sum(logs) / len(logs)) for sms, logs in sorted(by.items())}


def layout_rows(found: MigAssignment | str, names: Sequence[str], held: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Settings: the layout, and the profile of each tenant."""
    if isinstance(found, str):
        yield {"for": "GPU", "setting": "MIG layout", "value": "none", "why": found}
        return
    why = f"by the profile table of {found.gpu.name}; predicted, not measured: fleetlab share mig apply {found.layout}"
    yield {"for": "GPU", "setting": "MIG layout", "value": found.layout, "why": why}
    for name, profile, speed, mib in zip(names, found.profiles, found.speeds, held, strict=True):
        room = f"{profile.memory_gib * MIB:,.0f} MiB" + (f" for the {mib:,} that it held" if mib else "")
        value = "speed not predicted: no runs on fewer SMs" if speed is None else f"predicted speed {_shown(speed)}"
        yield {"for": name, "setting": "MIG profile", "value": profile.name, "why": f"{room}; {value}"}


def layout_sentence(found: MigAssignment | str, names: Sequence[str]) -> str:
    """The layout in words."""
    if isinstance(found, str):
        return f"MIG: no layout can be named, {found}."
    known = "speeds relative to alone are predicted" if any(found.speeds) else "nothing predicts its speeds"
    return f"A layout that holds this mix, not measured: {profiles_of(found, names)}; {known}."


def profiles_of(found: MigAssignment, names: Sequence[str]) -> str:
    """The profile of each tenant, and its predicted speed."""
    each = zip(names, found.profiles, found.speeds, strict=True)
    return ", ".join(f"{p.name} for {name}" + (f" ({_shown(s)})" if s else "") for name, p, s in each)


def _shown(speed: Interval) -> str:
    return f"{speed.value:.2f}, {speed.low:.2f} to {speed.high:.2f}"
