"""The tables of docs/measurements/sharing.md, from the cells that were measured: `python -m benchmarks.sharing FOLDER`.

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

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile

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
    _serving(_cells(folder / "serving"), _cells(folder.parent / "h200-late" / "serving"))
    _crowded(_cells(folder / "crowded"))
    for stage, mode in (("classes-ts", "time slicing"), ("classes-mps", "MPS")):
        print(f"\n### Light, medium, heavy: {mode}\n")
        _classes([c for c in _cells(folder / "classes") if c["stage"] == stage], _cells(folder / "classes"))
    _stressors(_cells(folder / "stressors"))
    late = folder.parent / "h200-late"
    _together(_cells(folder / "together") + _cells(folder / "together-green") + _cells(late / "together-green"))
    _again(_cells(folder / "classes"), _cells(late / "classes"))
    _http(_lines(folder / "served" / "served.jsonl.gz"))


def _cells(folder: Path) -> list[dict[str, Any]]:
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
    rates = {(c["tenants"][0]["tenant"], c["tenants"][0]["sms"]): c["tenants"][0]["rate"] for c in cells}
    sms = sorted({s for _, s in rates})
    print("\n### Parts of the SMs\n\n| SMs | " + " | ".join(map(str, sms)) + " |\n|---|" + "--:|" * len(sms))
    for tenant in TENANTS:
        row = [rates.get((tenant, s)) for s in sms]
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


def _serving(cells: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
    """The second run's sender was late; it only tells how many requests in a row count as one."""
    found, second = _served(cells), _served(again)
    rates = sorted({int(tenant.split("-")[1]) for _, tenant, _ in found})
    print("\n### Served beside a background: P99 in ms, from when a request was due\n")
    print("| mode | beside | " + " | ".join(f"{r}/s" for r in rates) + " |\n|---|---|" + "--:|" * len(rates))
    for stage in dict.fromkeys(key[0] for key in found):
        for beside in ("", "resnet-train", "llm-decode"):
            keys = [(stage, f"serve-{rate}", beside) for rate in rates]
            row = [_tail(found[key], second.get(key)) for key in keys]
            print(f"| {stage.removeprefix('serving-')} | {beside or 'nothing'} | " + " | ".join(row) + " |")


def _served(cells: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The tenant with a timetable, by stage, its name and who ran beside it."""
    return {
        (cell["stage"], one["tenant"], "".join(t["tenant"] for t in cell["tenants"][1:])): one
        for cell in cells
        if "lag" in (one := cell["tenants"][0])
    }


def _tail(one: dict[str, Any], again: dict[str, Any] | None) -> str:
    """P99, with limits where it is known how requests clump; one that falls behind has none that means anything."""
    if one["rate"] < 0.97 * one["offered"] / 6.0:
        return f"behind: {one['rate']:.0f}/s"
    if again is None:
        return f"{1e3 * one['p99'][0]:.1f}"
    worth = one["steps"] / again["clumps"]["p99"]
    interval = percentile(Histogram.from_json(one["times"]), 0.99, effective_n=worth)
    return "{:.1f} ({:.1f} to {:.1f})".format(*(1e3 * x for x in interval))


def _crowded(cells: list[dict[str, Any]]) -> None:
    print("\n### Servers with 200 requests a second each\n")
    print("| servers | mode | P99 of all, ms | worst server's P99 | P99 within 15 ms |\n|--:|---|--:|--:|---|")
    for cell in sorted(cells, key=lambda c: (c["mode"], len(c["tenants"]))):
        times = Histogram.sum(Histogram.from_json(t["times"]) for t in cell["tenants"])
        value, low, high = (1e3 * x for x in percentile(times, 0.99))
        worst = 1e3 * max(t["p99"][0] for t in cell["tenants"])
        holds = "yes" if high <= 15 else "no" if low > 15 else "cannot tell"
        n = len(cell["tenants"])
        print(f"| {n} | {cell['mode']} | {value:.1f} ({low:.1f} to {high:.1f}) | {worst:.1f} | {holds} |")


KINDS = ("light", "medium", "heavy")


def _classes(cells: list[dict[str, Any]], every: list[dict[str, Any]]) -> None:
    """Speeds against the tenant alone without MPS, the mean over families and the least and most of them."""
    alone = _alone([c for c in every if c["stage"] == "classes-ts"])
    found, groups = defaultdict(list), defaultdict(list)
    for cell in cells:
        kinds = [t["tenant"].split("-")[1] for t in cell["tenants"]]
        for k, one in enumerate(cell["tenants"]):
            speed = one["rate"] / alone[one["tenant"]]
            others = sorted(kinds[:k] + kinds[k + 1 :], key=KINDS.index)
            (found if len(others) == 1 else groups)[kinds[k], tuple(others)].append(speed)
    print("| beside: | " + " | ".join(KINDS) + " |\n|---|" + "--:|" * 3)
    for kind in KINDS:
        row = [found[kind, (other,)] for other in KINDS]
        print(f"| {kind} | " + " | ".join(f"{np.mean(x):.2f} ({min(x):.2f} to {max(x):.2f})" for x in row) + " |")
    print("\n| tenant | beside | measured | slowdowns added | speeds multiplied |\n|---|---|--:|--:|--:|")
    pair = {key: float(np.mean(x)) for key, x in found.items()}
    for (kind, others), seen in sorted(groups.items(), key=lambda item: len(item[0][1])):
        if len(others) > 1:
            added = 1 / (1 + sum(1 / pair[kind, (o,)] - 1 for o in others))
            product = float(np.prod([pair[kind, (o,)] for o in others]))
            print(f"| {kind} | {' + '.join(others)} | {np.mean(seen):.2f} | {added:.2f} | {product:.2f} |")


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
    print("\n### Beside a stressor, MPS: the tenant's progress, and the stressor's\n")
    print("| beside: | " + " | ".join(against) + " |\n|---|" + "--:|" * len(against))
    for tenant in TENANTS:
        row = ["{:.2f}, {:.2f}".format(*by_pair[tenant, b]) if (tenant, b) in by_pair else "" for b in against]
        print(f"| {tenant} | " + " | ".join(row) + " |")


def _together(cells: list[dict[str, Any]]) -> None:
    # On all SMs: a part of them, or a priority, is told in the seat's name.
    alone = _alone([c for c in cells if c["tenants"][0]["seat"] == c["tenants"][0]["tenant"]])
    print("\n### Two of one process\n\n| way | first | second | progress | progress | STP |\n|---|---|---|--:|--:|--:|")
    for cell in cells:
        if len(cell["tenants"]) == 2:
            a, b = cell["tenants"]
            one, two = (t["rate"] / alone[t["tenant"]] for t in (a, b))
            way = cell["cell"].split("/")[2]
            print(f"| {way} | {a['tenant']} | {b['tenant']} | {one:.2f} | {two:.2f} | {one + two:.2f} |")


def _again(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> None:
    """How far the same cells lie apart on two cards of one model."""
    print("\n### Light, medium, heavy: measured again on another H200\n")
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
    print("\n### The HTTP server: ms, from when a request was due\n")
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
