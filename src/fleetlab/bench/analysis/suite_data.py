"""Collect the cells of all suites: tenants, their progress, and kinds of mixes.

Progress is a tenant's rate over its rate **alone on the whole GPU without MPS**, whatever the mode: what its user
would have without sharing. `bench show` compares with the tenant alone in the same mode instead, which hides the
overhead of MPS.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.bench.analysis.folders import BASELINE, SuiteFolder
from fleetlab.bench.analysis.modes import SHARE
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import Cell, cell_mix, is_open_loop, mix_name
from fleetlab.sharing.modes import MIG

STARVED = 0.5  # fraction of steps that found the GPU idle: above it the host is the bottleneck
PART_TIME = 0.9  # utilization alone below which a tenant does not saturate the GPU
STRESSORS = ("gemm", "hbm", "l2", "h2d")
PACE = ("rest", "poisson", "rate", "pace")  # settings that say how often a tenant steps, not what a step is


@dataclass(frozen=True, slots=True)
class TenantResult:
    """One tenant in one cell."""

    name: str
    share: str  # limits, as `@50` or `!1`; empty if none
    rate: float
    progress: float | None  # None if it was not measured alone, or is in an open loop
    about: dict[str, Any] = field(hash=False)

    @property
    def is_open_loop(self) -> bool:
        """Whether its steps are scheduled."""
        return is_open_loop(self.about)

    def times(self) -> Histogram:
        """Step times; from the scheduled time in an open loop."""
        return Histogram.from_json(self.about["times"]) if self.about.get("times") else Histogram.of([])


@dataclass(frozen=True, slots=True)
class CellResult:
    """One successful cell."""

    suite: Path
    cell: str
    mode: str  # with the limits of its tenants: `mps@50`
    block: int
    tenants: tuple[TenantResult, ...]
    gpu: dict[str, Any] = field(hash=False)
    window: float = 0.0
    opens: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its tenants, sorted."""
        return tuple(sorted(t.name for t in self.tenants))

    @property
    def mix(self) -> str:
        """Name of the mix: `2 launch + gemm`."""
        return mix_name(list(self.names))

    @property
    def progress(self) -> list[float]:
        """Progress of each tenant; empty if one of them has none."""
        made = [t.progress for t in self.tenants]
        return [] if None in made else [max(p, 1e-12) for p in made if p is not None]


@dataclass(frozen=True, slots=True)
class SuiteData:
    """All measurements of one GPU model."""

    gpu_name: str
    rehearsal: bool
    suites: list[SuiteFolder]
    meetings: list[CellResult]
    alone: dict[str, list[tuple[Path, float]]]  # rates of each tenant alone, with the suite
    kinds: dict[str, str]  # of each tenant
    units: dict[str, str]
    settings: dict[str, str]  # of each tenant, as text: two names may have the same
    failures: list[dict[str, Any]]
    notes: tuple[str, ...]

    def own(self, name: str) -> float:
        """Rate of a tenant alone."""
        return float(np.median([rate for _, rate in self.alone[name]]))

    def work_of(self, name: str) -> str:
        """What a step of a tenant is, whatever its pace: tenants of one work differ in pauses or rate of requests."""
        about = json.loads(self.settings.get(name, json.dumps({"work": name})))
        return json.dumps({k: v for k, v in about.items() if k not in PACE}, sort_keys=True)

    def mixes(self) -> list[CellResult]:
        """Cells of several tenants in closed loops that were all measured alone."""
        return [m for m in self.meetings if len(m.tenants) > 1 and m.progress]

    def saturating(self, names: Iterable[str]) -> bool:
        """Whether each of them saturates the GPU alone."""
        return all(self.kinds[name] in ("training", "inference", "other") for name in names)

    def kind(self, names: Iterable[str]) -> str:
        """Kind of a mix of these tenants."""
        kinds = {self.kinds[name] for name in names}
        for rare in ("launch-bound", "part-time", "stressor"):
            if rare in kinds:
                return f"anything + {rare}"
        if kinds == {"training", "inference"}:
            return "training + inference"
        one = kinds.pop() if len(kinds) == 1 else "other"
        return f"{one} + {one}" if one != "other" else "other"


def collect_suites(found: list[SuiteFolder]) -> SuiteData:
    """Collect suites; tenants of one name with different settings are distinguished."""
    called, notes = _tenant_names(found)
    alone, fallen = _alone(found, called)
    own = {name: float(np.median([rate for _, rate in rates])) for name, rates in alone.items()}
    meetings = [
        _cell_result(s, c, called[s.path], own) for s in found for c in s.cells if c["status"] == "ok" and c["tenants"]
    ]
    if fallen:
        notes.append(f"not measured alone without MPS, so relative to alone under MPS: {', '.join(sorted(fallen))}")
    uuids = {(s.about.get("card") or {}).get("uuid") for s in found if s.cells}
    if len(uuids) > 1:
        notes.append(f"{len(uuids)} GPUs of the same model were measured; they are treated as one")
    return SuiteData(
        gpu_name=next(s.gpu_name for s in found if s.cells),
        rehearsal=any(s.about.get("rehearsal") for s in found),
        suites=found,
        meetings=meetings,
        alone=alone,
        kinds=_kinds(found, called, meetings),
        settings={
            called[s.path][name]: json.dumps(about, sort_keys=True)
            for s in found
            for name, about in (s.about.get("tenants") or {}).items()
        },
        units={t.name: t.about.get("unit", "item") for m in meetings for t in m.tenants},
        failures=[
            {"suite": s.path.name, "cell": c["cell"], "mix": cell_mix(c), "mode": c["mode"]}
            | {"kind": f["kind"], "detail": f.get("detail")}
            for s in found
            for c in s.cells
            if c["status"] != "ok"
            for f in c.get("failures") or [{"kind": "unknown"}]
        ],
        notes=(*(note for s in found for note in s.notes), *notes),
    )


