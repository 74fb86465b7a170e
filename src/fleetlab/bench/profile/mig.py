"""Slices of a card (MIG), foretold for each work: always marked as predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.profile.gather import gather
from fleetlab.bench.profile.observations import Seen
from fleetlab.bench.profile.slice_model import Slice, curve, on_slice
from fleetlab.core import DeviceError, Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.profiles import Cut, known
from fleetlab.stats import Interval

HALF = 3  # slices of compute: two of such a profile share a card evenly


@dataclass(frozen=True, slots=True)
class Sliced(Result):
    """Speeds on every slice of a card, foretold."""

    frame: pl.DataFrame
    provenance: Provenance
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """The mean speed by slice."""
        by = self.frame.group_by("profile", maintain_order=True).agg(pl.col("speed", "low", "high").mean())
        return [Estimate(f"predicted mean speed, {name}", v, lo, hi, "of a card") for name, v, lo, hi in by.rows()]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every work on every slice."""
        return {"slices": self.frame}


def slices(folders: Sequence[Path], *, card: str | None = None) -> Sliced:
    """How fast each work would be on each MIG slice of a card: its own, or one by name with as even a build."""
    seen = gather(folders)
    cut = _cut(card or seen.device)
    rows = list(_rows(seen, cut))
    if not rows:
        msg = "no work was measured on fewer SMs"
        raise DeviceError(msg, hint="the plan sm-curve does that: `fleetlab bench suite sm-curve --out sm-curve`")
    settings = {"folders": sorted(str(folder) for folder in folders), "card": cut.card}
    notes = ["predicted, not measured: from runs on fewer SMs and the part of the time that the memory is busy"]
    if card:
        notes.append(f"measured on {seen.device}: the same part of another card is taken to do the same")
    return Sliced(pl.DataFrame(rows), Provenance("bench mig", seen.device, settings), tuple(notes))


def half_a_card(seen: Seen, works: Sequence[str]) -> dict[str, Interval]:
    """The speed of each on half a card, if all of them can be told and the card can be cut."""
    try:
        half = next(part for part in _parts(_cut(seen.device)) if part.name.startswith(f"{HALF}g."))
    except DeviceError:
        return {}
    found = {work: speed for work in works if (speed := _on(seen, work, half))}
    return found if len(found) == len(works) else {}


def _rows(seen: Seen, cut: Cut) -> Iterable[dict[str, Any]]:
    for work in seen.works:
        for part in _parts(cut):
            if speed := _on(seen, work, part):
                about = {"workload": work, "profile": part.name, "sms": part.sms, "memory": part.memory}
                yield about | {"speed": speed.value, "low": speed.low, "high": speed.high, "kind": "predicted"}


def _on(seen: Seen, work: str, part: Slice) -> Interval | None:
    """From its own curve, or, if it is another that rests, from that one's; None where there is neither."""
    if work in seen.curve:
        return on_slice(curve(seen.curve[work]), seen.memory[work], part)
    mine = {key: value for key, value in seen.works[work].items() if key != "rest"}
    for other, settings in seen.works.items():
        if other in seen.curve and settings == mine and work in seen.busy:
            return on_slice(curve(seen.curve[other]), seen.memory[other], part, seen.busy[work])
    return None


def _parts(cut: Cut) -> list[Slice]:
    whole = max(profile.sms for profile in cut.profiles)
    return [Slice(p.name, p.sms / whole, p.size / cut.sizes) for p in cut.profiles if not p.media]


def _cut(card: str) -> Cut:
    try:
        return known(card.replace("NVIDIA ", "").split()[0])
    except BenchError as e:
        raise DeviceError(str(e), hint=e.hint) from None
