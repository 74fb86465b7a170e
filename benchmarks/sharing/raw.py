"""Tables straight from the cells: stressors, tenants of one process, a second GPU, and the HTTP server."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

TENANTS = ("resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode", "launch")


def cells(folder: Path) -> list[dict[str, Any]]:
    """Good cells of a suite."""
    return [c for c in _lines(folder / "cells.jsonl.gz") if c["status"] == "ok"]


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def _alone(cells: list[dict[str, Any]]) -> dict[str, float]:
    """The mean rate of each tenant by itself."""
    rates = defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 1:
            rates[cell["tenants"][0]["tenant"]].append(cell["tenants"][0]["rate"])
    return {tenant: float(np.mean(found)) for tenant, found in rates.items()}


def _stressors(cells: list[dict[str, Any]]) -> None:
    alone = _alone(cells)
    by_pair = {}
    for cell in cells:
        if len(cell["tenants"]) == 2:
            one, two = cell["tenants"]
            by_pair[one["tenant"], two["tenant"]] = (
                one["rate"] / alone[one["tenant"]],
                two["rate"] / alone[two["tenant"]],
            )
    against = list(dict.fromkeys(b for _, b in sorted(by_pair)))
    print("| beside: | " + " | ".join(against) + " |\n|---|" + "--:|" * len(against))
    for tenant in TENANTS:
        row = ["{:.2f}, {:.2f}".format(*by_pair[tenant, b]) if (tenant, b) in by_pair else "" for b in against]
        print(f"| {tenant} | " + " | ".join(row) + " |")


def _together(cells: list[dict[str, Any]]) -> None:
    # On all SMs: a part of them, or a priority, is told in the seat's name.
    alone = _alone([c for c in cells if c["tenants"][0]["seat"] == c["tenants"][0]["tenant"]])
    print("| way | first | second | progress | progress | STP |\n|---|---|---|--:|--:|--:|")
    for cell in cells:
        if len(cell["tenants"]) == 2:
            a, b = cell["tenants"]
            one, two = (t["rate"] / alone[t["tenant"]] for t in (a, b))
            way = cell["cell"].split("/")[2]
            print(f"| {way} | {a['tenant']} | {b['tenant']} | {one:.2f} | {two:.2f} | {one + two:.2f} |")


def _again(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """How far the same cells lie apart on two cards of one model."""
    print("| mode | speeds | mean difference | mean distance | 95 % are within |\n|---|--:|--:|--:|--:|")
    for stage, mode in (("classes-ts", "time slicing"), ("classes-mps", "MPS")):
        one, two = (_speeds(cells, stage) for cells in (first, second))
        off = np.array([two[seat] - one[seat] for seat in one])
        far = np.abs(off)
        print(f"| {mode} | {len(off)} | {off.mean():+.3f} | {far.mean():.3f} | {np.quantile(far, 0.95):.2f} |")


def _speeds(cells: list[dict[str, Any]], stage: str) -> dict[tuple[str, int], float]:
    alone = _alone([c for c in cells if c["stage"] == "classes-ts"])
    crowded = [c for c in cells if c["stage"] == stage and len(c["tenants"]) > 1]
    return {(c["cell"], k): t["rate"] / alone[t["tenant"]] for c in crowded for k, t in enumerate(c["tenants"])}


def _http(cells: list[dict[str, Any]]) -> None:
    """A star is a load whose sender was late; two numbers are two runs."""
    print("| mode | beside | P50, 100/s | P99, 100/s | P50, 300/s | P99, 300/s |\n|---|---|--:|--:|--:|--:|")
    by_mode = defaultdict(list)
    for cell in cells:
        by_mode[cell["mode"], cell["background"] or "nothing", cell["load"].split()[1]].append(cell["said"])
    for mode, beside in dict.fromkeys((m, b) for m, b, _ in by_mode):
        row = [_ms(by_mode[mode, beside, rate], p) for rate in ("100", "300") for p in ("p50", "p99")]
        print(f"| {mode} | {beside} | " + " | ".join(row) + " |")
    print("\n| mode | beside | highest rate seen to keep P99 within 25 ms | lowest seen not to |\n|---|---|--:|--:|")
    for (mode, beside, load), (said, *_) in by_mode.items():
        if ":" in load:
            failed = f"{said['failed']:,.0f}/s" if said["failed"] else "none"
            print(f"| {mode} | {beside} | {said['passed']:,.0f}/s | {failed} |")


def _ms(said: list[dict[str, Any]], p: str) -> str:
    rows = []
    for one in said:
        value, low, high = (1000 * x for x in one["percentiles"]["answers"][p])
        limits = f" ({low:.1f} to {high:.1f})" if p == "p99" else ""
        rows.append(f"{value:.1f}{limits}{'' if one['valid'] else '*'}")
    return "; ".join(rows)


def stressors(root: Path) -> None:
    """Beside a stressor under MPS."""
    _stressors(cells(root / "h200" / "stressors"))


def together(root: Path) -> None:
    """Two tenants of one process."""
    folders = (root / "h200" / "together", root / "h200" / "together-green", root / "h200-late" / "together-green")
    _together([cell for folder in folders for cell in cells(folder)])


def again(root: Path) -> None:
    """The same cells on another GPU."""
    _again(cells(root / "h200" / "classes"), cells(root / "h200-late" / "classes"))


def http(root: Path) -> None:
    """The HTTP server."""
    _http(_lines(root / "h200" / "served" / "served.jsonl.gz"))


TABLES = {
    "beside a stressor, MPS": stressors,
    "two of one process": together,
    "light, medium, heavy: measured again on another H200": again,
    "the HTTP server": http,
}