TenantNames = dict[Path, dict[str, str]]  # by suite: name there -> name here


def _tenant_names(found: list[SuiteFolder]) -> tuple[TenantNames, list[str]]:
    """One name per tenant and settings: two suites may use one name for different settings."""
    meant: dict[str, list[str]] = defaultdict(list)
    called: TenantNames = {}
    for s in found:
        called[s.path] = {}
        for name, settings in (s.about.get("tenants") or {}).items():
            words = json.dumps(settings, sort_keys=True)
            if words not in meant[name]:
                meant[name].append(words)
            k = meant[name].index(words)
            called[s.path][name] = name if not k else f"{name} ({k + 1})"
    twice = sorted(name for name, words in meant.items() if len(words) > 1)
    return called, [f"has other settings in another suite, numbered: {name}" for name in twice]


def _split(seat: str) -> tuple[str, str]:
    """Tenant and limits of a seat: all SMs and normal priority are none, and a MIG instance belongs to the mode."""
    name, share = re.fullmatch(SHARE, seat, re.DOTALL).groups()  # type: ignore[union-attr]
    return name, re.sub(r"@100(?!\d)|!0(?!\d)|#\d+", "", share)


def _alone(found: list[SuiteFolder], called: TenantNames) -> tuple[dict[str, list[tuple[Path, float]]], set[str]]:
    rates: dict[bool, dict[str, list[tuple[Path, float]]]] = {True: defaultdict(list), False: defaultdict(list)}
    for s in found:
        for c in s.cells:
            if c["status"] == "ok" and len(c["tenants"]) == 1 and (rate := c["tenants"][0]["rate"]) > 0:
                name, share = _split(c["tenants"][0]["seat"])
                if not share and not is_open_loop(c["tenants"][0]) and not c["mode"].startswith(MIG):
                    rates[c["mode"] == BASELINE][called[s.path].get(name, name)].append((s.path, rate))
    fallen = set(rates[False]) - set(rates[True])
    return rates[True] | {name: rates[False][name] for name in fallen}, fallen


def _cell_result(s: SuiteFolder, c: Cell, called: dict[str, str], own: dict[str, float]) -> CellResult:
    tenants = []
    for one in c["tenants"]:
        name, share = _split(one["seat"])
        name = called.get(name, name)
        progress = one["rate"] / own[name] if name in own and not is_open_loop(one) else None
        tenants.append(TenantResult(name, share, one["rate"], progress, one))
    shares = "".join(sorted({t.share for t in tenants} - {""}))
    window = c.get("window") or s.about.get("window") or 0.0
    return CellResult(
        s.path, c["cell"], c["mode"] + shares, c["block"], tuple(tenants), c["gpu"], window, c.get("opens", 0.0)
    )


def _kinds(found: list[SuiteFolder], called: TenantNames, meetings: list[CellResult]) -> dict[str, str]:
    works = {
        called[s.path][name]: str((about or {}).get("work", name))
        for s in found
        for name, about in (s.about.get("tenants") or {}).items()
    }
    by: dict[str, list[CellResult]] = defaultdict(list)
    for m in meetings:
        if len(m.tenants) == 1 and not m.tenants[0].is_open_loop:
            by[m.tenants[0].name].append(m)
    names = {t.name for m in meetings for t in m.tenants}
    return {name: _kind(works.get(name, name), by[name]) for name in sorted(names)}


def _kind(work: str, alone: list[CellResult]) -> str:
    if alone and np.median([m.tenants[0].about.get("starved", 0.0) for m in alone]) > STARVED:
        return "launch-bound"
    if utilization_alone(alone) < PART_TIME:
        return "part-time"
    if work in STRESSORS:
        return "stressor"
    word = work.lower()
    return "training" if "train" in word else "inference" if re.search("infer|decode|serve", word) else "other"


def utilization_alone(cells: Iterable[CellResult]) -> float:
    """The lower of the share of time in steps and of the GPU's utilization, of cells of one tenant; 1 if not recorded.

    A program that only counts its steps says nothing of the time in them, but the GPU does.
    """
    alone = list(cells)
    under_way = [m.tenants[0].about.get("busy", 1.0) for m in alone] or [1.0]
    util = [m.gpu["util"] / 100 for m in alone if m.gpu.get("util") is not None] or [1.0]
    return float(min(np.median(under_way), np.median(util)))
