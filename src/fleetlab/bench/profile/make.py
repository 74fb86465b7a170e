"""Make a profile: what was measured, what the model says where nothing was, and MIG as foretold."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.bench.profile.gather import gather
from fleetlab.bench.profile.holdout import interval
from fleetlab.bench.profile.mig import half_a_card
from fleetlab.bench.profile.observations import PROBES, Met, Seen
from fleetlab.bench.profile.pairs import Pair, Table, Waits
from fleetlab.core import DeviceError, Provenance, Speed
from fleetlab.stats import Interval

Row = dict[str, Any]
LIGHT, MEDIUM = 0.37, 0.75  # of the time a card of its own is busy: below it is light, or medium; above heavy
CLASSES = ("light", "medium", "heavy")


def profile(folders: Sequence[Path], *, works: Collection[str] = (), classes: bool = False) -> Speed:
    """The speeds of works alone and beside each other, by mode, against alone without MPS.

    `works` names those to be in it, else all that met somebody; stressors only teach. With `classes` they are taken
    together as light, medium and heavy, by how busy each keeps a card of its own: a class's speed is the geometric
    mean over its works, and its interval holds those of all.
    """
    seen = gather(folders)
    chosen = _chosen(seen, works)
    rows = [row for mode in seen.modes() for row in _of_mode(seen, mode, chosen)]
    met = [work for work in chosen if any(row["workload"] == work for row in rows)]
    rows = [_row("exclusive", work, None, Interval(1.0, 1.0, 1.0), "measured") for work in met] + rows
    rows += [
        _row("mig", work, beside, speed, "predicted")
        for work, speed in half_a_card(seen, met).items()
        for beside in (None, *met)
    ]
    if classes:
        rows = list(_by_class(rows, {work: _class(seen.busy[work]) for work in met}))
    busy = {work: round(seen.busy[work], 3) for work in met}
    settings = {"folders": sorted(str(folder) for folder in folders), "busy": busy, "classes": classes}
    provenance = Provenance("bench profile", seen.device, settings)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    notes = tuple(_notes(seen, met, frame, classes=classes))
    return Speed.of(frame, device=seen.device, provenance=provenance, notes=notes)


def _chosen(seen: Seen, works: Collection[str]) -> list[str]:
    paired = [met.workload for met in seen.rates if len(met.beside) == 1 and met.workload not in PROBES]
    there = list(dict.fromkeys(name for name in seen.works if name in paired))
    if missing := [work for work in works if work not in there]:
        msg = f"not measured beside others: {', '.join(missing)}"
        raise DeviceError(msg, hint=f"there are {', '.join(there) or 'none'}")
    if not there:
        msg = "nobody was measured beside anybody"
        raise DeviceError(msg, hint="measure pairs: `fleetlab bench suite pairs-mps --out pairs-mps`")
    return [name for name in there if not works or name in works]


def _row(mode: str, work: str, beside: str | None, speed: Interval, kind: str) -> Row:
    numbers = {"speed": speed.value, "low": speed.low, "high": speed.high}
    return {"mode": mode, "workload": work, "neighbour": beside, **numbers, "kind": kind}


def _of_mode(seen: Seen, mode: str, chosen: Sequence[str]) -> Iterable[Row]:
    probed = seen.table(mode, chosen).gentle(PROBES)
    table = probed.but(PROBES)
    ties, loose = tied(table), tied(probed)
    here = [work for work in chosen if any(work in pair for pair in probed.speed) and Met(mode, work, ()) in seen.rates]
    for work in here:
        yield _row(mode, work, None, seen.speed(Met(mode, work, ())), "measured")
        for other in here:
            met = Met(mode, work, (other,))
            if met in seen.rates:
                yield _row(mode, work, other, seen.speed(met), "measured")
            elif (work, other) in loose:
                known = table if (work, other) in ties else probed
                yield _row(mode, work, other, interval(known, Waits, (work, other), PROBES), "predicted")


def tied(table: Table) -> set[Pair]:
    """Pairs whose two numbers the measured pairs tie together: else each could be any, and the other make up for it."""
    island = {("slowed", a): {("slowed", a)} for a, _ in table.speed}
    island |= {("slows", b): {("slows", b)} for _, b in table.speed}
    for a, b in table.speed:
        one, other = island["slowed", a], island["slows", b]
        if one is not other:
            one |= other
            island.update(dict.fromkeys(other, one))
    slowed, slows = ([name for side, name in island if side == which] for which in ("slowed", "slows"))
    return {(a, b) for a in slowed for b in slows if island["slowed", a] is island["slows", b]}


# --- classes ---------------------------------------------------------------------------------------------------------


def _class(busy: float) -> str:
    return CLASSES[(busy >= LIGHT) + (busy >= MEDIUM)]


def _by_class(rows: Sequence[Row], classes: dict[str, str]) -> Iterable[Row]:
    by: dict[tuple[str, str, str | None], list[Row]] = {}
    for row in rows:
        beside = row["neighbour"] and classes[row["neighbour"]]
        by.setdefault((row["mode"], classes[row["workload"]], beside), []).append(row)
    for mode in dict.fromkeys(row["mode"] for row in rows):
        for one in CLASSES:
            for other in (None, *CLASSES):
                if same := by.get((mode, one, other)):
                    kind = "predicted" if any(row["kind"] == "predicted" for row in same) else "measured"
                    yield _row(mode, one, other, _together(same), kind)


def _together(rows: Sequence[Row]) -> Interval:
    middle = math.exp(sum(math.log(row["speed"]) for row in rows) / len(rows))
    return Interval(middle, min(row["low"] for row in rows), max(row["high"] for row in rows))


# --- what to know about it -------------------------------------------------------------------------------------------


def _notes(seen: Seen, works: Sequence[str], frame: pl.DataFrame, *, classes: bool) -> Iterable[str]:
    yield "speeds are against the same work alone on the card without MPS; intervals are 95 %, of predictions 90 %"
    if classes:
        yield (
            f"classes by the share of time that a work alone keeps the card busy: light below {LIGHT:.0%}, "
            f"medium to {MEDIUM:.0%}, heavy above; a mean over {', '.join(works)}, the interval holds those of all"
        )
    if "mig" in frame["mode"]:
        yield "mig: half a card, predicted from runs on fewer SMs; works on other slices are taken to have no effect"
    if (guessed := frame.filter((pl.col("kind") == "predicted") & (pl.col("mode") != "mig"))).height:
        yield f"{guessed.height} speeds beside others were not measured: the model of pairs says them"
    if "mig" not in frame["mode"]:
        yield "no mig: not all works were measured on fewer SMs, or the card cannot be cut"
    if any(len(runs) == 1 for met, runs in seen.rates.items() if met.workload in works and met.beside):
        yield "what was measured once: its interval knows how steady the run was, not how one run differs from the next"
    yield from seen.notes
