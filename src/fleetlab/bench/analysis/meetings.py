"""Who met whom on the card, how each fared against a card of its own, and what kind of meeting it was.

Progress here is a tenant's rate over its rate **alone on the whole card without MPS**, whatever the mode: what its user
would have had without sharing. `bench show` compares with the tenant alone in the same mode instead; that hides what
being a client of MPS costs.
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

from fleetlab.bench.analysis.folders import WHOLE, Suite
from fleetlab.bench.histogram import Histogram
from fleetlab.bench.results.cells import Cell, listed, mix, timed

STARVED = 0.5  # steps that found the card idle: above it the host, not the card, sets the speed
PART_TIME = 0.9  # of the time that a tenant alone keeps the card busy: below it, it leaves room
STRESSORS = ("gemm", "hbm", "l2", "h2d")
SHARE = r"(.*?)((?:[@~!](?:\d+(?:sms)?|high|low))*)"  # of a seat or a mode: its name, and what it may have


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant in one cell."""

    name: str
    share: str  # what it may have of the card, as `@50` or `!1`; nothing if all
    rate: float
    progress: float | None  # None where it was never measured alone, or is fed by a timetable
    about: dict[str, Any] = field(hash=False)

    @property
    def timed(self) -> bool:
        """Are its steps sent by a timetable, whether or not those before are done?"""
        return timed(self.about)

    def times(self) -> Histogram:
        """How long its steps took; from when they were due, if there is a timetable."""
        return Histogram.from_json(self.about["times"]) if self.about.get("times") else Histogram.of([])


@dataclass(frozen=True, slots=True)
class Meeting:
    """One cell that was measured."""

    suite: Path
    cell: str
    mode: str  # with the shares of its tenants: `mps@50`
    block: int
    tenants: tuple[Tenant, ...]
    gpu: dict[str, Any] = field(hash=False)
    window: float = 0.0
    opens: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Its tenants by name, in order."""
        return tuple(sorted(t.name for t in self.tenants))

    @property
    def mix(self) -> str:
        """As people say it: `2 launch + gemm`."""
        return listed(list(self.names))

    @property
    def progress(self) -> list[float]:
        """Of each tenant; empty where one of them has none."""
        made = [t.progress for t in self.tenants]
        return [] if None in made else [max(p, 1e-12) for p in made if p is not None]


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that was measured on one card."""

    card: str
    rehearsal: bool
    suites: list[Suite]
    meetings: list[Meeting]
    alone: dict[str, list[tuple[Path, float]]]  # each tenant's rates on a card of its own, with the suite
    kinds: dict[str, str]  # of each tenant
    units: dict[str, str]
    settings: dict[str, str]  # of each tenant, as text: two names may mean the same
    failures: list[dict[str, Any]]
    notes: tuple[str, ...]

    def own(self, name: str) -> float:
        """A tenant's rate on a card of its own."""
        return float(np.median([rate for _, rate in self.alone[name]]))

    def mixes(self) -> list[Meeting]:
        """Meetings of several that all run as fast as they can, and were all measured alone."""
        return [m for m in self.meetings if len(m.tenants) > 1 and m.progress]

    def saturating(self, names: Iterable[str]) -> bool:
        """Would each of them keep the card busy by itself?"""
        return all(self.kinds[name] in ("training", "inference", "other") for name in names)

    def kind(self, names: Iterable[str]) -> str:
        """What kind of mix these make."""
        found = {self.kinds[name] for name in names}
        for rare in ("launch-bound", "part-time", "stressor"):
            if rare in found:
                return f"anything + {rare}"
        if found == {"training", "inference"}:
            return "training + inference"
        one = found.pop() if len(found) == 1 else "other"
        return f"{one} + {one}" if one != "other" else "other"


def gathered(found: list[Suite]) -> Gathered:
    """Put suites together; tenants of one name and other settings are told apart."""
    called, notes = _called(found)
    alone, fallen = _alone(found, called)
    own = {name: float(np.median([rate for _, rate in rates])) for name, rates in alone.items()}
    meetings = [
        _meeting(s, c, called[s.path], own) for s in found for c in s.cells if c["status"] == "ok" and c["tenants"]
    ]
    if fallen:
        notes.append(f"not measured alone without MPS, so compared with alone under MPS: {', '.join(sorted(fallen))}")
    uuids = {(s.about.get("card") or {}).get("uuid") for s in found if s.cells}
    if len(uuids) > 1:
        notes.append(f"{len(uuids)} cards of the same name were measured; they are taken as one")
    return Gathered(
        card=next(s.card for s in found if s.cells),
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
            {"suite": s.path.name, "cell": c["cell"], "mix": mix(c), "mode": c["mode"]}
            | {"kind": f["kind"], "detail": f.get("detail")}
            for s in found
            for c in s.cells
            if c["status"] != "ok"
            for f in c.get("failures") or [{"kind": "unknown"}]
        ],
        notes=(*(note for s in found for note in s.notes), *notes),
    )


