"""The tables of docs/measurements/sharing.md, from the cells that were measured: `python -m bench.sharing FOLDER`.

Progress here is against the tenant alone without MPS, whatever the mode: what a user would have had with a card of
their own. `fleetlab bench show` takes the tenant alone in the same mode.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

MODES = {"pairs-ts": "time slicing", "pairs-mps": "MPS", "pairs-mps-50": "MPS 50/50"}
TENANTS = ("resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode", "launch")


def main(folder: Path) -> None:
    """Print all tables."""
    alone = _alone(_cells(folder / "pairs-ts"))
    for plan, mode in MODES.items():
        print(f"\n### {mode}\n")
        _matrix(_cells(folder / plan), alone)
    _curve(_cells(folder / "sm-curve"), alone)
    _breaking(_cells(folder / "breaking"))


def _cells(folder: Path) -> list[dict[str, Any]]:
    lines = gzip.decompress((folder / "cells.jsonl.gz").read_bytes()).decode().splitlines()
    return [c for c in map(json.loads, lines) if c["status"] == "ok"]


def _alone(cells: list[dict[str, Any]]) -> dict[str, float]:
    """The mean rate of each tenant by itself."""
    rates = defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 1:
            rates[cell["tenants"][0]["tenant"]].append(cell["tenants"][0]["rate"])
    return {tenant: float(np.mean(found)) for tenant, found in rates.items()}


def _matrix(cells: list[dict[str, Any]], alone: dict[str, float]) -> None:
    progress, stp = defaultdict(list), defaultdict(list)
    for cell in cells:
        if len(cell["tenants"]) == 2:
            one, two = cell["tenants"]
            for a, b in ((one, two), (two, one)):
                progress[a["tenant"], b["tenant"]].append(a["rate"] / alone[a["tenant"]])
            pair = tuple(sorted((one["tenant"], two["tenant"])))
            stp[pair].append(sum(t["rate"] / alone[t["tenant"]] for t in (one, two)))
    print("| beside: | " + " | ".join(TENANTS) + " |\n|---|" + "--:|" * len(TENANTS))
    for a in TENANTS:
        print(f"| {a} | " + " | ".join(f"{np.mean(progress[a, b]):.2f}" for b in TENANTS) + " |")
    means = {pair: float(np.mean(found)) for pair, found in stp.items()}
    apart = [(x[0] - x[1]) / 2**0.5 for pair, x in stp.items() if len(x) == 2 and "launch" not in pair]
    alike = {pair[0]: round(value, 2) for pair, value in means.items() if pair[0] == pair[1]}
    calm = [value for pair, value in means.items() if "launch" not in pair]
    spread = np.sqrt(np.mean(np.square(apart)))
    print(f"\nSTP of two alike: {alike}")
    print(f"all pairs without `launch`: median {np.median(calm):.2f}, from {min(calm):.2f} to {max(calm):.2f}")
    print(f"one block from the other: {spread:.3f} (SD)")


def _curve(cells: list[dict[str, Any]], alone: dict[str, float]) -> None:
    found = {(c["tenants"][0]["tenant"], c["tenants"][0]["sms"]): c["tenants"][0]["rate"] for c in cells}
    sms = sorted({s for _, s in found})
    print("\n### Parts of the SMs\n\n| SMs | " + " | ".join(map(str, sms)) + " |\n|---|" + "--:|" * len(sms))
    for tenant in TENANTS:
        row = [found.get((tenant, s)) for s in sms]
        print(f"| {tenant} | " + " | ".join("" if r is None else f"{r / alone[tenant]:.2f}" for r in row) + " |")


def _breaking(cells: list[dict[str, Any]]) -> None:
    rates, tails = defaultdict(list), defaultdict(list)
    for cell in cells:
        key = cell["mode"], len(cell["tenants"])
        rates[key].append(sum(t["rate"] for t in cell["tenants"]))
        tails[key] += [t["p95"][0] for t in cell["tenants"] if isinstance(t["p95"], list)]
    print("\n### More and more of the same\n")
    print("| `resnet-infer` at once | mode | images/s in all | P95 of a step, ms |\n|--:|---|--:|--:|")
    for mode, n in sorted(rates):
        print(f"| {n} | {mode} | {np.mean(rates[mode, n]):,.0f} | {1e3 * np.mean(tails[mode, n]):.2f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
