"""The study of GPU sharing on an H200: its published tables from its raw cells, or a reader's own cells beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from fleetlab.bench import analysis
from fleetlab.bench.analysis.findings import Findings, collect_findings
from fleetlab.bench.analysis.folders import suites
from fleetlab.bench.analysis.scale import TailGoal
from fleetlab.bench.analysis.serving import serving_table
from fleetlab.bench.analysis.suite_data import collect_suites
from fleetlab.core import WorkloadError
from fleetlab.core.progress import Progress
from fleetlab.reproduce.item import Found, Item, items
from fleetlab.reproduce.result import Material

NAME = "gpu-sharing"
CARD = "NVIDIA H200"
PARTS = ("h200", "h200-late", "h200-llm")  # folders of the study: its cells, some again on a second card, LLM servers
OWN = "own cells"
TENANTS = {"resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode"}  # `launch` hangs on the host
HINT = (
    "the raw cells lie in docs/measurements of the repository: `--data docs/measurements` in a clone of it; or measure "
    "your own GPU: `fleetlab bench all --out measured`, then `--data measured`"
)


def material(data: Path | str | None, *, quick: bool, seed: int, progress: Progress) -> Material:
    """Compute the tables again; nothing of it is random, and it takes seconds."""
    if data is None:
        msg = "raw cells are needed: no folder was given"
        raise WorkloadError(msg, hint=HINT)
    root = Path(data)
    study = (root / PARTS[0]).is_dir()
    first = root / PARTS[0] if study else root
    progress("reading cells", 0, 0.0)
    result = analysis.analyze(first)
    on = "raw cells" if study else OWN
    tables = {name: Found(frame, on) for name, frame in result.tables().items()}
    if study:
        tables |= {name: Found(frame, on) for name, frame in _more(root).items()}
    found = result.facts
    tables["stp"] = Found(pl.DataFrame(list(_throughput(found)), schema=["mode", "mix", "stp"], orient="row"), on)
    tables["copies"] = Found(_copies(tables["scale"].frame), on)
    tables["slices"] = Found(_slices(found), on)
    progress("reading cells", len(found.gathered.meetings), 1.0)
    card = found.gathered.gpu_name
    listed = items(NAME) if study else [_elsewhere(one, card) for one in items(NAME)]
    notes = (
        f"measured on {card}: {len(found.gathered.meetings):,} cells",
        "rows of the rule `measured` say that the page follows from the cells, not that another card gives the same",
    )
    return Material(listed, tables, f"{root.name}: {card}", result.figures(), notes)


def _more(root: Path) -> dict[str, pl.DataFrame]:
    """Tables of the page that join folders: requests are served twice, language models have a folder of their own."""
    found: dict[str, pl.DataFrame] = {}
    both = [root / part / "serving" for part in PARTS[:2] if (root / part / "serving").is_dir()]
    if both:
        read = collect_suites([suite for folder in both for suite in suites(folder)])
        found["serving"] = serving_table(collect_findings(read, goal=TailGoal()).served_tenants)
    if (root / PARTS[2]).is_dir():
        found["llm"] = analysis.analyze(root / PARTS[2]).tables()["llm"]
    return found


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