Called = dict[Path, dict[str, str]]  # by suite: a tenant's name there, and here


def _called(found: list[Suite]) -> tuple[Called, list[str]]:
    """One name for each tenant and its settings: two suites may mean different things by one word."""
    meant: dict[str, list[str]] = defaultdict(list)
    called: Called = {}
    for s in found:
        called[s.path] = {}
        for name, settings in (s.about.get("tenants") or {}).items():
            words = json.dumps(settings, sort_keys=True)
            if words not in meant[name]:
                meant[name].append(words)
            k = meant[name].index(words)
            called[s.path][name] = name if not k else f"{name} ({k + 1})"
    twice = sorted(name for name, words in meant.items() if len(words) > 1)
    return called, [f"has other settings in another suite, numbered apart: {name}" for name in twice]


def _split(seat: str) -> tuple[str, str]:
    """A seat's tenant and its share; all SMs and normal priority are no limits."""
    name, share = re.fullmatch(SHARE, seat, re.DOTALL).groups()  # type: ignore[union-attr]
    return name, re.sub(r"@100(?!\d)|!0(?!\d)", "", share)


def _alone(found: list[Suite], called: Called) -> tuple[dict[str, list[tuple[Path, float]]], set[str]]:
    rates: dict[bool, dict[str, list[tuple[Path, float]]]] = {True: defaultdict(list), False: defaultdict(list)}
    for s in found:
        for c in s.cells:
            if c["status"] == "ok" and len(c["tenants"]) == 1 and (rate := c["tenants"][0]["rate"]) > 0:
                name, share = _split(c["tenants"][0]["seat"])
                if not share and not timed(c["tenants"][0]):
                    rates[c["mode"] == WHOLE][called[s.path].get(name, name)].append((s.path, rate))
    fallen = set(rates[False]) - set(rates[True])
    return rates[True] | {name: rates[False][name] for name in fallen}, fallen


def _meeting(s: Suite, c: Cell, called: dict[str, str], own: dict[str, float]) -> Meeting:
    tenants = []
    for one in c["tenants"]:
        name, share = _split(one["seat"])
        name = called.get(name, name)
        progress = one["rate"] / own[name] if name in own and not timed(one) else None
        tenants.append(Tenant(name, share, one["rate"], progress, one))
    shares = "".join(sorted({t.share for t in tenants} - {""}))
    window = c.get("window") or s.about.get("window") or 0.0
    return Meeting(
        s.path, c["cell"], c["mode"] + shares, c["block"], tuple(tenants), c["gpu"], window, c.get("opens", 0.0)
    )


def _kinds(found: list[Suite], called: Called, meetings: list[Meeting]) -> dict[str, str]:
    works = {
        called[s.path][name]: str((about or {}).get("work", name))
        for s in found
        for name, about in (s.about.get("tenants") or {}).items()
    }
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for m in meetings:
        if len(m.tenants) == 1 and not m.tenants[0].timed:
            by[m.tenants[0].name].append(m.tenants[0].about)
    names = {t.name for m in meetings for t in m.tenants}
    return {name: _kind(works.get(name, name), by[name]) for name in sorted(names)}


def _kind(work: str, alone: list[dict[str, Any]]) -> str:
    if alone and np.median([t.get("starved", 0.0) for t in alone]) > STARVED:
        return "launch-bound"
    if alone and np.median([t.get("busy", 1.0) for t in alone]) < PART_TIME:
        return "part-time"
    if work in STRESSORS:
        return "stressor"
    word = work.lower()
    return "training" if "train" in word else "inference" if re.search("infer|decode|serve", word) else "other"


def spoken(mode: str) -> str:
    """A mode in words: `mps@50` is `MPS at 50 %`."""
    name, share = re.fullmatch(SHARE, mode, re.DOTALL).groups()  # type: ignore[union-attr]
    known = {"time-slicing": "time slicing", "mps": "MPS", "mig": "MIG", "one-process": "one process"}
    said = known.get(name, name)
    percents, memory = re.findall(r"@(\d+)(?![\ds])", share), re.findall(r"~(\d+)", share)
    if sms := re.findall(r"@(\d+)sms", share):
        said += f" with {' and '.join(sms)} SMs each"
    if percents:
        said += f" at {' and '.join(percents)} %"
    if memory:
        said += f" with {' and '.join(memory)} MiB each"
    return said + (" with priority" if "!" in share else "")
