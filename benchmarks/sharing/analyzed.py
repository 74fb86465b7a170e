"""Tables by the analysis of `bench`: progress over the median rate alone without MPS, as `advise` has it."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from fleetlab.gpu.bench.analysis.findings import Findings, collect_findings
from fleetlab.gpu.bench.analysis.measure import collect_suites
from fleetlab.gpu.bench.analysis.scale import TailGoal, curve_table
from fleetlab.gpu.bench.analysis.serving import ServedTenant
from fleetlab.gpu.bench.results.cells import suites
from fleetlab.stats import Interval

TENANTS = ("resnet-train", "bert-train", "resnet-infer", "bert-infer", "llm-decode", "launch")
KINDS = ("light", "medium", "heavy")
MODES = {"time-slicing": "time slicing", "mps": "MPS", "mps@50": "MPS 50/50", "mps!1": "MPS, background below"}


@cache
def findings(*folders: Path) -> Findings:
    """All measures of these folders together."""
    return collect_findings(collect_suites([suite for folder in folders for suite in suites(folder)]), goal=TailGoal())


def matrix(root: Path, mode: str) -> None:
    """Each tenant beside each; and the throughput of pairs."""
    x = findings(root / "h200").mixes
    print("| beside: | " + " | ".join(TENANTS) + " |\n|---|" + "--:|" * len(TENANTS))
    for a in TENANTS:
        pairs = [f"{a} | {b}" for b in TENANTS]
        known = [mode in x.progress.modes(pair) for pair in pairs]
        row = [f"{x.progress.mean(mode, p).value:.2f}" if k else "" for p, k in zip(pairs, known, strict=True)]
        print(f"| {a} | " + " | ".join(row) + " |")
    pairs = [mix for mix in x.stp.mixes(mode) if len(x.names[mix]) == 2 and set(x.names[mix]) <= set(TENANTS)]
    stp = {mix: math.exp(x.stp.log(mode, mix)) for mix in pairs}
    alike = [f"{x.names[mix][0]} {stp[mix]:.2f}" for mix in sorted(pairs) if len(set(x.names[mix])) == 1]
    calm = [stp[mix] for mix in pairs if "launch" not in x.names[mix]]
    print(f"\nSTP of two alike: {', '.join(alike)}.")
    print(f"All pairs without `launch`: median {np.median(calm):.2f}, from {min(calm):.2f} to {max(calm):.2f}.")
    print(f"One block from the other: {_between_blocks(root, mode, pairs):.3f} (SD).")


def _between_blocks(root: Path, mode: str, pairs: list[str]) -> float:
    by: dict[str, list[float]] = defaultdict(list)
    for m in findings(root / "h200").gathered.mixes():
        if m.mode == mode and m.mix in pairs and "launch" not in m.names:
            by[f"{m.suite} {m.mix}"].append(sum(m.progress))
    return float(np.sqrt(np.mean([np.var(blocks, ddof=1) for blocks in by.values() if len(blocks) > 1])))


def curve(root: Path) -> None:
    """Each tenant alone on a part of the SMs."""
    rows = {(r["tenant"], r["sms"]): r["progress"] for r in curve_table(findings(root / "h200").mixes).to_dicts()}
    sms = [s for s in sorted({s for _, s in rows}) if sum((name, s) in rows for name in TENANTS) > 1]
    print("| SMs | " + " | ".join(map(str, sms)) + " |\n|---|" + "--:|" * len(sms))
    for name in TENANTS:
        row = ["" if (name, s) not in rows else f"{rows[name, s]:.2f}" for s in sms]
        print(f"| {name} | " + " | ".join(row) + " |")


def copies(root: Path) -> None:
    """More and more of the same in a closed loop."""
    print("| `resnet-infer` at once | mode | images/s in all | P95 of a step, ms |\n|--:|---|--:|--:|")
    for found in findings(root / "h200").scaling_curves:
        for row in found.rows if found.tenant == "resnet-infer" else ():
            mode = MODES.get(found.mode, found.mode)
            print(f"| {row['tenants']} | {mode} | {row['rate']:,.0f} | {row['tail_ms']:.2f} |")


def serving(root: Path) -> None:
    """The second run's sender was late; it only tells how requests wait in groups."""
    served = findings(root / "h200" / "serving", root / "h200-late" / "serving").served_tenants
    by = {(s.mode, s.background, int(s.tenant.split("-")[1])): s for s in served}
    rates = sorted({rate for _, _, rate in by})
    print("| mode | beside | " + " | ".join(f"{r}/s" for r in rates) + " |\n|---|---|" + "--:|" * len(rates))
    for mode in MODES:
        for beside in ("nothing", "resnet-train", "llm-decode"):
            row = [_tail(by[mode, beside, rate]) if (mode, beside, rate) in by else "" for rate in rates]
            if any(row):
                print(f"| {MODES[mode]} | {beside} | " + " | ".join(row) + " |")


