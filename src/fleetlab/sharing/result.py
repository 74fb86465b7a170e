"""What sharing looks like, as tables: of a machine, of a card's profiles and of its layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from platform import node
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.sharing.mig.layouts import Layout, left, maximal, told
from fleetlab.sharing.mig.profiles import Cut
from fleetlab.sharing.status import Status


@dataclass(frozen=True, slots=True)
class Told(Result):
    """Tables, and what of them can be counted."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    counts: tuple[Estimate, ...] = ()
    notes: tuple[str, ...] = ()

    def summary(self) -> list[Estimate]:
        """Counts: nothing here is estimated."""
        return list(self.counts)

    def __repr__(self) -> str:
        return f"<Told {self.provenance.verb}: {', '.join(f'{e.metric} {e.value}' for e in self.counts)}>"


def rows(found: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """A table of what was found."""
    return pl.DataFrame([dict(row) for row in found], infer_schema_length=None)


def here(verb: str, frames: dict[str, pl.DataFrame], notes: Iterable[str] = (), **counts: int) -> Told:
    """Told of this machine."""
    counted = tuple(Estimate.exact(name.replace("_", " "), n) for name, n in counts.items())
    return Told(frames, Provenance(verb, node()), counted, tuple(notes))


def of_machine(found: Status) -> Told:
    """Cards, who is on them, MPS, and which modes could be used."""
    frames = {
        "cards": rows({**asdict(c), "processes": sum(p.uuid == c.uuid for p in found.processes)} for c in found.cards),
        "processes": rows(asdict(p) for p in found.processes),
        "mps": rows(
            {
                "pipe": d.pipe,
                "whose": d.whose,
                "answers": d.answers,
                "percent": d.percent,
                "memory": d.memory,
                "servers": ", ".join(map(str, d.servers)),
                "clients": ", ".join(map(str, d.clients)),
            }
            for d in found.daemons
        ),
        "modes": rows(asdict(m) for m in found.modes),
    }
    counts = {"cards": len(found.cards), "processes": len(found.processes), "MPS_daemons": len(found.daemons)}
    return here("share status", frames, [found.absent] if found.absent else [], **counts)


def of_profiles(cut: Cut) -> Told:
    """What a card can be cut into."""
    found = (
        {
            "profile": p.name,
            "compute_slices": p.slices,
            "memory_slices": p.size,
            "sms": p.sms,
            "memory_gib": p.memory_gib,
            "most": p.most,
            "starts": ", ".join(map(str, p.starts)),
        }
        for p in cut.profiles
    )
    note = "an instance takes its slices of memory in a row, from one of `starts`"
    return here("share mig profiles", {cut.card: rows(found)}, [note], profiles=len(cut.profiles))


def of_layouts(cut: Cut) -> Told:
    """Every layout to which nothing can be added, whatever its places."""
    ways: dict[str, list[Layout]] = {}
    for layout in maximal(cut):
        ways.setdefault(told(layout), []).append(layout)
    found = [_layout(name, same, cut) for name, same in ways.items()]
    found.sort(key=lambda row: (row["instances"], row["layout"]))
    notes = [
        "`ways`: in how many places each can lie with nothing to add",
        "media extensions (+me) are left out: one 1g instance may have them",
    ]
    counts = {"layouts": len(found), "ways_to_place_them": sum(map(len, ways.values()))}
    return here("share mig layouts", {cut.card: rows(found)}, notes, **counts)


def placed(layout: Layout) -> pl.DataFrame:
    """Where each instance lies."""
    return rows(
        {
            "profile": one.profile.name,
            "start": one.start,
            "size": one.profile.size,
            "sms": one.profile.sms,
            "memory_gib": one.profile.memory_gib,
        }
        for one in layout
    )


def _layout(name: str, ways: list[Layout], cut: Cut) -> dict[str, Any]:
    compute, memory = left(ways[0], cut)
    return {
        "layout": name,
        "instances": len(ways[0]),
        "ways": len(ways),
        "sms": sum(one.profile.sms for one in ways[0]),
        "compute_left": compute,
        "memory_left": memory,
    }
