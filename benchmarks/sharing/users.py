"""Tables of language models, notebooks, worst neighbors and held-out mixes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.sharing.raw import cells
from fleetlab.gpu.bench.plans import STRESSORS
from fleetlab.gpu.bench.profile.predictions import compare_predictions
from fleetlab.gpu.bench.results.cells import CellResult
from fleetlab.gpu.bench.results.latency import rows_llm, rows_notebook, server_row

Cell = dict[str, Any]
WORDS = {"llm-ts": "time slicing", "llm-mps": "MPS", "notebook-ts": "time slicing", "notebook-mps": "MPS"}
DUTIES = (25, 50, 100)


def language_models(root: Path) -> None:
    """TTFT, TPOT and goodput by mode, number of servers and neighbor."""
    head = ("mode", "servers", "beside", "TTFT P50", "TTFT P95", "TPOT P50", "goodput", "least to most")
    print("| " + " | ".join((*head, "training keeps")) + " |\n|---|--:|---|" + "--:|" * 6)
    some = cells(root / "h200-long" / "llm")
    keeps = _keeps(some)
    for row in sorted(rows_llm(map(CellResult.of, some)), key=_order):
        beside = "" if row["beside"].partition("@")[0].endswith("llm-serve") else row["beside"].partition("@")[0]
        limit = row["tenant"].partition("@")[2]
        mode = WORDS.get(row["stage"]) or f"MPS, {limit} % each"
        shown = [f"{beside or 'nothing'}{'' if row['valid'] else '*'}", _ms(row, "ttft_p50", limits=True)]
        shown += [_ms(row, "ttft_p95"), _ms(row, "tpot_p50", limits=True)]
        shown += ["{goodput:.2f} ({goodput_low:.2f} to {goodput_high:.2f})".format(**row)]
        shown += ["{goodput_least:.2f} to {goodput_most:.2f}".format(**row), keeps.get((row["stage"], beside), "")]
        print(f"| {mode} | {row['servers']} | " + " | ".join(shown) + " |")


def _order(row: Cell) -> tuple[Any, ...]:
    own = row["beside"].partition("@")[0].endswith("llm-serve") or not row["beside"]
    return ("llm-ts", "llm-mps", "llm-mps-50").index(row["stage"]), not own, row["servers"], row["beside"]


def _ms(row: Cell, name: str, *, limits: bool = False) -> str:
    value, low, high = (row[f"{name}_{end}"] for end in ("ms", "low", "high"))
    if value is None or math.isinf(value):
        return "none"
    if not limits or low is None or high is None:
        return _three(value)
    return " ".join(_three(v) + w for v, w in ((value, " ("), (low, " to"), (high, ")"))).replace("( ", "(")


def _three(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}"


def _keeps(some: list[Cell]) -> dict[tuple[str, str], str]:
    """Speed of a training beside a server, of that alone in the same mode without limits."""
    alone = {(c["mode"], c["tenants"][0]["tenant"]): c["tenants"][0]["rate"] for c in some if len(c["tenants"]) == 1}
    found = {}
    for c in some:
        for one in c["tenants"] if len(c["tenants"]) > 1 else ():
            if "llm" not in one:
                found[c["stage"], one["tenant"]] = f"{one['rate'] / alone[c['mode'], one['tenant']]:.2f}"
    return found


def notebooks(root: Path) -> None:
    """Mean ms to answer, and the slowdown over one user in the same mode."""
    some = cells(root / "h200-notebook")
    rows = {(r["stage"], r["users"], r["beside"], r["cell"]): r for r in rows_notebook(map(CellResult.of, some))}
    kinds = ("load", "prepare", "explore", "train")
    print("| mode | users | beside | " + " | ".join(kinds) + " | the neighbor |\n|---|--:|---|" + "--:|" * 4 + "---|")
    for stage in ("notebook-ts", "notebook-mps"):
        keys = sorted({k[1:3] for k in rows if k[0] == stage}, key=lambda k: (k[1], k[0]))
        for users, beside in keys:
            here = [rows[stage, users, beside, kind] for kind in kinds]
            alone = (users, beside) == (1, "")
            shown = [f"{r['each_ms']:.1f}" + ("" if alone else f" ({r['slowdown']:.2f})") for r in here]
            near = _neighbor(some, stage, beside)
            print(f"| {WORDS[stage]} | {users} | {beside or 'nothing'} | " + " | ".join(shown) + f" | {near} |")


def _neighbor(some: list[Cell], stage: str, beside: str) -> str:
    here = [(c, t) for c in some for t in c["tenants"] if c["stage"] == stage and t["seat"] == beside]
    if not here:
        return ""
    alone, shared = ([t for c, t in here if (len(c["tenants"]) == 1) == single] for single in (True, False))
    if "llm" in shared[0]:
        return "TPOT {:.1f} ms, alone {:.1f}".format(*(server_row(x)["tpot_p50_ms"] for x in (shared, alone)))
    return f"keeps {shared[0]['rate'] / alone[0]['rate']:.2f}"


def worst_neighbors(root: Path) -> None:
    """Of the speed alone in the same mode, of MPS 50/50 in MPS without limits."""
    some = cells(root / "h200-neighbors")
    single = [(c["mode"], c["tenants"][0]) for c in some if len(c["tenants"]) == 1]
    alone = {(mode, t["tenant"]): t["rate"] for mode, t in single if t["seat"] == t["tenant"]}
    by = {}
    for c in some:
        if len(c["tenants"]) == 2:
            one, two = sorted(c["tenants"], key=lambda t: t["tenant"].split("-")[0] in STRESSORS)
            by[c["stage"], one["tenant"], two["tenant"]] = one["rate"] / alone[c["mode"], one["tenant"]]
    stages = ("neighbors-ts", "neighbors-mps", "neighbors-mps-50")
    heads = [f"{w}: 0.25 | 0.5 | 1" for w in ("time slicing", "MPS", "MPS 50/50")]
    print(f"| tenant | stressor | {' | '.join(heads)} |\n|---|---|" + "--:|" * 9)
    for tenant in ("resnet-train", "resnet-infer"):
        for stressor in STRESSORS:
            row = [f"{by[stage, tenant, f'{stressor}-{duty}']:.2f}" for stage in stages for duty in DUTIES]
            print(f"| {tenant} | {stressor} | " + " | ".join(row) + " |")


def held_out(root: Path) -> None:
    """Errors of speeds that were predicted before."""
    folder = root / "h200-heldout"
    found = compare_predictions(folder / "predictions.json", [folder]).tables()["errors"]
    print("| mode | tenants | speeds | mean absolute error | inside their 90 % interval |\n|---|---|--:|--:|--:|")
    for r in found.iter_rows(named=True):
        error = f"{r['mae']:.3f} ({r['mae_low']:.3f} to {r['mae_high']:.3f})"
        print(f"| {r['mode']} | {r['tenants']} | {r['speeds']} | {error} | {r['inside']} |")


TABLES = {
    "language models": language_models,
    "notebooks": notebooks,
    "worst neighbors": worst_neighbors,
    "held-out mixes": held_out,
}
