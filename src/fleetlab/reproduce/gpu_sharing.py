"""The study of GPU sharing on an H200: its published tables from its raw cells, or a reader's own cells beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.core import WorkloadError
from fleetlab.core.files import folder_at
from fleetlab.core.progress import Progress
from fleetlab.gpu import (
    CellResult,
    Findings,
    TailGoal,
    collect_findings,
    collect_suites,
    compare_predictions,
    serving_table,
    suites,
)
from fleetlab.gpu.bench import analysis
from fleetlab.reproduce.item import Item, SourceTable, items
from fleetlab.reproduce.result import Material

NAME = "gpu-sharing"
CARD = "NVIDIA H200"
MAIN, LATE = "h200", "h200-late"  # folders of the study: its cells, and some again on a second card
OTHERS = {"llm": "h200-long/llm", "notebook": "h200-notebook", "own": "h200-own"}  # with a table of their own
HELD_OUT = "h200-heldout"
NEIGHBORS = ("h200/stressors", "h200-neighbors")
KEPT = {"stage": pl.String, "tenant": pl.String, "beside": pl.String, "kept": pl.Float64}
OWN = "own cells"
TENANTS = {"resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode"}  # `launch` hangs on the host
HINT = (
    "the raw cells come with the repository: `--data measurements/gpu-sharing.tar.gz` in a clone of it; or measure "
    "your own GPU: `fleetlab bench all --out measured`, then `--data measured`"
)


def material(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Compute the tables again; nothing of it is random, and it takes seconds."""
    if data is None:
        raise WorkloadError("raw cells are needed: no folder was given", hint=HINT)
    root = folder_at(Path(data))
    study = (root / MAIN).is_dir()
    first = root / MAIN if study else root
    progress("reading cells", 0, 0.0)
    result = analysis.analyze(first)
    on = "raw cells" if study else OWN
    tables = {name: SourceTable(frame, on) for name, frame in result.tables().items()}
    if study:
        tables |= {name: SourceTable(frame, on) for name, frame in _more(root).items()}
    facts = result.facts
    tables["stp"] = SourceTable(pl.DataFrame(list(_throughput(facts)), schema=["mode", "mix", "stp"], orient="row"), on)
    tables["copies"] = SourceTable(_copies(tables["scale"].frame), on)
    tables["slices"] = SourceTable(_slices(facts), on)
    progress("reading cells", len(facts.gathered.cells), 1.0)
    card = facts.gathered.gpu_name
    listed = items(NAME) if study else [_elsewhere(one, card) for one in items(NAME)]
    notes = (
        f"measured on {card}: {len(facts.gathered.cells):,} cells",
        "rows of the rule `measured` say that the page follows from the cells, not that another card gives the same",
    )
    return Material(listed, tables, f"{root.name}: {card}", result.figures(), notes)


def _more(root: Path) -> dict[str, pl.DataFrame]:
    """Tables of the page that join folders, or have a folder of their own."""
    tables: dict[str, pl.DataFrame] = {}
    both = [folder for part in (MAIN, LATE) if (folder := root / part / "serving").is_dir()]
    if both:
        read = collect_suites([suite for folder in both for suite in suites(folder)])
        tables["serving"] = serving_table(collect_findings(read, goal=TailGoal()).served_tenants)
    for name, part in OTHERS.items():
        if (root / part).is_dir():
            tables[name] = analysis.analyze(root / part).tables()["progress" if name == "own" else name]
    if (root / HELD_OUT).is_dir():
        predicted = compare_predictions(root / HELD_OUT / "predictions.json", [root / HELD_OUT])
        tables["held out"] = predicted.tables()["errors"]
    folders = [root / part for part in NEIGHBORS if (root / part).is_dir()]
    rows = [row for folder in folders for suite in suites(folder) for row in _relative_rates(suite.cells)]
    tables["kept"] = pl.DataFrame(rows, schema=KEPT, orient="row")
    return tables


def _relative_rates(cells: Sequence[CellResult]) -> Iterator[tuple[str, str, str, float]]:
    """Yield what each of two tenants keeps of its rate alone in the same mode, without limits."""
    alone: dict[tuple[str, str], list[float]] = {}
    good = [c for c in cells if c.ok]
    for c in good:
        if c.alone and c.alone.seat == c.alone.name:
            alone.setdefault((c.mode, c.alone.name), []).append(c.alone.rate)
    for c in (c for c in good if len(c.tenants) == 2):
        for one, two in (c.tenants, c.tenants[::-1]):
            if (c.mode, one.name) in alone:
                rate = float(np.mean(alone[c.mode, one.name]))
                stage = c.stage if c.stage.startswith("neighbors") else "stressors"
                yield stage, one.name, two.name, one.rate / rate


def _throughput(f: Findings) -> Iterator[tuple[str, str, float]]:
    """Yield STP of two alike by mode, and median, lowest and highest over pairs of tenants that saturate the GPU."""
    x = f.mixes
    for mode in x.stp.modes():
        stp = {mix: math.exp(x.stp.log(mode, mix)) for mix in x.stp.mixes(mode) if len(x.names[mix]) == 2}
        yield from ((mode, x.names[mix][0], value) for mix, value in stp.items() if len(set(x.names[mix])) == 1)
        calm = [value for mix, value in stp.items() if set(x.names[mix]) <= TENANTS]
        if calm:
            yield from zip(
                (mode,) * 3, ("median", "lowest", "highest"), (np.median(calm), min(calm), max(calm)), strict=True
            )


def _copies(scale: pl.DataFrame) -> pl.DataFrame:
    """Return the rate of so many copies over that of one, by mode."""
    some = scale.filter(pl.col("tenant") == "resnet-infer")
    one = dict(some.filter(pl.col("tenants") == 1).select("mode", "rate").iter_rows())
    rows = [
        (str(n), mode, rate / one[mode])
        for n, mode, rate in some.select("tenants", "mode", "rate").iter_rows()
        if mode in one
    ]
    frame = pl.DataFrame(rows, schema={"what": pl.String, "mode": pl.String, "times": pl.Float64}, orient="row")
    return frame.pivot("mode", index="what", values="times") if rows else frame


def _slices(f: Findings) -> pl.DataFrame:
    """Return the median length of a time slice and of the time away, and what neither of two watchers had."""
    turns = f.turns
    values = {} if turns is None else {
        "slice": turns["slice_ms"][2], "gap": turns["gap_ms"][2], "lost": 100 * (1 - turns["running"]),
    }  # fmt: skip
    return pl.DataFrame(
        {"what": list(values), "value": [float(x) for x in values.values()]},
        schema={"what": pl.String, "value": pl.Float64},
    )


def _elsewhere(one: Item, card: str) -> Item:
    """An item of the study beside cells of another card, or of other runs."""
    if one.rule != "measured":
        return one
    return replace(one, rule="card", why=f"measured on {card}, in runs of its own; published of one {CARD}")
