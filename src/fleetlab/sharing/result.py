"""Results of the `share` commands as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from platform import node
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.sharing.mig.layouts import Layout, layout_name, maximal_layouts, slices_left
from fleetlab.sharing.mig.profiles import MigGpu
from fleetlab.sharing.status import SharingStatus


@dataclass(frozen=True, slots=True, repr=False)
class SharingTables(Result):
    """Tables, and counts as summary."""

    frames: dict[str, pl.DataFrame]
    provenance: Provenance
    estimates: tuple[Estimate, ...] = ()  # counts
    notes: tuple[str, ...] = ()


def table(found: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Make a table from rows."""
    return pl.DataFrame([dict(row) for row in found], infer_schema_length=None)


def machine_tables(
    verb: str, frames: dict[str, pl.DataFrame], notes: Iterable[str] = (), **counts: int
) -> SharingTables:
    """Make the result of a command on this machine."""
    counted = tuple(Estimate.exact(name.replace("_", " "), n) for name, n in counts.items())
    return SharingTables(frames, Provenance(verb, node()), counted, tuple(notes))


def status_tables(found: SharingStatus) -> SharingTables:
    """GPUs, processes, MPS daemons and available modes."""
    frames = {
        "gpus": table({**asdict(c), "processes": sum(p.uuid == c.uuid for p in found.processes)} for c in found.gpus),
        "processes": table(asdict(p) for p in found.processes),
        "mps": table(
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
        "modes": table(asdict(m) for m in found.modes),
    }
    counts = {"gpus": len(found.gpus), "processes": len(found.processes), "MPS_daemons": len(found.daemons)}
    return machine_tables("share status", frames, [found.absent] if found.absent else [], **counts)


def profile_tables(cut: MigGpu) -> SharingTables:
    """MIG profiles of a GPU."""
    rows = (
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
    notes = ["an instance takes consecutive memory slices from one of its `starts`", *cut.notes]
    return machine_tables("share mig profiles", {cut.name: table(rows)}, notes, profiles=len(cut.profiles))


def layout_tables(cut: MigGpu) -> SharingTables:
    """Every layout to which nothing can be added, by size."""
    ways: dict[str, list[Layout]] = {}
    for layout in maximal_layouts(cut):
        ways.setdefault(layout_name(layout), []).append(layout)
    rows = [_layout(name, same, cut) for name, same in ways.items()]
    rows.sort(key=lambda row: (row["instances"], row["layout"]))
    notes = [
        "`ways`: number of placements of the same profiles",
        "profiles that differ only in media engines (+me, -me) or graphics (+gfx) are omitted",
    ]
    counts = {"layouts": len(rows), "ways_to_place_them": sum(map(len, ways.values()))}
    return machine_tables("share mig layouts", {cut.name: table(rows)}, notes, **counts)


def placement_table(layout: Layout) -> pl.DataFrame:
    """The placement of each instance."""
    return table(
        {
            "profile": one.profile.name,
            "start": one.start,
            "size": one.profile.size,
            "sms": one.profile.sms,
            "memory_gib": one.profile.memory_gib,
        }
        for one in layout
    )


def _layout(name: str, ways: list[Layout], cut: MigGpu) -> dict[str, Any]:
    compute, memory = slices_left(ways[0], cut)
    return {
        "layout": name,
        "instances": len(ways[0]),
        "ways": len(ways),
        "sms": sum(one.profile.sms for one in ways[0]),
        "compute_left": compute,
        "memory_left": memory,
    }
