"""When which nodes are kept for whom: from a site's reservations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.slurm import DAY, Reservation
from fleetlab.core.slurm import Slurm as Site
from fleetlab.sim.layout import Ints, Records, table
from fleetlab.sim.slurm import state

RECURS = {"hourly": 3600.0, "daily": DAY, "weekly": 7 * DAY}  # s between two of a reservation


def occurrences(reservations: Sequence[Reservation], until: float) -> list[Reservation]:
    """Return reservations with those that recur each time until a time, as far as the log does not have them."""
    listed = {(r.name, r.begin): r for r in reservations}
    for r in reservations:
        flags = {flag.lower() for flag in r.flags}
        step = next((seconds for flag, seconds in RECURS.items() if flag in flags), 0.0)
        for k in range(1, int((until - r.begin) // step) + 1 if step else 0):
            again = replace(r, begin=r.begin + k * step, end=r.end + k * step)
            listed.setdefault((again.name, again.begin), again)
    return list(listed.values())


def _groups(site: Site) -> dict[str, int]:
    """Number the reservations by name: one of a name may come several times."""
    return {name: k for k, name in enumerate(dict.fromkeys(r.name for r in site.reservations))}


def reservation_table(kept: list[Reservation], site: Site) -> Records:
    """Return the times of reservations, and what they are."""
    groups = _groups(site)
    return table(
        len(kept), state.RESERVATION, begin=[r.begin for r in kept], end=[r.end for r in kept],
        group=[groups[r.name] for r in kept], flex=[int("flex" in {f.lower() for f in r.flags}) for r in kept],
    )  # fmt: skip


def reserved_nodes(kept: list[Reservation], cluster: Cluster) -> Ints:
    """Return which nodes each reservation keeps."""
    names = cluster.frame["node"].to_list()
    rows = [[int(name in r.nodes) for name in names] for r in kept]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(names))


def reservation_of(frame: pl.DataFrame, site: Site) -> Ints:
    """Return the reservation that each job names, -1: none."""
    places = _groups(site)
    return np.array([places.get(name or "", -1) for name in frame["reservation"].to_list()], dtype=np.int64)
