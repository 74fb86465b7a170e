"""Results of the `share` commands as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from platform import node
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Provenance
from fleetlab.core.result import FieldsResult
from fleetlab.gpu.sharing.mig.layouts import Layout, MigGpu, layout_name, maximal_layouts, slices_left
from fleetlab.gpu.sharing.status import SharingStatus


def table(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Make a table from rows."""
    return pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)


def machine_tables(
    verb: str, frames: dict[str, pl.DataFrame], notes: Iterable[str] = (), **counts: int
) -> FieldsResult:
    """Make the result of a command on this machine."""
    counted = tuple(Estimate.exact(name.replace("_", " "), n) for name, n in counts.items())
    return FieldsResult(Provenance(verb, node()), (), counted, frames, notes=tuple(notes))


def status_tables(status: SharingStatus) -> FieldsResult:
    """GPUs, processes, MPS daemons and available modes."""
    frames = {
        "gpus": table({**asdict(c), "processes": sum(p.uuid == c.uuid for p in status.processes)} for c in status.gpus),
        "processes": table(asdict(p) for p in status.processes),
        "mps": table(
            asdict(d) | {"servers": ", ".join(map(str, d.servers)), "clients": ", ".join(map(str, d.clients))}
            for d in status.daemons
        ),
        "modes": table(asdict(m) for m in status.modes),
    }
    counts = {"gpus": len(status.gpus), "processes": len(status.processes), "MPS_daemons": len(status.daemons)}
    return machine_tables("share status", frames, [status.absent] if status.absent else [], **counts)


def profile_tables(cut: MigGpu) -> FieldsResult:
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


def layout_tables(cut: MigGpu) -> FieldsResult:
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