def _tail(s: ServedTenant) -> str:
    """P99, with what is known of its limits; one that falls behind has none that means anything."""
    if s.behind:
        return f"behind: {s.answered or 0.0:.0f}/s"
    p99 = s.at(0.99)
    assert p99 is not None
    value, low, high = (1000 * v for v in p99)
    if math.isnan(low):
        return f"{value:.1f}"
    return f"{value:.1f} (above {low:.1f})" if math.isinf(high) else f"{value:.1f} ({low:.1f} to {high:.1f})"


def crowded(root: Path) -> None:
    """Servers with a schedule each."""
    f = findings(root / "h200" / "crowded")
    print("| servers | mode | P99 of all, ms | worst server's P99 | P99 within 15 ms |\n|--:|---|--:|--:|---|")
    for found in f.scaling_curves:
        for row in found.rows:
            cells = [m for m in f.gathered.cells if (m.mode, len(m.tenants)) == (found.mode, row["tenants"])]
            worst = max(1000 * t.about["p99"][0] for m in cells for t in m.tenants)
            holds = "yes" if row["tail_ms"] <= 15 else "no"
            print(f"| {row['tenants']} | {MODES[found.mode]} | {row['tail_ms']:.1f} | {worst:.1f} | {holds} |")


def classes(root: Path, mode: str) -> None:
    """The mean over families, and the least and most of them; and groups, beside what pairs would say."""
    pairs, groups = defaultdict(list), defaultdict(list)
    for m in findings(root / "h200" / "classes").gathered.mixes():
        kinds = [t.name.split("-")[1] for t in m.tenants]
        for k, one in enumerate(m.tenants if m.mode == mode else ()):
            others = tuple(sorted(kinds[:k] + kinds[k + 1 :], key=KINDS.index))
            (pairs if len(others) == 1 else groups)[kinds[k], others].append(one.progress or 0.0)
    print("| beside: | " + " | ".join(KINDS) + " |\n|---|" + "--:|" * 3)
    for kind in KINDS:
        row = [pairs[kind, (other,)] for other in KINDS]
        print(f"| {kind} | " + " | ".join(f"{np.mean(x):.2f} ({min(x):.2f} to {max(x):.2f})" for x in row) + " |")
    print("\n| tenant | beside | measured | slowdowns added | speeds multiplied |\n|---|---|--:|--:|--:|")
    pair = {key: float(np.mean(x)) for key, x in pairs.items()}
    for (kind, others), seen in sorted(groups.items(), key=lambda item: len(item[0][1])):
        added = 1 / (1 + sum(1 / pair[kind, (o,)] - 1 for o in others))
        product = float(np.prod([pair[kind, (o,)] for o in others]))
        print(f"| {kind} | {' + '.join(others)} | {np.mean(seen):.2f} | {added:.2f} | {product:.2f} |")


def own(root: Path) -> None:
    """A program of one's own beside a training and beside itself."""
    x = findings(root / "h200-own").mixes
    print("| tenant | beside | time slicing | MPS |\n|---|---|--:|--:|")
    for pair in sorted(x.progress.mixes()):
        cells = [_limits(x.progress.mean(mode, pair)) for mode in ("time-slicing", "mps")]
        print(f"| {' | '.join(pair.split(' | '))} | " + " | ".join(cells) + " |")


def _limits(x: Interval) -> str:
    return f"{x.value:.2f} ({x.low:.2f} to {x.high:.2f})" if math.isfinite(x.low + x.high) else f"{x.value:.2f}"


TABLES = {
    "time slicing": lambda root: matrix(root, "time-slicing"),
    "MPS": lambda root: matrix(root, "mps"),
    "MPS 50/50": lambda root: matrix(root, "mps@50"),
    "parts of the SMs": curve,
    "more and more of the same": copies,
    "served beside a background": serving,
    "servers with 200 requests a second each": crowded,
    "light, medium, heavy: time slicing": lambda root: classes(root, "time-slicing"),
    "light, medium, heavy: MPS": lambda root: classes(root, "mps"),
    "a program of one's own": own,
}
